// Questions for the flight recorders of all processes. Every process that is up replies for itself; each reply goes on
// to the tool, or to the client, as it arrives. The end names those that have not replied within the limit.
//
// A client is told only what belongs to its own session (OB-3), and its session has one question under way at most.
//
// Threading: everything runs on the given event loop, which outlives this object. Destroyed there, or after it has
// stopped.
#ifndef GANGWAY_CONTROLLER_SERVICE_TRACE_QUERIES_H_
#define GANGWAY_CONTROLLER_SERVICE_TRACE_QUERIES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class TraceQueries {
 public:
  struct Events {
    // Sends the question to the other processes, and returns the names of all that are to reply.
    std::function<std::set<std::string>(const wire::Frame& question)> ask;
    std::function<void(SessionId session, wire::Frame frame)> to_client;  // which may have left
  };
  static constexpr std::chrono::milliseconds kLimit{3000};

  TraceQueries(EventLoop* loop, uint64_t epoch, Events events,
               std::chrono::milliseconds limit = kLimit);
  ~TraceQueries() { *alive_ = false; }

  void OnRequest(std::shared_ptr<transport::Link> tool);
  // `session` is the client's; the request's own is ignored, and so is a second request.
  void OnClientRequest(SessionId session, const wire::TraceRequest& request);
  void OnReply(wire::Frame frame);

 private:
  struct Query {
    std::shared_ptr<transport::Link> tool;  // null: a client's
    uint64_t asked_ns = 0;
    std::set<std::string> missing;  // processes
    // The rest is of a client.
    SessionId session;
    uint64_t client_query = 0;                         // its number
    std::set<uint64_t> gangs;                          // the session's
    std::set<uint64_t> executables;                    // that they launch
    std::map<uint64_t, std::string> executable_names;  // of all sessions
  };

  void Ask(Query query);
  void Finish(uint64_t probe);
  void Send(const Query& query, wire::Frame frame);
  static void KeepSession(Query& query, wire::TraceReply& reply);
  static void AddExecutableNames(const Query& query, wire::TraceReply& reply);

  EventLoop* const loop_;
  const uint64_t epoch_;
  const Events events_;
  const std::chrono::milliseconds limit_;
  std::map<uint64_t, Query> queries_;  // by probe
  uint64_t next_probe_ = 1;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_SERVICE_TRACE_QUERIES_H_
