// Implementation of scheduler_links.h.
#include "gangway/controller/service/scheduler_links.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/pulse.h"
#include "gangway/base/status.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

// Turns of an exchange. What is left waits for what has arrived on links, so that work which begets work holds up no
// peer. Most messages need two: a report, then what it lets the controller send.
constexpr int kTurnsMax = 16;

}  // namespace

SchedulerLinks::SchedulerLinks(EventLoop* loop, Options options, Events events)
    : loop_(loop),
      options_(std::move(options)),
      events_(std::move(events)),
      islands_(options_.islands) {
  for (uint32_t island : options_.remote) {
    if (island < islands_.size()) islands_[island].remote = true;
  }
}

void SchedulerLinks::Attach(uint32_t island, wire::IslandPort* scheduler) {
  GANGWAY_CHECK(!islands_[island].remote, "the scheduler of a remote island has a link");
  islands_[island].here = scheduler;
}

bool SchedulerLinks::is_up(uint32_t island) const {
  return islands_[island].here != nullptr || islands_[island].link != nullptr;
}

void SchedulerLinks::Exchange() {
  bool moves = true;
  for (int turn = 0; moves && turn < kTurnsMax; ++turn) {
    moves = false;
    for (uint32_t island = 0; island < islands_.size(); ++island) moves |= ExchangeWith(island);
  }
  if (moves) loop_->Post([] {});  // another round
}

// False: neither had anything for the other.
bool SchedulerLinks::ExchangeWith(uint32_t index) {
  Island& island = islands_[index];
  if (island.here == nullptr) return false;
  const bool gives = !island.batch.items().empty();
  if (gives) {
    wire::Frame frame;
    frame.mutable_island_batch()->Swap(&island.batch);
    island.here->Take(std::move(frame));
  }
  std::vector<wire::Frame> frames = island.here->Give();
  for (wire::Frame& frame : frames) events_.on_frame(index, frame);
  return gives || !frames.empty();
}

void SchedulerLinks::Flush() {
  for (uint32_t index = 0; index < islands_.size(); ++index) {
    Island& island = islands_[index];
    if (island.batch.items().empty() || !island.link) continue;
    wire::Frame frame;
    frame.mutable_island_batch()->Swap(&island.batch);
    auto program_of = [this](const wire::Load& load) { return ProgramOf(load); };
    AfterSend(index, island.sender->Send(std::move(frame), program_of));
  }
  DropUnloaded();
}

bool SchedulerLinks::has_items() const {
  for (uint32_t index = 0; index < islands_.size(); ++index)
    if (is_up(index) && !islands_[index].batch.items().empty()) return true;
  return false;
}

void SchedulerLinks::OnPulse(Clock::time_point now, Clock::duration stood_still) {
  for (uint32_t index = 0; index < islands_.size(); ++index) {
    Island& island = islands_[index];
    if (!island.link) continue;
    island.heard = Pulse::Later(island.heard, stood_still, now);
    if (now - island.heard < options_.silence_max) {
      wire::Frame frame;
      frame.mutable_heartbeat()->set_time_ns(now.time_since_epoch().count());
      (void)island.sender->SendNow(std::move(frame));  // on_closed reports a closed link
      continue;
    }
    const absl::Status why = absl::DeadlineExceededError(
        absl::StrCat("silent for ", options_.silence_max.count(), " ms"));
    const uint64_t silent = island.process_id;
    island.link->Close(why);
    Lose(index, why);
    events_.on_silent(silent);
  }
}

// --- Links of schedulers in processes of their own ---

absl::Status SchedulerLinks::Welcome(const std::shared_ptr<transport::Link>& link,
                                     const wire::Hello& hello, uint64_t key) {
  const uint32_t index = hello.worker().island();
  if (index >= islands_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("island ", index, " is not declared: there are ",
                                                   islands_.size(), ", from 0"));
  }
  Island& island = islands_[index];
  if (!island.remote) {
    return absl::AlreadyExistsError(
        absl::StrCat("island ", index,
                     " already has a scheduler: it runs in the controller's process. Declare a "
                     "scheduler in the cluster's file to run it separately."));
  }
  if (!island.link) return Register(index, link, hello, key);
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

absl::Status SchedulerLinks::Register(uint32_t index, const std::shared_ptr<transport::Link>& link,
                                      const wire::Hello& hello, uint64_t key) {
  Island& island = islands_[index];
  GANGWAY_RETURN_IF_ERROR(link->Send(events_.terms(index)));
  island.link = link;
  island.sender = std::make_unique<transport::PacedSender>(
      link, [this](wire::Frame& frame) { frame.set_epoch(options_.epoch); },
      transport::PacedSender::Options());
  island.key = key;
  island.process_id = hello.process_id();
  island.heard = Clock::now();
  events_.say(absl::StrCat("island", index, "/scheduler is up (pid ", hello.process_id(), ")"));
  events_.on_up(index, hello.process_id());
  return absl::OkStatus();
}

void SchedulerLinks::Admit(uint32_t index) {
  Island& island = islands_[index];
  if (!island.newcomer) return;
  const auto link = std::exchange(island.newcomer, nullptr);
  const absl::Status status = Register(index, link, island.newcomer_hello, island.newcomer_key);
  if (!status.ok()) link->Close(status);
}

void SchedulerLinks::Refuse(uint32_t index) {
  Island& island = islands_[index];
  const auto link = std::exchange(island.newcomer, nullptr);
  const absl::Status why = absl::AlreadyExistsError(
      absl::StrCat("island ", index, " already has a scheduler: process ", island.process_id,
                   ", whose heartbeats arrive. End that process first."));
  events_.say(absl::StrCat("a second process (pid ", island.newcomer_hello.process_id(),
                           ") claimed island", index, "/scheduler and was rejected"));
  wire::Frame reply;
  *reply.mutable_hello_reply()->mutable_failure() = wire::ToFailure(why);
  (void)link->Send(std::move(reply));  // closing either way
  link->Close(why);
}

// Nullopt if another link has replaced this one.
std::optional<uint32_t> SchedulerLinks::Find(uint64_t key) const {
  for (uint32_t index = 0; index < islands_.size(); ++index)
    if (islands_[index].link && islands_[index].key == key) return index;
  return std::nullopt;
}

void SchedulerLinks::OnFrame(uint64_t key, wire::Frame& frame) {
  const auto index = Find(key);
  if (!index) return;
  islands_[*index].heard = Clock::now();
  if (islands_[*index].newcomer) Refuse(*index);
  events_.on_frame(*index, frame);
}

void SchedulerLinks::OnWritable(uint64_t key) {
  if (const auto index = Find(key)) AfterSend(*index, islands_[*index].sender->OnWritable());
}

void SchedulerLinks::OnClosed(uint64_t key, const absl::Status& why) {
  for (Island& each : islands_) {
    if (each.newcomer && each.newcomer_key == key) each.newcomer.reset();
  }
  if (const auto index = Find(key)) Lose(*index, why);
}

// A scheduler that does not accept its messages is lost: missed items cannot be replayed.
void SchedulerLinks::AfterSend(uint32_t index, const absl::Status& sent) {
  if (sent.ok()) return;
  islands_[index].link->Close(sent);
  Lose(index, sent);
}

// Drops the unsent items, too: the core knows what the next scheduler needs.
void SchedulerLinks::Lose(uint32_t index, const absl::Status& why) {
  Island& island = islands_[index];
  island.link.reset();
  island.sender.reset();
  island.batch.Clear();
  events_.say(absl::StrCat("island", index, "/scheduler is gone: ", why.message()));
  events_.on_down(index, std::string(why.message()));
  Admit(index);
}

// A question, ahead of the items that wait.
void SchedulerLinks::Ask(uint32_t index, const wire::Frame& question) {
  Island& island = islands_[index];
  if (island.here != nullptr) {
    island.here->Take(question);
  } else if (island.link) {
    (void)island.link->Send(question);  // a missing reply is named
  }
}

// --- Items, and the executables that they load ---

void SchedulerLinks::Add(uint32_t index, wire::IslandItem item) {
  for (uint64_t executable : item.unload().executables()) unloaded_.emplace_back(executable);
  *islands_[index].batch.add_items() = std::move(item);
}

void SchedulerLinks::Keep(ExecutableId executable, const std::string& serialized, size_t islands) {
  if (options_.remote.empty()) return;
  programs_[executable] = {std::make_shared<const std::string>(serialized), islands};
}

std::shared_ptr<const std::string> SchedulerLinks::ProgramOf(const wire::Load& load) const {
  auto found = programs_.find(ExecutableId(load.executable()));
  return found == programs_.end() ? nullptr : found->second.bytes;
}

// At the end of a round: its Loads may be of executables that it unloads.
void SchedulerLinks::DropUnloaded() {
  for (ExecutableId executable : std::exchange(unloaded_, {})) {
    auto found = programs_.find(executable);
    if (found != programs_.end() && --found->second.islands_left == 0) programs_.erase(found);
  }
}

SchedulerLinks::Programs SchedulerLinks::programs() const {
  Programs kept{.count = programs_.size()};
  for (const auto& [id, program] : programs_) kept.bytes += program.bytes->size();
  return kept;
}

}  // namespace gangway::controller
