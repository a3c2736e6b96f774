// Bounds what strangers cost a listener (SE-1). A stranger is a TCP connection without an admitted link: no owner of a
// link on it has called Link::Admit, or those links are closed. gRPC reads a whole message before its receiver sees it,
// so a stranger could fill this process's memory with a first message. Strangers are few, have a deadline, and may send
// few bytes and open few streams. The oldest one makes room for a new one, so strangers keep no peer out.
//
// Threading: thread-safe. Owns a second descriptor of each connection, to end it. Failure: a stranger over a limit is
// disconnected, and so is a connection that cannot be watched, for want of a descriptor.
#ifndef GANGWAY_TRANSPORT_GRPC_STRANGERS_H_
#define GANGWAY_TRANSPORT_GRPC_STRANGERS_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gangway/base/clock.h"
#include "gangway/base/completion_thread.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"

namespace gangway::transport {

struct StrangerLimits {
  size_t connections_max = 1024;
  uint64_t bytes_max = 64 << 20;  // from all strangers together; checked every kLookInterval
  int streams_max = 16;           // at once, of one stranger
  // The TLS handshake and the wait for a Hello have 10 s each, so their own refusals, with a reason, come first.
  std::chrono::milliseconds admission{25'000};

  // With an eighth of the descriptors that this process may have, if those are fewer connections.
  static StrangerLimits OfThisProcess();
};

class Strangers {
 public:
  static constexpr std::chrono::milliseconds kLookInterval{50};

  struct Connection {
    FileDescriptor socket;    // a duplicate
    Clock::time_point since;  // it is a stranger
    uint64_t bytes_then = 0;  // that it had sent then
    int streams = 0;
    int admitted = 0;  // of these
  };

  // `on_stranger` is called, from any thread, when a connection becomes a stranger.
  Strangers(const StrangerLimits& limits, std::function<void()> on_stranger)
      : limits_(limits), on_stranger_(std::move(on_stranger)) {}

  // A connection was accepted. `fd` remains the caller's.
  void Watch(int fd) GANGWAY_EXCLUDES(mutex_);

  // A stream began on the connection from `peer`, as gRPC writes it; null: it is not watched. Each result is passed to
  // Leave once, when the stream is over or this end closes it.
  std::shared_ptr<Connection> Enter(const std::string& peer) GANGWAY_EXCLUDES(mutex_);
  void Admit(Connection& connection) GANGWAY_EXCLUDES(mutex_);  // once for a stream
  void Leave(Connection& connection, bool was_admitted) GANGWAY_EXCLUDES(mutex_);

  // Ends strangers that are late, and the one that has sent most if all have sent too much; forgets closed connections.
  // To be called every kLookInterval until it returns false: there are no strangers.
  bool Look() GANGWAY_EXCLUDES(mutex_) { return LookAt(Clock::now()); }
  bool LookAt(Clock::time_point now) GANGWAY_EXCLUDES(mutex_);

 private:
  using Connections = std::map<std::string, std::shared_ptr<Connection>>;

  void MakeRoomLocked() GANGWAY_REQUIRES(mutex_);
  void EndLocked(Connections::iterator connection) GANGWAY_REQUIRES(mutex_);

  const StrangerLimits limits_;
  const std::function<void()> on_stranger_;
  Mutex mutex_;
  Connections connections_
      GANGWAY_GUARDED_BY(mutex_);  // by the address of the peer; without those that were ended
};

// Looks at strangers, by timers of a queue, while there are some. Any thread.
class StrangerWatch final : public Completion, public std::enable_shared_from_this<StrangerWatch> {
 public:
  static std::shared_ptr<StrangerWatch> Make(grpc::CompletionQueue* queue);

  const std::shared_ptr<Strangers>& strangers() const { return strangers_; }
  // Sets no timer after it. The queue runs the one that is set before it is shut down.
  void Stop() GANGWAY_EXCLUDES(mutex_);

  void Run(bool ok) override GANGWAY_EXCLUDES(mutex_);

 private:
  explicit StrangerWatch(grpc::CompletionQueue* queue) : queue_(queue) {}
  void LookSoon() GANGWAY_EXCLUDES(mutex_);

  grpc::CompletionQueue* const queue_;
  std::shared_ptr<Strangers> strangers_;
  Mutex mutex_;
  grpc::Alarm timer_ GANGWAY_GUARDED_BY(mutex_);
  std::shared_ptr<StrangerWatch> self_ GANGWAY_GUARDED_BY(mutex_);  // while the timer is set
  bool is_stopped_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_STRANGERS_H_
