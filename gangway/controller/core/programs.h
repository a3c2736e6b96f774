// The sessions' programs, by the clients' handles: each is the graph that its client registered, lowered by the passes
// of program/ to the steps that a launch takes. Lowering takes time for each node, a launch none for what it found: so
// a program is lowered once, and again when an argument comes that is not of the type for which it was.
//
// Bounded in number, nodes and bytes for each session (TM-2). A program that is refused stays known by its handle, with
// the reason, until it is dropped: what launches it may be under way already.
//
// Pure; not thread-safe. Stands on Fleet, Executables and Outbox.
#ifndef GANGWAY_CONTROLLER_CORE_PROGRAMS_H_
#define GANGWAY_CONTROLLER_CORE_PROGRAMS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "gangway/base/device_lists.h"
#include "gangway/base/ids.h"
#include "gangway/controller/core/executables.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/nodes.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/program_node.h"
#include "gangway/controller/core/session_arrays.h"
#include "gangway/program/array_shape.h"
#include "gangway/program/passes.h"
#include "gangway/program/program.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

// Limits of one session's programs, all together.
inline constexpr size_t kProgramsMax = 4096;
inline constexpr uint64_t kProgramSizeMax = uint64_t{1}
                                            << 19;  // nodes and their inputs, and devices of lists
inline constexpr uint64_t kProgramBytesMax = uint64_t{64} << 20;  // of their registrations

// What a launch does, one after the other. Its values are arrays in a namespace of the launch, by HandleOf.
struct ProgramStep {
  wire::Op op;                  // a call, copy, regroup or drop; unset: it binds a result
  DeviceListRef devices;        // of a copy, instead of a list in `op`: many copies go to one list
  program::ValueId result = 0;  // that is bound
  Nodes::Counting counting = Nodes::Counting::kByClient;
  ProgramNode origin;
};

inline ArrayHandle HandleOf(program::ValueId value) { return ArrayHandle(uint64_t{value} + 1); }

// A program whose types are known, as far as they were when it was lowered.
struct LoweredProgram {
  struct Argument {
    ArrayShapeRef shape;    // null: not known
    DeviceListRef devices;  // likewise
  };
  std::vector<Argument> arguments;
  std::vector<std::pair<ExecutableHandle, ExecutableId>> executables;
  std::vector<ProgramStep> steps;
  uint64_t nodes = 0;  // that it runs, with those that the passes have added
};

struct RegisteredProgram {
  program::Program graph;  // as its client made it
  std::shared_ptr<const ProgramName> name;
  bool sequential = false;
  wire::FailureRef
      failure;  // why it is refused; then there is no more than this, and `client_nodes`
  LoweredProgram lowered;
  uint64_t client_nodes = 0;  // that the client counts for each launch
  // What it takes of its session's limits.
  uint64_t size = 0;
  uint64_t bytes = 0;
};

class Programs {
 public:
  // All references outlive this.
  Programs(Fleet& fleet, const Executables& executables, Outbox& outbox)
      : fleet_(fleet), executables_(executables), outbox_(outbox) {}

  void Open(SessionId session);
  void Close(SessionId session);
  // The sessions below are open.

  // `arrays` are those of the session. The client gets one Registered event.
  void OnRegister(SessionId session, const wire::RegisterProgramOp& op,
                  const SessionArrays& arrays);
  void OnDrop(SessionId session, const wire::DropOp& op);

  // Null: unknown.
  const RegisteredProgram* Find(SessionId session, ProgramHandle program) const;
  // Lowers a program that is known for arguments of these types. The failure says why they do not fit.
  wire::FailureRef LowerAgain(SessionId session, ProgramHandle program,
                              const std::vector<LoweredProgram::Argument>& arguments);

  size_t CountOf(SessionId session) const { return sessions_.at(session).programs.size(); }

 private:
  struct OfSession {
    absl::flat_hash_map<ProgramHandle, RegisteredProgram> programs;
    uint64_t size = 0;  // of all of them
    uint64_t bytes = 0;
  };
  absl::Status Register(SessionId id, OfSession& session, const wire::RegisterProgramOp& op,
                        const SessionArrays& arrays, RegisteredProgram& program);
  absl::StatusOr<LoweredProgram> Lower(SessionId session, const RegisteredProgram& program,
                                       const std::vector<LoweredProgram::Argument>& arguments);
  // From the result of the passes.
  // From the result of the passes, which have found all executables.
  LoweredProgram StepsOf(SessionId session, const RegisteredProgram& program,
                         const program::Program& lowered);

  Fleet& fleet_;
  const Executables& executables_;
  Outbox& outbox_;
  std::map<SessionId, OfSession> sessions_;
  uint64_t next_id_ = 1;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_PROGRAMS_H_
