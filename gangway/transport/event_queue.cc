// Implementation of event_queue.h.
#include "gangway/transport/event_queue.h"

#include <utility>

#include "gangway/base/check.h"

namespace gangway::transport {

void EventQueue::Start(LinkEvents events) {
  GANGWAY_CHECK(events.executor != nullptr, "a link's events need an executor");
  MutexLock lock(mutex_);
  GANGWAY_CHECK(delivery_ == Delivery::kNotStarted, "a link is started once");
  events_ = std::move(events);
  delivery_ = Delivery::kIdle;
  PostLocked();
}

bool EventQueue::Push(wire::Frame frame, size_t bytes) {
  MutexLock lock(mutex_);
  if (!end_.ok()) return false;
  pending_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  frames_.push_back({std::move(frame), bytes});
  PostLocked();
  return true;
}

void EventQueue::PushWritable() {
  MutexLock lock(mutex_);
  if (!end_.ok()) return;
  writable_ = true;
  PostLocked();
}

void EventQueue::Finish(const absl::Status& status) {
  GANGWAY_CHECK(!status.ok(), "a link ends with a reason");
  MutexLock lock(mutex_);
  if (!end_.ok()) return;
  end_ = status;
  PostLocked();
}

void EventQueue::Mute() {
  std::vector<Pending> dropped;
  size_t bytes = 0;
  {
    MutexLock lock(mutex_);
    muted_.store(true, std::memory_order_release);
    if (end_.ok()) end_ = absl::UnavailableError("the link was closed by this side");
    dropped.swap(frames_);
    PostLocked();  // releases the callbacks on their executor
  }
  for (const Pending& pending : dropped) bytes += pending.bytes;
  pending_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  CheckFallen();
}

absl::Status EventQueue::end() const {
  MutexLock lock(mutex_);
  return end_;
}

void EventQueue::NotifyBelow(size_t bytes) {
  notify_below_.store(bytes);
  CheckFallen();
}

void EventQueue::CheckFallen() {
  size_t below = notify_below_.load();
  if (below == 0 || pending_bytes_.load() >= below) return;
  if (notify_below_.exchange(0) != 0 && on_fallen_) on_fallen_();
}

void EventQueue::PostLocked() {
  if (delivery_ != Delivery::kIdle) return;
  delivery_ = Delivery::kPosted;
  events_.executor->Post([self = shared_from_this()] { self->Drain(); });
}

void EventQueue::DrainFrames(std::vector<Pending> frames) {
  for (Pending& pending : frames) {
    size_t bytes = pending.bytes;
    if (!is_muted() && events_.on_frame) events_.on_frame(std::move(pending.frame));
    pending_bytes_.fetch_sub(bytes);
    if (notify_below_.load() != 0) CheckFallen();
  }
}

// What follows the end of the link are no events: the Drain that sees it is the last one.
void EventQueue::Drain() {
  std::vector<Pending> frames;
  bool writable;
  absl::Status end;
  {
    MutexLock lock(mutex_);
    frames.swap(frames_);
    writable = std::exchange(writable_, false);
    end = end_;
  }
  DrainFrames(std::move(frames));
  if (writable && end.ok() && !is_muted() && events_.on_writable) events_.on_writable();
  if (!end.ok() && !is_muted() && events_.on_closed) events_.on_closed(end);
  LinkEvents released;
  {
    MutexLock lock(mutex_);
    delivery_ = Delivery::kIdle;
    if (!end.ok() || is_muted()) {
      std::swap(released, events_);
      delivery_ = Delivery::kOver;
    } else if (!frames_.empty() || writable_ || !end_.ok()) {
      PostLocked();
    }
  }
}

}  // namespace gangway::transport
