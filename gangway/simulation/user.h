// A client of a simulated cluster in a test, whose operations can be awaited.
#ifndef GANGWAY_SIMULATION_USER_H_
#define GANGWAY_SIMULATION_USER_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/base/clock.h"
#include "gangway/simulation/processes.h"

namespace gangway::simulation {

using Devices = std::vector<uint32_t>;
using Ready = std::shared_ptr<Answer<absl::Status>>;

class User {
 public:
  User(Processes& processes, const std::string& name) : client_(*processes.Connect(name)) {}

  // Returns when it is ready.
  ArrayHandle Make(const Devices& devices, uint64_t shard_bytes) {
    const ArrayHandle array = client_->NewArrayHandle();
    const OperationId upload =
        client_->Upload(array, {.element_type = kF32,
                                .shard_dims = {static_cast<int64_t>(shard_bytes / 4)},
                                .devices = devices,
                                .shard_bytes = shard_bytes});
    auto data = std::make_shared<std::string>(shard_bytes, 'x');
    for (uint32_t shard = 0; shard < devices.size(); ++shard)
      client_->Push(upload, shard, *data, [data] {});
    Expect(WhenReady(array));
    return array;
  }
  // Returns when it is compiled.
  ExecutableHandle Compile(const std::string& program, const Devices& devices) {
    auto compiled = NewReady();
    const ExecutableHandle executable =
        client_->Compile(program, "sim", "", devices,
                         [compiled](const auto& info) { compiled->Set(info.status()); });
    Expect(compiled);
    return executable;
  }
  Ready Copy(ArrayHandle source, const Devices& devices) {
    const ArrayHandle copy = client_->NewArrayHandle();
    client_->Copy({&source, 1}, {&copy, 1}, devices, "");
    return WhenReady(copy);
  }
  Ready Fetch(ArrayHandle array, std::vector<uint32_t> shards) {
    auto ready = NewReady();
    client_->Fetch(array, std::move(shards),
                   {.on_data = [](size_t, uint64_t, std::string_view) {},
                    .on_done = [ready](absl::Status status) { ready->Set(std::move(status)); }});
    return ready;
  }
  Ready WhenReady(ArrayHandle array) {
    auto ready = NewReady();
    client_->Await({&array, 1}, [ready](absl::Status status) { ready->Set(std::move(status)); });
    return ready;
  }

  static void Expect(const Ready& ready) {
    EXPECT_EQ(ready->WaitFor(std::chrono::minutes(10)), absl::OkStatus());
  }
  static std::chrono::milliseconds Took(const Ready& ready, Clock::time_point began) {
    Expect(ready);
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
  }
  Client& client() { return *client_; }

 private:
  static constexpr int32_t kF32 = 11;  // xla::PrimitiveType
  static Ready NewReady() { return std::make_shared<Answer<absl::Status>>(); }

  std::unique_ptr<Client> client_;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_USER_H_
