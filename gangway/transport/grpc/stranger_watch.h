// StrangerWatch: the strangers of a gRPC listener (base/strangers.h), at which a timer of its completion queue looks
// while there are some. gRPC reads a whole message before its receiver sees it, so a stranger could fill this
// process's memory with a first message. An admitted link is one whose owner has called Link::Admit.
//
// Threading: any thread.
#ifndef GANGWAY_TRANSPORT_GRPC_STRANGER_WATCH_H_
#define GANGWAY_TRANSPORT_GRPC_STRANGER_WATCH_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <memory>

#include "gangway/base/completion_thread.h"
#include "gangway/base/mutex.h"
#include "gangway/base/strangers.h"

namespace gangway::transport {

class StrangerWatch final : public Completion, public std::enable_shared_from_this<StrangerWatch> {
 public:
  static std::shared_ptr<StrangerWatch> Make(grpc::CompletionQueue* queue);

  const std::shared_ptr<Strangers>& strangers() const { return strangers_; }
  // Sets no timer after it. The queue runs the one that is set before it is shut down.
  void Stop() GANGWAY_EXCLUDES(mutex_);

  void Run(bool ok) override GANGWAY_EXCLUDES(mutex_);

 private:
  explicit StrangerWatch(grpc::CompletionQueue* queue) : queue_(queue) {}
  void LookSoon() GANGWAY_EXCLUDES(mutex_);

  grpc::CompletionQueue* const queue_;
  std::shared_ptr<Strangers> strangers_;
  Mutex mutex_;
  grpc::Alarm timer_ GANGWAY_GUARDED_BY(mutex_);
  std::shared_ptr<StrangerWatch> self_ GANGWAY_GUARDED_BY(mutex_);  // while the timer is set
  bool is_stopped_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_STRANGER_WATCH_H_
