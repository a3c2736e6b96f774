// For tests of the front door: a Client that keeps real bytes in its own memory and runs nothing.
// Uploads, fetches, copies and regroupings work; a call yields its first argument's bytes (or
// zeros) for each result; a compile answers with an ExecutableInfo that the test sets, when the
// test releases it.
#ifndef GANGWAY_FRONTDOOR_IFRT_FAKE_CLIENT_H_
#define GANGWAY_FRONTDOOR_IFRT_FAKE_CLIENT_H_

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/client/client.h"

namespace gangway::ifrt {

// Shared between a test and the fakes that its server makes.
struct FakeCluster {
  ClusterInfo info;
  std::atomic<int> clients_alive = 0;
  std::atomic<int> arrays_alive = 0;
  std::atomic<int> placed = 0;           // shards that got a place
  std::atomic<int> pushed_in_place = 0;  // those whose bytes arrived there
  Mutex mutex;
  CondVar changed;
  bool compile_held GANGWAY_GUARDED_BY(mutex) = false;
  ExecutableInfo executable GANGWAY_GUARDED_BY(mutex);

  FakeCluster() {
    info.platform = "cpu";
    info.platform_version = "fake";
    for (uint32_t i = 0; i < 4; ++i) info.devices.push_back({i, i / 2, 0, i % 2, "cpu"});
  }
};

class FakeClient final : public Client {
 public:
  explicit FakeClient(FakeCluster& cluster) : cluster_(cluster), loop_("fake-client") {
    ++cluster_.clients_alive;
  }
  ~FakeClient() override {
    loop_.Stop();
    cluster_.arrays_alive -= static_cast<int>(arrays_.size());
    --cluster_.clients_alive;
    cluster_.changed.NotifyAll();
  }

  const ClusterInfo& cluster() const override { return cluster_.info; }
  ArrayHandle NewArrayHandle() override { return ArrayHandle(next_handle_++); }

  ExecutableHandle Compile(std::string, std::string, std::string, std::vector<uint32_t>,
                           CompileCallback done) override {
    loop_.Post([this, done] { FinishCompile(done); });
    return ExecutableHandle(next_handle_++);
  }
  void DropExecutables(std::span<const ExecutableHandle>) override {}

  bool reports_ends() const override { return false; }
  void BeginLook() override {}
  void EndLook() override {}
  void LookFor(OperationId) override {}
  uint64_t losses() const override { return 0; }
  OperationId Put(ArrayHandle array, const ArraySpec& spec,
                  std::span<const std::string_view> shards, StatusCallback) override {
    const OperationId upload = Upload(array, spec, nullptr);
    for (uint32_t i = 0; i < shards.size(); ++i) {
      auto copy = std::make_shared<const std::string>(shards[i]);
      Push(upload, i, *copy, [copy] {});
    }
    return upload;
  }
  OperationId Upload(ArrayHandle array, const ArraySpec& spec, StatusCallback) override {
    loop_.Post([this, array, spec] {
      Array& made = arrays_[array] = Array{spec, {}, absl::OkStatus()};
      for (size_t i = 0; i < spec.devices.size(); ++i)
        made.shards.push_back(std::make_shared<Cell>());
      ++cluster_.arrays_alive;
    });
    return OperationId(NumberOf(array));  // the handle names the upload as well
  }
  void Push(OperationId upload, uint32_t shard, std::string_view data,
            std::function<void()> released) override {
    loop_.Post([this, array = ArrayOf(upload), shard, data, released] {
      if (auto found = arrays_.find(array); found != arrays_.end()) {
        Cell& cell = *found->second.shards[shard];
        if (cell.place != nullptr && cell.place.get() == data.data()) ++cluster_.pushed_in_place;
        cell.bytes.assign(data);
        cell.there = true;
      }
      released();
      Recheck();
    });
  }
  void Reserve(OperationId upload, uint32_t shard,
               std::function<void(std::shared_ptr<char>)> placed) override {
    loop_.Post([this, upload, shard, placed] {
      Array& array = arrays_[ArrayOf(upload)];
      std::shared_ptr<char[]> place(new char[array.spec.shard_bytes]);
      array.shards[shard]->place = place;
      placed(std::shared_ptr<char>(place, place.get()));
      ++cluster_.placed;
      MutexLock lock(cluster_.mutex);
      cluster_.changed.NotifyAll();
    });
  }
  void AbandonUpload(OperationId upload, Status why) override {
    PoisonLater({ArrayOf(upload)}, why);
  }

  OperationId Call(ExecutableHandle, std::span<const ArrayHandle> arguments,
                   std::span<const ArrayHandle> results, CallOptions) override {
    std::vector<ArrayHandle> sources(arguments.begin(), arguments.end());
    loop_.Post([this, sources, results = std::vector<ArrayHandle>(results.begin(), results.end())] {
      for (ArrayHandle result : results) {
        Array array{
            {}, {std::make_shared<Cell>(Cell{true, std::string(8, '\0')})}, absl::OkStatus()};
        if (!sources.empty() && arrays_.contains(sources[0])) array = arrays_[sources[0]];
        arrays_[result] = array;
        ++cluster_.arrays_alive;
      }
      Recheck();
    });
    return OperationId();
  }

  OperationId Copy(std::span<const ArrayHandle> sources, std::span<const ArrayHandle> results,
                   std::span<const uint32_t>, const std::string&, StatusCallback) override {
    for (size_t i = 0; i < sources.size(); ++i) CopyOne(sources[i], results[i]);
    return OperationId();
  }

  void Regroup(std::vector<Regrouped> results) override {
    loop_.Post([this, results] {
      for (const Regrouped& result : results) {
        Array array;
        std::vector<ShardOf> shards = result.shards;
        if (result.replica_of != ArrayHandle()) shards.push_back({result.replica_of, 0});
        for (const ShardOf& shard : shards) {
          auto source = arrays_.find(shard.array);
          if (source == arrays_.end()) {
            array.error = absl::InvalidArgumentError(absl::StrCat("unknown array ", shard.array));
          } else if (!source->second.error.ok()) {
            array.error = source->second.error;
          } else {
            array.shards.push_back(source->second.shards[shard.shard]);
          }
        }
        arrays_[result.array] = array;
        ++cluster_.arrays_alive;
      }
    });
  }

  void Fetch(ArrayHandle array, std::vector<uint32_t> shards, FetchSink sink) override {
    When({array}, [this, array, shards, sink](absl::Status status) {
      for (size_t i = 0; status.ok() && i < shards.size(); ++i) {
        std::shared_ptr<Cell> cell = arrays_[array].shards[shards[i]];
        const std::string& bytes = cell->bytes;
        if (cell->place != nullptr) {
          sink.on_place(i, std::shared_ptr<const char>(cell, bytes.data()), bytes.size());
          continue;
        }
        const size_t half = bytes.size() / 2;  // two pieces, the later first
        sink.on_data(i, half, std::string_view(bytes).substr(half));
        sink.on_data(i, 0, std::string_view(bytes).substr(0, half));
      }
      sink.on_done(status);
    });
  }
  void Await(std::span<const ArrayHandle> arrays, StatusCallback done) override {
    When({arrays.begin(), arrays.end()}, std::move(done));
  }

  void Drop(std::span<const ArrayHandle> arrays) override {
    loop_.Post([this, arrays = std::vector<ArrayHandle>(arrays.begin(), arrays.end())] {
      for (ArrayHandle array : arrays)
        cluster_.arrays_alive -= static_cast<int>(arrays_.erase(array));
    });
  }
  void DropShard(ShardOf, uint32_t) override {}
  void BeginProgram() override {}
  ProgramCapture EndProgram() override { return {}; }
  void SendNow() override {}
  std::shared_ptr<Wait> NewWait() override { return nullptr; }  // the front door has its own waits
  void Delete(std::span<const ArrayHandle> arrays) override {
    loop_.Post([this, arrays = std::vector<ArrayHandle>(arrays.begin(), arrays.end())] {
      for (ArrayHandle array : arrays) {
        if (arrays_.contains(array))
          arrays_[array].error = absl::FailedPreconditionError("deleted");
      }
      Recheck();
    });
  }
  void Poison(std::span<const ArrayHandle> arrays, const Status& why) override {
    PoisonLater({arrays.begin(), arrays.end()}, why);
  }

  uint64_t pending() const override { return 0; }
  uint64_t pending_max() const override { return 16; }
  void WhenRoom(std::function<void()> on_room) override { loop_.Post(std::move(on_room)); }
  void Usage(UsageCallback done) override { done(std::vector<DeviceMemory>()); }
  void Profile(ProfileCallback done) override { done(SessionProfile()); }
  void ServeHostCallbacks(HostFunctions /*functions*/) override {}
  void OnLost(StatusCallback) override {}

 private:
  // Shared by all arrays that have the shard, so that late bytes reach all of them.
  struct Cell {
    bool there = false;
    std::string bytes;
    std::shared_ptr<char[]> place = nullptr;  // where the client writes them; null: none
  };
  using Shard = std::shared_ptr<Cell>;
  struct Array {
    ArraySpec spec;
    std::vector<Shard> shards;
    absl::Status error;
  };
  struct Waiter {
    std::vector<ArrayHandle> arrays;
    StatusCallback done;
  };

  static ArrayHandle ArrayOf(OperationId upload) { return ArrayHandle(NumberOf(upload)); }
  void FinishCompile(CompileCallback done) {
    ExecutableInfo info;
    {
      MutexLock lock(cluster_.mutex);
      if (cluster_.compile_held) {
        // Retries after 1 ms, so that the loop does other work first.
        loop_.PostAt(Clock::now() + std::chrono::milliseconds(1),
                     [this, done] { FinishCompile(done); });
        return;
      }
      info = cluster_.executable;
    }
    if (info.name.empty())
      return done(absl::InvalidArgumentError("the fake compiler was given no program"));
    done(std::make_shared<const ExecutableInfo>(std::move(info)));
  }

  void CopyOne(ArrayHandle source, ArrayHandle result) {
    loop_.Post([this, source, result] {
      arrays_[result] = arrays_[source];
      ++cluster_.arrays_alive;
    });
  }
  void PoisonLater(std::vector<ArrayHandle> arrays, absl::Status why) {
    loop_.Post([this, arrays, why] {
      for (ArrayHandle array : arrays) {
        if (!arrays_.contains(array)) ++cluster_.arrays_alive;
        arrays_[array].error = why;
      }
      Recheck();
    });
  }
  void When(std::vector<ArrayHandle> arrays, StatusCallback done) {
    loop_.Post([this, waiter = Waiter{std::move(arrays), std::move(done)}] {
      waiters_.push_back(waiter);
      Recheck();
    });
  }
  void Recheck() {
    std::vector<Waiter> waiters;
    waiters.swap(waiters_);
    for (Waiter& waiter : waiters) {
      bool ready = true;
      absl::Status status;
      for (ArrayHandle handle : waiter.arrays) {
        auto found = arrays_.find(handle);
        if (found == arrays_.end()) {
          status = absl::InvalidArgumentError(absl::StrCat("unknown array ", handle));
        } else if (!found->second.error.ok()) {
          status = found->second.error;
        } else {
          for (const Shard& shard : found->second.shards) ready = ready && shard->there;
        }
        if (!status.ok()) break;
      }
      if (!status.ok() || ready) {
        waiter.done(status);
      } else {
        waiters_.push_back(std::move(waiter));
      }
    }
  }

  FakeCluster& cluster_;
  std::atomic<uint64_t> next_handle_ = uint64_t{1} << 62;
  std::map<ArrayHandle, Array> arrays_;  // used only on the loop
  std::vector<Waiter> waiters_;          // used only on the loop
  EventLoop loop_;
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_FAKE_CLIENT_H_
