// A session of the benchmarks' C++ clients (spmd_calls.cc, launch_calls.cc, simulated_calls.cc), by the client
// library's public headers alone: each method waits for its answer, and a failure prints its status and ends the
// program with 1. Header-only; one thread makes the calls.
#ifndef BENCH_CALLS_SESSION_H_
#define BENCH_CALLS_SESSION_H_

#include <gangway/connect.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"

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

inline std::unique_ptr<Client> Open(const char* address, const char* token, const char* name) {
  auto client = ConnectClient({.address = address, .token = token, .name = name});
  if (!client.ok()) Fail("connect", client.status());
  return *std::move(client);
}

// As ServeCommands, and each answer tells this process's traffic, too.
inline int ServeClient(const RunCase& run) {
  return ServeCommands([&run](const std::string& name, int count) {
    std::optional<Ran> ran = run(name, count);
    if (ran) ran->more += TrafficMember();
    return ran;
  });
}

// A status that a callback of the client tells, once. The thread that waits for it reads the answer itself.
class Answer {
 public:
  explicit Answer(Client& client) : told_(std::make_shared<Told>(client.NewWait())) {}

  StatusCallback Callback() const {
    return [told = told_](const Status& status) {
      told->status = status;
      told->wait->End();
    };
  }

  // The library answers all that it is asked, or loses its session; the hour only bounds one wait.
  Status Wait() {
    while (!told_->wait->For(std::chrono::hours(1))) continue;
    return told_->status;
  }

 private:
  struct Told {
    explicit Told(std::shared_ptr<gangway::Wait> wait) : wait(std::move(wait)) {}
    const std::shared_ptr<gangway::Wait> wait;
    Status status;  // set before End
  };
  const std::shared_ptr<Told> told_;
};

class Session {
 public:
  Session(Client& client, std::vector<uint32_t> devices)
      : client_(client), devices_(std::move(devices)) {}

  Client& client() { return client_; }
  size_t device_count() const { return devices_.size(); }

  ExecutableHandle Compile(const std::string& program) {
    Answer compiled(client_);
    const ExecutableHandle executable =
        client_.Compile(program, "mlir", "", devices_,
                        [done = compiled.Callback()](const auto& info) { done(info.status()); });
    if (Status status = compiled.Wait(); !status.ok()) Fail("compile", status);
    return executable;
  }

  // The same number of values on each device; a single one is a scalar. Does not wait.
  ArrayHandle Put(std::span<const float> values) {
    const size_t each = values.size() / devices_.size();
    const ArrayHandle array = client_.NewArrayHandle();
    ArraySpec spec{.element_type = kF32, .devices = devices_, .shard_bytes = each * sizeof(float)};
    if (each > 1) spec.shard_dims = {static_cast<int64_t>(each)};
    std::vector<std::string_view> shards;
    for (size_t shard = 0; shard < devices_.size(); ++shard) {
      shards.emplace_back(reinterpret_cast<const char*>(&values[shard * each]),
                          each * sizeof(float));
    }
    client_.Put(array, spec, shards);
    return array;
  }

  void Await(std::span<const ArrayHandle> arrays) {
    Answer ready(client_);
    client_.Await(arrays, ready.Callback());
    client_.SendNow();
    if (Status status = ready.Wait(); !status.ok()) Fail("await", status);
  }

  // The values of the first shard of each array, in their order; `each` of them in a shard.
  std::vector<float> Fetch(std::span<const ArrayHandle> arrays, size_t each) {
    std::vector<float> values(arrays.size() * each);
    std::vector<Answer> done;
    for (size_t i = 0; i < arrays.size(); ++i) {
      char* const to = reinterpret_cast<char*>(&values[i * each]);
      done.emplace_back(client_);
      client_.Fetch(
          arrays[i], {0},
          {.on_data = [to](size_t, uint64_t offset,
                           std::string_view data) { data.copy(to + offset, data.size()); },
           .on_done = done.back().Callback()});
    }
    client_.SendNow();
    for (Answer& each_done : done) {
      if (Status status = each_done.Wait(); !status.ok()) Fail("fetch", status);
    }
    return values;
  }

 private:
  Client& client_;
  const std::vector<uint32_t> devices_;
};

}  // namespace gangway::bench

#endif  // BENCH_CALLS_SESSION_H_
