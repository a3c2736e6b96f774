// Implementation of poller.h.
#include "gangway/base/poller.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/clock.h"

namespace gangway {
namespace {

using std::chrono::nanoseconds;

constexpr int kEventsMax = 64;
constexpr uint64_t kWakeId = 0;

absl::Status Refused(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

int WaitForEvents(int epoll, std::span<epoll_event> events, Clock::time_point deadline) {
  const int max = static_cast<int>(events.size());
  if (deadline == Clock::time_point::max()) return epoll_wait(epoll, events.data(), max, -1);
  const auto now = Clock::now();
  // A day at most: a far deadline fits no integer of milliseconds.
  const nanoseconds left = deadline <= now
                               ? nanoseconds(0)
                               : std::min<nanoseconds>(deadline - now, std::chrono::hours(24));
  const timespec limit{.tv_sec = left.count() / 1'000'000'000,
                       .tv_nsec = left.count() % 1'000'000'000};
  const int count = epoll_pwait2(epoll, events.data(), max, &limit, nullptr);
  if (count >= 0 || errno == EINTR) return count;
  // A kernel before 5.11 (ENOSYS), or a sandbox that does not know the call (EPERM).
  const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left);
  return epoll_wait(epoll, events.data(), max, static_cast<int>(left_ms.count()));
}

absl::StatusOr<std::shared_ptr<Poller>> Poller::Create() {
  std::shared_ptr<Poller> poller(new Poller);
  poller->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  poller->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  poller->timer_.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!poller->epoll_.valid() || !poller->wake_.valid() || !poller->timer_.valid())
    return Refused("cannot create an epoll set");
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = kWakeId}};
  for (const FileDescriptor* own : {&poller->wake_, &poller->timer_}) {
    if (epoll_ctl(poller->epoll_.get(), EPOLL_CTL_ADD, own->get(), &event) != 0)
      return Refused("cannot watch the wake event");
  }
  return poller;
}

uint64_t Poller::NextId() {
  MutexLock lock(mutex_);
  return next_id_++;
}

absl::Status Poller::Watch(uint64_t id, int fd, uint32_t epoll_events,
                           std::shared_ptr<Watched> watched) {
  {
    MutexLock lock(mutex_);
    watched_.emplace(id, std::move(watched));
  }
  epoll_event event{.events = epoll_events, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  absl::Status refused = Refused("cannot watch the descriptor");
  MutexLock lock(mutex_);
  watched_.erase(id);
  return refused;
}

void Poller::Change(uint64_t id, int fd, uint32_t epoll_events) {
  epoll_event event{.events = epoll_events, .data = {.u64 = id}};
  const int changed = epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  GANGWAY_CHECK(changed == 0, "the events of a watched descriptor can be changed");
}

void Poller::Forget(uint64_t id, int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  std::shared_ptr<Watched> forgotten;  // destroyed after the unlock
  MutexLock lock(mutex_);
  auto found = watched_.find(id);
  if (found == watched_.end()) return;
  forgotten = std::move(found->second);
  watched_.erase(found);
}

std::shared_ptr<Poller::Watched> Poller::Find(uint64_t id) {
  MutexLock lock(mutex_);
  auto found = watched_.find(id);
  return found == watched_.end() ? nullptr : found->second;
}

void Poller::Poll(Clock::time_point deadline) {
  epoll_event events[kEventsMax];
  const int count = WaitForEvents(epoll_.get(), events, deadline);
  for (int i = 0; i < count; ++i) {
    if (auto watched = Find(events[i].data.u64)) watched->OnReady(events[i].events);
  }
}

void Poller::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void Poller::WakeAt(Clock::time_point when) {
  // Of the same clock. Zero would turn the timer off.
  const auto at = std::max<nanoseconds>(when.time_since_epoch(), nanoseconds(1));
  const itimerspec timer{
      .it_interval = {},
      .it_value = {.tv_sec = at.count() / 1'000'000'000, .tv_nsec = at.count() % 1'000'000'000}};
  const int set = timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &timer, nullptr);
  GANGWAY_CHECK(set == 0, "a timer can be set");
}

}  // namespace gangway
