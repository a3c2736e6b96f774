// Compiles: placed here, run by the compiler process, loaded by the island's workers.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/controller/core/controller.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {

using absl::StatusCode;

// Chooses where the executable runs, or returns why it cannot run.
std::optional<wire::Failure> Controller::PlaceExecutable(const wire::CompileOp& op,
                                                         Executable& executable,
                                                         wire::CompileRequest& request) const {
  if (auto failure = CheckDevices(op.devices())) return failure;
  std::set<std::pair<uint32_t, uint32_t>> places;
  for (uint32_t device : op.devices()) {
    const DeviceState& state = devices_.at(DeviceId(device));
    places.emplace(state.island, state.worker);
    request.add_local_devices(state.local);
  }
  Reach reach = places.size() == 1                                ? Reach::kWorker
                : places.begin()->first == places.rbegin()->first ? Reach::kIsland
                                                                  : Reach::kCluster;
  if (reach > config_.program_reach) {
    std::vector<std::string> names;
    for (auto [island, worker] : places)
      names.push_back(absl::StrCat("island", island, "/worker", worker));
    return wire::MakeFailure(
        StatusCode::kUnimplemented,
        absl::StrCat("a program cannot span devices of several workers: ",
                     absl::StrJoin(names, ", ")),
        "Use a mesh inside one worker; move arrays between meshes with device_put.");
  }
  executable.islands = IslandsOf(op.devices());
  executable.devices = {op.devices().begin(), op.devices().end()};
  request.set_device_count(static_cast<uint32_t>(op.devices_size()));
  return std::nullopt;
}

void Controller::OnCompile(SessionId id, Session& session, wire::CompileOp& op, Time now,
                           Actions& actions) {
  PendingCompile compile;
  compile.session = id;
  compile.handle = op.executable();
  compile.since = now;
  Executable executable;
  std::optional<wire::Failure> failure = PlaceExecutable(op, executable, compile.request);
  if (!failure && (op.executable() == 0 || session.executables.contains(op.executable()))) {
    failure = wire::MakeFailure(
        StatusCode::kInvalidArgument,
        absl::StrCat("executable handle ", op.executable(), " is 0 or in use already"));
  }
  if (!failure && compiles_.size() >= config_.compiles_max) {
    failure = wire::MakeFailure(StatusCode::kResourceExhausted,
                                absl::StrCat(compiles_.size(), " compiles are queued already"),
                                "Try again later.");
  }
  if (failure) return FailCompile(compile, *failure, actions);
  uint64_t request = next_request_++;
  executable.id = ExecutableId(next_executable_++);
  executable.request = request;
  session.executables[op.executable()] = std::move(executable);
  compile.request.set_request(request);
  compile.request.mutable_program()->swap(*op.mutable_program());
  compile.request.mutable_format()->swap(*op.mutable_format());
  compile.request.mutable_options()->swap(*op.mutable_options());
  compile.sent = compiler_up_;
  if (compiler_up_) actions.to_compiler.push_back(compile.request);
  compiles_[request] = std::move(compile);
}

void Controller::OnCompileResult(wire::CompileResult& result, Actions& actions) {
  auto it = compiles_.find(result.request());
  if (it == compiles_.end()) return;
  PendingCompile compile = std::move(it->second);
  compiles_.erase(it);
  if (result.has_failure()) return FailCompile(compile, result.failure(), actions);
  auto session = sessions_.find(compile.session);
  if (session == sessions_.end()) return;
  auto found = session->second.executables.find(compile.handle);
  if (found == session->second.executables.end() || found->second.request != result.request()) {
    return FailCompile(compile,
                       wire::MakeFailure(StatusCode::kCancelled,
                                         "the executable was dropped while it was being compiled"),
                       actions);
  }
  Executable& executable = found->second;
  wire::IslandItem item;
  wire::Load* load = item.mutable_load();
  load->set_executable(executable.id.number());
  load->set_session(compile.session.number());
  load->mutable_serialized()->swap(*result.mutable_serialized());
  for (DeviceId device : executable.devices) load->add_devices(device.number());
  load->set_name(result.info().name());
  load->set_source(result.info().source());
  load->set_has_collectives(result.info().has_collectives());
  *load->mutable_parameters() = result.info().parameters();
  *load->mutable_results() = result.info().results();
  *load->mutable_memory() = result.info().memory();
  for (uint32_t island : executable.islands) actions.to_islands.emplace_back(island, item);
  executable.info = result.info();
  executable.info.clear_optimized_program();
  executable.ready = true;
  wire::SessionEvent event;
  event.mutable_compiled()->set_executable(compile.handle);
  event.mutable_compiled()->mutable_info()->Swap(result.mutable_info());
  actions.to_clients.emplace_back(compile.session, std::move(event));
}

void Controller::OnCompilerUp(Actions& actions) {
  for (auto& [request, compile] : compiles_) {
    if (compile.sent) continue;
    compile.sent = true;
    actions.to_compiler.push_back(compile.request);
  }
}

// The compiler handles one request at a time: it was working on the oldest sent one when it died,
// which may be the cause.
void Controller::OnCompilerDown(Time now, Actions& actions) {
  compiler_up_ = false;
  auto first = std::find_if(compiles_.begin(), compiles_.end(),
                            [](const auto& entry) { return entry.second.sent; });
  if (first == compiles_.end()) return;
  PendingCompile compile = std::move(first->second);
  compiles_.erase(first);
  FailCompile(compile,
              wire::MakeFailure(StatusCode::kUnavailable,
                                "the compiler process died while it compiled this program",
                                "The compiler restarts: try again. If it dies again, see its log."),
              actions);
  for (auto& [request, other] : compiles_) {
    other.sent = false;
    other.since = now;
  }
}

void Controller::OnCompileDeadlines(Time now, Actions& actions) {
  while (!compiler_up_ && !compiles_.empty()) {
    if (now < compiles_.begin()->second.since + config_.compiler_wait_max) return;
    PendingCompile compile = std::move(compiles_.begin()->second);
    compiles_.erase(compiles_.begin());
    FailCompile(compile,
                wire::MakeFailure(StatusCode::kUnavailable,
                                  absl::StrCat("no compiler process has been up for ",
                                               config_.compiler_wait_max.count(), " ms"),
                                  "See `gangway status`."),
                actions);
  }
}

void Controller::FailCompile(const PendingCompile& compile, const wire::Failure& failure,
                             Actions& actions) {
  auto session = sessions_.find(compile.session);
  if (session == sessions_.end()) return;
  auto found = session->second.executables.find(compile.handle);
  bool its_own = found != session->second.executables.end() &&
                 found->second.request == compile.request.request();
  if (its_own) session->second.executables.erase(found);
  wire::SessionEvent event;
  event.mutable_compiled()->set_executable(compile.handle);
  *event.mutable_compiled()->mutable_failure() = failure;
  actions.to_clients.emplace_back(compile.session, std::move(event));
}

void Controller::OnDropExecutables(Session& session, const wire::DropOp& op, Actions& actions) {
  for (uint64_t handle : op.handles()) {
    auto it = session.executables.find(handle);
    if (it == session.executables.end()) continue;
    if (it->second.ready) {
      wire::IslandItem item;
      item.mutable_unload()->add_executables(it->second.id.number());
      for (uint32_t island : it->second.islands) actions.to_islands.emplace_back(island, item);
    }
    session.executables.erase(it);
  }
}

}  // namespace gangway::controller
