// Implementation of strangers.h.
#include "gangway/base/strangers.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "gangway/base/tcp_peer.h"

namespace gangway {
namespace {

constexpr size_t kDescriptorsPart = 8;

bool IsKnown(const Strangers::Connection& connection) {
  return !connection.socket.valid() || connection.admitted > 0 ||
         std::any_of(connection.proven.begin(), connection.proven.end(),
                     [](const auto& each) { return !each.expired(); });
}

// Drops what has ended of what the connection has proven to know. Returns whether there was any.
bool ForgetEnded(Strangers::Connection& connection) {
  return std::erase_if(connection.proven, [](const auto& each) { return each.expired(); }) > 0;
}

}  // namespace

StrangerLimits StrangerLimits::ForThisProcess() const {
  StrangerLimits limits = *this;
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0)
    limits.connections_max =
        std::clamp<size_t>(files.rlim_cur / kDescriptorsPart, 1, limits.connections_max);
  return limits;
}

void Strangers::EndLocked(Connections::iterator connection) {
  ResetConnection(connection->second->socket);
  connections_.erase(connection);
}

void Strangers::Watch(int fd) {
  const std::string peer = GrpcPeerName(fd);
  FileDescriptor own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (peer.empty()) return;
  if (!own.valid()) {
    (void)shutdown(fd, SHUT_RDWR);
    return;
  }
  {
    MutexLock lock(mutex_);
    auto& connection = connections_[peer];
    if (connection != nullptr) ResetConnection(connection->socket);  // its peer has closed it
    connection = std::make_shared<Connection>();
    connection->socket = std::move(own);
    connection->since = Clock::now();
    MakeRoomLocked(connection->since);
  }
  on_stranger_();
}

bool Strangers::IsStrangerLocked(Connection& connection, Clock::time_point now) const {
  const bool is_known = IsKnown(connection);
  if (std::exchange(connection.was_known, is_known) && !is_known) {
    connection.since = now;
    connection.bytes_then = BytesReceived(connection.socket.get());
  }
  return !is_known;
}

void Strangers::MakeRoomLocked(Clock::time_point now) {
  size_t count = 0;
  auto oldest = connections_.end();
  for (auto each = connections_.begin(); each != connections_.end(); ++each) {
    if (!IsStrangerLocked(*each->second, now)) continue;
    ++count;
    if (oldest == connections_.end() || each->second->since < oldest->second->since) oldest = each;
  }
  if (count > limits_.connections_max) EndLocked(oldest);
}

Strangers::Entry Strangers::Enter(const std::string& peer) {
  MutexLock lock(mutex_);
  const auto found = connections_.find(peer);
  Entry entry{.connection = found == connections_.end() ? unwatched_ : found->second};
  entry.streams = ++entry.connection->streams;
  entry.is_stranger = IsStrangerLocked(*entry.connection, Clock::now());
  if (entry.is_stranger && entry.streams > limits_.streams_max) EndLocked(found);
  return entry;
}

void Strangers::Leave(Connection& connection) {
  bool forgets = false;
  {
    MutexLock lock(mutex_);
    --connection.streams;
    forgets = ForgetEnded(connection);
  }
  if (forgets) on_stranger_();  // it, and others that knew no more, may be strangers now
}

void Strangers::Admit(Connection& connection) {
  MutexLock lock(mutex_);
  ++connection.admitted;
  connection.was_known = true;
}

void Strangers::Withdraw(Connection& connection) {
  {
    MutexLock lock(mutex_);
    --connection.admitted;
    (void)IsStrangerLocked(connection, Clock::now());
  }
  on_stranger_();  // others may be strangers now, too, which knew what has ended
}

void Strangers::Prove(Connection& connection, const std::shared_ptr<const void>& known) {
  bool forgets = false;
  {
    MutexLock lock(mutex_);
    if (&connection == unwatched_.get()) return;
    forgets = ForgetEnded(connection);
    auto& proven = connection.proven;
    const bool is_new = std::none_of(proven.begin(), proven.end(), [&known](const auto& each) {
      return !each.owner_before(known) && !known.owner_before(each);
    });
    if (is_new) proven.push_back(known);
    connection.was_known = true;
  }
  if (forgets) on_stranger_();  // others may have known no more than what has ended
}

bool Strangers::LookAt(Clock::time_point now) {
  MutexLock lock(mutex_);
  uint64_t bytes = 0, most_bytes = 0;
  bool any = false;
  auto most = connections_.end();
  for (auto each = connections_.begin(); each != connections_.end();) {
    const auto at = each++;
    Connection& connection = *at->second;
    if (!IsStrangerLocked(connection, now)) continue;
    // A peer may have closed one direction only.
    if (HasPeerClosed(connection.socket.get()) || now - connection.since >= limits_.admission) {
      EndLocked(at);
      continue;
    }
    any = true;
    const uint64_t sent = BytesReceived(connection.socket.get()) - connection.bytes_then;
    bytes += sent;
    if (sent < most_bytes) continue;
    most = at;
    most_bytes = sent;
  }
  if (bytes > limits_.bytes_max) EndLocked(most);
  return any;
}

}  // namespace gangway
