// Compiles: placed here, run by the compiler process, loaded by the island's workers.
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/shown_name.h"
#include "gangway/controller/core/controller.h"
#include "gangway/wire/collective_limits.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {

using absl::StatusCode;

namespace {
constexpr char kSpanAdvice[] =
    "Use a mesh inside one worker; move arrays between meshes with device_put.";
}  // namespace

// Chooses where the executable runs, or returns why it cannot run.
wire::FailureRef Controller::PlaceExecutable(const wire::CompileOp& op, Executable& executable,
                                             wire::CompileRequest& request) const {
  if (auto failure = CheckDevices(op.devices())) return failure;
  executable.islands = IslandsOf(op.devices());
  executable.devices = {op.devices().begin(), op.devices().end()};
  request.set_device_count(static_cast<uint32_t>(op.devices_size()));
  const std::vector<std::string> workers = WorkersOf(executable);
  const Reach reach = workers.size() == 1              ? Reach::kWorker
                      : executable.islands.size() == 1 ? Reach::kIsland
                                                       : Reach::kCluster;
  if (reach > config_.program_reach) {
    return wire::Share(
        wire::MakeFailure(StatusCode::kUnimplemented,
                          absl::StrCat("a program cannot span devices of several ",
                                       executable.islands.size() > 1 ? "islands: " : "workers: ",
                                       absl::StrJoin(workers, ", ")),
                          kSpanAdvice));
  }
  if (reach != Reach::kWorker) {
    request.set_spans_workers(true);
    return nullptr;
  }
  request.set_own_collectives(config_.own_collectives && executable.devices.size() > 1 &&
                              HasOwnCollectives(executable.devices[0]));
  for (DeviceId device : executable.devices) request.add_local_devices(devices_.at(device).local);
  return nullptr;
}

// Their names.
std::vector<std::string> Controller::WorkersOf(const Executable& executable) const {
  std::set<std::pair<uint32_t, uint32_t>> places;
  for (DeviceId device : executable.devices) {
    const DeviceState& state = devices_.at(device);
    places.emplace(state.island, state.worker);
  }
  std::vector<std::string> names;
  for (auto [island, worker] : places)
    names.push_back(absl::StrCat("island", island, "/worker", worker));
  return names;
}

// Whether Gangway's own collectives can run on the device's worker.
bool Controller::HasOwnCollectives(DeviceId device) const {
  const wire::Worker& worker = workers_[devices_.at(device).owner].declared;
  return worker.index() < wire::kCollectiveWorkersMax &&
         static_cast<uint32_t>(worker.devices_size()) <= wire::kCollectiveDevicesMax;
}

// Why a program whose collectives are Gangway's own cannot run where it was placed. Only its compile tells whether it
// communicates, so this cannot be checked before.
wire::FailureRef Controller::CheckMembers(const Executable& executable) const {
  for (DeviceId device : executable.devices) {
    if (HasOwnCollectives(device)) continue;
    const wire::Worker& worker = workers_[devices_.at(device).owner].declared;
    return wire::Share(wire::MakeFailure(
        StatusCode::kUnimplemented,
        absl::StrCat("a program that communicates cannot run on island", worker.island(), "/worker",
                     worker.index(), ", which has ", worker.devices_size(),
                     " devices: collectives over workers run on the first ",
                     wire::kCollectiveWorkersMax, " workers of an island, of at most ",
                     wire::kCollectiveDevicesMax, " devices each"),
        "Use a mesh of other workers, or declare the island's devices as workers within these "
        "limits."));
  }
  return nullptr;
}

void Controller::OnCompile(SessionId id, Session& session, wire::CompileOp& op, Time now,
                           Actions& actions) {
  PendingCompile compile;
  compile.session = id;
  compile.owner = session.owner;
  compile.handle = op.executable();
  Executable executable;
  wire::FailureRef failure = PlaceExecutable(op, executable, compile.request);
  if (!failure && (op.executable() == 0 || session.executables.contains(op.executable()))) {
    failure = wire::Share(wire::MakeFailure(
        StatusCode::kInvalidArgument,
        absl::StrCat("executable handle ", op.executable(), " is 0 or in use already")));
  }
  if (!failure) failure = Claim(id, session, executable.devices, now, actions);
  if (failure) return FailCompile(compile, *failure, actions);
  compile.platform = workers_[devices_.at(executable.devices[0]).owner].declared.platform();
  uint64_t request = next_request_++;
  executable.id = ExecutableId(next_executable_++);
  executable.request = request;
  session.executables[op.executable()] = std::move(executable);
  compile.request.set_request(request);
  compile.request.mutable_program()->swap(*op.mutable_program());
  compile.request.mutable_format()->swap(*op.mutable_format());
  compile.request.mutable_options()->swap(*op.mutable_options());
  CompileActions compiles;
  compiles_.Add(std::move(compile), now, compiles);
  Take(compiles, actions);
}

// Moves what the queue has decided to the controller's own actions.
void Controller::Take(CompileActions& compiles, Actions& actions) {
  for (auto& request : compiles.to_compilers) actions.to_compilers.push_back(std::move(request));
  for (const auto& [compile, failure] : compiles.failed) FailCompile(compile, failure, actions);
  for (std::string& notice : compiles.notices) actions.notices.push_back(std::move(notice));
  for (CompilerEnd& end : compiles.end_compilers) actions.end_compilers.push_back(std::move(end));
  for (const uint32_t spare : compiles.start_compilers) actions.start_compilers.push_back(spare);
}

void Controller::OnCompileResult(uint32_t compiler, wire::CompileResult& result, Time now,
                                 Actions& actions) {
  CompileActions compiles;
  const std::optional<PendingCompile> answered =
      compiles_.OnResult(compiler, result, now, compiles);
  Take(compiles, actions);
  if (!answered) return;
  const PendingCompile& compile = *answered;
  if (result.refused_over_workers()) AddWorkers(compile, *result.mutable_failure());
  if (result.has_failure()) wire::Clip(*result.mutable_failure());
  wire::ExecutableInfo& info = *result.mutable_info();
  info.set_name(ShownName(info.name(), wire::kNameMax));
  info.set_source(ShownName(info.source(), wire::kNameMax));
  if (result.has_failure()) return FailCompile(compile, result.failure(), actions);
  if (!result.info().asks().empty()) {
    wire::Compiled compiled;
    compiled.mutable_info()->Swap(result.mutable_info());
    return EndCompile(compile, std::move(compiled), actions);
  }
  auto session = sessions_.find(compile.session);
  if (session == sessions_.end()) return;
  auto found = session->second.executables.find(compile.handle);
  if (found == session->second.executables.end() || found->second.request != result.request())
    return;
  Executable& executable = found->second;
  if (result.has_positions() && result.info().has_collectives())
    if (auto failure = CheckMembers(executable)) return FailCompile(compile, *failure, actions);
  actions.compiled = {executable.id, executable.islands.size()};
  wire::IslandItem item;
  wire::Load* load = item.mutable_load();
  load->set_executable(executable.id.number());
  load->set_session(compile.session.number());
  load->mutable_serialized()->swap(*result.mutable_serialized());
  for (DeviceId device : executable.devices) load->add_devices(device.number());
  load->set_name(result.info().name());
  load->set_source(result.info().source());
  load->set_has_collectives(result.info().has_collectives());
  load->set_calls_host(result.info().calls_host());
  load->set_client(session->second.name);
  if (result.has_positions()) *load->mutable_positions() = result.positions();
  *load->mutable_parameters() = result.info().parameters();
  *load->mutable_results() = result.info().results();
  *load->mutable_memory() = result.info().memory();
  for (uint32_t island : executable.islands) actions.to_islands.emplace_back(island, item);
  // The optimized program is for the client alone. Cleared here, it would keep its memory.
  std::string program = std::exchange(*result.mutable_info()->mutable_optimized_program(), {});
  executable.info = result.info();
  executable.launched =
      std::make_shared<const LaunchedProgram>(LaunchedProgram{.hash = result.info().fingerprint(),
                                                              .name = result.info().name(),
                                                              .session = compile.session,
                                                              .owner = session->second.owner});
  executable.ready = true;
  wire::SessionEvent event;
  event.mutable_compiled()->set_executable(compile.handle);
  event.mutable_compiled()->mutable_info()->Swap(result.mutable_info());
  *event.mutable_compiled()->mutable_info()->mutable_optimized_program() = std::move(program);
  actions.to_clients.emplace_back(compile.session, std::move(event));
}

// The compiler knows positions, not workers.
void Controller::AddWorkers(const PendingCompile& compile, wire::Failure& failure) const {
  auto session = sessions_.find(compile.session);
  if (session == sessions_.end()) return;
  auto found = session->second.executables.find(compile.handle);
  if (found == session->second.executables.end()) return;
  absl::StrAppend(failure.mutable_message(), " (its devices are of ",
                  absl::StrJoin(WorkersOf(found->second), ", "), ")");
}

void Controller::FailCompile(const PendingCompile& compile, const wire::Failure& failure,
                             Actions& actions) {
  wire::Compiled compiled;
  *compiled.mutable_failure() = failure;
  EndCompile(compile, std::move(compiled), actions);
}

// Without an executable.
void Controller::EndCompile(const PendingCompile& compile, wire::Compiled compiled,
                            Actions& actions) {
  auto session = sessions_.find(compile.session);
  if (session == sessions_.end()) return;
  auto found = session->second.executables.find(compile.handle);
  bool its_own = found != session->second.executables.end() &&
                 found->second.request == compile.request.request();
  if (its_own) session->second.executables.erase(found);
  wire::SessionEvent event;
  compiled.set_executable(compile.handle);
  *event.mutable_compiled() = std::move(compiled);
  actions.to_clients.emplace_back(compile.session, std::move(event));
}

// A compile that is dropped while it is pending is answered at once.
void Controller::OnDropExecutables(SessionId id, Session& session, const wire::DropOp& op, Time now,
                                   Actions& actions) {
  CompileActions compiles;
  for (uint64_t handle : op.handles()) {
    auto it = session.executables.find(handle);
    if (it == session.executables.end()) continue;
    if (it->second.ready) {
      wire::IslandItem item;
      item.mutable_unload()->add_executables(it->second.id.number());
      for (uint32_t island : it->second.islands) actions.to_islands.emplace_back(island, item);
    }
    PendingCompile compile;
    compile.session = id;
    compile.handle = handle;
    compile.request.set_request(it->second.request);
    session.executables.erase(it);
    if (!compiles_.Forget(compile.request.request(), now, compiles)) continue;
    FailCompile(compile,
                wire::MakeFailure(StatusCode::kCancelled,
                                  "the executable was dropped while it was being compiled"),
                actions);
  }
  Take(compiles, actions);
}

}  // namespace gangway::controller
