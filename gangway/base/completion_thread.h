// CompletionThread: one thread that runs what gRPC completes on one queue. Each tag given to gRPC
// is a Completion*; it is run once, there. Stop shuts the queue down, runs what is left and joins:
// everything that could still complete must have been cancelled before. Not stopped or destroyed on
// its own thread.
//
// All pollers of a process wait in one epoll set of gRPC, where whichever is awake takes the events
// of the others and hands them over: each further queue costs every message a switch of threads. So
// a process has as few of these as it can.
#ifndef GANGWAY_BASE_COMPLETION_THREAD_H_
#define GANGWAY_BASE_COMPLETION_THREAD_H_

#include <grpcpp/completion_queue.h>
#include <pthread.h>

#include <memory>
#include <thread>
#include <utility>

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

  // The queue itself stays until the destructor: a server is destroyed between the two.
  void Stop() {
    if (std::exchange(stopped_, true)) return;
    queue_->Shutdown();
    if (thread_.joinable()) {
      thread_.join();
    } else {
      Loop();
    }
  }

  void Start() {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "gangway-grpc");
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
  std::thread thread_;
  bool stopped_ = false;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_COMPLETION_THREAD_H_
