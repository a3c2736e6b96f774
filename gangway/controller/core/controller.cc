// Construction, the dispatch of events, sessions and their operations.
#include "gangway/controller/core/controller.h"

#include <utility>
#include <variant>

namespace gangway::controller {

Controller::Controller(ControllerConfig config)
    : config_(std::move(config)),
      fleet_(config_.workers),
      outbox_(fleet_.island_count(), config_.remote_islands, config_.scheduler_wait_max),
      isolation_(config_.isolates, fleet_, outbox_),
      blame_(config_.blame),
      storages_(fleet_.lists(), outbox_),
      awaits_(outbox_),
      nodes_(config_.pending_nodes_max, storages_, awaits_, blame_, outbox_),
      executables_({config_.program_reach, config_.own_collectives, config_.compiles}, fleet_,
                   isolation_, outbox_),
      calls_({fleet_, isolation_, storages_, executables_, nodes_, blame_, outbox_}),
      transfers_({fleet_, isolation_, storages_, nodes_, outbox_}, config_.new_token),
      programs_(fleet_, executables_, outbox_),
      launches_({fleet_, storages_, executables_, nodes_, programs_, calls_, transfers_}) {}

void Controller::Step(Event event, Time now, Actions& actions) {
  outbox_.Begin(now);
  Dispatch(event, now);
  executables_.OnTime(now);
  for (const auto& [island, ordinal, why] : outbox_.TakeExpired())
    nodes_.Fail(island, ordinal, *why);
  nodes_.ReportProgress(now);
  actions = outbox_.Take();
}

void Controller::Dispatch(Event& event, Time now) {
  if (auto* batch = std::get_if<FromClient>(&event)) {
    auto session = sessions_.find(batch->session);
    if (session == sessions_.end()) return;
    launches_.BeginBatch();
    for (wire::Op& op : *batch->batch.mutable_ops()) OnOp(session->second, op, now);
    transfers_.SendCopies(session->second);
  } else if (auto* reports = std::get_if<FromScheduler>(&event)) {
    for (wire::Report& report : *reports->batch.mutable_reports())
      OnReport(reports->island, report, now);
  } else if (auto* opened = std::get_if<SessionOpened>(&event)) {
    OnSessionOpened(*opened);
  } else if (auto* lost = std::get_if<SessionLost>(&event)) {
    OnSessionLost(lost->session, now);
  } else if (auto* there = std::get_if<SchedulerUp>(&event)) {
    OnSchedulerUp(*there);
  } else if (auto* gone = std::get_if<SchedulerDown>(&event)) {
    OnSchedulerDown(*gone, now);
  } else if (auto* up = std::get_if<CompilerUp>(&event)) {
    executables_.OnCompilerUp(*up, now);
    outbox_.actions().presence_changed = true;
  } else if (auto* down = std::get_if<CompilerDown>(&event)) {
    executables_.OnCompilerDown(*down, now);
    outbox_.actions().presence_changed = true;
  } else if (auto* result = std::get_if<FromCompiler>(&event)) {
    executables_.OnResult(*result, now);
  } else if (auto* refused = std::get_if<CompileNotSent>(&event)) {
    executables_.OnNotSent(*refused, now);
  } else if (auto* drain = std::get_if<Drain>(&event)) {
    fleet_.OnDrain(drain->request);
  } else if (std::holds_alternative<DrainAll>(event)) {
    fleet_.DrainAll();
  }
}

void Controller::OnOp(Session& session, wire::Op& op, Time now) {
  const SessionId id = session.info.id;
  if (!Transfers::MayOvertakeCopies(session, op)) transfers_.SendCopies(session);
  switch (op.op_case()) {
    case wire::Op::kCompile:
      return executables_.OnCompile(id, *op.mutable_compile(), now);
    case wire::Op::kUpload:
      return transfers_.OnUpload(session, *op.mutable_upload(), now);
    case wire::Op::kPut:
      return transfers_.OnPut(session, *op.mutable_put(), now);
    case wire::Op::kCall:
      return calls_.OnCall(session, op.call(), op.call().callback_depth(), now);
    case wire::Op::kLaunch:
      return launches_.OnLaunch(session, op.launch(), now);
    case wire::Op::kRegisterProgram:
      return programs_.OnRegister(id, op.register_program(), session.arrays);
    case wire::Op::kDropPrograms:
      return programs_.OnDrop(id, op.drop_programs());
    case wire::Op::kCopy:
      return transfers_.OnCopy(session, op.copy(), now);
    case wire::Op::kRegroup:
      return session.arrays.OnRegroup(op.regroup());
    case wire::Op::kFetch:
      return transfers_.OnFetch(session, op.fetch());
    case wire::Op::kAwait:
      return awaits_.OnAwait(id, op.await(), session.arrays, storages_);
    case wire::Op::kDrop:
      return session.arrays.OnDrop(op.drop(), DropMode::kLetGo);
    case wire::Op::kDelete:
      return session.arrays.OnDrop(op.delete_(), DropMode::kTake);
    case wire::Op::kDropExecutables:
      return executables_.OnDrop(id, op.drop_executables(), now);
    case wire::Op::kPoison:
      return session.arrays.OnPoison(*op.mutable_poison());
    case wire::Op::kAbandon:
      return nodes_.OnAbandon(id, *op.mutable_abandon());
    case wire::Op::kTellEnds:
      return nodes_.OnTellEnds(id, op.tell_ends());
    case wire::Op::kDropShards:
      return session.arrays.OnDropShards(op.drop_shards(), DropMode::kLetGo);
    case wire::Op::kDeleteShards:
      return session.arrays.OnDropShards(op.delete_shards(), DropMode::kTake);
    case wire::Op::OP_NOT_SET:
      return;
  }
}

void Controller::OnSessionOpened(const SessionOpened& opened) {
  const SessionInfo info{opened.session, opened.name, Owner(opened.certificate, opened.session)};
  if (!sessions_.try_emplace(info.id, Session{info, SessionArrays(fleet_, storages_)}).second)
    return;
  nodes_.Open(info.id, opened.wants_ends);
  executables_.Open(info);
  programs_.Open(info.id);
  isolation_.Open(info.owner);
}

void Controller::OnSessionLost(SessionId id, Time now) {
  ended_.Insert(id);  // also one that never opened: without gaps, all are one run
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  for (uint32_t island = 0; island < outbox_.island_count(); ++island) {
    wire::IslandItem item;
    item.mutable_end_session()->set_session(id.number());
    outbox_.ToIsland(island, std::move(item));
  }
  awaits_.Close(id);
  it->second.arrays.Close();
  const SessionInfo info = std::move(it->second.info);
  sessions_.erase(it);
  nodes_.Close(id);
  executables_.Close(id, now);
  programs_.Close(id);
  const auto unclaimed = isolation_.Close(info);
  if (!unclaimed) return;
  for (const size_t worker : *unclaimed) ReplaceWorker(worker, info.owner, now);
  executables_.EndOwner(info.owner, now);
}

std::optional<Time> Controller::next_deadline() const {
  std::optional<Time> next;
  for (const std::optional<Time>& each :
       {executables_.next_deadline(), outbox_.next_deadline(), nodes_.next_deadline()}) {
    if (each && (!next || *each < *next)) next = each;
  }
  return next;
}

ControllerView Controller::view() const {
  return {sessions_, fleet_, isolation_, outbox_, storages_, executables_, nodes_, programs_};
}

void Controller::FillStatus(Time now, wire::StatusReply& reply) const {
  reply.set_epoch(config_.epoch);
  controller::FillStatus(view(), now, reply);
}

bool Controller::Explain(wire::WhyRequest& request, Time now, wire::WhyReply& reply) const {
  return controller::Explain(view(), request, now, reply);
}

void Controller::FillTopology(wire::Topology& topology, const Owner& owner) const {
  controller::FillTopology(presence(), owner, topology);
}

std::string Controller::AbsentWorkers(const Owner& owner) const {
  return controller::AbsentWorkers(presence(), owner);
}

std::string Controller::AbsentProcesses() const {
  return controller::AbsentProcesses(presence(), executables_.compiles().compiler_up(0));
}

void Controller::FillTerms(uint32_t island, wire::IslandTerms& terms) const {
  fleet_.FillWorkers(island, terms);
  ended_.AppendTo(*terms.mutable_ended_sessions());
}

}  // namespace gangway::controller
