// StreamLife: how far the stream of one session has come, from the wait for its first request to its status, and which
// operations of gRPC and of timers are under way on it. The owner may be deleted once the last of these has ended.
//
// Threading: thread-safe. Failure: none; WaitForEnd has no limit, since a session has none: the stream's end ends it.
#ifndef GANGWAY_FRONTDOOR_IFRT_STREAM_LIFE_H_
#define GANGWAY_FRONTDOOR_IFRT_STREAM_LIFE_H_

#include "gangway/base/mutex.h"

namespace gangway::ifrt {

class StreamLife {
 public:
  // One operation is under way from the start: the notice of the stream's end.
  StreamLife() = default;

  // A write, or a timer.
  void BeginOperation() GANGWAY_EXCLUDES(mutex_);
  // Ends one operation. True: it was the last one of a stream that has finished.
  [[nodiscard]] bool EndOperation() GANGWAY_EXCLUDES(mutex_);

  // An operation that reads a request. False: no more are read, and it has not begun.
  [[nodiscard]] bool BeginRead() GANGWAY_EXCLUDES(mutex_);
  // It has read a request, or that none follows. False: too late, so it counts for nothing.
  [[nodiscard]] bool TakeRead() GANGWAY_EXCLUDES(mutex_);
  // Its request has been handled.
  enum class Next { kMore, kNone };
  void EndRead(Next next) GANGWAY_EXCLUDES(mutex_);

  // The limit of the first request has passed. False: it came before, or the stream has ended.
  [[nodiscard]] bool Expire() GANGWAY_EXCLUDES(mutex_);
  // The stream has ended: no more requests are read.
  void End() GANGWAY_EXCLUDES(mutex_);

  enum class Ended { kByStream, kLate };
  // Waits until the stream has ended and no request is being handled, or the limit of the first one has passed.
  Ended WaitForEnd() GANGWAY_EXCLUDES(mutex_);

  // An operation that sends the stream's status. False: it has begun before.
  [[nodiscard]] bool BeginFinish() GANGWAY_EXCLUDES(mutex_);
  // The status was sent.
  void Finish() GANGWAY_EXCLUDES(mutex_);

 private:
  // In this order; any between the first and the last may be skipped.
  enum class Stage {
    kFirstAwaited,  // of the requests
    kServing,
    kEnded,
    kLate,  // the first request did not come in time
    kFinishing,
    kFinished,
  };

  Mutex mutex_;
  CondVar changed_;
  Stage stage_ GANGWAY_GUARDED_BY(mutex_) = Stage::kFirstAwaited;
  int reads_ GANGWAY_GUARDED_BY(mutex_) = 0;       // awaited or being handled
  int operations_ GANGWAY_GUARDED_BY(mutex_) = 1;  // the reads among them
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_STREAM_LIFE_H_
