// What the controller is told, and what it asks its service to do (controller.h).
#ifndef GANGWAY_CONTROLLER_CORE_EVENTS_H_
#define GANGWAY_CONTROLLER_CORE_EVENTS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/controller/core/compile_queue.h"
#include "gangway/controller/core/program_node.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

using Time = std::chrono::steady_clock::time_point;

struct SessionOpened {
  SessionId session;
  std::string name;
  bool wants_ends = false;  // Hello.wants_ends
  std::string certificate;  // of its client; empty: none
};
struct FromClient {
  SessionId session;
  wire::SessionBatch batch;
};
struct SessionLost {  // closed, crashed or lease expired
  SessionId session;
};
struct FromScheduler {
  uint32_t island = 0;
  wire::ReportBatch batch;
};
struct SchedulerUp {  // of a remote island
  uint32_t island = 0;
  uint64_t process_id = 0;
};
struct SchedulerDown {
  uint32_t island = 0;
  std::string why;
};
struct CompilerUp {
  uint64_t process_id = 0;
  uint32_t compiler =
      0;  // its number, below CompileLimits::compilers, here and in the events that follow
};
struct CompilerDown {
  uint32_t compiler = 0;
};
struct FromCompiler {
  wire::CompileResult result;
  uint32_t compiler = 0;
};
struct CompileNotSent {  // the link to the compiler did not take the request
  uint64_t request = 0;
  wire::Failure failure;
  bool link_ends = false;  // the request is not the cause, and CompilerDown follows
};
struct Drain {  // of a request that CheckDrain accepts
  wire::DrainRequest request;
};
struct DrainAll {};  // the cluster shuts down: no new work anywhere
struct Tick {};
using Event =
    std::variant<SessionOpened, FromClient, SessionLost, FromScheduler, SchedulerUp, SchedulerDown,
                 CompilerUp, CompilerDown, FromCompiler, CompileNotSent, Drain, DrainAll, Tick>;

// The executable that the CompileResult at hand has made. Each of its islands gets one Unload in the end.
struct Compiled {
  ExecutableId executable;
  size_t island_count = 0;
};

// A node of a program that was launched in this step.
struct LaunchedNode {
  Ordinal ordinal;
  SessionId session;
  ProgramNode node;
};

struct Actions {
  std::vector<std::pair<SessionId, wire::SessionEvent>> to_clients;
  std::vector<std::pair<uint32_t, wire::IslandItem>> to_islands;  // island
  std::vector<std::pair<uint32_t, wire::CompileRequest>> to_compilers;
  std::optional<Compiled> compiled;
  std::shared_ptr<const ProgramName> registered;  // the program that the step has registered last
  std::vector<LaunchedNode> launched;             // in the order of their ordinals
  std::vector<CompilerEnd> end_compilers;
  std::vector<uint32_t> start_compilers;  // spares
  std::vector<std::string> notices;       // for people
  std::vector<std::pair<SessionId, wire::Failure>>
      ended;                      // by the controller, and why; their links are to be closed
  bool presence_changed = false;  // of a declared process: it has come up, or gone down
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_EVENTS_H_
