// Implementation of session.h.
#include "gangway/frontdoor/ifrt/session.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/trace.h"

namespace gangway::ifrt {
namespace {

absl::Status Unserved(const IfrtRequest& request) {
  const auto* field = IfrtRequest::descriptor()->FindFieldByNumber(request.request_case());
  if (field == nullptr) {
    return absl::UnimplementedError(
        "Gangway does not know this request: this JAX speaks a newer protocol than was negotiated");
  }
  return absl::UnimplementedError(absl::StrCat("the IFRT request '", field->name(), "' (number ",
                                               field->number(),
                                               ") is not served by Gangway's JAX front door"));
}

// JAX does not wait for the answers to drops, nor to requests for whose results it chose the handles.
Urgency UrgencyOfAnswer(const IfrtRequest& request) {
  const bool unawaited = request.has_destruct_array() ||
                         (request.has_execute() && request.execute().result_handles_size() > 0) ||
                         (request.has_fully_replicated_shard() &&
                          request.fully_replicated_shard().result_handle() != 0) ||
                         (request.has_make_array_from_host_buffer() &&
                          request.make_array_from_host_buffer().has_array_handle()) ||
                         (request.has_make_arrays_from_host_buffer_shards() &&
                          request.make_arrays_from_host_buffer_shards().array_handles_size() > 0);
  return unawaited ? Urgency::kSoon : Urgency::kAtOnce;
}

}  // namespace

SessionContext::SessionContext(Client& client, Replies& replies, HostBuffers& buffers,
                               Executor* bulk, uint64_t session_id)
    : client(client), replies(replies), buffers(buffers), bulk(bulk), session_id(session_id) {
  for (const DeviceInfo& device : client.cluster().devices) devices.insert(device.id);
}

Session::Session(uint64_t id, std::unique_ptr<Client> client, Replies& replies,
                 std::shared_ptr<HostBuffers> buffers, Executor* bulk)
    : buffers_(std::move(buffers)),
      client_(std::move(client)),
      context_(*client_, replies, *buffers_, bulk, id) {
  client_->OnLost([lost = lost_](absl::Status why) {
    MutexLock lock(lost->mutex);
    lost->why = why;
    lost->is_lost.store(true, std::memory_order_release);
  });
}

Session::~Session() {
  buffers_->Close();  // then no callback of the buffers uses the client
  client_.reset();    // its last callbacks still find the context
}

void Session::Handle(IfrtRequest& request) {
  const uint64_t op_id = request.request_metadata().op_id();
  const auto began = Clock::now();
  const auto request_case = static_cast<uint32_t>(request.request_case());
  IfrtResponse response = ReplyTo(op_id);
  bool answered_later = false;
  absl::Status status;
  if (lost_->is_lost.load(std::memory_order_acquire) && !request.has_destruct_array()) {
    MutexLock lock(lost_->mutex);
    status = lost_->why;
  } else {
    status = Dispatch(request, response, answered_later);
  }
  TraceAt(began, TraceKind::kRequest, request_case, SessionId(client_->cluster().session), {},
          static_cast<uint64_t>((Clock::now() - began).count()));
  if (answered_later) return;
  if (status.ok()) {
    context_.replies.Send(std::move(response), UrgencyOfAnswer(request));
  } else {
    context_.replies.Send(ErrorReply(op_id, status));
  }
}

absl::Status Session::Dispatch(IfrtRequest& request, IfrtResponse& response, bool& answered_later) {
  const uint64_t op_id = request.request_metadata().op_id();
  const auto later = [&](auto function, auto& body) {
    answered_later = true;
    function(context_, op_id, body);
    return absl::OkStatus();
  };
  switch (request.request_case()) {
    case IfrtRequest::kExecute:
      return Execute(context_, request.execute(), response);
    case IfrtRequest::kDestructArray:
      return DestructArrays(context_, request.destruct_array(), response);
    case IfrtRequest::kInit:
      return Init(context_, response);
    case IfrtRequest::kCheckFuture:
      return later(CheckFuture, request.check_future());
    case IfrtRequest::kCheckValueReady:
      return later(CheckValueReady, request.check_value_ready());
    case IfrtRequest::kMakeArrayFromHostBuffer:
      return MakeArray(context_, request.make_array_from_host_buffer(), response);
    case IfrtRequest::kMakeArraysFromHostBufferShards:
      return MakeShardedArrays(context_, request.make_arrays_from_host_buffer_shards(), response);
    case IfrtRequest::kMakeErrorArrays:
      return MakeErrorArrays(context_, request.make_error_arrays(), response);
    case IfrtRequest::kAssembleArray:
      return AssembleArray(context_, request.assemble_array(), response);
    case IfrtRequest::kRemapArrays:
      return RemapArrays(context_, request.remap_arrays(), response);
    case IfrtRequest::kCopyToHostBuffer:
      return later(CopyToHost, request.copy_to_host_buffer());
    case IfrtRequest::kDisassemble:
      return Disassemble(context_, request.disassemble(), response);
    case IfrtRequest::kCopyArrays:
      return CopyArrays(context_, request.copy_arrays(), response);
    case IfrtRequest::kFullyReplicatedShard:
      return FullyReplicatedShard(context_, request.fully_replicated_shard(), response);
    case IfrtRequest::kDeleteArray:
      return DeleteArrays(context_, request.delete_array(), response);
    case IfrtRequest::kIsArrayDeleted:
      return IsArrayDeleted(context_, request.is_array_deleted(), response);
    case IfrtRequest::kCompile:
      return later(Compile, *request.mutable_compile());
    case IfrtRequest::kExecutableMetadata:
      return Metadata(context_, request.executable_metadata(), response);
    case IfrtRequest::kFetchExecuteResult:
      return later(FetchExecuteResult, request.fetch_execute_result());
    case IfrtRequest::kExecutableCost:
      return ExecutableCost(context_, request.executable_cost(), response);
    case IfrtRequest::kExecutableText:
      return ExecutableText(context_, request.executable_text(), response);
    case IfrtRequest::kExecutableDelete:
      return ExecutableDelete(context_, request.executable_delete(), response);
    case IfrtRequest::kExecutableIsDeleted:
      return ExecutableIsDeleted(context_, request.executable_is_deleted(), response);
    case IfrtRequest::kExecutableDestruct:
      return ExecutableDestruct(context_, request.executable_destruct(), response);
    case IfrtRequest::kDefaultLayout:
      return DefaultLayout(context_, request.default_layout(), response);
    case IfrtRequest::kDefaultDeviceAssignment:
      return DefaultDeviceAssignment(context_, request.default_device_assignment(), response);
    case IfrtRequest::kReshardArrays:
      return ReshardArrays(context_, request.reshard_arrays(), response);
    // Rejected, but the client goes on to use the handles of its results.
    case IfrtRequest::kBitcastArrays:
      return Spoil(context_, ArraysOf(request.bitcast_arrays().result_handles()),
                   Unserved(request));
    default:
      return Unserved(request);
  }
}

bool Session::HasRoomOr(std::function<void()> resume) {
  if (client_->pending() < client_->pending_max()) return true;
  client_->WhenRoom(std::move(resume));
  return false;
}

}  // namespace gangway::ifrt
