// The Client of one session: it hands each call to the part of the session (session.h) that keeps what the call
// changes. It keeps which process opened the session, and the numbers of new arrays. See client.h for the contract with
// callers.
//
// Threading: as Client. Failure: in a forked child every question is answered with UNAVAILABLE on the caller's thread,
// and the rest does nothing (origin.h); all else is the session's.
#ifndef GANGWAY_CLIENT_CLIENT_IMPL_H_
#define GANGWAY_CLIENT_CLIENT_IMPL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/client/client.h"
#include "gangway/client/connect.h"
#include "gangway/client/origin.h"
#include "gangway/client/programs.h"
#include "gangway/client/session.h"
#include "gangway/program/program.h"

namespace gangway::client {

class ClientImpl final : public Client {
 public:
  explicit ClientImpl(const ClientOptions& options) : session_(options) {}

  absl::Status Open() { return session_.Open(); }  // blocks, within the limit

  const ClusterInfo& cluster() const override { return session_.cluster(); }
  ArrayHandle NewArrayHandle() override {
    return ArrayHandle(next_array_.fetch_add(1, std::memory_order_relaxed));
  }
  ExecutableHandle Compile(std::string program, std::string format, std::string options,
                           std::vector<uint32_t> devices, CompileCallback done) override;
  void DropExecutables(std::span<const ExecutableHandle> executables) override;
  bool reports_ends() const override { return session_.options().reports_ends; }
  uint64_t losses() const override { return session_.losses(); }
  OperationId Put(ArrayHandle array, const ArraySpec& spec,
                  std::span<const std::string_view> shards, StatusCallback ended) override;
  OperationId Upload(ArrayHandle array, const ArraySpec& spec, StatusCallback ended) override;
  void Push(OperationId upload, uint32_t shard, std::string_view data,
            std::function<void()> released) override;
  void Reserve(OperationId upload, uint32_t shard,
               std::function<void(std::shared_ptr<char> place)> placed) override;
  void AbandonUpload(OperationId upload, Status why) override;
  OperationId Call(ExecutableHandle executable, std::span<const ArrayHandle> arguments,
                   std::span<const ArrayHandle> results, CallOptions options) override;
  OperationId Copy(std::span<const ArrayHandle> sources, std::span<const ArrayHandle> results,
                   std::span<const uint32_t> devices, const std::string& memory_kind,
                   StatusCallback ended) override;
  void Regroup(std::vector<Regrouped> results) override;
  // As in Programs (programs.h).
  ProgramHandle RegisterProgram(const program::Program& program, std::span<const ArrayHandle> like,
                                StatusCallback done, bool sequential = false);
  OperationId Launch(ProgramHandle program, std::span<const ArrayHandle> arguments,
                     std::span<const ArrayHandle> results, LaunchOptions options = {});
  void DropPrograms(std::span<const ProgramHandle> programs);
  void Fetch(ArrayHandle array, std::vector<uint32_t> shards, FetchSink sink) override;
  void BeginProgram() override;
  ProgramCapture EndProgram() override;
  void SendNow() override;
  std::shared_ptr<Wait> NewWait() override;
  void Await(std::span<const ArrayHandle> arrays, StatusCallback done) override;
  void Drop(std::span<const ArrayHandle> arrays) override;
  void Delete(std::span<const ArrayHandle> arrays) override;
  void DropShard(ShardOf shard, uint32_t shard_count) override;
  void Poison(std::span<const ArrayHandle> arrays, const Status& why) override;
  uint64_t pending() const override { return session_.submitter().pending(); }
  uint64_t pending_max() const override { return session_.options().pending_max; }
  void WhenRoom(std::function<void()> on_room) override;
  void Usage(UsageCallback done) override;
  void Profile(ProfileCallback done) override;
  void BeginLook() override;
  void EndLook() override;
  void LookFor(OperationId operation) override;
  void OnLost(StatusCallback lost) override { session_.OnLost(std::move(lost)); }
  void ServeHostCallbacks(HostFunctions functions) override {
    session_.host_callbacks().Serve(std::move(functions));
  }

 private:
  const Origin origin_;
  std::atomic<uint64_t> next_array_{uint64_t{1} << 62};
  Session session_;  // ends first: its callbacks may still call this
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CLIENT_IMPL_H_
