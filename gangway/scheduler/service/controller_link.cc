// Implementation of controller_link.h.
#include "gangway/scheduler/service/controller_link.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/pulse.h"
#include "gangway/base/thread.h"
#include "gangway/transport/server_role.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/trace.h"
#include "gangway/wire/version.h"

namespace gangway::scheduler {

ControllerLink::ControllerLink(EventLoop* loop, Options options, Events events)
    : loop_(loop),
      options_(std::move(options)),
      events_(std::move(events)),
      alive_(std::make_shared<bool>(true)) {}

ControllerLink::~ControllerLink() { *alive_ = false; }

absl::Status ControllerLink::Connect(transport::Transport& controller, const std::string& address,
                                     std::chrono::milliseconds limit) {
  auto answer = std::make_shared<Answer<absl::Status>>();
  on_answer_ = [answer](const absl::Status& status) { answer->Set(status); };
  transport::LinkEvents events;
  events.executor = loop_;
  events.on_frame = [this, alive = alive_](wire::Frame frame) {
    if (*alive) OnFrame(std::move(frame));
  };
  events.on_closed = [this, alive = alive_](const absl::Status& why) {
    if (*alive) OnClosed(why);
  };
  events.on_writable = [this, alive = alive_] {
    if (*alive && sender_) AfterSend(sender_->OnWritable());
  };
  auto link = controller.Connect(address, transport::JoinPieces(std::move(events)), limit,
                                 transport::kBatchLink);
  absl::Status status = link.status();
  if (status.ok()) status = transport::CheckControls((*link)->peer(), address);
  if (status.ok()) {
    loop_->Post([this, alive = alive_, kept = *link] {
      if (*alive) SetLink(kept);
    });
    status = (*link)->Send(Introduce());
  }
  if (!status.ok()) return status;
  return answer->WaitFor(limit).value_or(
      absl::DeadlineExceededError("the controller did not answer the scheduler"));
}

wire::Frame ControllerLink::Introduce() const {
  wire::Frame frame;
  wire::Hello* hello = frame.mutable_hello();
  hello->set_protocol_version(wire::kProtocolVersion);
  hello->set_build_version(wire::kBuildVersion);
  hello->set_role(wire::ROLE_SCHEDULER);
  hello->set_name(wire::SchedulerTraceName(options_.island));
  hello->set_process_id(ProcessId());
  hello->set_token(options_.token);
  hello->mutable_worker()->set_island(options_.island);
  return frame;
}

void ControllerLink::SetLink(std::shared_ptr<transport::Link> link) {
  link_ = std::move(link);
  sender_ = std::make_unique<transport::PacedSender>(
      link_, [this](wire::Frame& frame) { frame.set_epoch(epoch_); },
      transport::PacedSender::Options());
}

void ControllerLink::OnFrame(wire::Frame frame) {
  heard_ = Clock::now();
  auto answer = std::exchange(on_answer_, nullptr);
  if (!answer) {
    if (accepted_) events_.on_frame(frame);
    return;
  }
  if (!frame.has_hello_reply())
    return answer(absl::InternalError("the controller's first frame is not a reply to Hello"));
  if (frame.hello_reply().has_failure())
    return answer(wire::ToStatus(frame.hello_reply().failure()));
  accepted_ = true;
  epoch_ = frame.hello_reply().epoch();
  events_.on_terms(frame.hello_reply());
  answer(absl::OkStatus());
}

void ControllerLink::OnClosed(const absl::Status& why) {
  if (auto answer = std::exchange(on_answer_, nullptr)) {
    answer(absl::UnavailableError(absl::StrCat("the controller closed the link: ", why.message())));
  } else if (std::exchange(link_, nullptr) && accepted_) {  // else it has rejected this
    sender_.reset();
    events_.on_lost(why);
  }
}

void ControllerLink::SendReports(wire::ReportBatch& reports) {
  wire::Frame frame;
  frame.mutable_report_batch()->Swap(&reports);
  if (link_) AfterSend(sender_->Send(std::move(frame)));
}

void ControllerLink::AfterSend(const absl::Status& sent) {
  if (sent.ok() || !link_) return;
  link_->Close(sent);
  OnClosed(sent);
}

void ControllerLink::SendAnswer(wire::Frame frame) {
  if (!link_) return;
  frame.set_epoch(epoch_);
  (void)link_->Send(std::move(frame));  // the controller names a missing answer
}

void ControllerLink::OnPulse(Clock::time_point now, Clock::duration stood_still) {
  if (!link_) return;
  heard_ = Pulse::Later(heard_, stood_still, now);
  if (now - heard_ >= options_.silence_max) {
    const absl::Status why = absl::DeadlineExceededError(
        absl::StrCat("silent for ", options_.silence_max.count(), " ms"));
    link_->Close(why);
    return OnClosed(why);
  }
  wire::Frame frame;
  frame.set_epoch(epoch_);
  frame.mutable_heartbeat()->set_time_ns(now.time_since_epoch().count());
  (void)link_->Send(std::move(frame));  // on_closed reports a closed link
}

}  // namespace gangway::scheduler
