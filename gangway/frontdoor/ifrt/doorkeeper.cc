// Implementation of doorkeeper.h.
#include "gangway/frontdoor/ifrt/doorkeeper.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/tcp_peer.h"

namespace gangway::ifrt {
namespace {

constexpr std::chrono::milliseconds kLookInterval{50};
constexpr int kManyTimes = 4;  // its limit of streams, which a stranger ignores

bool IsStranger(const Doorkeeper::Connection& connection) {
  return connection.sessions == 0 &&
         std::all_of(connection.proven.begin(), connection.proven.end(),
                     [](const auto& session) { return session.expired(); });
}

void End(Doorkeeper::Connection& connection) {
  ResetConnection(connection.socket);
  connection.ended = true;
}

}  // namespace

void Doorkeeper::Watch(int fd) {
  const std::string peer = GrpcPeerName(fd);
  if (peer.empty()) return;
  FileDescriptor own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return;
  MutexLock lock(mutex_);
  auto& connection = connections_[peer];
  if (connection != nullptr) End(*connection);  // its peer has closed it
  connection = std::make_shared<Connection>();
  connection->socket = std::move(own);
  connection->since = Clock::now();
  MakeRoomLocked();
  LookSoonLocked();
}

// Ends the oldest stranger if there are too many.
void Doorkeeper::MakeRoomLocked() {
  int strangers = 0;
  auto oldest = connections_.end();
  for (auto each = connections_.begin(); each != connections_.end(); ++each) {
    if (!IsStranger(*each->second)) continue;
    ++strangers;
    if (oldest == connections_.end() || each->second->since < oldest->second->since) oldest = each;
  }
  if (strangers <= limits_.strangers_max) return;
  End(*oldest->second);
  connections_.erase(oldest);
}

void Doorkeeper::LookSoonLocked() {
  if (std::exchange(looking_, true)) return;
  timers_->PostAt(Clock::now() + kLookInterval, [this] { Look(); });
}

void Doorkeeper::Look() {
  MutexLock lock(mutex_);
  const auto now = Clock::now();
  uint64_t bytes = 0, most_bytes = 0;
  auto most = connections_.end();
  for (auto each = connections_.begin(); each != connections_.end();) {
    Connection& connection = *each->second;
    const int fd = connection.socket.get();
    const bool known = !IsStranger(connection);
    if (std::exchange(connection.known, known) && !known) connection.since = now;
    if (!known && (HasPeerClosed(fd) || now - connection.since >= limits_.token)) {
      End(connection);
      each = connections_.erase(each);
      continue;
    }
    const uint64_t sent = known ? 0 : BytesReceived(fd);
    bytes += sent;
    if (!known && (most == connections_.end() || sent > most_bytes)) {
      most = each;
      most_bytes = sent;
    }
    ++each;
  }
  looking_ = false;
  if (most == connections_.end()) return;  // no stranger is left
  LookSoonLocked();
  if (bytes <= limits_.strangers_bytes_max) return;
  End(*most->second);
  connections_.erase(most);
}

std::shared_ptr<Doorkeeper::Connection> Doorkeeper::Enter(const std::string& peer,
                                                          absl::Status& refused) {
  MutexLock lock(mutex_);
  const auto found = connections_.find(peer);
  std::shared_ptr<Connection> connection = found == connections_.end() ? others_ : found->second;
  ++connection->streams;
  const bool stranger = connection != others_ && IsStranger(*connection);
  const int limit = stranger ? limits_.stranger_streams_max : limits_.streams_max;
  if (connection->streams <= limit) return connection;
  refused = absl::ResourceExhaustedError(absl::StrCat(
      "the connection ", peer, " has ", limit, " streams, the limit of the JAX front door for one ",
      stranger ? "that has not presented the cluster's token" : "connection",
      ": wait until some of them have ended, or use several processes"));
  if (stranger && connection->streams > kManyTimes * limit) {
    End(*connection);
    connections_.erase(found);
  }
  return connection;
}

void Doorkeeper::Leave(Connection& connection) {
  MutexLock lock(mutex_);
  --connection.streams;
}

absl::Status Doorkeeper::OpenSession(Connection& connection) {
  MutexLock lock(mutex_);
  if (sessions_ >= limits_.sessions_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the JAX front door has ", sessions_,
                     " sessions, its limit: end scripts that are done with the cluster (`gangway "
                     "status` lists the sessions), and start this one again"));
  }
  ++sessions_;
  ++connection.sessions;
  return absl::OkStatus();
}

void Doorkeeper::CloseSession(Connection& connection) {
  MutexLock lock(mutex_);
  --sessions_;
  --connection.sessions;
  connection.known = true;
  LookSoonLocked();  // also at the connections that carried its bytes
}

void Doorkeeper::Prove(Connection& connection, const std::shared_ptr<const void>& session) {
  MutexLock lock(mutex_);
  if (&connection == others_.get()) return;
  auto& proven = connection.proven;
  std::erase_if(proven, [](const auto& each) { return each.expired(); });
  const bool is_new = std::none_of(proven.begin(), proven.end(), [&session](const auto& each) {
    return !each.owner_before(session) && !session.owner_before(each);
  });
  if (is_new) proven.push_back(session);
  connection.known = true;
}

bool Doorkeeper::TakeRefusal() {
  MutexLock lock(mutex_);
  if (refusals_ >= limits_.refusals_max) return false;
  ++refusals_;
  return true;
}

void Doorkeeper::ReturnRefusal() {
  MutexLock lock(mutex_);
  --refusals_;
}

}  // namespace gangway::ifrt
