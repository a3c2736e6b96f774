// The requests of a session, one function each, by concern: handshake, arrays, transfers between
// host and devices, executables. All run on the thread that serves every session, in the
// order in which the client sent them, and never wait or copy much.
//
// A function that returns a Status fills `response` at once (an error replaces it); a function that
// takes an op_id answers later by context.replies. A failed request poisons its results with the
// same error, because the client goes on to use their handles (ER-1).
#ifndef GANGWAY_FRONTDOOR_IFRT_REQUESTS_H_
#define GANGWAY_FRONTDOOR_IFRT_REQUESTS_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/mutex.h"
#include "gangway/client/client.h"
#include "gangway/frontdoor/ifrt/array_info.h"
#include "gangway/frontdoor/ifrt/host_buffers.h"
#include "gangway/frontdoor/ifrt/response_writer.h"
#include "gangway/frontdoor/outcome.h"
#include "gangway/xla/ifrt_messages.pb.h"

namespace gangway::ifrt {

// A compiled function, for executions and queries. Immutable.
struct Executable {
  ExecutableHandle handle{};
  std::vector<uint32_t> devices;
  std::vector<ArrayInfoRef> outputs;
  std::vector<uint32_t> donated;
  std::shared_ptr<const ExecutableInfo> info;
  xla::ExecutableMetadataResponse metadata;
};

// The client library's callbacks add executables; the thread of the requests uses them.
class ExecutableTable {
 public:
  void Add(std::shared_ptr<const Executable> executable);
  std::shared_ptr<const Executable> Find(ExecutableHandle handle) const;  // nullptr if unknown
  bool Erase(ExecutableHandle handle);

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<ExecutableHandle, std::shared_ptr<const Executable>> table_
      GANGWAY_GUARDED_BY(mutex_);
};

struct SessionContext {
  SessionContext(Client& client, Replies& replies, HostBuffers& buffers, Executor* bulk,
                 uint64_t session_id);

  Client& client;
  Replies& replies;
  HostBuffers& buffers;
  Executor* const bulk;  // for copies that would delay other requests; null: none is available
  const uint64_t session_id;
  DeviceSet devices;
  // Used only by the thread of the requests.
  ArrayTable arrays;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Outcome>> statuses;
  // Used by callbacks, too.
  ExecutableTable executables;
};

// --- Shared ---

// The arrays that a message lists, and the list for a message.
std::vector<ArrayHandle> ArraysOf(const google::protobuf::RepeatedField<uint64_t>& list);
void ListArrays(std::span<const ArrayHandle> arrays,
                google::protobuf::RepeatedField<uint64_t>& list);

// Handles of a request's results: the client's, or new ones if it named none. INVALID_ARGUMENT: it
// named another number than `count`, or a handle that is in use or out of range.
absl::StatusOr<std::vector<ArrayHandle>> ResultHandles(SessionContext& context,
                                                       std::span<const ArrayHandle> named,
                                                       size_t count);

// Makes `handles` arrays with the error `why`, and returns it. Leaves existing handles unchanged.
absl::Status Spoil(SessionContext& context, std::span<const ArrayHandle> handles,
                   const absl::Status& why);

// INVALID_ARGUMENT if unknown; the error of a poisoned array; FAILED_PRECONDITION if deleted or
// donated.
absl::StatusOr<ArrayInfoRef> FindArray(const SessionContext& context, ArrayHandle handle);

// --- Handshake ---

constexpr int kProtocolVersionMin = 16;
constexpr int kProtocolVersionMax = 25;

// The newest version that both sides speak, with the client's newest serialization version, which
// its programs need. FAILED_PRECONDITION, with both ranges, if there is none.
absl::StatusOr<::xla::ifrt::proxy::Version> NegotiateVersion(
    const ::xla::ifrt::proxy::Version& client_min, const ::xla::ifrt::proxy::Version& client_max);

absl::Status Init(SessionContext& context, IfrtResponse& response);
absl::Status DefaultLayout(SessionContext& context, const xla::DefaultLayoutRequest& request,
                           IfrtResponse& response);
absl::Status DefaultDeviceAssignment(SessionContext& context,
                                     const xla::DefaultDeviceAssignmentRequest& request,
                                     IfrtResponse& response);

// --- Arrays ---

absl::Status MakeErrorArrays(SessionContext& context, const xla::MakeErrorArraysRequest& request,
                             IfrtResponse& response);
absl::Status AssembleArray(SessionContext& context, const xla::AssembleArrayRequest& request,
                           IfrtResponse& response);
absl::Status RemapArrays(SessionContext& context, const xla::RemapArraysRequest& request,
                         IfrtResponse& response);
absl::Status Disassemble(SessionContext& context, const xla::DisassembleRequest& request,
                         IfrtResponse& response);
absl::Status CopyArrays(SessionContext& context, const xla::CopyArraysRequest& request,
                        IfrtResponse& response);
// UNIMPLEMENTED if a shard of a result is not a shard of its source.
absl::Status ReshardArrays(SessionContext& context, const xla::ReshardArraysRequest& request,
                           IfrtResponse& response);
absl::Status FullyReplicatedShard(SessionContext& context,
                                  const xla::FullyReplicatedShardRequest& request,
                                  IfrtResponse& response);
absl::Status DeleteArrays(SessionContext& context, const xla::DeleteArrayRequest& request,
                          IfrtResponse& response);
absl::Status IsArrayDeleted(SessionContext& context, const xla::IsArrayDeletedRequest& request,
                            IfrtResponse& response);
absl::Status DestructArrays(SessionContext& context, const xla::DestructArrayRequest& request,
                            IfrtResponse& response);
void CheckValueReady(SessionContext& context, uint64_t op_id,
                     const xla::CheckValueReadyRequest& request);

// --- Transfers between host and devices ---

absl::Status MakeArray(SessionContext& context, const xla::MakeArrayFromHostBufferRequest& request,
                       IfrtResponse& response);
absl::Status MakeShardedArrays(SessionContext& context,
                               const xla::MakeArraysFromHostBufferShardsRequest& request,
                               IfrtResponse& response);
void CopyToHost(SessionContext& context, uint64_t op_id,
                const xla::CopyToHostBufferRequest& request);

// --- Executables ---

// Moves the program out of `request`.
void Compile(SessionContext& context, uint64_t op_id, xla::CompileRequest& request);
absl::Status Metadata(SessionContext& context, const xla::ExecutableMetadataRequest& request,
                      IfrtResponse& response);
absl::Status Execute(SessionContext& context, const xla::ExecuteRequest& request,
                     IfrtResponse& response);
// Both answer when the future with this handle (of a deletion or an execution) is complete. An
// unknown handle counts as complete.
void CheckFuture(SessionContext& context, uint64_t op_id, const xla::CheckFutureRequest& request);
void FetchExecuteResult(SessionContext& context, uint64_t op_id,
                        const xla::FetchExecuteResultRequest& request);
absl::Status ExecutableCost(SessionContext& context, const xla::ExecutableCostRequest& request,
                            IfrtResponse& response);
absl::Status ExecutableText(SessionContext& context, const xla::ExecutableTextRequest& request,
                            IfrtResponse& response);
absl::Status ExecutableDelete(SessionContext& context, const xla::ExecutableDeleteRequest& request,
                              IfrtResponse& response);
absl::Status ExecutableIsDeleted(SessionContext& context,
                                 const xla::ExecutableIsDeletedRequest& request,
                                 IfrtResponse& response);
absl::Status ExecutableDestruct(SessionContext& context,
                                const xla::ExecutableDestructRequest& request,
                                IfrtResponse& response);

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_REQUESTS_H_
