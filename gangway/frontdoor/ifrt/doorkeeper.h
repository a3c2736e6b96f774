// Bounds what strangers cost the front door. A stranger is a TCP connection without a session: no
// stream of it has presented the token or the number of a session, or those sessions have ended. (A
// JAX client has a connection for its session, and others for its bytes.) Strangers are few, have a
// deadline, and may send few bytes and open few streams. The oldest one makes room for a new one, so
// strangers keep no client out. Streams of a connection, sessions, and refusals that wait for
// the first request of a client are limited, too.
//
// Connections of the unix socket are no strangers: its folder admits one user. Their streams count
// together.
//
// Threading: thread-safe. Owns a second descriptor of each TCP connection, to end it. While there
// are strangers, a timer looks at them. Failure: a stranger over a limit is disconnected; a stream
// or session over one gets RESOURCE_EXHAUSTED. Without a free descriptor, a connection is not
// watched.
#ifndef GANGWAY_FRONTDOOR_IFRT_DOORKEEPER_H_
#define GANGWAY_FRONTDOOR_IFRT_DOORKEEPER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"

namespace gangway::ifrt {

struct DoorLimits {
  int strangers_max = 128;                   // connections
  std::chrono::milliseconds token{10000};    // for a stranger's token, and a stream's first request
  uint64_t strangers_bytes_max = 256 << 20;  // from all strangers together; checked every 50 ms
  int stranger_streams_max = 16;             // at once, of one stranger; four times as many end it
  int streams_max = 10000;                   // at once, of one connection
  int sessions_max = 512;
  int refusals_max = 32;  // that wait for a client's first request, to answer it
};

class Doorkeeper {
 public:
  struct Connection {
    FileDescriptor socket;  // a duplicate; none: not watched
    Clock::time_point since;
    int streams = 0;
    int sessions = 0;                               // of its own
    std::vector<std::weak_ptr<const void>> proven;  // sessions elsewhere, whose bytes it carries
    bool known = false;                             // it was no stranger when last looked at
    bool ended = false;
  };

  // `timers` is stopped before this object is destroyed.
  Doorkeeper(const DoorLimits& limits, EventLoop* timers) : limits_(limits), timers_(timers) {}

  const DoorLimits& limits() const { return limits_; }

  // A connection was accepted. `fd` remains the caller's.
  void Watch(int fd) GANGWAY_EXCLUDES(mutex_);

  // A stream began on the connection from `peer`, as gRPC writes it. It ends with Leave, whatever
  // `refused` is: RESOURCE_EXHAUSTED if the connection has too many streams.
  std::shared_ptr<Connection> Enter(const std::string& peer, absl::Status& refused)
      GANGWAY_EXCLUDES(mutex_);
  void Leave(Connection& connection) GANGWAY_EXCLUDES(mutex_);

  // The stream has presented the token. RESOURCE_EXHAUSTED: too many sessions. Otherwise, the
  // connection is no stranger until CloseSession.
  absl::Status OpenSession(Connection& connection) GANGWAY_EXCLUDES(mutex_);
  void CloseSession(Connection& connection) GANGWAY_EXCLUDES(mutex_);

  // The stream knows the number of a session: the connection is no stranger while that lives.
  void Prove(Connection& connection, const std::shared_ptr<const void>& session)
      GANGWAY_EXCLUDES(mutex_);

  // Whether one more refusal may wait for its client's first request; if so, ReturnRefusal ends it.
  bool TakeRefusal() GANGWAY_EXCLUDES(mutex_);
  void ReturnRefusal() GANGWAY_EXCLUDES(mutex_);

 private:
  void MakeRoomLocked() GANGWAY_REQUIRES(mutex_);
  void LookSoonLocked() GANGWAY_REQUIRES(mutex_);
  void Look() GANGWAY_EXCLUDES(mutex_);

  const DoorLimits limits_;
  EventLoop* const timers_;
  Mutex mutex_;
  // By the address of the peer, in gRPC's form. Without those that were ended.
  std::map<std::string, std::shared_ptr<Connection>> connections_ GANGWAY_GUARDED_BY(mutex_);
  const std::shared_ptr<Connection> others_ = std::make_shared<Connection>();  // guarded by mutex_
  int sessions_ GANGWAY_GUARDED_BY(mutex_) = 0;
  int refusals_ GANGWAY_GUARDED_BY(mutex_) = 0;
  bool looking_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_DOORKEEPER_H_
