// For tests of the plugin: a Client that keeps what it is asked as lines of text, and whose operations end at once.
// Handles of arrays are 1, 2, ... in their order, 1.3 is
// shard 3 of array 1.
//
//   call 1 2 -> 3   call 0 2 [0:1.0,4.1] -> 3   regroup 5=1.0,4.1   copy 1 -> 2 on 4,5   drop 1   drop 1.3
#ifndef GANGWAY_FRONTDOOR_PJRT_RECORDING_CLIENT_H_
#define GANGWAY_FRONTDOOR_PJRT_RECORDING_CLIENT_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/client/client.h"

namespace gangway::pjrt {

class RecordingClient final : public Client {
 public:
  explicit RecordingClient(uint32_t devices) {
    info_.platform = "cpu";
    for (uint32_t i = 0; i < devices; ++i) info_.devices.push_back({.id = i});
  }

  // What was asked since the last call.
  std::vector<std::string> Take() { return std::exchange(lines_, {}); }
  int sends() const { return sends_; }  // calls of SendNow
  ProgramCapture capture;               // what EndProgram returns

  const ClusterInfo& cluster() const override { return info_; }
  ArrayHandle NewArrayHandle() override { return ArrayHandle(next_++); }
  bool reports_ends() const override { return true; }
  void BeginLook() override {}
  void EndLook() override {}
  void LookFor(OperationId operation) override {
    lines_.push_back(absl::StrCat("look for ", operation));
  }
  uint64_t losses() const override { return losses_; }
  void Lose() { ++losses_; }

  OperationId Call(ExecutableHandle, std::span<const ArrayHandle> arguments,
                   std::span<const ArrayHandle> results, CallOptions options) override {
    std::string line = absl::StrCat("call ", absl::StrJoin(arguments, " "));
    for (const GatheredArgument& list : options.gathered)
      absl::StrAppend(&line, " [", list.index, ":", Text(list.shards), "]");
    lines_.push_back(absl::StrCat(line, " -> ", absl::StrJoin(results, " ")));
    options.ended(absl::OkStatus());
    return NewOperation();
  }
  OperationId Copy(std::span<const ArrayHandle> sources, std::span<const ArrayHandle> results,
                   std::span<const uint32_t> devices, const std::string&,
                   StatusCallback ended) override {
    lines_.push_back(absl::StrCat("copy ", absl::StrJoin(sources, " "), " -> ",
                                  absl::StrJoin(results, " "), " on ",
                                  absl::StrJoin(devices, ",")));
    ended(absl::OkStatus());
    return NewOperation();
  }
  void Regroup(std::vector<Regrouped> results) override {
    std::string line = "regroup";
    for (const Regrouped& result : results)
      absl::StrAppend(&line, " ", result.array, "=", Text(result.shards));
    lines_.push_back(std::move(line));
  }
  void Drop(std::span<const ArrayHandle> arrays) override {
    lines_.push_back(absl::StrCat("drop ", absl::StrJoin(arrays, " ")));
  }
  void DropShard(ShardOf shard, uint32_t shard_count) override {
    lines_.push_back(shard_count == 1 ? absl::StrCat("drop ", shard.array)
                                      : absl::StrCat("drop ", Text({shard})));
  }

  ExecutableHandle Compile(std::string, std::string, std::string, std::vector<uint32_t>,
                           CompileCallback done) override {
    done(Unknown());
    return ExecutableHandle(1);
  }
  void DropExecutables(std::span<const ExecutableHandle>) override {}
  OperationId Put(ArrayHandle array, const ArraySpec& spec, std::span<const std::string_view>,
                  StatusCallback ended) override {
    lines_.push_back(absl::StrCat("put ", array, " on ", absl::StrJoin(spec.devices, ",")));
    ended(absl::OkStatus());
    return NewOperation();
  }
  OperationId Upload(ArrayHandle, const ArraySpec&, StatusCallback ended) override {
    ended(absl::OkStatus());
    return NewOperation();
  }
  void Push(OperationId, uint32_t, std::string_view, std::function<void()> released) override {
    released();
  }
  void Reserve(OperationId, uint32_t, std::function<void(std::shared_ptr<char>)>) override {}
  void AbandonUpload(OperationId, Status) override {}
  void Fetch(ArrayHandle, std::vector<uint32_t>, FetchSink sink) override {
    sink.on_done(Unknown());
  }
  void BeginProgram() override { lines_.emplace_back("begin program"); }
  ProgramCapture EndProgram() override {
    lines_.emplace_back("end program");
    return capture;
  }
  void SendNow() override { ++sends_; }
  // All operations end at once, so none is waited for.
  std::shared_ptr<Wait> NewWait() override {
    class NoWait final : public Wait {
      void End() override {}
      bool For(std::chrono::nanoseconds) override { return false; }
    };
    lines_.emplace_back("wait");
    return std::make_shared<NoWait>();
  }
  void Await(std::span<const ArrayHandle>, StatusCallback done) override { done(absl::OkStatus()); }
  void Delete(std::span<const ArrayHandle>) override {}
  void Poison(std::span<const ArrayHandle>, const Status&) override {}
  uint64_t pending() const override { return 0; }
  uint64_t pending_max() const override { return 16; }
  void WhenRoom(std::function<void()> on_room) override { on_room(); }
  void Usage(UsageCallback done) override { done(Unknown()); }
  void Profile(ProfileCallback done) override { done(Unknown()); }
  void ServeHostCallbacks(HostFunctions) override {}
  void OnLost(StatusCallback) override {}

 private:
  static Status Unknown() { return absl::UnimplementedError("not recorded"); }
  static std::string Text(const std::vector<ShardOf>& shards) {
    return absl::StrJoin(shards, ",", [](std::string* text, const ShardOf& shard) {
      absl::StrAppend(text, shard.array, ".", shard.shard);
    });
  }

  OperationId NewOperation() { return OperationId(next_operation_++); }

  ClusterInfo info_;
  uint64_t next_ = 1;
  uint64_t next_operation_ = 1;
  uint64_t losses_ = 0;
  int sends_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_RECORDING_CLIENT_H_
