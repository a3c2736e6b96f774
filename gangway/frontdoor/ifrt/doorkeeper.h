// Bounds what clients cost the front door. A connection without a session is a stranger's (base/strangers.h): no
// stream of it has presented the token or the number of a session, or those sessions have ended. (A JAX client has a
// connection for its session, and others for its bytes.) Streams of a connection, sessions, and refusals that wait for
// the first request of a client are limited, too.
//
// Connections of the unix socket are no strangers: its folder admits one user. Their streams count together.
//
// Threading: thread-safe. While there are strangers, a timer looks at them. Failure: a stranger over a limit is
// disconnected, and so is a connection for which no descriptor is free; a stream or session over a limit gets
// RESOURCE_EXHAUSTED.
#ifndef GANGWAY_FRONTDOOR_IFRT_DOORKEEPER_H_
#define GANGWAY_FRONTDOOR_IFRT_DOORKEEPER_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/base/strangers.h"

namespace gangway::ifrt {

struct DoorLimits {
  static constexpr int kManyTimes =
      4;  // its limit of streams, which a stranger that is ended ignores

  size_t strangers_max = 128;                // connections
  std::chrono::milliseconds token{10000};    // for a stranger's token, and a stream's first request
  uint64_t strangers_bytes_max = 256 << 20;  // from all strangers together
  int stranger_streams_max = 16;             // at once, of one stranger; four times as many end it
  int streams_max = 10000;                   // at once, of one connection
  int sessions_max = 512;
  int refusals_max = 32;  // that wait for a client's first request, to answer it

  StrangerLimits OfStrangers() const {
    return {.connections_max = strangers_max,
            .bytes_max = strangers_bytes_max,
            .streams_max = kManyTimes * stranger_streams_max,
            .admission = token};
  }
};

class Doorkeeper {
 public:
  using Connection = Strangers::Connection;

  // `timers` is stopped before this object is destroyed.
  Doorkeeper(const DoorLimits& limits, EventLoop* timers)
      : limits_(limits),
        timers_(timers),
        strangers_(limits.OfStrangers(), [this] { LookSoon(); }) {}

  const DoorLimits& limits() const { return limits_; }

  // A connection was accepted. `fd` remains the caller's.
  void Watch(int fd) { strangers_.Watch(fd); }

  // A stream began on the connection from `peer`, as gRPC writes it. It ends with Leave, whatever
  // `refused` is: RESOURCE_EXHAUSTED if the connection has too many streams.
  std::shared_ptr<Connection> Enter(const std::string& peer, absl::Status& refused);
  void Leave(Connection& connection) { strangers_.Leave(connection); }

  // The stream has presented the token. RESOURCE_EXHAUSTED: too many sessions. Otherwise, the
  // connection is no stranger until CloseSession.
  absl::Status OpenSession(Connection& connection) GANGWAY_EXCLUDES(mutex_);
  void CloseSession(Connection& connection) GANGWAY_EXCLUDES(mutex_);

  // The stream knows the number of a session: the connection is no stranger while that lives.
  void Prove(Connection& connection, const std::shared_ptr<const void>& session) {
    strangers_.Prove(connection, session);
  }

  // Whether one more refusal may wait for its client's first request; if so, ReturnRefusal ends it.
  bool TakeRefusal() GANGWAY_EXCLUDES(mutex_);
  void ReturnRefusal() GANGWAY_EXCLUDES(mutex_);

 private:
  void LookSoon() GANGWAY_EXCLUDES(mutex_);
  void Look() GANGWAY_EXCLUDES(mutex_);

  const DoorLimits limits_;
  EventLoop* const timers_;
  Strangers strangers_;
  Mutex mutex_;
  int sessions_ GANGWAY_GUARDED_BY(mutex_) = 0;
  int refusals_ GANGWAY_GUARDED_BY(mutex_) = 0;
  bool looking_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_DOORKEEPER_H_
