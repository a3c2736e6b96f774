// Lifetimes of links, shared by the transports over a network: the errors of Send, LinkSet and
// LinkHandle. One end of a link (a class with Send, Close, End, Cancel, peer, and the sizes of Link)
// lives in the set of its listener or transport while the network still has operations for it.
// Users hold a LinkHandle; destroying it closes the link.
//
// Threading: any thread. Shut blocks and must not run on a thread that removes links from the set.
#ifndef GANGWAY_TRANSPORT_LINK_SET_H_
#define GANGWAY_TRANSPORT_LINK_SET_H_

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/mutex.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

inline constexpr std::chrono::seconds kCloseLimit{1};  // to send what is queued at a Close

// The largest frame of a transport whose messages have this limit; a message adds its own header.
inline size_t FrameBytesMax(size_t message_bytes_max) {
  constexpr size_t kHeaderBytes = 64;
  return message_bytes_max - std::min(message_bytes_max, kHeaderBytes);
}

// Errors of Send.
inline absl::Status TooLarge(const Peer& peer, size_t bytes, size_t bytes_max) {
  return absl::InvalidArgumentError(absl::StrCat("a frame of ", bytes, " bytes to ", peer.address,
                                                 " is over the limit of ", bytes_max,
                                                 ": send it in pieces"));
}
inline absl::Status QueueFull(const Peer& peer, size_t bytes, size_t bytes_max) {
  return absl::ResourceExhaustedError(absl::StrCat("the queue to ", peer.address, " holds ", bytes,
                                                   " of ", bytes_max,
                                                   " bytes: wait until it is writable"));
}
// `end`: why the link ended; OK while the reason is unknown.
inline absl::Status LinkClosed(const Peer& peer, const absl::Status& end) {
  return absl::UnavailableError(absl::StrCat("the link to ", peer.address, " is closed",
                                             end.ok() ? "" : ": ", end.ok() ? "" : end.message()));
}

template <typename End>
class LinkSet {
 public:
  // False: the set is shut; the link must not be started.
  bool Add(std::shared_ptr<End> link) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (shut_) return false;
    End* key = link.get();
    links_.emplace(key, std::move(link));
    return true;
  }

  bool shut() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return shut_;
  }

  std::vector<std::shared_ptr<End>> List() const GANGWAY_EXCLUDES(mutex_) {
    std::vector<std::shared_ptr<End>> links;
    MutexLock lock(mutex_);
    links.reserve(links_.size());
    for (const auto& [key, link] : links_) links.push_back(link);
    return links;
  }

  void Remove(End* link) GANGWAY_EXCLUDES(mutex_) {
    std::shared_ptr<End> removed;  // destroyed after the unlock
    MutexLock lock(mutex_);
    auto found = links_.find(link);
    if (found == links_.end()) return;
    removed = std::move(found->second);
    links_.erase(found);
    if (links_.empty()) empty_.NotifyAll();
  }

  // Ends all links with `status` and waits, bounded, until the network has released them.
  void Shut(const absl::Status& status) GANGWAY_EXCLUDES(mutex_) {
    for (const auto& link : ShutAndList()) link->End(status);
    if (WaitEmpty(kCloseLimit)) return;
    for (const auto& link : ShutAndList()) link->Cancel();
    WaitEmpty(kCancelLimit);
  }

 private:
  static constexpr std::chrono::seconds kCancelLimit{5};  // a cancelled link ends at once

  std::vector<std::shared_ptr<End>> ShutAndList() GANGWAY_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      shut_ = true;
    }
    return List();
  }

  bool WaitEmpty(std::chrono::milliseconds limit) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return empty_.WaitFor(mutex_, limit, [this]() GANGWAY_NO_ANALYSIS { return links_.empty(); });
  }

  mutable Mutex mutex_;
  CondVar empty_;
  bool shut_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::map<End*, std::shared_ptr<End>> links_ GANGWAY_GUARDED_BY(mutex_);
};

// The Link that users hold.
template <typename End>
class LinkHandle final : public Link {
 public:
  explicit LinkHandle(std::shared_ptr<End> end) : end_(std::move(end)) {}
  ~LinkHandle() override { end_->Close(absl::CancelledError("the peer dropped the link")); }
  absl::Status Send(wire::Frame frame) override { return end_->Send(std::move(frame), {}); }
  absl::Status SendParts(wire::Frame head, FrameParts parts) override {
    return end_->Send(std::move(head), parts);
  }
  size_t queued_bytes() const override { return end_->queued_bytes(); }
  size_t writable_bytes() const override { return end_->writable_bytes(); }
  size_t frame_bytes_max() const override { return end_->frame_bytes_max(); }
  void Close(const absl::Status& reason) override { end_->Close(reason); }
  const Peer& peer() const override { return end_->peer(); }
  void Admit() override {
    if constexpr (requires { end_->Admit(); }) end_->Admit();
  }

 private:
  const std::shared_ptr<End> end_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LINK_SET_H_
