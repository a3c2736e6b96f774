// The requests of a session, one function each, by concern: handshake, arrays, transfers between
// host and devices, executables. All run on the thread that serves every session, in the
// order in which the client sent them, and never wait or copy much.
//
// A function that returns a Status fills `response` at once (an error replaces it); one that takes
// an op_id answers later by context.replies. What a failed request should have made is spoiled with
// the same error, because the client goes on to use its handles (ER-1).
#ifndef GANGWAY_FRONTDOOR_IFRT_REQUESTS_H_
#define GANGWAY_FRONTDOOR_IFRT_REQUESTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/mutex.h"
#include "gangway/client/include/gangway/client.h"
#include "gangway/frontdoor/ifrt/array_info.h"
#include "gangway/frontdoor/ifrt/host_buffers.h"
#include "gangway/frontdoor/ifrt/response_writer.h"
#include "gangway/xla/ifrt_messages.pb.h"

namespace gangway::ifrt {

// A compiled function, as executions and questions about it need it. Immutable.
struct Executable {
  ExecutableHandle handle = 0;
  std::vector<uint32_t> devices;
  std::vector<ArrayInfoRef> outputs;
  std::vector<uint32_t> donated;
  std::shared_ptr<const ExecutableInfo> info;
  xla::ExecutableMetadataResponse metadata;
};

// Executables come from the client library's callbacks and are used by the thread of the requests.
class ExecutableTable {
 public:
  void Add(std::shared_ptr<const Executable> executable);
  std::shared_ptr<const Executable> Find(uint64_t handle) const;  // nullptr if unknown
  bool Erase(uint64_t handle);

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<const Executable>> table_
      GANGWAY_GUARDED_BY(mutex_);
};

// How an execution went that the client asked to be told about (fill_status). Shared with the Await
// that watches it.
class ExecuteStatus {
 public:
  void Set(const absl::Status& status);
  // Calls `then` once, now or when it is set.
  void Then(StatusCallback then);

 private:
  Mutex mutex_;
  bool set_ GANGWAY_GUARDED_BY(mutex_) = false;
  absl::Status status_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<StatusCallback> waiting_ GANGWAY_GUARDED_BY(mutex_);
};

struct SessionContext {
  SessionContext(Client& client, Replies& replies, HostBuffers& buffers, Executor* bulk,
                 uint64_t session_id);

  Client& client;
  Replies& replies;
  HostBuffers& buffers;
  Executor* const bulk;  // for copies that would keep other requests waiting; null: there are none
  const uint64_t session_id;
  DeviceSet devices;
  ArrayTable arrays;                                                       // of the requests
  absl::flat_hash_map<uint64_t, std::shared_ptr<ExecuteStatus>> statuses;  // of the requests
  ExecutableTable executables;
};

// ---- Shared
// ------------------------------------------------------------------------------------------------------

// Handles of a request's results: the client's, or new ones if it named none. INVALID_ARGUMENT:
// another number than `count`, or one that exists.
absl::StatusOr<std::vector<uint64_t>> ResultHandles(SessionContext& context,
                                                    std::span<const uint64_t> named, size_t count);

// Makes `handles` arrays with the error `why`, and returns it. Handles that exist already are left
// alone.
absl::Status Spoil(SessionContext& context, std::span<const uint64_t> handles,
                   const absl::Status& why);

// INVALID_ARGUMENT if unknown; the error of a spoiled array; FAILED_PRECONDITION if deleted or
// donated.
absl::StatusOr<ArrayInfoRef> FindArray(const SessionContext& context, uint64_t handle);

// ---- Handshake
// ---------------------------------------------------------------------------------------------------

constexpr int kProtocolVersionMin = 16;
constexpr int kProtocolVersionMax = 25;

// The newest version both sides speak, with the client's newest serialization version (its programs
// need that one). FAILED_PRECONDITION, with both ranges, if there is none.
absl::StatusOr<::xla::ifrt::proxy::Version> NegotiateVersion(
    const ::xla::ifrt::proxy::Version& client_min, const ::xla::ifrt::proxy::Version& client_max);

absl::Status Init(SessionContext& context, IfrtResponse& response);
absl::Status DefaultLayout(SessionContext& context, const xla::DefaultLayoutRequest& request,
                           IfrtResponse& response);
absl::Status DefaultDeviceAssignment(SessionContext& context,
                                     const xla::DefaultDeviceAssignmentRequest& request,
                                     IfrtResponse& response);

// ---- Arrays
// ------------------------------------------------------------------------------------------------------

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
// UNIMPLEMENTED where a shard of a result is not just a shard of its source.
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

// ---- Transfers between host and devices
// --------------------------------------------------------------------------

absl::Status MakeArray(SessionContext& context, const xla::MakeArrayFromHostBufferRequest& request,
                       IfrtResponse& response);
absl::Status MakeShardedArrays(SessionContext& context,
                               const xla::MakeArraysFromHostBufferShardsRequest& request,
                               IfrtResponse& response);
void CopyToHost(SessionContext& context, uint64_t op_id,
                const xla::CopyToHostBufferRequest& request);

// ---- Executables
// -------------------------------------------------------------------------------------------------

// Takes the program out of `request`.
void Compile(SessionContext& context, uint64_t op_id, xla::CompileRequest& request);
absl::Status Metadata(SessionContext& context, const xla::ExecutableMetadataRequest& request,
                      IfrtResponse& response);
absl::Status Execute(SessionContext& context, const xla::ExecuteRequest& request,
                     IfrtResponse& response);
// Both: a future (of a deletion, or of an execution) by its handle; unknown ones are over.
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
