// For the tests of the client's parts: the parts of one session, whose control link records what they send.
#ifndef GANGWAY_CLIENT_RECORDED_SESSION_H_
#define GANGWAY_CLIENT_RECORDED_SESSION_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/client/activity.h"
#include "gangway/client/handles.h"
#include "gangway/client/submitter.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class RecordingLink final : public transport::Link {
 public:
  absl::Status Send(wire::Frame frame) override {
    MutexLock lock(mutex_);
    if (!refusal_.ok()) return refusal_;
    frames_.push_back(std::move(frame));
    return absl::OkStatus();
  }
  size_t queued_bytes() const override { return queued; }
  size_t writable_bytes() const override { return size_t{1} << 20; }
  size_t frame_bytes_max() const override { return size_t{1} << 30; }
  void Close(const absl::Status& reason) override { Refuse(reason); }
  const transport::Peer& peer() const override { return peer_; }

  // Of all later frames.
  void Refuse(const absl::Status& why) {
    MutexLock lock(mutex_);
    refusal_ = why;
  }
  std::vector<wire::Frame> frames() {
    MutexLock lock(mutex_);
    return frames_;
  }

  std::atomic<size_t> queued = 0;  // what it says of itself

 private:
  const transport::Peer peer_;
  Mutex mutex_;
  absl::Status refusal_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<wire::Frame> frames_ GANGWAY_GUARDED_BY(mutex_);
};

// Devices 0 and 1 are of worker {0, 0}, 2 and 3 of worker {1, 0}.
class RecordedSession {
 public:
  explicit RecordedSession(bool reports_ends = true, uint64_t pending_max = 4,
                           bool captures_bursts = false)
      : activity({.loop = &loop,
                  .interval = std::chrono::milliseconds(2),
                  .look =
                      [this] {
                        ++looks;
                        return look_again.load();
                      },
                  .latency_request = &LatencyRequest::OfProcess()}),
        submitter({.loop = &loop,
                   .activity = &activity,
                   .pending_max = pending_max,
                   .reports_ends = reports_ends,
                   .captures_bursts = captures_bursts,
                   .take_beside = [this] { return take_beside ? take_beside() : nullptr; },
                   .on_failed =
                       [this](const absl::Status& why) {
                         failure = why;
                         ++failures;
                       },
                   .now = [this] { return Now(); }}),
        handles(&loop, &submitter) {
    handles.SetWorkers({{0, {0, 0}}, {1, {0, 0}}, {2, {1, 0}}, {3, {1, 0}}});
    submitter.Open(link, {});
  }
  ~RecordedSession() { loop.Stop(); }

  // Runs `task` on the loop, and waits for it.
  void OnLoop(const std::function<void()>& task) {
    Answer<bool> done;
    loop.Post([&] {
      task();
      done.Set(true);
    });
    while (!done.WaitFor(std::chrono::milliseconds(1000))) continue;
  }
  // All operations that have been sent; sends those that wait, too.
  std::vector<wire::Op> Ops() {
    OnLoop([this] { submitter.Flush(); });
    std::vector<wire::Op> ops;
    for (const wire::Frame& frame : link->frames())
      for (const wire::Op& op : frame.session_batch().ops()) ops.push_back(op);
    return ops;
  }
  // The time that the pace goes by is the test's from the first call on.
  void Advance(std::chrono::microseconds by) { time_ = (Now() + by).time_since_epoch(); }
  void Lose(const absl::Status& why) {
    OnLoop([&] {
      submitter.Lose(why);
      submitter.Close(why);
      submitter.EndAll(why);
    });
  }

  const std::shared_ptr<RecordingLink> link = std::make_shared<RecordingLink>();
  std::atomic<int> looks = 0;
  std::atomic<bool> look_again = false;
  absl::Status failure;  // written on the loop
  std::atomic<int> failures = 0;
  std::function<std::function<void()>()> take_beside;
  EventLoop loop{"gw-client"};
  Activity activity;
  Submitter submitter;
  Handles handles;

 private:
  Clock::time_point Now() const {
    const Clock::duration set = time_.load();
    return set == Clock::duration::zero() ? Clock::now() : Clock::time_point(set);
  }

  // Since the clock's epoch; zero: no test has set it.
  std::atomic<Clock::duration> time_{Clock::duration::zero()};
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_RECORDED_SESSION_H_
