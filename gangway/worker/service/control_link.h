// A worker's link to its scheduler, with the frames' stamps and the watch for silence.
//
// Threading: any thread; one lock covers the sequence number and the position in the stream. Failure: what cannot be
// sent, and a scheduler that is silent, end the worker by its StopFlag.
#ifndef GANGWAY_WORKER_SERVICE_CONTROL_LINK_H_
#define GANGWAY_WORKER_SERVICE_CONTROL_LINK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/worker/service/worker.h"

namespace gangway::worker {

class ControlLink {
 public:
  ControlLink(Incarnation incarnation, StopFlag& stop) : incarnation_(incarnation), stop_(stop) {}

  // Nothing is sent before `hello`.
  void Set(std::shared_ptr<transport::Link> link, wire::Frame hello) {
    Heard();
    MutexLock lock(mutex_);
    link_ = std::move(link);
    // The mutex is held in every call of the sender.
    auto stamp = [this](wire::Frame& frame) GANGWAY_NO_ANALYSIS {
      frame.set_epoch(epoch_);
      frame.set_incarnation(incarnation_.number());
      frame.set_sequence(++sequence_);
    };
    sender_ =
        std::make_unique<transport::PacedSender>(link_, stamp, transport::PacedSender::Options());
    StopUnless(sender_->Send(std::move(hello)));
  }

  // Restarts the silence timer: the scheduler sent a message, or the link is new.
  void Heard() { heard_.store(Clock::now(), std::memory_order_relaxed); }

  // Ends the worker if the scheduler has been silent for `limit`.
  void CheckSilence(std::chrono::milliseconds limit, const std::string& address) {
    if (Clock::now() - heard_.load(std::memory_order_relaxed) < limit) return;
    stop_.Stop(absl::UnavailableError(
        absl::StrCat("Nothing came from the scheduler at ", address, " for ", limit.count(),
                     " ms: it is stopped, its host is gone, or the network is cut.")));
  }

  void SetEpoch(uint64_t epoch) {
    MutexLock lock(mutex_);
    epoch_ = epoch;
  }

  void Send(wire::Frame frame) {
    MutexLock lock(mutex_);
    if (link_ == nullptr) return;
    StopUnless(frame.has_heartbeat() ? sender_->SendNow(std::move(frame))
                                     : sender_->Send(std::move(frame)));
  }

  void OnWritable() {
    MutexLock lock(mutex_);
    if (link_ != nullptr) StopUnless(sender_->OnWritable());
  }

  void Close() {
    std::shared_ptr<transport::Link> link;
    {
      MutexLock lock(mutex_);
      link = std::exchange(link_, nullptr);
    }
    if (link != nullptr) link->Close(absl::CancelledError("The worker is shutting down."));
  }

 private:
  void StopUnless(const absl::Status& sent) {
    if (sent.ok()) return;
    stop_.Stop(absl::UnavailableError(
        absl::StrCat("The link to the scheduler is gone, it takes no more messages: ",
                     std::string(sent.message()))));
  }

  const Incarnation incarnation_;
  StopFlag& stop_;
  std::atomic<Clock::time_point> heard_{Clock::now()};
  Mutex mutex_;
  std::shared_ptr<transport::Link> link_ GANGWAY_GUARDED_BY(mutex_);
  std::unique_ptr<transport::PacedSender> sender_ GANGWAY_GUARDED_BY(mutex_);  // on link_
  uint64_t epoch_ GANGWAY_GUARDED_BY(mutex_) = 0;
  uint64_t sequence_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_CONTROL_LINK_H_
