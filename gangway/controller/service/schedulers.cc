// The schedulers: those of this process, which are run by calls, and the links to the others.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/controller/service/controller_service.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

// Rounds of an exchange. What is left waits for what has arrived on links, so that work which begets work holds up no
// peer. Most messages need two: a report, then what it lets the controller send.
constexpr int kExchangesMax = 16;

}  // namespace

wire::Frame ControllerService::NewTerms(uint32_t island) const {
  wire::Frame reply = NewReply();
  reply.mutable_hello_reply()->set_data_key(options_.data_key);
  *reply.mutable_hello_reply()->mutable_island() = options_.terms;
  core_.FillTerms(island, *reply.mutable_hello_reply()->mutable_island());
  return reply;
}

wire::HelloReply ControllerService::Terms(uint32_t island) const {
  return NewTerms(island).hello_reply();
}

void ControllerService::Attach(uint32_t island, wire::IslandPort* scheduler) {
  GANGWAY_CHECK(!islands_[island].remote, "the scheduler of a remote island has a link");
  islands_[island].here = scheduler;
}

// The core and the schedulers of this process, in turns, until neither has anything for the other.
void ControllerService::Exchange() {
  bool moves = true;
  for (int i = 0; moves && i < kExchangesMax; ++i) {
    moves = false;
    for (uint32_t index = 0; index < islands_.size(); ++index) moves |= ExchangeWith(index);
  }
  if (moves) loop_->Post([] {});  // another round
}

// False: neither had anything for the other.
bool ControllerService::ExchangeWith(uint32_t index) {
  IslandLink& island = islands_[index];
  if (island.here == nullptr) return false;
  const bool gives = !island.batch.items().empty();
  if (gives) {
    wire::Frame frame;
    frame.mutable_island_batch()->Swap(&island.batch);
    island.here->Take(std::move(frame));
  }
  std::vector<wire::Frame> frames = island.here->Give();
  for (wire::Frame& frame : frames) OnSchedulerFrame(index, frame);
  return gives || !frames.empty();
}

// A question, ahead of the items that wait.
void ControllerService::Ask(IslandLink& island, const wire::Frame& question) {
  if (island.here != nullptr) {
    island.here->Take(question);
  } else if (island.link) {
    (void)island.link->Send(question);  // a missing reply is named
  }
}

absl::Status ControllerService::WelcomeScheduler(const std::shared_ptr<transport::Link>& link,
                                                 const wire::Hello& hello, uint64_t key) {
  const uint32_t index = hello.worker().island();
  if (index >= islands_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("island ", index, " is not declared: there are ",
                                                   islands_.size(), ", from 0"));
  }
  IslandLink& island = islands_[index];
  if (!island.remote) {
    return absl::AlreadyExistsError(
        absl::StrCat("island ", index,
                     " already has a scheduler: it runs in the controller's process. Declare a "
                     "scheduler in the cluster's file to run it separately."));
  }
  if (!island.link) return RegisterScheduler(index, link, hello, key);
  if (island.newcomer) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process already waits to become the scheduler of island ", index,
                     ": start one process per declared scheduler"));
  }
  // The incumbent's next message, or its end, decides. It may be the newcomer's own earlier link, whose reset this
  // process did not see.
  island.newcomer = link;
  island.newcomer_hello = hello;
  island.newcomer_key = key;
  return absl::OkStatus();
}

absl::Status ControllerService::RegisterScheduler(uint32_t index,
                                                  const std::shared_ptr<transport::Link>& link,
                                                  const wire::Hello& hello, uint64_t key) {
  IslandLink& island = islands_[index];
  GANGWAY_RETURN_IF_ERROR(link->Send(NewTerms(index)));
  island.link = link;
  island.sender = NewSender(link);
  island.key = key;
  island.process_id = hello.process_id();
  island.heard = Clock::now();
  Say(absl::StrCat("island", index, "/scheduler is up (pid ", hello.process_id(), ")"));
  Step(SchedulerUp{index, hello.process_id()});
  return absl::OkStatus();
}

void ControllerService::AdmitScheduler(uint32_t index) {
  IslandLink& island = islands_[index];
  if (!island.newcomer) return;
  const auto link = std::exchange(island.newcomer, nullptr);
  const absl::Status status =
      RegisterScheduler(index, link, island.newcomer_hello, island.newcomer_key);
  if (!status.ok()) link->Close(status);
}

void ControllerService::RefuseScheduler(uint32_t index) {
  IslandLink& island = islands_[index];
  const auto link = std::exchange(island.newcomer, nullptr);
  const absl::Status why = absl::AlreadyExistsError(
      absl::StrCat("island ", index, " already has a scheduler: process ", island.process_id,
                   ", whose heartbeats arrive. End that process first."));
  Say(absl::StrCat("a second process (pid ", island.newcomer_hello.process_id(), ") claimed island",
                   index, "/scheduler and was rejected"));
  wire::Frame reply;
  *reply.mutable_hello_reply()->mutable_failure() = wire::ToFailure(why);
  (void)link->Send(std::move(reply));  // closing either way
  link->Close(why);
}

// Null if another link has replaced this one.
ControllerService::IslandLink* ControllerService::FindIsland(uint64_t key) {
  auto it = std::find_if(islands_.begin(), islands_.end(), [key](const IslandLink& island) {
    return island.link && island.key == key;
  });
  return it == islands_.end() ? nullptr : &*it;
}

void ControllerService::OnSchedulerFrame(uint32_t island, wire::Frame& frame) {
  islands_[island].heard = Clock::now();
  if (islands_[island].newcomer) RefuseScheduler(island);
  if (frame.has_report_batch()) {
    bool workers_changed = false;
    for (const wire::Report& report : frame.report_batch().reports()) {
      if (report.has_usage()) OnUsage(island, report.usage());
      workers_changed |= report.has_worker_state();
    }
    Step(FromScheduler{island, std::move(*frame.mutable_report_batch())});
    if (workers_changed) WelcomeClients();
  } else if (frame.has_trace_reply()) {
    OnTraceReply(std::move(frame));
  } else if (frame.has_why_reply()) {
    OnWhyReply(island, *frame.mutable_why_reply());
  }
}

// Drops the unsent items, too: the core knows what the next scheduler needs.
void ControllerService::OnSchedulerClosed(uint32_t index, const absl::Status& why) {
  IslandLink& island = islands_[index];
  island.link.reset();
  island.sender.reset();
  island.batch.Clear();
  Say(absl::StrCat("island", index, "/scheduler is gone: ", why.message()));
  Step(SchedulerDown{index, std::string(why.message())});
  AdmitScheduler(index);
}

void ControllerService::WatchSchedulers(Clock::time_point now, Clock::duration stood_still) {
  for (uint32_t index = 0; index < islands_.size(); ++index) {
    IslandLink& island = islands_[index];
    if (!island.link) continue;
    island.heard = Pulse::Later(island.heard, stood_still, now);
    if (now - island.heard < options_.silence_max) {
      wire::Frame frame;
      frame.set_epoch(options_.core.epoch);
      frame.mutable_heartbeat()->set_time_ns(now.time_since_epoch().count());
      (void)island.sender->SendNow(std::move(frame));  // on_closed reports a closed link
      continue;
    }
    const absl::Status why = absl::DeadlineExceededError(
        absl::StrCat("silent for ", options_.silence_max.count(), " ms"));
    const uint64_t silent = island.process_id;
    island.link->Close(why);
    OnSchedulerClosed(index, why);
    if (options_.on_silent) options_.on_silent(silent);
  }
}

}  // namespace gangway::controller
