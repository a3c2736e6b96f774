// Implementation of nodes.h.
#include "gangway/controller/core/nodes.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/names.h"

namespace gangway::controller {
namespace {

// Progress is a hint for flow control, not an answer: few messages suffice (TM-2).
constexpr uint64_t kProgressStep = 256;
// After the first of the ends that are told together. Shorter than people notice, and long beside a script's call.
constexpr std::chrono::milliseconds kReportWithin{10};
// Of a session with nothing pending. A script that submits call after call is idle for less, between its batches; one
// that is idle for longer may wait for the last end in a way that its client does not see.
constexpr std::chrono::microseconds kIdleMax{500};
constexpr size_t kRangesMax = 256;  // of ended nodes in one event, each with a failure

// What workers of other islands need of it.
wire::Worker SenderOf(const wire::Worker& worker) {
  wire::Worker sender;
  sender.set_island(worker.island());
  sender.set_index(worker.index());
  sender.set_incarnation(worker.incarnation());
  sender.set_data_address(worker.data_address());
  *sender.mutable_devices() = worker.devices();
  return sender;
}

// A failure that has begun with this node of a program.
wire::FailureRef At(const ProgramNode& origin, wire::Failure failure) {
  failure.set_launched_program(origin.program->name);
  failure.set_node(origin.node);
  if (origin.source) failure.set_source(*origin.source);
  return wire::Share(std::move(failure));
}

}  // namespace

void Nodes::Open(SessionId session, bool wants_ends) {
  sessions_[session].end_reports = wants_ends ? EndReports::kAtOnce : EndReports::kCountOnly;
}

void Nodes::Close(SessionId id) {
  const auto session = sessions_.find(id);
  if (session == sessions_.end()) return;
  if (session->second.unreported) due_.erase({session->second.unreported->report_at, id});
  sessions_.erase(session);
  progressed_.erase(id);
}

uint64_t Nodes::PendingOf(SessionId id) const {
  const OfSession& session = sessions_.at(id);
  return session.pending + session.uncounted;
}

wire::FailureRef Nodes::CheckRoom(SessionId session, uint64_t count) const {
  const uint64_t pending = PendingOf(session);
  if (pending < 2 * pending_max_ && count <= 2 * pending_max_ - pending) return nullptr;
  return wire::Share(wire::MakeFailure(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("the session has ", pending, " pending nodes, ",
                   count == 1 ? "twice the limit"
                              : absl::StrCat("and ", count, " more would pass twice the limit of ",
                                             pending_max_)),
      "Wait for results before submitting more."));
}

void Nodes::Refuse(SessionId id, const wire::FailureRef& why, uint64_t count) {
  OfSession& session = sessions_.at(id);
  if (count == 0) return;
  session.ended += count;
  if (session.end_reports != EndReports::kCountOnly)
    session.ends.Add(session.numbered + 1, why, count);
  session.numbered += count;
  progressed_.insert(id);
}

wire::FailureRef Nodes::AtOrigin(wire::FailureRef failure) const {
  return origin_ ? At(*origin_, *failure) : std::move(failure);
}

bool Nodes::HasUpload(SessionId session, UploadId upload) const {
  return sessions_.at(session).uploads.contains(upload);
}

uint64_t Nodes::Number(SessionId id) {
  OfSession& session = sessions_.at(id);
  ++session.pending;
  return ++session.numbered;
}

void Nodes::Add(SessionId id, Node node) {
  const Ordinal ordinal = std::exchange(next_, Ordinal(next_.number() + 1));
  if (node.numbers.empty() && node.counting == Counting::kByClient)
    node.numbers.push_back(Number(id));
  if (!node.origin) node.origin = origin_;
  if (node.origin) outbox_.actions().launched.push_back({ordinal, id, *node.origin});
  OfSession& session = sessions_.at(id);
  if (node.counting == Counting::kUnknownToClient) ++session.uncounted;
  session.put_cost += node.put_cost;
  if (node.upload != UploadId()) session.uploads[node.upload] = ordinal;
  if (node.launched && node.open_islands.size() > 1) sequencer_.Add(ordinal, node.open_islands);
  nodes_[ordinal] = {.session = id, .node = std::move(node), .failure = nullptr};
}

void Nodes::OnAbandon(SessionId session, wire::AbandonOp& op) {
  const auto& uploads = sessions_.at(session).uploads;
  const auto upload = uploads.find(UploadId(op.upload()));
  if (upload == uploads.end()) return;  // it has ended
  wire::Failure failure = std::move(*op.mutable_failure());
  if (failure.code() == 0)
    failure = wire::MakeFailure(absl::StatusCode::kCancelled, "the upload was abandoned");
  wire::Clip(failure);
  const auto node = nodes_.find(upload->second);
  if (node != nodes_.end()) Spoil(node->first, node->second, wire::Share(std::move(failure)));
}

void Nodes::OnDone(uint32_t island, wire::Done& done) {
  const Ordinal ordinal(done.ordinal());
  const auto it = nodes_.find(ordinal);
  if (it == nodes_.end() || std::erase(it->second.node.open_islands, island) == 0) return;
  if (done.has_failure()) {
    wire::Clip(*done.mutable_failure());
    Spoil(ordinal, it->second, wire::Share(std::move(*done.mutable_failure())));
  }
  if (it->second.node.open_islands.empty()) End(ordinal);
}

void Nodes::OnReady(uint32_t island, const wire::Report& report) {
  std::vector<Sequencer::Decision> decisions;
  for (const uint64_t number : report.ready().ordinals())
    sequencer_.OnReady(Ordinal(number), island, decisions);
  for (const uint64_t number : report.admitted().ordinals())
    sequencer_.OnAdmitted(Ordinal(number), island, decisions);
  Follow(decisions);
}

// Once all source islands have reported Released, the copy's open islands may release their half.
void Nodes::OnReleased(uint32_t island, const wire::Released& released, const Fleet& fleet) {
  for (const uint64_t number : released.ordinals()) {
    const auto it = nodes_.find(Ordinal(number));
    if (it == nodes_.end()) continue;
    const Node& node = it->second.node;
    if (std::erase(it->second.node.unreleased_sources, island) == 0) continue;
    if (!node.unreleased_sources.empty()) continue;
    wire::IslandItem item;
    item.mutable_released()->add_ordinals(number);
    for (const size_t sender : node.senders) {
      const Fleet::Worker& worker = fleet.workers()[sender];
      if (worker.up) *item.mutable_released()->add_sources() = SenderOf(worker.declared);
    }
    outbox_.ToIslands(node.open_islands, std::move(item));
  }
}

void Nodes::FailIsland(uint32_t island, const wire::Failure& failure) {
  std::vector<Ordinal> open;
  for (const auto& [ordinal, entry] : nodes_)
    if (IsOpenOn(ordinal, island)) open.push_back(ordinal);
  std::sort(open.begin(), open.end());  // the same order in every run of a simulation
  for (const Ordinal ordinal : open) {
    wire::Failure own = failure;
    own.set_gang(ordinal.number());
    own.set_worker(SchedulerName(island));
    Fail(island, ordinal, own);
  }
}

void Nodes::Fail(uint32_t island, Ordinal ordinal, const wire::Failure& failure) {
  wire::Done done;
  done.set_ordinal(ordinal.number());
  *done.mutable_failure() = failure;
  OnDone(island, done);
}

bool Nodes::IsOpenOn(Ordinal ordinal, uint32_t island) const {
  const auto it = nodes_.find(ordinal);
  return it != nodes_.end() && std::ranges::count(it->second.node.open_islands, island) != 0;
}

const ProgramNode* Nodes::OriginOf(Ordinal ordinal) const {
  const auto it = nodes_.find(ordinal);
  return it == nodes_.end() || !it->second.node.origin ? nullptr : &*it->second.node.origin;
}

LaunchedProgramRef Nodes::LaunchedBy(Ordinal ordinal) const {
  const auto it = nodes_.find(ordinal);
  return it == nodes_.end() ? nullptr : it->second.node.launched;
}

LaunchedProgramRef Nodes::TakeLaunched(Ordinal ordinal) {
  const auto it = nodes_.find(ordinal);
  return it == nodes_.end() ? nullptr : std::exchange(it->second.node.launched, nullptr);
}

void Nodes::Follow(const std::vector<Sequencer::Decision>& decisions) {
  for (const Sequencer::Decision& decision : decisions) {
    wire::IslandItem item;
    if (decision.release) {
      item.mutable_release()->add_ordinals(decision.ordinal.number());
    } else {
      item.mutable_admit()->add_ordinals(decision.ordinal.number());
    }
    outbox_.ToIslands(decision.islands, std::move(item));
  }
}

void Nodes::Spoil(Ordinal ordinal, Entry& entry, wire::FailureRef failure) {
  if (entry.failure) return;
  const Ordinal gang(failure->gang());
  const ProgramNode* origin = OriginOf(gang);
  if (origin == nullptr) origin = failed_.Find(gang);
  if (origin != nullptr && !failure->has_node()) failure = At(*origin, *failure);
  if (gang == ordinal && entry.node.origin) failed_.Add(gang, *entry.node.origin);
  entry.failure = std::move(failure);
  // Now: an island that forgets the results cannot explain them.
  for (const StorageId id : entry.node.results) storages_.Spoil(id, entry.failure);
  std::vector<Sequencer::Decision> decisions;
  sequencer_.Remove(ordinal, decisions);
  Follow(decisions);
  if (entry.node.open_islands.empty()) return;
  wire::IslandItem item;  // all or none
  item.mutable_cancel()->add_ordinals(ordinal.number());
  *item.mutable_cancel()->mutable_failure() = *entry.failure;
  outbox_.ToIslands(entry.node.open_islands, std::move(item));
}

void Nodes::End(Ordinal ordinal) {
  const auto it = nodes_.find(ordinal);
  const Entry entry = std::move(it->second);
  nodes_.erase(it);
  const Node& node = entry.node;
  if (node.launched && !entry.failure) blame_.OnGoodRun(*node.launched, node.alone);
  for (const StorageId id : node.results) awaits_.OnSettled(storages_.Settle(id));
  const auto found = sessions_.find(entry.session);
  if (found == sessions_.end()) return;
  OfSession& session = found->second;
  session.pending -= node.numbers.size();
  if (node.counting == Counting::kUnknownToClient) --session.uncounted;
  session.put_cost -= node.put_cost;
  session.ended += node.numbers.size();
  for (const uint64_t number : node.numbers)
    if (session.end_reports != EndReports::kCountOnly) session.ends.Add(number, entry.failure);
  if (node.upload != UploadId()) session.uploads.erase(node.upload);
  progressed_.insert(entry.session);
  if (entry.failure) TellFailure(entry);
}

void Nodes::TellFailure(const Entry& entry) {
  wire::SessionEvent event;
  if (entry.node.fetch != FetchId()) {
    event.mutable_fetch_failed()->set_fetch(entry.node.fetch.number());
    *event.mutable_fetch_failed()->mutable_failure() = *entry.failure;
  } else if (entry.node.upload != UploadId()) {
    event.mutable_upload_failed()->set_upload(NumberOf(entry.node.upload));
    *event.mutable_upload_failed()->mutable_failure() = *entry.failure;
  } else {
    return;
  }
  outbox_.ToClient(entry.session, std::move(event));
}

// --- Ends, for the sessions ---

// Without wants_ends, the session is told none, whatever it says.
void Nodes::OnTellEnds(SessionId id, const wire::TellEndsOp& op) {
  OfSession& session = sessions_.at(id);
  if (session.end_reports == EndReports::kCountOnly) return;
  const bool together = op.when() == wire::ENDS_TOGETHER;
  session.end_reports = together ? EndReports::kCoalesced : EndReports::kAtOnce;
  session.ends.LookFor(op.looked_for() == 0 ? std::nullopt : std::optional(op.looked_for()));
  if (session.unreported) progressed_.insert(id);
}

void Nodes::ReportProgress(Time now) {
  for (const SessionId id : std::exchange(progressed_, {})) {
    OfSession& session = sessions_.at(id);
    if (IsDueNow(session)) {
      ReportEnds(id, session);
    } else if (session.end_reports == EndReports::kCoalesced) {
      NoteUnreported(id, session, now);
    }
  }
  while (!due_.empty() && due_.begin()->first <= now) {
    const SessionId id = due_.begin()->second;
    OfSession& session = sessions_.at(id);
    const Time due = DueAt(session);
    if (due > now) {
      SetDue(id, *session.unreported, due);  // it has new nodes
    } else {
      ReportEnds(id, session);
    }
  }
}

// A failure is told at once: what follows from it should not have to wait. So is a node that the client looks for.
bool Nodes::IsDueNow(OfSession& session) {
  if (session.end_reports == EndReports::kAtOnce || session.ends.has_failure()) return true;
  if (session.ended - session.ended_reported >= kProgressStep) return true;
  return session.ends.HasLookedFor();
}

void Nodes::NoteUnreported(SessionId id, OfSession& session, Time now) {
  if (!session.unreported)
    session.unreported = {.since = now, .idle_since = now, .report_at = Time::max()};
  if (session.pending == 0) session.unreported->idle_since = now;
  const Time due = DueAt(session);
  if (due < session.unreported->report_at) SetDue(id, *session.unreported, due);
}

Time Nodes::DueAt(const OfSession& session) {
  const Time due = session.unreported->since + kReportWithin;
  return session.pending == 0 ? std::min<Time>(due, session.unreported->idle_since + kIdleMax)
                              : due;
}

void Nodes::SetDue(SessionId id, UnreportedEnds& unreported, Time due) {
  due_.erase({unreported.report_at, id});
  unreported.report_at = due;
  due_.insert({due, id});
}

void Nodes::ReportEnds(SessionId id, OfSession& session) {
  if (session.unreported) due_.erase({session.unreported->report_at, id});
  session.unreported.reset();
  session.ended_reported = session.ended;
  do {
    wire::SessionEvent event;
    event.mutable_progress()->set_ended(session.ended);
    session.ends.MoveTo(kRangesMax, *event.mutable_progress());
    outbox_.ToClient(id, std::move(event));
  } while (!session.ends.empty());
}

std::optional<Time> Nodes::next_deadline() const {
  if (due_.empty()) return std::nullopt;
  return due_.begin()->first;
}

}  // namespace gangway::controller
