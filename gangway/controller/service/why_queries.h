// Tools' questions what work waits for. The schedulers know most waits, and are asked; those of clients and compilers
// are known here. The answer names the schedulers that have not replied within the limit.
//
// Threading: everything runs on the given event loop, which outlives this object. Destroyed there, or after it has
// stopped.
#ifndef GANGWAY_CONTROLLER_SERVICE_WHY_QUERIES_H_
#define GANGWAY_CONTROLLER_SERVICE_WHY_QUERIES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "gangway/base/executor.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class WhyQueries {
 public:
  struct Events {
    // Adds the waits that are known here, and rewrites the request for the schedulers. False: they need not be asked.
    std::function<bool(wire::WhyRequest& request, wire::WhyReply& reply)> explain;
    std::function<void(uint32_t island, const wire::Frame& question)> ask;
    // Says of the waits of a whole answer what only the controller knows.
    std::function<void(wire::WhyReply& reply)> complete;
  };
  struct Options {
    uint64_t epoch = 0;
    uint32_t islands = 0;
    std::chrono::milliseconds limit{2000};
  };

  WhyQueries(EventLoop* loop, const Options& options, Events events);
  ~WhyQueries() { *alive_ = false; }

  void OnRequest(std::shared_ptr<transport::Link> tool, wire::WhyRequest request);
  void OnReply(uint32_t island, const wire::WhyReply& reply);

 private:
  struct Query {
    std::shared_ptr<transport::Link> tool;  // null: it has left
    std::set<uint32_t> missing;             // islands
    wire::WhyReply reply;
  };

  void Finish(uint64_t probe);

  EventLoop* const loop_;
  const Options options_;
  const Events events_;
  std::map<uint64_t, Query> queries_;  // by probe
  uint64_t next_probe_ = 1;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_SERVICE_WHY_QUERIES_H_
