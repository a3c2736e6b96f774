// The sessions' executables, by the clients' handles: their devices are chosen when their compile is asked for, they
// are loaded on the islands of these devices once it has answered, and unloaded when they are dropped. The compiles
// themselves wait in the queue (compile_queue.h).
//
// Pure; not thread-safe. Stands on Fleet, Isolation and Outbox.
#ifndef GANGWAY_CONTROLLER_CORE_EXECUTABLES_H_
#define GANGWAY_CONTROLLER_CORE_EXECUTABLES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/device_lists.h"
#include "gangway/base/ids.h"
#include "gangway/controller/core/blame.h"
#include "gangway/controller/core/compile_queue.h"
#include "gangway/controller/core/events.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/isolation.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/session_info.h"
#include "gangway/program/array_shape.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

// How far one program may span. Workers support the first two so far.
enum class Reach { kWorker, kIsland, kCluster };

struct Executable {
  ExecutableId id;
  uint64_t request = 0;  // the compile that makes it
  DeviceListRef devices;
  bool ready = false;
  // The following is of one that is ready.
  wire::ExecutableInfo info;  // without the optimized program
  std::vector<ArrayShapeRef> parameters;
  std::vector<ArrayShapeRef> results;
  LaunchedProgramRef launched;
};

class Executables {
 public:
  struct Options {
    Reach reach = Reach::kIsland;
    bool own_collectives = false;  // Gangway's also inside of a worker, where they are to be had
    CompileLimits compiles;
  };

  // All references outlive this.
  Executables(const Options& options, Fleet& fleet, Isolation& isolation, Outbox& outbox);

  void Open(const SessionInfo& session);
  // Unloads all of the session's.
  void Close(SessionId session, Time now);
  // After the owner's last session has closed.
  void EndOwner(const Owner& owner, Time now);

  // Of a session that is open. The client gets one Compiled event for each.
  void OnCompile(SessionId session, wire::CompileOp& op, Time now);
  void OnResult(FromCompiler& event, Time now);
  // One that is dropped while its compile is pending is answered at once.
  void OnDrop(SessionId session, const wire::DropOp& op, Time now);
  void OnCompilerUp(const CompilerUp& up, Time now);
  void OnCompilerDown(const CompilerDown& down, Time now);
  void OnNotSent(const CompileNotSent& refused, Time now);
  void OnTime(Time now);
  std::optional<Time> next_deadline() const { return compiles_.next_deadline(); }

  const Executable* Find(SessionId session, ExecutableHandle handle) const;  // null: unknown
  size_t CountOf(SessionId session) const { return sessions_.at(session).executables.size(); }
  const CompileQueue& compiles() const { return compiles_; }
  void FillCompilers(wire::StatusReply& reply) const;

 private:
  struct OfSession {
    SessionInfo info;
    absl::flat_hash_map<ExecutableHandle, Executable> executables;
  };

  wire::FailureRef ChooseDevices(const wire::CompileOp& op, Executable& executable,
                                 wire::CompileRequest& request);
  std::vector<std::string> WorkersOf(const DeviceList& devices) const;
  wire::FailureRef CheckMembers(const DeviceList& devices) const;
  // The one that a compile makes; null: it was dropped.
  Executable* Find(const PendingCompile& compile);
  void AddWorkers(const PendingCompile& compile, wire::Failure& failure);
  void Finish(const PendingCompile& compile, wire::CompileResult& result, Executable& executable);
  void SendLoad(const OfSession& session, const Executable& executable,
                wire::CompileResult& result);
  void Apply(CompileActions& compiles);
  void Fail(const PendingCompile& compile, const wire::Failure& failure);
  void EndWithoutExecutable(const PendingCompile& compile, wire::Compiled compiled);

  const Options options_;
  Fleet& fleet_;
  Isolation& isolation_;
  Outbox& outbox_;
  CompileQueue compiles_;
  std::vector<uint64_t> compiler_process_ids_;
  std::map<SessionId, OfSession> sessions_;
  uint64_t next_executable_ = 1;
  uint64_t next_request_ = 1;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_EXECUTABLES_H_
