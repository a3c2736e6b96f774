// The calls of a session's client, which are handed to the parts of the session that keep what they change.
#include "gangway/client/client_impl.h"

#include <utility>

#include "gangway/base/check.h"
#include "gangway/base/status.h"
#include "gangway/client/session_wait.h"

namespace gangway {

absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options) {
  GANGWAY_CHECK(options.control != nullptr && options.data != nullptr,
                "a client needs both transports");
  auto client = std::make_unique<client::ClientImpl>(options);
  GANGWAY_RETURN_IF_ERROR(client->Open());
  return client;
}

namespace client {
namespace {

// An upload has the number of its operation.
UploadId UploadOf(OperationId operation) { return UploadId(NumberOf(operation)); }

// In a forked child.
OperationId RefuseElsewhere(const StatusCallback& ended) {
  if (ended) ended(Origin::Elsewhere());
  return OperationId();
}

}  // namespace

std::shared_ptr<Wait> ClientImpl::NewWait() {
  return std::make_shared<SessionWait>(&session_.loop(), origin_);
}

ExecutableHandle ClientImpl::Compile(std::string program, std::string format, std::string options,
                                     std::vector<uint32_t> devices, CompileCallback done) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return done(Origin::Elsewhere()), ExecutableHandle();
  const auto handle = session_.submitter().NewId<ExecutableHandle>();
  const auto placement = std::make_shared<const std::vector<uint32_t>>(std::move(devices));
  session_.handles().NoteExecutable(handle, placement);
  session_.questions().Compile(handle, std::move(program), std::move(format), std::move(options),
                               *placement, std::move(done));
  return handle;
}

void ClientImpl::DropExecutables(std::span<const ExecutableHandle> executables) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.handles().DropExecutables(executables);
}

OperationId ClientImpl::Put(ArrayHandle array, const ArraySpec& spec,
                            std::span<const std::string_view> shards, StatusCallback ended) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return RefuseElsewhere(ended);
  return session_.uploads().Put(array, spec, shards, std::move(ended));
}

OperationId ClientImpl::Upload(ArrayHandle array, const ArraySpec& spec, StatusCallback ended) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return RefuseElsewhere(ended);
  return OperationId(NumberOf(session_.uploads().Begin(array, spec, std::move(ended))));
}

void ClientImpl::Push(OperationId upload, uint32_t shard, std::string_view data,
                      std::function<void()> released) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return released ? released() : void();
  session_.uploads().Push(UploadOf(upload), shard, data, std::move(released));
}

void ClientImpl::Reserve(OperationId upload, uint32_t shard,
                         std::function<void(std::shared_ptr<char> place)> placed) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.uploads().Reserve(UploadOf(upload), shard, std::move(placed));
}

void ClientImpl::AbandonUpload(OperationId upload, Status why) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  if (why.ok()) why = absl::CancelledError("the upload was abandoned");
  session_.uploads().Abandon(UploadOf(upload), why);
}

OperationId ClientImpl::Call(ExecutableHandle executable, std::span<const ArrayHandle> arguments,
                             std::span<const ArrayHandle> results, CallOptions options) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return RefuseElsewhere(options.ended);
  return session_.handles().Call(executable, arguments, results, std::move(options));
}

OperationId ClientImpl::Copy(std::span<const ArrayHandle> sources,
                             std::span<const ArrayHandle> results,
                             std::span<const uint32_t> devices, const std::string& memory_kind,
                             StatusCallback ended) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return RefuseElsewhere(ended);
  return session_.handles().Copy(sources, results, devices, memory_kind, std::move(ended));
}

void ClientImpl::Regroup(std::vector<Regrouped> results) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.handles().Regroup(results);
}

ProgramHandle ClientImpl::RegisterProgram(const program::Program& program,
                                          std::span<const ArrayHandle> like, StatusCallback done,
                                          bool sequential) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return (done ? done(Origin::Elsewhere()) : void()), ProgramHandle();
  return session_.programs().Register(program, like, std::move(done), sequential);
}

OperationId ClientImpl::Launch(ProgramHandle program, std::span<const ArrayHandle> arguments,
                               std::span<const ArrayHandle> results, LaunchOptions options) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return RefuseElsewhere(options.ended);
  return session_.programs().Launch(program, arguments, results, std::move(options));
}

void ClientImpl::DropPrograms(std::span<const ProgramHandle> programs) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.programs().Drop(programs);
}

void ClientImpl::Fetch(ArrayHandle array, std::vector<uint32_t> shards, FetchSink sink) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return sink.on_done(Origin::Elsewhere());
  session_.fetches().Fetch(array, shards, std::move(sink));
}

void ClientImpl::BeginProgram() {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.submitter().BeginProgram();
}

ProgramCapture ClientImpl::EndProgram() {
  if (origin_.is_elsewhere()) [[unlikely]]
    return {};
  return session_.submitter().EndProgram();
}

void ClientImpl::SendNow() {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  if (session_.uploads().HoldsPushes()) session_.submitter().Wake();
  session_.submitter().SendNow();
}

void ClientImpl::Await(std::span<const ArrayHandle> arrays, StatusCallback done) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return done(Origin::Elsewhere());
  session_.questions().Await(arrays, std::move(done));
}

void ClientImpl::Drop(std::span<const ArrayHandle> arrays) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.handles().Drop(arrays);
}

void ClientImpl::Delete(std::span<const ArrayHandle> arrays) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.handles().Delete(arrays);
}

void ClientImpl::DropShard(ShardOf shard, uint32_t shard_count) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.handles().DropShard(shard, shard_count);
}

void ClientImpl::Poison(std::span<const ArrayHandle> arrays, const Status& why) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.handles().Poison(arrays, why);
}

void ClientImpl::WhenRoom(std::function<void()> on_room) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return on_room();
  session_.submitter().WhenRoom(std::move(on_room));
}

void ClientImpl::BeginLook() {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.submitter().BeginLook();
}

void ClientImpl::EndLook() {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  session_.submitter().EndLook();
}

void ClientImpl::LookFor(OperationId operation) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return;
  if (session_.uploads().HoldsPushes()) session_.submitter().Wake();
  session_.submitter().LookFor(operation);
}

void ClientImpl::Usage(UsageCallback done) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return done(Origin::Elsewhere());
  session_.questions().Usage(std::move(done));
}

void ClientImpl::Profile(ProfileCallback done) {
  if (origin_.is_elsewhere()) [[unlikely]]
    return done(Origin::Elsewhere());
  session_.questions().Profile(cluster().session, std::move(done));
}

}  // namespace client
}  // namespace gangway
