// A session of the benchmarks' C++ clients (spmd_calls.cc, launch_calls.cc), by the client library's public headers
// alone: each method waits for its answer, and a failure prints its status and ends the program with 1. Header-only;
// one thread makes the calls.
#ifndef BENCH_CALLS_SESSION_H_
#define BENCH_CALLS_SESSION_H_

#include <gangway/connect.h>

#include <cstdint>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gangway::bench {

inline constexpr int32_t kF32 = 11;  // number of the element type, as in XLA's PrimitiveType
inline constexpr uint64_t kAhead =
    512;  // calls that are submitted before their results are awaited

[[noreturn]] inline void Fail(const std::string& what, const Status& status) {
  std::cerr << what << ": " << status.message() << "\n";
  std::exit(1);
}

// What this process's links have exchanged so far, as a further member of an answer in JSON.
inline std::string TrafficMember() {
  const Traffic traffic = TrafficOfProcess();
  std::string text = ", \"traffic\": [" + std::to_string(traffic.frames_sent);
  for (const uint64_t count : {traffic.bytes_sent, traffic.frames_received, traffic.bytes_received})
    text += ", " + std::to_string(count);
  return text + "]";
}

class Session {
 public:
  Session(Client& client, std::vector<uint32_t> devices)
      : client_(client), devices_(std::move(devices)) {}

  Client& client() { return client_; }
  size_t device_count() const { return devices_.size(); }

  ExecutableHandle Compile(const std::string& program) {
    std::promise<Status> compiled;
    const ExecutableHandle executable =
        client_.Compile(program, "mlir", "", devices_,
                        [&compiled](const auto& info) { compiled.set_value(info.status()); });
    if (Status status = compiled.get_future().get(); !status.ok()) Fail("compile", status);
    return executable;
  }

  // The same number of values on each device; a single one is a scalar. Does not wait.
  ArrayHandle Put(std::span<const float> values) {
    const size_t each = values.size() / devices_.size();
    const ArrayHandle array = client_.NewArrayHandle();
    ArraySpec spec{.element_type = kF32, .devices = devices_, .shard_bytes = each * sizeof(float)};
    if (each > 1) spec.shard_dims = {static_cast<int64_t>(each)};
    const uint64_t upload = client_.Upload(array, spec);
    for (uint32_t shard = 0; shard < devices_.size(); ++shard) {
      const auto bytes = std::make_shared<std::string>(
          reinterpret_cast<const char*>(&values[shard * each]), each * sizeof(float));
      client_.Push(upload, shard, *bytes, [bytes] {});
    }
    return array;
  }

  void Await(std::span<const ArrayHandle> arrays) {
    std::promise<Status> ready;
    client_.Await(arrays, [&ready](const Status& status) { ready.set_value(status); });
    client_.SendNow();
    if (Status status = ready.get_future().get(); !status.ok()) Fail("await", status);
  }

  // The values of the first shard of each array, in their order; `each` of them in a shard.
  std::vector<float> Fetch(std::span<const ArrayHandle> arrays, size_t each) {
    std::vector<float> values(arrays.size() * each);
    std::vector<std::promise<Status>> done(arrays.size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      char* const to = reinterpret_cast<char*>(&values[i * each]);
      client_.Fetch(
          arrays[i], {0},
          {.on_data = [to](size_t, uint64_t offset,
                           std::string_view data) { data.copy(to + offset, data.size()); },
           .on_done = [&done, i](const Status& status) { done[i].set_value(status); }});
    }
    client_.SendNow();
    for (auto& each_done : done) {
      if (Status status = each_done.get_future().get(); !status.ok()) Fail("fetch", status);
    }
    return values;
  }

 private:
  Client& client_;
  const std::vector<uint32_t> devices_;
};

}  // namespace gangway::bench

#endif  // BENCH_CALLS_SESSION_H_
