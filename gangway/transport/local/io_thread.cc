// Implementation of io_thread.h.
#include "gangway/transport/local/io_thread.h"

#include <algorithm>
#include <vector>

#include "gangway/base/check.h"
#include "gangway/base/clock.h"
#include "gangway/base/serving_thread.h"
#include "gangway/base/status.h"

namespace gangway::transport {

absl::StatusOr<std::shared_ptr<IoThread>> IoThread::Start() {
  GANGWAY_ASSIGN_OR_RETURN(auto poller, Poller::Create());
  std::shared_ptr<IoThread> io(new IoThread(std::move(poller)));
  io->thread_ = Thread("gangway-local", [raw = io.get()] { raw->Run(); });
  return io;
}

IoThread::~IoThread() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  poller_->Wake();
  thread_.Join();
  MutexLock lock(mutex_);
  GANGWAY_CHECK(ticked_.empty(), "links outlive the thread that serves them");
}

absl::Status IoThread::Watch(uint64_t id, int fd, uint32_t epoll_events,
                             std::shared_ptr<Watched> watched) {
  {
    MutexLock lock(mutex_);
    ticked_.emplace(id, watched);
  }
  absl::Status status = poller_->Watch(id, fd, epoll_events, std::move(watched));
  if (!status.ok()) {
    MutexLock lock(mutex_);
    ticked_.erase(id);
  }
  return status;
}

void IoThread::Forget(uint64_t id, int fd) {
  poller_->Forget(id, fd);
  std::shared_ptr<Watched> forgotten;  // destroyed after the unlock
  MutexLock lock(mutex_);
  auto found = ticked_.find(id);
  if (found == ticked_.end()) return;
  forgotten = std::move(found->second);
  ticked_.erase(found);
  if (stopping_ && ticked_.empty()) poller_->Wake();  // under the lock: the thread ends after it
}

void IoThread::TickAt(Clock::time_point when) {
  {
    MutexLock lock(mutex_);
    if (when >= next_tick_) return;
    next_tick_ = when;
  }
  poller_->Wake();
}

Clock::time_point IoThread::next_tick() const {
  MutexLock lock(mutex_);
  return next_tick_;
}

void IoThread::TickIfDue() {
  const auto now = Clock::now();
  std::vector<std::shared_ptr<Watched>> all;
  {
    MutexLock lock(mutex_);
    if (now < next_tick_) return;
    next_tick_ = Clock::time_point::max();  // TickAt may set it during the ticks
    all.reserve(ticked_.size());
    for (auto& [id, watched] : ticked_) all.push_back(watched);
  }
  auto next = Clock::time_point::max();
  for (auto& watched : all) next = std::min(next, watched->OnTick(now));
  MutexLock lock(mutex_);
  next_tick_ = std::min(next_tick_, next);
}

void IoThread::Run() {
  BeginServing();
  while (true) {
    {
      MutexLock lock(mutex_);
      if (stopping_ && ticked_.empty()) return;  // cancelled links end first
    }
    poller_->Poll(next_tick());
    TickIfDue();
  }
}

}  // namespace gangway::transport
