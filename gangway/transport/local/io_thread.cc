// Implementation of io_thread.h.
#include "gangway/transport/local/io_thread.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"

namespace gangway::transport {
namespace {

constexpr int kEventsMax = 64;

absl::Status Refused(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<IoThread>> IoThread::Start() {
  std::shared_ptr<IoThread> io(new IoThread);
  io->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  io->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!io->epoll_.valid() || !io->wake_.valid()) return Refused("cannot create an epoll set");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (epoll_ctl(io->epoll_.get(), EPOLL_CTL_ADD, io->wake_.get(), &event) != 0)
    return Refused("cannot watch the wake event");
  io->thread_ = std::thread([raw = io.get()] { raw->Run(); });
  return io;
}

IoThread::~IoThread() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) {
    Wake();
    thread_.join();
  }
  MutexLock lock(mutex_);
  GANGWAY_CHECK(watched_.empty(), "links outlive the thread that serves them");
}

uint64_t IoThread::NextId() {
  MutexLock lock(mutex_);
  return next_id_++;
}

absl::Status IoThread::Watch(uint64_t id, int fd, uint32_t epoll_events,
                             std::shared_ptr<Watched> watched) {
  {
    MutexLock lock(mutex_);
    watched_.emplace(id, std::move(watched));
  }
  epoll_event event{.events = epoll_events, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  absl::Status refused = Refused("cannot watch the socket");
  MutexLock lock(mutex_);
  watched_.erase(id);
  return refused;
}

void IoThread::Change(uint64_t id, int fd, uint32_t epoll_events) {
  epoll_event event{.events = epoll_events, .data = {.u64 = id}};
  const int changed = epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  GANGWAY_CHECK(changed == 0, "the events of a watched socket can be changed");
}

void IoThread::Forget(uint64_t id, int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  std::shared_ptr<Watched> forgotten;  // destroyed after the unlock
  MutexLock lock(mutex_);
  auto found = watched_.find(id);
  if (found == watched_.end()) return;
  forgotten = std::move(found->second);
  watched_.erase(found);
}

void IoThread::TickAt(Clock::time_point when) {
  {
    MutexLock lock(mutex_);
    if (when >= next_tick_) return;
    next_tick_ = when;
  }
  Wake();
}

void IoThread::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

std::shared_ptr<IoThread::Watched> IoThread::Find(uint64_t id) {
  MutexLock lock(mutex_);
  auto found = watched_.find(id);
  return found == watched_.end() ? nullptr : found->second;
}

// -1: wait until woken.
int IoThread::WaitMs() {
  MutexLock lock(mutex_);
  if (next_tick_ == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_tick_ - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
}

void IoThread::TickIfDue() {
  const auto now = Clock::now();
  std::vector<std::shared_ptr<Watched>> all;
  {
    MutexLock lock(mutex_);
    if (now < next_tick_) return;
    next_tick_ = Clock::time_point::max();  // TickAt may set it during the ticks
    all.reserve(watched_.size());
    for (auto& [id, watched] : watched_) all.push_back(watched);
  }
  auto next = Clock::time_point::max();
  for (auto& watched : all) next = std::min(next, watched->OnTick(now));
  MutexLock lock(mutex_);
  next_tick_ = std::min(next_tick_, next);
}

void IoThread::Run() {
  pthread_setname_np(pthread_self(), "gangway-local");
  epoll_event events[kEventsMax];
  while (true) {
    {
      MutexLock lock(mutex_);
      if (stopping_ && watched_.empty()) return;  // cancelled links end first
    }
    const int count = epoll_wait(epoll_.get(), events, kEventsMax, WaitMs());
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == 0) {
        uint64_t woken;
        [[maybe_unused]] const ssize_t drained = read(wake_.get(), &woken, sizeof(woken));
      } else if (auto watched = Find(events[i].data.u64)) {
        watched->OnReady(events[i].events);
      }
    }
    TickIfDue();
  }
}

}  // namespace gangway::transport
