// Implementation of stream_life.h.
#include "gangway/frontdoor/ifrt/stream_life.h"

#include <chrono>

namespace gangway::ifrt {

void StreamLife::BeginOperation() {
  MutexLock lock(mutex_);
  ++operations_;
}

bool StreamLife::EndOperation() {
  MutexLock lock(mutex_);
  return --operations_ == 0 && stage_ == Stage::kFinished;
}

bool StreamLife::BeginRead() {
  MutexLock lock(mutex_);
  if (stage_ >= Stage::kEnded) return false;
  ++reads_;
  ++operations_;
  return true;
}

bool StreamLife::TakeRead() {
  MutexLock lock(mutex_);
  if (stage_ >= Stage::kLate) return false;
  if (stage_ == Stage::kFirstAwaited) stage_ = Stage::kServing;
  return true;
}

void StreamLife::EndRead(Next next) {
  MutexLock lock(mutex_);
  --reads_;
  if (next == Next::kNone && stage_ < Stage::kEnded) stage_ = Stage::kEnded;
  if (stage_ >= Stage::kEnded) changed_.NotifyAll();
}

bool StreamLife::Expire() {
  MutexLock lock(mutex_);
  if (stage_ != Stage::kFirstAwaited) return false;
  stage_ = Stage::kLate;
  changed_.NotifyAll();
  return true;
}

void StreamLife::End() {
  MutexLock lock(mutex_);
  if (stage_ < Stage::kEnded) stage_ = Stage::kEnded;
  changed_.NotifyAll();
}

StreamLife::Ended StreamLife::WaitForEnd() {
  MutexLock lock(mutex_);
  // The hour only bounds one sleep.
  while (!changed_.WaitFor(mutex_, std::chrono::hours(1), [this]() GANGWAY_NO_ANALYSIS {
    return stage_ == Stage::kLate || (stage_ == Stage::kEnded && reads_ == 0);
  })) {
  }
  return stage_ == Stage::kLate ? Ended::kLate : Ended::kByStream;
}

bool StreamLife::BeginFinish() {
  MutexLock lock(mutex_);
  if (stage_ >= Stage::kFinishing) return false;
  stage_ = Stage::kFinishing;
  ++operations_;
  return true;
}

void StreamLife::Finish() {
  MutexLock lock(mutex_);
  stage_ = Stage::kFinished;
}

}  // namespace gangway::ifrt
