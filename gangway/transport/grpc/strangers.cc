// Implementation of strangers.h.
#include "gangway/transport/grpc/strangers.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "gangway/base/tcp_peer.h"

namespace gangway::transport {
namespace {

constexpr size_t kDescriptorsPart = 8;

bool IsStranger(const Strangers::Connection& connection) { return connection.admitted == 0; }

}  // namespace

StrangerLimits StrangerLimits::OfThisProcess() {
  StrangerLimits limits;
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
    MakeRoomLocked();
  }
  on_stranger_();
}

void Strangers::MakeRoomLocked() {
  size_t count = 0;
  auto oldest = connections_.end();
  for (auto each = connections_.begin(); each != connections_.end(); ++each) {
    if (!IsStranger(*each->second)) continue;
    ++count;
    if (oldest == connections_.end() || each->second->since < oldest->second->since) oldest = each;
  }
  if (count > limits_.connections_max) EndLocked(oldest);
}

std::shared_ptr<Strangers::Connection> Strangers::Enter(const std::string& peer) {
  MutexLock lock(mutex_);
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return nullptr;
  std::shared_ptr<Connection> connection = found->second;
  ++connection->streams;
  if (IsStranger(*connection) && connection->streams > limits_.streams_max) EndLocked(found);
  return connection;
}

void Strangers::Admit(Connection& connection) {
  MutexLock lock(mutex_);
  ++connection.admitted;
}

void Strangers::Leave(Connection& connection, bool was_admitted) {
  {
    MutexLock lock(mutex_);
    --connection.streams;
    if (!was_admitted || --connection.admitted > 0 || !connection.socket.valid()) return;
    connection.since = Clock::now();
    connection.bytes_then = BytesReceived(connection.socket.get());
  }
  on_stranger_();
}

bool Strangers::LookAt(Clock::time_point now) {
  MutexLock lock(mutex_);
  uint64_t bytes = 0, most_bytes = 0;
  bool any = false;
  auto most = connections_.end();
  for (auto each = connections_.begin(); each != connections_.end();) {
    const auto at = each++;
    const Connection& connection = *at->second;
    if (!IsStranger(connection)) continue;
    if (HasPeerClosed(connection.socket.get())) {
      connections_.erase(at);
      continue;
    }
    if (now - connection.since >= limits_.admission) {
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

std::shared_ptr<StrangerWatch> StrangerWatch::Make(grpc::CompletionQueue* queue) {
  std::shared_ptr<StrangerWatch> watch(new StrangerWatch(queue));
  watch->strangers_ = std::make_shared<Strangers>(StrangerLimits::OfThisProcess(),
                                                  [weak = watch->weak_from_this()] {
                                                    if (auto self = weak.lock()) self->LookSoon();
                                                  });
  return watch;
}

void StrangerWatch::LookSoon() {
  MutexLock lock(mutex_);
  if (is_stopped_ || self_ != nullptr) return;
  self_ = shared_from_this();
  timer_.Set(queue_, WallClock::now() + Strangers::kLookInterval, static_cast<Completion*>(this));
}

void StrangerWatch::Run(bool ok) {
  std::shared_ptr<StrangerWatch> self;
  {
    MutexLock lock(mutex_);
    self = std::exchange(self_, nullptr);
  }
  if (ok && strangers_->Look()) LookSoon();
}

void StrangerWatch::Stop() {
  MutexLock lock(mutex_);
  is_stopped_ = true;
  if (self_ != nullptr) timer_.Cancel();
}

}  // namespace gangway::transport
