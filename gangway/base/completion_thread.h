// CompletionThread: one thread that runs the completions of one gRPC queue. Each tag given to gRPC
// is a Completion*, which the thread runs once. Stop shuts the queue down, runs the remaining
// completions and joins; the caller must have cancelled every pending operation before. Must not be
// stopped or destroyed on its own thread.
//
// All pollers of a process share one epoll set in gRPC, and the poller that wakes hands the events
// of other queues to their threads. Each further queue therefore adds a thread handoff to every
// message, so a process keeps as few of these as it can.
#ifndef GANGWAY_BASE_COMPLETION_THREAD_H_
#define GANGWAY_BASE_COMPLETION_THREAD_H_

#include <grpcpp/completion_queue.h>

#include <memory>
#include <utility>

#include "gangway/base/serving_thread.h"
#include "gangway/base/thread.h"

namespace gangway {

class Completion {
 public:
  virtual ~Completion() = default;
  virtual void Run(bool ok) = 0;
};

class CompletionThread {
 public:
  explicit CompletionThread(std::unique_ptr<grpc::CompletionQueue> queue)
      : queue_(std::move(queue)) {}
  ~CompletionThread() { Stop(); }

  // The queue itself lives until the destructor: a server is destroyed after Stop and before the
  // queue.
  void Stop() {
    if (std::exchange(stopped_, true)) return;
    queue_->Shutdown();
    if (thread_.joinable()) {
      thread_.Join();
    } else {
      Loop();
    }
  }

  void Start() {
    thread_ = Thread("gangway-grpc", [this] {
      BeginServing();
      Loop();
    });
  }

  grpc::CompletionQueue* queue() const { return queue_.get(); }

 private:
  void Loop() {
    void* tag;
    bool ok;
    while (queue_->Next(&tag, &ok)) static_cast<Completion*>(tag)->Run(ok);
  }

  const std::unique_ptr<grpc::CompletionQueue> queue_;
  Thread thread_;
  bool stopped_ = false;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_COMPLETION_THREAD_H_
