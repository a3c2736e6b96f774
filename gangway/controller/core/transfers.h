// The operations that move arrays: uploads, puts, copies and fetches. Each becomes one node, sent to the islands of its
// shards (DF-1). The arrays of a put are one node as far as they come one after the other in it and are accepted; what
// may be wrong with one of them alone is found here, since a node fails as a whole (ER-2). Of copies, the arrays that
// belong together become one node (copy_batches.h), also those of consecutive operations: a client may copy array by
// array. So copies wait until SendCopies, and hold their sources (OB-1). What is refused spoils its own results, and
// its client is told.
//
// Keeps the copies that wait, and nothing between steps. Pure; not thread-safe. Stands on the rooms that it names.
#ifndef GANGWAY_CONTROLLER_CORE_TRANSFERS_H_
#define GANGWAY_CONTROLLER_CORE_TRANSFERS_H_

#include <functional>
#include <string>

#include "gangway/base/ids.h"
#include "gangway/controller/core/copy_batches.h"
#include "gangway/controller/core/copy_route.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/isolation.h"
#include "gangway/controller/core/nodes.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/session.h"
#include "gangway/controller/core/storages.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class Transfers {
 public:
  // All of them outlive this.
  struct Rooms {
    Fleet& fleet;
    Isolation& isolation;
    Storages& storages;
    Nodes& nodes;
    Outbox& outbox;
  };
  // `new_token`: makes 32 unguessable bytes for each copy between workers; empty: no tokens.
  Transfers(const Rooms& rooms, std::function<std::string()> new_token)
      : rooms_(rooms), new_token_(std::move(new_token)) {}

  void OnUpload(Session& session, wire::UploadOp& op, Time now);
  void OnPut(Session& session, wire::Put& op, Time now);
  // `known`: where the results are; null: op.devices() say it.
  void OnCopy(Session& session, const wire::CopyOp& op, Time now, DeviceListRef known = nullptr,
              Nodes::Counting counting = Nodes::Counting::kByClient);
  // To be called before an operation of the session that may not overtake them, and after its last one in a step.
  void SendCopies(Session& session);
  // Views and drops may that name no result of a copy which waits: a client makes views of what it copies, and drops
  // them right after.
  static bool MayOvertakeCopies(const Session& session, const wire::Op& op);
  void OnFetch(Session& session, const wire::FetchOp& op);

 private:
  // Arrays of a put that will be one node.
  struct PutRun {
    Nodes::Node node;
    wire::Put message;
    int32_t unusual_type = 0;  // of its arrays' elements; 0: one that all device runtimes have
  };
  wire::FailureRef CheckPut(const Session& session, const wire::PutArray& array,
                            const PutRun& run) const;
  void PutOne(Session& session, const DeviceListRef& devices, wire::PutArray& array, PutRun& run);
  // Adds the node of the run, unless that is empty, and begins the next one.
  void EndRun(const Session& session, const DeviceListRef& devices, PutRun& run);
  wire::FailureRef CheckUpload(const Session& session, const wire::UploadOp& op, Time now,
                               DeviceListRef& devices);
  wire::FailureRef CheckCopy(const Session& session, ArrayHandle source, size_t shards) const;
  CopyBatches::Criteria CriteriaOf(const Array& array, const DeviceListRef& to,
                                   const std::string& memory_kind) const;
  void Copy(Session& session, const CopyBatch& batch, const CopyRoute& route);

  const Rooms rooms_;
  const std::function<std::string()> new_token_;
  CopyBatches copies_;  // that wait, of the session whose operations are applied
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_TRANSFERS_H_
