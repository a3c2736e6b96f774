// Bounds what strangers cost a listener (SE-1). A stranger is a TCP connection that nothing vouches for: no owner of a
// stream on it has called Admit, or all of these have called Withdraw, and what it has proven to know is gone.
// Strangers are few, have a deadline, and may send few bytes and open few streams: a library that reads a whole
// message before its receiver sees it would let them fill this process's memory. The oldest one makes room for a new
// one, so strangers keep no peer out.
//
// Threading: thread-safe. Owns a second descriptor of each connection, to end it. Failure: a stranger over a limit is
// disconnected, and so is a connection that cannot be watched, for want of a descriptor.
#ifndef GANGWAY_BASE_STRANGERS_H_
#define GANGWAY_BASE_STRANGERS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"

namespace gangway {

struct StrangerLimits {
  size_t connections_max = 1024;
  uint64_t bytes_max = 64 << 20;  // from all strangers together; checked every kLookInterval
  int streams_max = 16;           // at once, of one stranger: one more ends it
  // A TLS handshake and the wait for a Hello have 10 s each, so that their own refusals, with a reason, come first.
  std::chrono::milliseconds admission{25'000};

  // With an eighth of the descriptors that this process may have, if those are fewer connections.
  StrangerLimits ForThisProcess() const;
};

class Strangers {
 public:
  static constexpr std::chrono::milliseconds kLookInterval{50};

  struct Connection {
    FileDescriptor socket;    // a duplicate; none: not watched
    Clock::time_point since;  // it is a stranger
    uint64_t bytes_then = 0;  // that it had sent then
    int streams = 0;
    int admitted = 0;                               // of these
    std::vector<std::weak_ptr<const void>> proven;  // what it knows, while that lives
    bool was_known = false;                         // no stranger, when last looked at
  };
  // A stream that began.
  struct Entry {
    std::shared_ptr<Connection> connection;
    int streams = 0;  // of the connection, with this one
    bool is_stranger = false;
  };

  // `on_stranger` is called, from any thread, when a connection becomes a stranger, or may have become one.
  Strangers(const StrangerLimits& limits, std::function<void()> on_stranger)
      : limits_(limits), on_stranger_(std::move(on_stranger)) {}

  // A connection was accepted. `fd` remains the caller's.
  void Watch(int fd) GANGWAY_EXCLUDES(mutex_);

  // A stream began on the connection from `peer`, as gRPC writes it. Connections that are not watched, such as those
  // of unix sockets, count as one that is no stranger. Each result's connection is passed to Leave once, when the
  // stream is over or this end closes it, and holds no more of what the connection has proven to know.
  Entry Enter(const std::string& peer) GANGWAY_EXCLUDES(mutex_);
  void Leave(Connection& connection) GANGWAY_EXCLUDES(mutex_);

  // The stream has shown that it belongs here: its connection is no stranger until Withdraw.
  void Admit(Connection& connection) GANGWAY_EXCLUDES(mutex_);
  void Withdraw(Connection& connection) GANGWAY_EXCLUDES(mutex_);
  // The stream knows of this, as no stranger does: its connection is none while that lives.
  void Prove(Connection& connection, const std::shared_ptr<const void>& known)
      GANGWAY_EXCLUDES(mutex_);

  // Ends strangers that are late, and the one that has sent most if all have sent too much; forgets closed connections.
  // To be called every kLookInterval until it returns false: there are no strangers.
  bool Look() GANGWAY_EXCLUDES(mutex_) { return LookAt(Clock::now()); }
  bool LookAt(Clock::time_point now) GANGWAY_EXCLUDES(mutex_);

 private:
  using Connections = std::map<std::string, std::shared_ptr<Connection>>;

  // A connection that was none begins to be one.
  bool IsStrangerLocked(Connection& connection, Clock::time_point now) const
      GANGWAY_REQUIRES(mutex_);
  void MakeRoomLocked(Clock::time_point now) GANGWAY_REQUIRES(mutex_);
  void EndLocked(Connections::iterator connection) GANGWAY_REQUIRES(mutex_);

  const StrangerLimits limits_;
  const std::function<void()> on_stranger_;
  Mutex mutex_;
  // By the address of the peer; without those that were ended.
  Connections connections_ GANGWAY_GUARDED_BY(mutex_);
  const std::shared_ptr<Connection> unwatched_ =
      std::make_shared<Connection>();  // guarded by mutex_
};

}  // namespace gangway

#endif  // GANGWAY_BASE_STRANGERS_H_
