// Implementation of dialer.h.
#include "gangway/transport/dialer.h"

#include <utility>

namespace gangway::transport {

Dialer::~Dialer() {
  for (auto& [id, thread] : threads_) thread.Join();
}

void Dialer::Dial(Order order) {
  waiting_.push_back(std::move(order));
  StartNext();
}

void Dialer::StartNext() {
  while (!waiting_.empty() && threads_.size() < kThreadsMax) {
    auto order = std::make_shared<Order>(std::move(waiting_.front()));
    waiting_.pop_front();
    if (!order->wanted()) continue;
    const uint64_t id = ++last_thread_;
    threads_[id] = Thread("gw-dial", [this, id, order] {
      auto link = transport_->Connect(order->address, std::move(order->events), order->limit,
                                      order->options);
      loop_->Post([this, id, order, link = std::move(link)]() mutable {
        threads_.at(id).Join();  // it has ended, or is about to
        threads_.erase(id);
        order->dialed(std::move(link));
        StartNext();
      });
    });
  }
}

}  // namespace gangway::transport
