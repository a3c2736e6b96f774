// Opening, flushing and ending of a session.
#include "gangway/client/client_impl.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/base/trace.h"
#include "gangway/client/convert.h"
#include "gangway/transport/server_role.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway {

absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options) {
  GANGWAY_CHECK(options.control != nullptr && options.data != nullptr,
                "a client needs both transports");
  auto client = std::make_unique<client::ClientImpl>(options);
  GANGWAY_RETURN_IF_ERROR(client->Open());
  return client;
}

namespace client {
namespace {
constexpr int kBatchOps = 4096;  // per frame
// How long an operation without a waiter (Drop) may wait for another one to be sent with.
constexpr std::chrono::milliseconds kSoon{4};
constexpr int kSendRounds = 4;
// Callers may send this many operations at once, and one more in each interval.
constexpr int kSendsAtOnce = 4;
constexpr std::chrono::microseconds kSendInterval{100};
constexpr int kBurstOps = 256;  // of which a burst is sent without waiting for the interval's end
constexpr std::chrono::seconds kSilenceTold{2};  // of the controller; a busy one answers sooner
// Unsent programs and operations: more than the controller accepts of one session's programs.
constexpr size_t kWaitingBytesMax = size_t{2} << 30;
// Calls `done` with the first failure of `count` calls, at the last of them, which come one at a time.
StatusCallback AfterAll(uint64_t count, StatusCallback done) {
  struct State {
    uint64_t left = 0;
    absl::Status first;
    StatusCallback done;
  };
  auto state = std::make_shared<State>(State{count, absl::OkStatus(), std::move(done)});
  return [state](const absl::Status& status) {
    state->first.Update(status);
    if (--state->left == 0) state->done(state->first);
  };
}

constexpr int kShutdownRounds = 1000;  // of callbacks that submit again during the shutdown

// A controller rejects clients of other versions itself. This check covers a controller that does
// not.
absl::Status CheckVersion(const wire::HelloReply& reply, const std::string& address) {
  if (reply.protocol_version() == wire::kProtocolVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the controller at ", address, " runs Gangway ", reply.build_version(), " (protocol ",
      reply.protocol_version(), "), this client runs ", wire::kBuildVersion, " (protocol ",
      wire::kProtocolVersion, "): install the same version on both."));
}
}  // namespace

absl::Status ClientImpl::Orphaned() {
  return absl::UnavailableError(
      "this process was forked from the one that opened the session, and has none of its threads: "
      "start processes with the method 'spawn', or connect in the child");
}

ClientImpl::ClientImpl(const ClientOptions& options) : options_(options) {}

ClientImpl::~ClientImpl() {
  GANGWAY_CHECK(!loop_.IsLoopThread(), "a client must not be destroyed from its own callback");
  loop_.Post([this] { Shutdown(); });
  loop_.Stop();
  data_links_.reset();
}

absl::Status ClientImpl::Open() {
  const auto deadline = Clock::now() + options_.connect_limit;
  transport::LinkEvents events;
  events.executor = &loop_;
  events.on_frame = [this](wire::Frame frame) { OnFrame(std::move(frame)); };
  events.on_writable = [this] { OnControlWritable(); };
  events.on_closed = [this](const absl::Status& why) { OnControlClosed(why); };
  GANGWAY_ASSIGN_OR_RETURN(
      auto link, options_.control->Connect(options_.controller_address,
                                           transport::JoinPieces(std::move(events)),
                                           options_.connect_limit, transport::kBatchLink));
  GANGWAY_RETURN_IF_ERROR(transport::CheckControls(link->peer(), options_.controller_address));
  {
    MutexLock lock(sender_mutex_);
    sender_ = std::make_unique<transport::PacedSender>(
        link, [this](wire::Frame& sending) { Stamp(sending); },
        transport::PacedSender::Options{.waiting_bytes_max = kWaitingBytesMax});
  }
  wire::Frame frame;
  wire::Hello* hello = frame.mutable_hello();
  hello->set_protocol_version(wire::kProtocolVersion);
  hello->set_build_version(wire::kBuildVersion);
  hello->set_role(wire::ROLE_CLIENT);
  hello->set_name(options_.name);
  hello->set_process_id(ProcessId());
  hello->set_token(options_.token);
  hello->set_wants_ends(options_.reports_ends);
  {
    MutexLock lock(mutex_);
    control_ = std::move(link);
    batches_.push_back(std::move(frame));
  }
  SendBatches();
  MutexLock lock(mutex_);
  opened_.WaitUntil(mutex_, deadline,
                    [this]() GANGWAY_NO_ANALYSIS { return welcome_.has_value(); });
  if (welcome_) return *welcome_;
  return wire::ToStatus(wire::MakeFailure(
      absl::StatusCode::kDeadlineExceeded,
      absl::StrCat("the controller at ", options_.controller_address, " opened no session within ",
                   options_.connect_limit.count(), " ms"),
      "Look at `gangway status`: a session starts when a worker is up."));
}

void ClientImpl::OnFrame(wire::Frame frame) {
  control_watch_.Heard();
  if (frame.has_session_events()) {
    OnEvents(*frame.mutable_session_events());
  } else if (frame.has_hello_reply()) {
    OnWelcome(frame.hello_reply());
  } else if (frame.has_trace_reply()) {
    OnTraceReply(frame.trace_reply());
  }
}

void ClientImpl::OnWelcome(const wire::HelloReply& reply) {
  if (data_links_) return;  // a second welcome is ignored
  absl::Status refused = wire::ToStatus(reply.failure());
  if (refused.ok()) refused = CheckVersion(reply, options_.controller_address);
  if (refused.ok()) {
    cluster_ = ToClusterInfo(reply);
    DataLinks::Options options;
    options.transport = options_.data;
    options.loop = &loop_;
    options.name = options_.name;
    options.epoch = reply.epoch();
    options.session = SessionId(reply.session());
    options.token = reply.data_token();
    options.awaits_admission = reply.isolated();
    options.on_shard = [this](const wire::Bulk& bulk) { OnShard(bulk); };
    options.on_place = [this](uint64_t fetch, uint32_t shard, std::shared_ptr<const char> bytes,
                              size_t size) { OnPlace(fetch, shard, std::move(bytes), size); };
    options.on_lost = [this](WorkerKey worker, const absl::Status& why) {
      OnWorkerLost(worker, why);
    };
    options.on_upload_lost = [this](uint64_t upload, const absl::Status& why) {
      MutexLock lock(mutex_);
      if (lost_.ok()) Abandon(upload, why);
    };
    options.suspicion = [this] { return SilenceOfController(); };
    options.on_host_callback = [this](wire::HostCallback callback, HostCallbacks::Reply reply) {
      host_callbacks_.Add(std::move(callback), std::move(reply));
    };
    data_links_ = std::make_unique<DataLinks>(std::move(options));
    for (const wire::Worker& worker : reply.topology().workers()) {
      for (uint32_t device : worker.devices())
        worker_of_[device] = {worker.island(), worker.index()};
      NoteWorker(worker, !worker.data_address().empty());
    }
    if (reply.latency_request()) UseLatencyRequest();
  }
  MutexLock lock(mutex_);
  if (!welcome_) welcome_ = refused;
  opened_.NotifyAll();
}

// Work begins on callers' threads, and ends on the loop.
void ClientImpl::UseLatencyRequest() {
  {
    MutexLock lock(mutex_);
    latency_.Use(&loop_);
  }
  loop_.AddRoundEnd([this] {
    MutexLock lock(mutex_);
    NoteBusy();
  });
}

// Where the controller tells of the ends late, those of calls that nothing waits for are not known.
void ClientImpl::NoteBusy() {
  latency_.Set(AwaitsAnswer() || (options_.reports_ends && pending() != 0));
}

void ClientImpl::NoteWorker(const wire::Worker& worker, bool up, const std::string& why_down) {
  {
    MutexLock lock(mutex_);
    workers_[{worker.island(), worker.index()}] = {.incarnation = Incarnation(worker.incarnation()),
                                                   .next = !up};
  }
  data_links_->SetWorker(worker, up, why_down);
}

void ClientImpl::OnControlClosed(const absl::Status& why) {
  Lose(wire::ToStatus(wire::MakeFailure(
      absl::StatusCode::kUnavailable,
      absl::StrCat("the session with the controller at ", options_.controller_address,
                   " was lost: ", std::string(why.message())),
      "Its arrays are gone: connect again once `gangway status` answers.")));
}

void ClientImpl::Flush() {
  std::vector<OutgoingPush> pushes;
  {
    MutexLock lock(mutex_);
    flush_posted_ = false;
    pushes.swap(pushes_);
  }
  SendBatches();
  for (OutgoingPush& outgoing : pushes) {
    const WorkerKey worker = worker_of_.at(outgoing.device);
    if (outgoing.placed) {
      data_links_->Reserve(worker, outgoing.push, std::move(outgoing.placed));
    } else {
      data_links_->Add(worker, std::move(outgoing.push));
    }
  }
  RunDeferred();
}

// The sending thread also sends, in order, what other threads append while it sends. After
// kSendRounds the loop takes over, so that other callers cannot hold a caller here. A failed link
// is not used again: later operations must not arrive without the lost ones.
void ClientImpl::SendBatches() {
  std::vector<wire::Frame> frames;
  std::shared_ptr<transport::Link> link;
  bool sending = false;
  for (int round = 0;; ++round) {
    {
      MutexLock lock(mutex_);
      if (sending_ && !sending) return;
      if (round == kSendRounds && !batches_.empty()) {
        sending_ = false;
        return Wake();
      }
      frames.clear();
      frames.swap(batches_);
      link = control_;
      sending = sending_ = !frames.empty();
      if (!sending) return;
    }
    for (wire::Frame& frame : frames) {
      if (!link) break;  // lost
      absl::Status sent;
      {
        MutexLock lock(sender_mutex_);
        if (sender_) sent = sender_->Send(std::move(frame));
      }
      if (sent.ok()) continue;
      return loop_.Post([this, sent] { OnControlClosed(sent); });  // `sending_` stays true
    }
  }
}

void ClientImpl::Stamp(wire::Frame& frame) {
  frame.set_epoch(cluster_.epoch);
  frame.set_sequence(++control_sequence_);
  if (!frame.has_piece())
    Trace(TraceKind::kSubmit, 0, SessionId(cluster_.session), {}, control_sequence_);
}

void ClientImpl::OnControlWritable() {
  absl::Status sent;
  {
    MutexLock lock(sender_mutex_);
    if (sender_) sent = sender_->OnWritable();
  }
  if (!sent.ok()) OnControlClosed(sent);
}

void ClientImpl::SendOrWake(Urgency urgency) {
  {
    MutexLock lock(mutex_);
    if (batches_.empty()) return;
    if (sending_ || !control_ || control_->queued_bytes() > 0) return Wake();
    if (urgency == Urgency::kBatched && IsBurst()) {
      const bool is_full =
          batches_.size() > 1 || batches_.back().session_batch().ops_size() >= kBurstOps;
      return is_full ? Wake() : FlushSoon();
    }
  }
  SendBatches();
}

// Each frame costs both ends a system call and the controller a wake: a caller sends a few operations at once, those of
// a burst travel together.
bool ClientImpl::IsBurst() {
  const auto now = Clock::now();
  const auto earned = (now - refilled_) / kSendInterval;
  if (sends_left_ + earned >= kSendsAtOnce) {
    sends_left_ = kSendsAtOnce;
    refilled_ = now;
  } else {
    sends_left_ += static_cast<int>(earned);
    refilled_ += earned * kSendInterval;
  }
  if (sends_left_ == 0) return true;
  --sends_left_;
  return false;
}

void ClientImpl::FlushSoon() {
  if (flush_posted_ || std::exchange(flush_soon_, true)) return;
  loop_.PostAt(Clock::now() + kSendInterval, [this] {
    {
      MutexLock lock(mutex_);
      flush_soon_ = false;
    }
    Flush();
  });
}

void ClientImpl::SendNow() {
  if (IsOrphan()) [[unlikely]]
    return;
  {
    MutexLock lock(mutex_);
    if (!pushes_.empty()) Wake();
    if (batches_.empty() || !lost_.ok()) return;
  }
  SendOrWake(Urgency::kAtOnce);
}

void ClientImpl::RunDeferred() {
  std::vector<std::function<void()>> deferred;
  {
    MutexLock lock(mutex_);
    deferred.swap(deferred_);
  }
  for (auto& task : deferred) task();
}

void ClientImpl::Lose(const absl::Status& why) {
  StatusCallback on_lost;
  {
    MutexLock lock(mutex_);
    if (!lost_.ok()) return;
    lost_ = why;
    if (!welcome_) welcome_ = why;
    on_lost = std::exchange(on_lost_, nullptr);
    opened_.NotifyAll();
  }
  EndPending(why);
  if (on_lost) on_lost(why);
}

void ClientImpl::EndPending(const absl::Status& why) {
  Pending pending;
  std::vector<OutgoingPush> pushes;
  std::shared_ptr<transport::Link> control;
  {
    MutexLock lock(mutex_);
    control = std::exchange(control_, nullptr);
    pending = std::exchange(pending_, {});
    pushes.swap(pushes_);
    uploads_.clear();
    placements_.clear();
    executables_.clear();
    batches_.clear();
    dropping_.clear();
    shard_drops_.clear();
    ended_ = submitted_.load();
  }
  for (OutgoingPush& outgoing : pushes) {
    if (outgoing.push.released) outgoing.push.released();
  }
  host_callbacks_.Stop();
  if (data_links_) data_links_->Close(why);
  if (control) control->Close(why);
  {
    MutexLock lock(sender_mutex_);
    sender_.reset();
  }
  for (auto& [id, done] : pending.compiles) done(why);
  for (auto& [id, done] : pending.awaits) done(why);
  for (auto& [id, fetching] : pending.fetches) EndParts(fetching, why);
  for (auto& on_room : pending.room) on_room();
  std::vector<StatusCallback> ended;
  pending.ends.EndAll(ended);
  for (StatusCallback& each : ended) each(why);
  for (auto& done : pending.usages) done(why);
  if (pending.profiling) pending.profiling->done(why);
}

void ClientImpl::Shutdown() {
  Flush();  // a last drop or delete still affects arrays that share its shards
  absl::Status why = absl::CancelledError("the client was destroyed");
  {
    MutexLock lock(mutex_);
    on_lost_ = nullptr;
    if (!lost_.ok()) why = lost_;
    lost_ = why;
  }
  EndPending(why);
  for (int round = 0; round < kShutdownRounds; ++round) RunDeferred();
}

wire::Op* ClientImpl::NewOp(uint64_t nodes, StatusCallback ended) {
  if (options_.reports_ends) {
    // Of several nodes, the last one that ends tells; their first failure counts.
    if (nodes > 1 && ended) ended = AfterAll(nodes, std::move(ended));
    for (uint64_t i = 1; i < nodes; ++i) pending_.ends.Submit(ended);
    if (nodes != 0) {
      pending_.ends.Submit(std::move(ended));
    } else if (ended) {
      Defer([ended = std::move(ended)] { ended(absl::OkStatus()); });
    }
  } else {
    GANGWAY_CHECK(!ended, "this session was not asked to report the ends of operations");
  }
  if (batches_.empty() || batches_.back().session_batch().ops_size() >= kBatchOps)
    batches_.emplace_back();
  submitted_.fetch_add(nodes, std::memory_order_relaxed);
  NoteBusy();
  return batches_.back().mutable_session_batch()->add_ops();
}

wire::Op* ClientImpl::LastOp() {
  if (batches_.empty() || !batches_.back().has_session_batch()) return nullptr;
  auto* const ops = batches_.back().mutable_session_batch()->mutable_ops();
  return ops->empty() ? nullptr : ops->Mutable(ops->size() - 1);
}

void ClientImpl::SendSoon() {
  if (send_soon_) return;
  send_soon_ = true;
  loop_.PostAt(Clock::now() + kSoon, [this] {
    {
      MutexLock lock(mutex_);
      send_soon_ = false;
      if (lost_.ok()) AppendShardDrops();
    }
    SendBatches();
  });
}

void ClientImpl::WatchLinks() {
  NoteBusy();
  if (std::exchange(watching_, true)) return;
  loop_.PostAt(Clock::now() + DataLinks::kWatchInterval, [this] { OnWatch(); });
}

void ClientImpl::OnWatch() {
  std::set<WorkerKey> awaited;
  bool asks = false;
  {
    MutexLock lock(mutex_);
    watching_ = false;
    if (!lost_.ok() || !data_links_) return;
    for (const auto& [id, fetching] : pending_.fetches) awaited.merge(Awaited(fetching));
    asks = AwaitsController();
  }
  const bool busy = data_links_->Watch(awaited);
  if (asks) WatchController();
  // A push may be on its way to a link: only after two looks at nothing is there nothing.
  idle_looks_ = busy || asks ? 0 : idle_looks_ + 1;
  MutexLock lock(mutex_);
  if (idle_looks_ < 2) return WatchLinks();
  idle_looks_ = 0;
}

bool ClientImpl::AwaitsAnswer() const {
  return !pending_.compiles.empty() || !pending_.awaits.empty() || !pending_.fetches.empty() ||
         !pending_.room.empty() || pending_.usage != 0 || pending_.profiling;
}

bool ClientImpl::AwaitsController() const {
  return options_.controller_silence_max.count() > 0 && AwaitsAnswer();
}

// Workers whose controller's host is cut off end themselves, which may be seen before the controller's own silence has
// lasted long enough.
std::string ClientImpl::SilenceOfController() const {
  const auto silent =
      std::chrono::duration_cast<std::chrono::seconds>(control_watch_.silent_for(Clock::now()));
  if (silent < kSilenceTold) return "";
  return absl::StrCat("nor has the controller at ", options_.controller_address, " answered for ",
                      silent.count(), " s");
}

void ClientImpl::WatchController() {
  std::shared_ptr<transport::Link> link;
  {
    MutexLock lock(mutex_);
    link = control_;
  }
  if (!link) return;
  const auto now = Clock::now();
  switch (control_watch_.Look(now, link->queued_bytes())) {
    case ControlWatch::Verdict::kWait:
      break;
    case ControlWatch::Verdict::kAsk: {
      wire::Frame frame;
      frame.set_epoch(cluster_.epoch);
      frame.mutable_heartbeat()->set_time_ns(now.time_since_epoch().count());
      (void)link->Send(std::move(frame));  // on_closed reports a closed link
      break;
    }
    case ControlWatch::Verdict::kSilent:
      OnControlClosed(absl::DeadlineExceededError(absl::StrCat(
          "nothing came from it for ", options_.controller_silence_max.count(),
          " ms, although it was asked: its process stands still, or the network to it is cut")));
  }
}

void ClientImpl::Wake() {
  if (flush_posted_) return;
  flush_posted_ = true;
  loop_.Post([this] { Flush(); });
}

void ClientImpl::Defer(std::function<void()> task) {
  deferred_.push_back(std::move(task));
  Wake();
}

uint64_t ClientImpl::pending() const {
  const uint64_t ended = ended_.load(std::memory_order_relaxed);
  const uint64_t submitted = submitted_.load(std::memory_order_relaxed);
  return submitted > ended ? submitted - ended : 0;
}

void ClientImpl::WhenRoom(std::function<void()> on_room) {
  if (IsOrphan()) [[unlikely]]
    return on_room();
  MutexLock lock(mutex_);
  if (!lost_.ok() || pending() < options_.pending_max) {
    Defer(std::move(on_room));
  } else {
    pending_.room.push_back(std::move(on_room));
    WatchLinks();
  }
}

void ClientImpl::OnLost(StatusCallback lost) {
  MutexLock lock(mutex_);
  if (lost_.ok()) {
    on_lost_ = std::move(lost);
  } else {
    Defer([lost = std::move(lost), why = lost_] { lost(why); });
  }
}

}  // namespace client
}  // namespace gangway
