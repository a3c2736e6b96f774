// Questions for the status of the cluster, by tools, and for the memory of all devices, by clients. The schedulers know
// what devices and workers hold, and are asked; what they have not said within the limit is left out.
//
// Threading: everything runs on the given event loop, which outlives this object. Destroyed there, or after it has
// stopped.
#ifndef GANGWAY_CONTROLLER_SERVICE_STATUS_QUERIES_H_
#define GANGWAY_CONTROLLER_SERVICE_STATUS_QUERIES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class StatusQueries {
 public:
  struct Events {
    // Asks the schedulers that are up for their usage, and returns how many they are.
    std::function<uint32_t(uint64_t probe)> ask;
    std::function<void(wire::StatusReply& reply)> fill;  // all but what the schedulers know
    std::function<void(SessionId session, wire::UsageReply reply)> to_client;  // it may have left
  };
  static constexpr std::chrono::milliseconds kLimit{2000};
  static constexpr int kOfSessionMax = 4;  // under way at once

  StatusQueries(EventLoop* loop, Events events, std::chrono::milliseconds limit = kLimit);
  ~StatusQueries() { *alive_ = false; }

  void OnRequest(std::shared_ptr<transport::Link> tool);
  // The client library asks one at a time. What exceeds kOfSessionMax is not answered.
  void OnClientRequest(SessionId session, const wire::UsageRequest& request);
  void OnUsage(uint32_t island, const wire::Usage& usage);

 private:
  struct OfWorker {
    wire::DataBytes data;
    uint64_t nodes = 0;
  };
  struct Query {
    std::shared_ptr<transport::Link> tool;  // null: a client's, or it has left
    SessionId session;                      // of a client, which is told the devices' memory only
    uint64_t client_query = 0;              // its number
    uint32_t missing = 0;                   // schedulers
    std::map<DeviceId, wire::DeviceUsage> devices;
    std::map<std::pair<uint32_t, uint32_t>, OfWorker> workers;  // by island and index
  };

  void Ask(Query query);
  void Finish(uint64_t probe);
  void AnswerClient(const Query& query);
  void AnswerTool(Query& query);

  EventLoop* const loop_;
  const Events events_;
  const std::chrono::milliseconds limit_;
  std::map<uint64_t, Query> queries_;  // by probe
  uint64_t next_probe_ = 1;            // 0 is no probe
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_SERVICE_STATUS_QUERIES_H_
