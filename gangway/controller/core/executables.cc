// Implementation of executables.h.
#include "gangway/controller/core/executables.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/shown_name.h"
#include "gangway/controller/core/names.h"
#include "gangway/wire/collective_limits.h"

namespace gangway::controller {
namespace {

using absl::StatusCode;

constexpr char kSpanAdvice[] =
    "Use a mesh inside one worker; move arrays between meshes with device_put.";

// Whether Gangway's own collectives can run there.
bool HasOwnCollectives(const wire::Worker& worker) {
  return worker.index() < wire::kCollectiveWorkersMax &&
         static_cast<uint32_t>(worker.devices_size()) <= wire::kCollectiveDevicesMax;
}

}  // namespace

Executables::Executables(const Options& options, Fleet& fleet, Isolation& isolation, Outbox& outbox)
    : options_(options),
      fleet_(fleet),
      isolation_(isolation),
      outbox_(outbox),
      compiles_(options.compiles),
      compiler_process_ids_(std::max(1u, options.compiles.compilers)) {}

void Executables::Open(const SessionInfo& session) {
  sessions_[session.id] = {.info = session, .executables = {}};
}

void Executables::Close(SessionId id, Time now) {
  wire::DropOp all;
  for (const auto& [handle, executable] : sessions_.at(id).executables)
    all.add_handles(NumberOf(handle));
  std::sort(all.mutable_handles()->begin(), all.mutable_handles()->end());
  CompileActions compiles;
  compiles_.ForgetSession(id, now, compiles);
  OnDrop(id, all, now);
  sessions_.erase(id);
  Apply(compiles);
}

void Executables::EndOwner(const Owner& owner, Time now) {
  CompileActions compiles;
  compiles_.EndOwner(owner, now, compiles);
  Apply(compiles);
}

// Or returns why the executable cannot run on the devices that the client asks for.
wire::FailureRef Executables::ChooseDevices(const wire::CompileOp& op, Executable& executable,
                                            wire::CompileRequest& request) {
  wire::FailureRef refused;
  executable.devices = fleet_.ListOf(SpanOf(op.devices()), refused);
  if (refused) return refused;
  const DeviceList& devices = *executable.devices;
  request.set_device_count(static_cast<uint32_t>(devices.size()));
  const Reach reach = devices.workers().size() == 1   ? Reach::kWorker
                      : devices.islands().size() == 1 ? Reach::kIsland
                                                      : Reach::kCluster;
  if (reach > options_.reach) {
    return wire::Share(
        wire::MakeFailure(StatusCode::kUnimplemented,
                          absl::StrCat("a program cannot span devices of several ",
                                       devices.islands().size() > 1 ? "islands: " : "workers: ",
                                       absl::StrJoin(WorkersOf(devices), ", ")),
                          kSpanAdvice));
  }
  if (reach != Reach::kWorker) {
    request.set_spans_workers(true);
    return nullptr;
  }
  request.set_own_collectives(options_.own_collectives && devices.size() > 1 &&
                              HasOwnCollectives(fleet_.WorkerOf(devices.devices()[0])));
  return nullptr;
}

// Their names, in order.
std::vector<std::string> Executables::WorkersOf(const DeviceList& devices) const {
  std::map<std::pair<uint32_t, uint32_t>, std::string> names;
  for (const DeviceList::OnWorker& part : devices.workers()) {
    const wire::Worker& worker = fleet_.workers()[part.worker_number].declared;
    names.emplace(std::pair(worker.island(), worker.index()), NameOf(worker));
  }
  std::vector<std::string> in_order;
  for (auto& [key, name] : names) in_order.push_back(std::move(name));
  return in_order;
}

// Why a program whose collectives are Gangway's own cannot run on its devices. Only its compile tells whether it
// communicates, so this cannot be checked before.
wire::FailureRef Executables::CheckMembers(const DeviceList& devices) const {
  for (const DeviceList::OnWorker& part : devices.workers()) {
    const wire::Worker& worker = fleet_.workers()[part.worker_number].declared;
    if (HasOwnCollectives(worker)) continue;
    return wire::Share(wire::MakeFailure(
        StatusCode::kUnimplemented,
        absl::StrCat("a program that communicates cannot run on ", NameOf(worker), ", which has ",
                     worker.devices_size(), " devices: collectives over workers run on the first ",
                     wire::kCollectiveWorkersMax, " workers of an island, of at most ",
                     wire::kCollectiveDevicesMax, " devices each"),
        "Use a mesh of other workers, or declare the island's devices as workers within these "
        "limits."));
  }
  return nullptr;
}

void Executables::OnCompile(SessionId id, wire::CompileOp& op, Time now) {
  OfSession& session = sessions_.at(id);
  PendingCompile compile;
  compile.session = id;
  compile.owner = session.info.owner;
  compile.handle = ExecutableHandle(op.executable());
  Executable executable;
  wire::FailureRef failure = ChooseDevices(op, executable, compile.request);
  if (!failure && (op.executable() == 0 || session.executables.contains(compile.handle))) {
    failure = wire::Share(wire::MakeFailure(
        StatusCode::kInvalidArgument,
        absl::StrCat("executable handle ", op.executable(), " is 0 or in use already")));
  }
  if (!failure) failure = isolation_.Claim(session.info, *executable.devices, now);
  if (failure) return Fail(compile, *failure);
  compile.platform = fleet_.WorkerOf(executable.devices->devices()[0]).platform();
  const uint64_t request = next_request_++;
  executable.id = ExecutableId(next_executable_++);
  executable.request = request;
  session.executables[compile.handle] = std::move(executable);
  compile.request.set_request(request);
  compile.request.mutable_program()->swap(*op.mutable_program());
  compile.request.mutable_format()->swap(*op.mutable_format());
  compile.request.mutable_options()->swap(*op.mutable_options());
  CompileActions compiles;
  compiles_.Add(std::move(compile), now, compiles);
  Apply(compiles);
}

// Moves what the queue has decided to the controller's own actions.
void Executables::Apply(CompileActions& compiles) {
  Actions& actions = outbox_.actions();
  for (auto& request : compiles.to_compilers) actions.to_compilers.push_back(std::move(request));
  for (const auto& [compile, failure] : compiles.failed) Fail(compile, failure);
  for (std::string& notice : compiles.notices) actions.notices.push_back(std::move(notice));
  for (CompilerEnd& end : compiles.end_compilers) actions.end_compilers.push_back(std::move(end));
  for (const uint32_t spare : compiles.start_compilers) actions.start_compilers.push_back(spare);
}

void Executables::OnResult(FromCompiler& event, Time now) {
  wire::CompileResult& result = event.result;
  CompileActions compiles;
  const std::optional<PendingCompile> answered =
      compiles_.OnResult(event.compiler, result, now, compiles);
  Apply(compiles);
  if (!answered) return;
  const PendingCompile& compile = *answered;
  if (result.refused_over_workers()) AddWorkers(compile, *result.mutable_failure());
  if (result.has_failure()) wire::Clip(*result.mutable_failure());
  wire::ExecutableInfo& info = *result.mutable_info();
  info.set_name(ShownName(info.name(), wire::kNameMax));
  info.set_source(ShownName(info.source(), wire::kNameMax));
  if (result.has_failure()) return Fail(compile, result.failure());
  if (!result.info().asks().empty()) {
    wire::Compiled compiled;
    compiled.mutable_info()->Swap(result.mutable_info());
    return EndWithoutExecutable(compile, std::move(compiled));
  }
  Executable* executable = Find(compile);
  if (executable == nullptr) return;
  if (result.has_positions() && result.info().has_collectives())
    if (auto failure = CheckMembers(*executable->devices)) return Fail(compile, *failure);
  Finish(compile, result, *executable);
}

Executable* Executables::Find(const PendingCompile& compile) {
  const auto session = sessions_.find(compile.session);
  if (session == sessions_.end()) return nullptr;
  const auto found = session->second.executables.find(compile.handle);
  if (found == session->second.executables.end()) return nullptr;
  return found->second.request == compile.request.request() ? &found->second : nullptr;
}

void Executables::Finish(const PendingCompile& compile, wire::CompileResult& result,
                         Executable& executable) {
  const OfSession& session = sessions_.at(compile.session);
  outbox_.actions().compiled = {executable.id, executable.devices->islands().size()};
  SendLoad(session, executable, result);
  // The optimized program is for the client alone. Cleared here, it would keep its memory.
  std::string program = std::exchange(*result.mutable_info()->mutable_optimized_program(), {});
  executable.info = result.info();
  for (const wire::TensorSpec& spec : executable.info.parameters())
    executable.parameters.push_back(ShapeOf(spec));
  for (const wire::TensorSpec& spec : executable.info.results())
    executable.results.push_back(ShapeOf(spec));
  executable.launched =
      std::make_shared<const LaunchedProgram>(LaunchedProgram{.hash = result.info().fingerprint(),
                                                              .name = result.info().name(),
                                                              .session = compile.session,
                                                              .owner = session.info.owner});
  executable.ready = true;
  wire::SessionEvent event;
  event.mutable_compiled()->set_executable(NumberOf(compile.handle));
  event.mutable_compiled()->mutable_info()->Swap(result.mutable_info());
  *event.mutable_compiled()->mutable_info()->mutable_optimized_program() = std::move(program);
  outbox_.ToClient(compile.session, std::move(event));
}

void Executables::SendLoad(const OfSession& session, const Executable& executable,
                           wire::CompileResult& result) {
  wire::IslandItem item;
  wire::Load* load = item.mutable_load();
  load->set_executable(executable.id.number());
  load->set_session(session.info.id.number());
  load->mutable_serialized()->swap(*result.mutable_serialized());
  for (const DeviceId device : executable.devices->devices()) load->add_devices(device.number());
  load->set_name(result.info().name());
  load->set_source(result.info().source());
  load->set_has_collectives(result.info().has_collectives());
  load->set_calls_host(result.info().calls_host());
  load->set_client(session.info.name);
  if (result.has_positions()) *load->mutable_positions() = result.positions();
  *load->mutable_parameters() = result.info().parameters();
  *load->mutable_results() = result.info().results();
  *load->mutable_memory() = result.info().memory();
  outbox_.ToIslands(executable.devices->islands(), std::move(item));
}

// The compiler knows positions, not workers.
void Executables::AddWorkers(const PendingCompile& compile, wire::Failure& failure) {
  const Executable* executable = Find(compile);
  if (executable == nullptr) return;
  absl::StrAppend(failure.mutable_message(), " (its devices are of ",
                  absl::StrJoin(WorkersOf(*executable->devices), ", "), ")");
}

void Executables::Fail(const PendingCompile& compile, const wire::Failure& failure) {
  wire::Compiled compiled;
  *compiled.mutable_failure() = failure;
  EndWithoutExecutable(compile, std::move(compiled));
}

void Executables::EndWithoutExecutable(const PendingCompile& compile, wire::Compiled compiled) {
  const auto session = sessions_.find(compile.session);
  if (session == sessions_.end()) return;
  if (Find(compile) != nullptr) session->second.executables.erase(compile.handle);
  wire::SessionEvent event;
  compiled.set_executable(NumberOf(compile.handle));
  *event.mutable_compiled() = std::move(compiled);
  outbox_.ToClient(compile.session, std::move(event));
}

void Executables::OnDrop(SessionId id, const wire::DropOp& op, Time now) {
  auto& executables = sessions_.at(id).executables;
  CompileActions compiles;
  for (const uint64_t number : op.handles()) {
    const ExecutableHandle handle{number};
    const auto it = executables.find(handle);
    if (it == executables.end()) continue;
    if (it->second.ready) {
      wire::IslandItem item;
      item.mutable_unload()->add_executables(it->second.id.number());
      outbox_.ToIslands(it->second.devices->islands(), std::move(item));
    }
    PendingCompile compile;
    compile.session = id;
    compile.handle = handle;
    compile.request.set_request(it->second.request);
    executables.erase(it);
    if (!compiles_.Forget(compile.request.request(), now, compiles)) continue;
    Fail(compile, wire::MakeFailure(StatusCode::kCancelled,
                                    "the executable was dropped while it was being compiled"));
  }
  Apply(compiles);
}

void Executables::OnCompilerUp(const CompilerUp& up, Time now) {
  compiler_process_ids_[up.compiler] = up.process_id;
  CompileActions compiles;
  compiles_.OnCompilerUp(up.compiler, now, compiles);
  Apply(compiles);
}

void Executables::OnCompilerDown(const CompilerDown& down, Time now) {
  CompileActions compiles;
  compiles_.OnCompilerDown(down.compiler, now, compiles);
  Apply(compiles);
}

void Executables::OnNotSent(const CompileNotSent& refused, Time now) {
  CompileActions compiles;
  compiles_.OnNotSent(refused.request, refused.failure, refused.link_ends, now, compiles);
  Apply(compiles);
}

void Executables::OnTime(Time now) {
  CompileActions compiles;
  compiles_.OnTime(now, compiles);
  Apply(compiles);
}

const Executable* Executables::Find(SessionId session, ExecutableHandle handle) const {
  const auto& executables = sessions_.at(session).executables;
  const auto found = executables.find(handle);
  return found == executables.end() ? nullptr : &found->second;
}

void Executables::FillCompilers(wire::StatusReply& reply) const {
  const bool is_up = compiles_.compiler_up(0);
  reply.set_compiler_up(is_up);
  reply.set_compiler_process_id(is_up ? compiler_process_ids_[0] : 0);
  auto& counters = *reply.mutable_counters();
  uint64_t& compilers = counters["compilers"];
  for (uint32_t i = 0; i < compiler_process_ids_.size(); ++i)
    compilers += compiles_.compiler_up(i) ? 1 : 0;
  counters["compiles"] = compiles_.size();
  counters["compiles_bytes"] = compiles_.program_bytes();
}

}  // namespace gangway::controller
