// Opens links on threads of its own, several at a time, so that a peer that does not answer delays no other one.
//
// Threading: belongs to `loop`, which also runs `dialed`. Threads exist only while they open a link.
#ifndef GANGWAY_TRANSPORT_DIALER_H_
#define GANGWAY_TRANSPORT_DIALER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/base/executor.h"
#include "gangway/base/thread.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

class Dialer {
 public:
  static constexpr size_t kThreadsMax = 64;  // more links wait for one of them

  struct Order {
    std::string address;
    LinkEvents events;
    LinkOptions options;
    std::chrono::milliseconds limit{};
    // Asked when its turn comes. False: it is dropped, and `dialed` is not called.
    std::function<bool()> wanted;
    std::function<void(absl::StatusOr<std::shared_ptr<Link>>)> dialed;
  };

  Dialer(EventLoop* loop, Transport* transport) : loop_(loop), transport_(transport) {}
  ~Dialer();  // after the loop has stopped; within the limits of the orders

  void Dial(Order order);

 private:
  void StartNext();

  EventLoop* const loop_;
  Transport* const transport_;
  std::deque<Order> waiting_;
  std::map<uint64_t, Thread> threads_;
  uint64_t last_thread_ = 0;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_DIALER_H_
