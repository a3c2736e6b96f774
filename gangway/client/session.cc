// Implementation of session.h.
#include "gangway/client/session.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/client/convert.h"
#include "gangway/transport/server_role.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::client {
namespace {

constexpr int kShutdownRounds = 1000;  // of callbacks that submit again during the shutdown

wire::Frame HelloOf(const ClientOptions& options) {
  wire::Frame frame;
  wire::Hello* hello = frame.mutable_hello();
  hello->set_protocol_version(wire::kProtocolVersion);
  hello->set_build_version(wire::kBuildVersion);
  hello->set_role(wire::ROLE_CLIENT);
  hello->set_name(options.name);
  hello->set_process_id(ProcessId());
  hello->set_token(options.token);
  hello->set_wants_ends(options.reports_ends);
  return frame;
}

// A controller rejects clients of other versions itself. This check covers a controller that does
// not.
absl::Status CheckVersion(const wire::HelloReply& reply, const std::string& address) {
  if (reply.protocol_version() == wire::kProtocolVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the controller at ", address, " runs Gangway ", reply.build_version(), " (protocol ",
      reply.protocol_version(), "), this client runs ", wire::kBuildVersion, " (protocol ",
      wire::kProtocolVersion, "): install the same version on both."));
}

absl::Status SessionLost(const std::string& address, const absl::Status& why) {
  return wire::ToStatus(
      wire::MakeFailure(absl::StatusCode::kUnavailable,
                        absl::StrCat("the session with the controller at ", address,
                                     " was lost: ", std::string(why.message())),
                        "Its arrays are gone: connect again once `gangway status` answers."));
}

}  // namespace

Session::Session(const ClientOptions& options)
    : options_(options),
      activity_({.loop = &loop_,
                 .interval = DataLinks::kWatchInterval,
                 .look = [this] { return Look(); },
                 .latency_request = &LatencyRequest::OfProcess()}),
      submitter_({.loop = &loop_,
                  .activity = &activity_,
                  .pending_max = options.pending_max,
                  .reports_ends = options.reports_ends,
                  .captures_bursts = options.captures_bursts,
                  .take_beside = [this] { return uploads_.TakeWaiting(); },
                  .on_failed =
                      [this](const absl::Status& why) {
                        Lose(SessionLost(options_.controller_address, why));
                      }}),
      controller_(options.controller_address, options.controller_silence_max,
                  DataLinks::kWatchInterval) {}

Session::~Session() {
  GANGWAY_CHECK(!loop_.IsLoopThread(), "a client must not be destroyed from its own callback");
  loop_.Post([this] { Shutdown(); });
  loop_.Stop();
  data_links_.reset();
}

// --- Opening ---

absl::Status Session::Open() {
  const auto deadline = Clock::now() + options_.connect_limit;
  transport::LinkEvents events;
  events.executor = &loop_;
  events.on_frame = [this](wire::Frame frame) { OnFrame(std::move(frame)); };
  events.on_writable = [this] { submitter_.OnWritable(); };
  events.on_closed = [this](const absl::Status& why) {
    Lose(SessionLost(options_.controller_address, why));
  };
  GANGWAY_ASSIGN_OR_RETURN(
      auto link, options_.control->Connect(options_.controller_address,
                                           transport::JoinPieces(std::move(events)),
                                           options_.connect_limit, transport::kBatchLink));
  GANGWAY_RETURN_IF_ERROR(transport::CheckControls(link->peer(), options_.controller_address));
  submitter_.Open(std::move(link), HelloOf(options_));
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

void Session::OnWelcome(const wire::HelloReply& reply) {
  if (data_links_) return;  // a second welcome is ignored
  absl::Status refused = wire::ToStatus(reply.failure());
  if (refused.ok()) refused = CheckVersion(reply, options_.controller_address);
  if (refused.ok()) {
    cluster_ = ToClusterInfo(reply);
    submitter_.SetSession(reply.epoch(), SessionId(reply.session()));
    OpenLinks(reply);
    if (reply.latency_request()) activity_.UseLatencyRequest();
  }
  MutexLock lock(mutex_);
  if (!welcome_) welcome_ = refused;
  opened_.NotifyAll();
}

void Session::OpenLinks(const wire::HelloReply& reply) {
  DataLinks::Options options;
  options.transport = options_.data;
  options.loop = &loop_;
  options.name = options_.name;
  options.epoch = reply.epoch();
  options.session = SessionId(reply.session());
  options.token = reply.data_token();
  options.used_from_start = options_.used_from_start;
  options.awaits_admission = reply.isolated();
  options.on_shard = [this](const wire::Bulk& bulk) { fetches_.OnShard(bulk); };
  options.on_place = [this](FetchId fetch, uint32_t shard, std::shared_ptr<const char> bytes,
                            size_t size) {
    fetches_.OnPlace(fetch, shard, std::move(bytes), size);
  };
  options.on_lost = [this](WorkerKey worker, const absl::Status& why) {
    fetches_.OnWorkerLost(worker, why);
  };
  options.on_upload_lost = [this](UploadId upload, const absl::Status& why) {
    uploads_.Fail(upload, why);
  };
  options.suspicion = [this] { return controller_.Suspicion(); };
  options.on_host_callback = [this](wire::HostCallback callback, HostCallbacks::Reply answer) {
    host_callbacks_.Add(std::move(callback), std::move(answer));
  };
  data_links_ = std::make_unique<DataLinks>(std::move(options));
  uploads_.Open(data_links_.get());
  absl::flat_hash_map<uint32_t, WorkerKey> worker_of;
  for (const wire::Worker& worker : reply.topology().workers()) {
    for (uint32_t device : worker.devices()) worker_of[device] = {worker.island(), worker.index()};
  }
  handles_.SetWorkers(std::move(worker_of));
  for (const wire::Worker& worker : reply.topology().workers())
    NoteWorker(worker, !worker.data_address().empty());
}

void Session::NoteWorker(const wire::Worker& worker, bool up, const std::string& why_down) {
  uploads_.SetDestination({worker.island(), worker.index()},
                          {.incarnation = Incarnation(worker.incarnation()), .next = !up});
  data_links_->SetWorker(worker, up, why_down);
}

// --- What the cluster sends ---

void Session::OnFrame(wire::Frame frame) {
  controller_.Heard();
  if (frame.has_session_events()) {
    if (!data_links_) return;  // no event may precede the welcome
    for (wire::SessionEvent& event : *frame.mutable_session_events()->mutable_events())
      OnEvent(event);
  } else if (frame.has_hello_reply()) {
    OnWelcome(frame.hello_reply());
  } else if (frame.has_trace_reply()) {
    questions_.OnTraceReply(frame.trace_reply());
  }
}

void Session::OnEvent(wire::SessionEvent& event) {
  switch (event.event_case()) {
    case wire::SessionEvent::kCompiled:
      if (event.compiled().info().calls_host())  // on the links
        for (const WorkerKey& worker : handles_.workers()) data_links_->Use(worker);
      return questions_.OnCompiled(*event.mutable_compiled());
    case wire::SessionEvent::kAwaitDone:
      return questions_.OnAwaitDone(event.await_done());
    case wire::SessionEvent::kFetchFailed:
      return fetches_.End(FetchId(event.fetch_failed().fetch()),
                          wire::ToStatus(event.fetch_failed().failure()));
    case wire::SessionEvent::kWorkerState:
      if (!event.worker_state().up()) losses_.fetch_add(1, std::memory_order_relaxed);
      NoteWorker(event.worker_state().worker(), event.worker_state().up(),
                 event.worker_state().failure().message());
      return host_callbacks_.TellOfWorkers();
    case wire::SessionEvent::kAdmitted:
      return data_links_->Admit({event.admitted().island(), event.admitted().index()});
    case wire::SessionEvent::kProgress:
      return submitter_.OnProgress(event.progress());
    case wire::SessionEvent::kUploadFailed:
      return uploads_.Forget(UploadId(event.upload_failed().upload()));
    case wire::SessionEvent::kUsage:
      return questions_.OnUsage(event.usage());
    case wire::SessionEvent::kRegistered:
      submitter_.OnRegistered(event.registered());
      return programs_.OnRegistered(event.registered());
    case wire::SessionEvent::kEnded:
      return Lose(wire::ToStatus(event.ended()));
    case wire::SessionEvent::EVENT_NOT_SET:
      return;  // an event of a newer controller
  }
}

// Whether there is something to look at.
bool Session::Look() {
  if (!data_links_) return false;
  const bool asks = controller_.is_asked() && activity_.awaits();
  const bool busy = data_links_->Watch(fetches_.Awaited());
  const std::shared_ptr<transport::Link> link = submitter_.link();
  if (asks && link) {
    const absl::Status silent = controller_.Look(*link, cluster_.epoch);
    if (!silent.ok()) Lose(SessionLost(options_.controller_address, silent));
  }
  return busy || asks;
}

// --- Ending ---

void Session::Lose(const absl::Status& why) {
  if (!submitter_.Lose(why)) return;
  StatusCallback on_lost;
  {
    MutexLock lock(mutex_);
    if (!welcome_) welcome_ = why;
    on_lost = std::exchange(on_lost_, nullptr);
    opened_.NotifyAll();
  }
  EndPending(why);
  if (on_lost) on_lost(why);
}

void Session::EndPending(const absl::Status& why) {
  activity_.Stop();
  uploads_.Clear();
  handles_.Clear();
  host_callbacks_.Stop();
  if (data_links_) data_links_->Close(why);
  submitter_.Close(why);
  questions_.EndAll(why);
  programs_.EndAll(why);
  fetches_.EndAll(why);
  submitter_.EndAll(why);
}

void Session::Shutdown() {
  submitter_.SendNow();
  submitter_.Flush();  // a last drop or delete still affects arrays that share its shards
  {
    MutexLock lock(mutex_);
    on_lost_ = nullptr;
  }
  submitter_.Lose(absl::CancelledError("the client was destroyed"));
  EndPending(submitter_.lost());
  for (int round = 0; round < kShutdownRounds; ++round) submitter_.RunDeferred();
}

void Session::OnLost(StatusCallback lost) {
  MutexLock lock(mutex_);
  const absl::Status why = submitter_.lost();
  if (why.ok()) {
    on_lost_ = std::move(lost);
  } else {
    submitter_.Defer([lost = std::move(lost), why] { lost(why); });
  }
}

}  // namespace gangway::client
