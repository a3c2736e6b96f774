// Implementation of stranger_watch.h.
#include "gangway/transport/grpc/stranger_watch.h"

#include <utility>

#include "gangway/base/clock.h"

namespace gangway::transport {

std::shared_ptr<StrangerWatch> StrangerWatch::Make(grpc::CompletionQueue* queue) {
  std::shared_ptr<StrangerWatch> watch(new StrangerWatch(queue));
  watch->strangers_ = std::make_shared<Strangers>(StrangerLimits().ForThisProcess(),
                                                  [weak = watch->weak_from_this()] {
                                                    if (auto self = weak.lock()) self->LookSoon();
                                                  });
  return watch;
}

void StrangerWatch::LookSoon() {
  MutexLock lock(mutex_);
  if (is_stopped_ || self_ != nullptr) return;
  self_ = shared_from_this();
  timer_.Set(queue_, WallClock::now() + Strangers::kLookInterval, static_cast<Completion*>(this));
}

void StrangerWatch::Run(bool ok) {
  std::shared_ptr<StrangerWatch> self;
  {
    MutexLock lock(mutex_);
    self = std::exchange(self_, nullptr);
  }
  if (ok && strangers_->Look()) LookSoon();
}

void StrangerWatch::Stop() {
  MutexLock lock(mutex_);
  is_stopped_ = true;
  if (self_ != nullptr) timer_.Cancel();
}

}  // namespace gangway::transport
