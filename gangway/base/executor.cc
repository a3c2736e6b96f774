// Implementation of executor.h.
#include "gangway/base/executor.h"

#include <algorithm>
#include <iterator>

#include "gangway/base/serving_thread.h"
#include "gangway/base/spin.h"
#include "gangway/base/status.h"
#include "gangway/base/world.h"

namespace gangway {

namespace {
constexpr std::chrono::hours kNoDeadline{24};
}  // namespace

EventLoop::EventLoop(const std::string& name) : thread_(name, [this] { Run(); }) {}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Post(std::function<void()> task) {
  if (Current() == this && polling_) return polled_.push_back(std::move(task));
  bool wake;
  Poller* poller;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(task));
    wake = std::exchange(waiting_, false);
    poller = poller_.get();
  }
  if (wake) Wake(poller);
}

uint64_t EventLoop::PostAt(Clock::time_point when, std::function<void()> task) {
  uint64_t id;
  bool wake = false;
  {
    MutexLock lock(mutex_);
    id = next_timer_++;
    const bool is_first = timers_.empty() || when < timers_.begin()->first.first;
    timers_.emplace(std::make_pair(when, id), std::move(task));
    if (gate_ != nullptr) {
      SetAlarmLocked();
    } else if (is_first && waiting_ && poller_ != nullptr) {
      poller_->WakeAt(when);
    } else if (is_first) {
      wake = std::exchange(waiting_, false);
    }
  }
  if (wake) wake_.NotifyOne();
  return id;
}

void EventLoop::Cancel(uint64_t timer) {
  MutexLock lock(mutex_);
  for (auto it = timers_.begin(); it != timers_.end(); ++it) {
    if (it->first.second == timer) {
      timers_.erase(it);
      return;
    }
  }
}

void EventLoop::AddRoundEnd(std::function<void()> flush) {
  Post([this, flush = std::move(flush)] { round_ends_.push_back(flush); });
}

absl::StatusOr<std::shared_ptr<Poller>> EventLoop::poller() {
  std::shared_ptr<Poller> made;
  {
    MutexLock lock(mutex_);
    if (poller_ != nullptr) return poller_;
    GANGWAY_ASSIGN_OR_RETURN(poller_, Poller::Create());
    made = poller_;
    waiting_ = false;
  }
  wake_.NotifyOne();  // a loop that waits goes to wait in the poller
  return made;
}

void EventLoop::Wake(Poller* poller) {
  if (poller != nullptr) {
    poller->Wake();
  } else {
    wake_.NotifyOne();
  }
}

void EventLoop::Stop() {
  Poller* poller;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    poller = poller_.get();
    for (const auto& follower : followers_) follower->Call();
  }
  Wake(poller);
  if (thread_.joinable()) thread_.Join();
  MutexLock lock(mutex_);
  while (joined_ != 0) {
    left_.WaitFor(mutex_, std::chrono::hours(1),
                  [this]() GANGWAY_NO_ANALYSIS { return joined_ == 0; });
  }
}

bool EventLoop::DueLocked() const {
  return !queue_.empty() || !polled_.empty() || !at_round_end_.empty() || stopping_ ||
         (!timers_.empty() && timers_.begin()->first.first <= Clock::now());
}

bool EventLoop::IsDue() const {
  MutexLock lock(mutex_);
  return DueLocked();
}

void EventLoop::Poll(Poller& poller, Clock::time_point deadline) {
  polling_ = true;
  poller.Poll(deadline);
  polling_ = false;
}

void EventLoop::Run() {
  Thread::Local() = this;
  BeginServing();
  // Its files are opened when the process begins to serve and not at some later time, as a leak would look.
  if (World::installed() == nullptr) (void)SpinRule::OfProcess();
  while (Turn()) {
    RunRound();
    if (!LoopWork::EndRound()) continue;
    std::shared_ptr<Poller> poller;
    {
      MutexLock lock(mutex_);
      // Where other threads may lead, they spin.
      if (gate_ == nullptr && !DueLocked()) poller = poller_;
    }
    if (poller == nullptr) continue;
    Spin spin(Spin::For::kNextMessage);
    while (!IsDue() && spin.Again()) Poll(*poller, Clock::time_point::min());
    if (IsDue()) spin.Found();
  }
}

void EventLoop::RunRound() {
  Poller* poller;
  {
    MutexLock lock(mutex_);
    posted_.swap(queue_);
    auto now = Clock::now();
    while (!timers_.empty() && timers_.begin()->first.first <= now) {
      posted_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    poller = poller_.get();
  }
  // What is watched is looked at after these tasks were posted, and also if tasks never end.
  if (poller != nullptr && !posted_.empty()) Poll(*poller, Clock::time_point::min());
  tasks_.swap(polled_);
  std::move(posted_.begin(), posted_.end(), std::back_inserter(tasks_));
  posted_.clear();
  ++round_;
  for (auto& task : tasks_) task();
  tasks_.clear();
  for (auto& flush : round_ends_) flush();
  while (!at_round_end_.empty()) {
    once_.swap(at_round_end_);
    for (auto& task : once_) task();
    once_.clear();
  }
}

// --- The loop's own thread ---

// Sleeps until something is due and no other thread leads. False: the loop has stopped.
bool EventLoop::Turn() {
  while (true) {
    Clock::time_point deadline;
    std::shared_ptr<Poller> poller;
    PollerGate* gate;
    {
      MutexLock lock(mutex_);
      own_turn_ = leader_ == nullptr;
      if (own_turn_ && DueLocked()) {
        return !stopping_ || !queue_.empty() || !polled_.empty() || !at_round_end_.empty();
      }
      poller = poller_;
      gate = gate_.get();
      if (own_turn_ && gate != nullptr && ElectLocked()) gate->Shut();
      if (leader_ == nullptr) waiting_ = true;
      own_turn_ = gate == nullptr;
      if (gate != nullptr) SetAlarmLocked();
      // Without timers only a post wakes the loop: a day stands for "no deadline".
      deadline = timers_.empty() || gate != nullptr ? Clock::now() + kNoDeadline
                                                    : timers_.begin()->first.first;
      if (poller == nullptr) {
        wake_.WaitUntil(mutex_, deadline,
                        [this]() GANGWAY_NO_ANALYSIS { return !waiting_ || stopping_; });
        waiting_ = false;
        continue;
      }
    }
    if (gate != nullptr) gate->Sleep(deadline);
    if (gate != nullptr && !BeginTurn()) continue;
    Poll(*poller, gate == nullptr ? deadline : Clock::time_point::min());
    MutexLock lock(mutex_);
    waiting_ = false;
  }
}

// False: another thread leads.
bool EventLoop::BeginTurn() {
  MutexLock lock(mutex_);
  own_turn_ = leader_ == nullptr;
  return own_turn_;
}

// --- Threads that wait for something ---

bool EventLoop::Await(const std::shared_ptr<LoopWait>& wait, Clock::time_point deadline) {
  if (IsLoopThread()) return wait->ended();
  // The thread of another loop does not serve this one, too.
  if (Current() == nullptr && Join()) {
    Part part = Part::kFollows;
    while (part == Part::kFollows && !wait->ended() && Clock::now() < deadline) {
      part = TakePart(wait);
      if (part == Part::kFollows) wait->SleepUntil(deadline);
      if (part == Part::kLeads) Lead(*wait, deadline);
    }
    Leave(wait);
  }
  while (!wait->ended() && Clock::now() < deadline) wait->SleepUntil(deadline);
  return wait->ended();
}

// False: no thread can lead this loop.
bool EventLoop::Join() {
  MutexLock lock(mutex_);
  if (stopping_ || poller_ == nullptr) return false;
  if (gate_ == nullptr) {
    auto gate = PollerGate::Create(poller_);
    if (!gate.ok()) return false;
    gate_ = *std::move(gate);
    poller_->Wake();  // a thread that sleeps in the poller goes to sleep behind the gate
  }
  ++joined_;
  return true;
}

EventLoop::Part EventLoop::TakePart(const std::shared_ptr<LoopWait>& wait) {
  MutexLock lock(mutex_);
  if (stopping_) return Part::kLeft;
  if (leader_ == nullptr && !own_turn_) {
    leader_ = wait;
    gate_->Shut();
  }
  if (leader_ == wait) return Part::kLeads;
  if (std::find(followers_.begin(), followers_.end(), wait) == followers_.end())
    followers_.push_back(wait);
  return Part::kFollows;
}

// Until the wait has ended, until `deadline`, or until the loop is to stop.
void EventLoop::Lead(LoopWait& wait, Clock::time_point deadline) {
  const ServingForNow serving;
  Thread::Local() = this;
  std::shared_ptr<Poller> poller;
  {
    MutexLock lock(mutex_);
    poller = poller_;
  }
  Spin spin(Spin::For::kAnswer);
  while (wait.BeginPoll(poller)) {
    Poll(*poller, spin.Again() ? Clock::time_point::min() : NextDue(deadline));
    wait.EndPoll();
    {
      MutexLock lock(mutex_);
      waiting_ = false;
      if (stopping_) break;
    }
    if (IsDue()) RunRound();
    if (Clock::now() >= deadline) break;
  }
  if (wait.ended()) spin.Found();
  Thread::Local() = nullptr;
}

// How long the thread that leads may sleep.
Clock::time_point EventLoop::NextDue(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  if (DueLocked()) return Clock::time_point::min();
  SetAlarmLocked();
  waiting_ = true;
  return deadline;
}

// For the timer that is due next.
void EventLoop::SetAlarmLocked() {
  const auto next = timers_.empty() ? Clock::time_point::max() : timers_.begin()->first.first;
  const bool is_set = next == alarm_ && next > Clock::now();
  if (is_set || next == Clock::time_point::max()) return;
  alarm_ = next;
  poller_->WakeAt(next);
}

void EventLoop::Leave(const std::shared_ptr<LoopWait>& wait) {
  MutexLock lock(mutex_);
  std::erase(followers_, wait);
  if (leader_ == wait) ResignLocked();
  --joined_;
  left_.NotifyAll();
}

void EventLoop::ResignLocked() {
  leader_ = nullptr;
  if (ElectLocked()) return;
  gate_->Open();
  SetAlarmLocked();
  waiting_ = !DueLocked();
  if (!waiting_) poller_->Wake();
}

// The one that has waited longest leads, once its thread is awake. False: none waits.
bool EventLoop::ElectLocked() {
  while (!stopping_ && !followers_.empty()) {
    const std::shared_ptr<LoopWait> first = std::move(followers_.front());
    followers_.pop_front();
    if (first->ended()) continue;
    waiting_ = false;
    leader_ = first;
    first->Call();
    return true;
  }
  return false;
}

}  // namespace gangway
