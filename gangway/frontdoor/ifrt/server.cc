// Implementation of server.h.
#include "gangway/frontdoor/ifrt/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "spdlog/spdlog.h"

#include "gangway/base/accept_loop.h"
#include "gangway/base/check.h"
#include "gangway/base/clock.h"
#include "gangway/base/host_memory.h"
#include "gangway/base/status.h"
#include "gangway/frontdoor/ifrt/buffer_calls.h"
#include "gangway/frontdoor/ifrt/call.h"
#include "gangway/frontdoor/ifrt/session_call.h"

namespace gangway::ifrt {
namespace {

constexpr std::chrono::seconds kExpiryPeriod{5};
// A cancelled call ends at once if the factory does (see server.h).
constexpr std::chrono::seconds kShutdownLimit{60};
constexpr int kIdleMs = 60000;            // of a connection without a stream
constexpr int kLookaheadBytes = 4 << 20;  // in flight on one stream; fixed, not probed

bool IsLoopback(const std::string& address) {
  for (const char* prefix :
       {"127.", "localhost:", "[::1]:", "unix:", "ipv4:127.", "dns:localhost:"}) {
    if (absl::StartsWith(address, prefix)) return true;
  }
  return false;
}

bool IsUnixSocket(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

uint64_t DefaultHostBytes() {
  const uint64_t host_bytes = HostMemoryBytes();
  return host_bytes != 0 ? host_bytes / 4 : uint64_t{1} << 30;
}

}  // namespace

class IfrtServer::Impl {
 public:
  Impl(ClientFactory factory, const IfrtServerOptions& options) : calls_(options) {
    calls_.factory = std::move(factory);
    if (calls_.options.memory == nullptr) {
      calls_.options.memory =
          std::make_shared<MemoryBudget>("the front door", "", DefaultHostBytes());
    }
  }
  ~Impl() { Shutdown(); }

  absl::Status Start(const std::string& address) {
    grpc::ServerBuilder builder;
    GANGWAY_RETURN_IF_ERROR(Listen(address));
    if (const std::string& path = calls_.options.socket_path; !path.empty()) {
      const absl::Status status = Listen(absl::StrCat("unix:", path));
      if (!status.ok())
        spdlog::warn("JAX clients of this host use loopback: {}", std::string(status.message()));
    }
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    // For connections of the unix socket, which the doorkeeper does not watch.
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               static_cast<int>(calls_.options.limits.token.count()));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
    // The interval of pings, and the limit of their answers.
    const int ping_ms =
        static_cast<int>(std::max<int64_t>(1000, calls_.options.client_silence_max.count() / 2));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ping_ms);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ping_ms);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.SetMaxReceiveMessageSize(calls_.options.message_bytes_max);
    builder.SetMaxSendMessageSize(-1);
    builder.RegisterService(&calls_.service);
    auto queue = builder.AddCompletionQueue();
    calls_.queue = queue.get();
    thread_ = std::make_unique<CompletionThread>(std::move(queue));
    server_ = builder.BuildAndStart();
    if (server_ == nullptr)
      return absl::UnavailableError("gRPC refused to start the JAX front door's server");
    thread_->Start();
    Acceptor::Start(calls_, &SessionCall::Make);
    AcceptBufferCalls(calls_);
    ScheduleExpiry();
    for (const auto& accept : accept_) {
      accept->Start([this](int fd) {
        // The default is 208 KiB, and never grows, unlike TCP's.
        if (IsUnixSocket(fd))
          setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kLookaheadBytes, sizeof(kLookaheadBytes));
        calls_.door.Watch(fd);
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.fd = fd;
        connections_->HandleNewConnection(&connection);
      });
    }
    return absl::OkStatus();
  }

  void Shutdown() {
    for (const auto& accept : accept_) accept->Stop();
    if (server_ != nullptr) {
      server_->Shutdown(WallClock::now());
      GANGWAY_CHECK(calls_.live.WaitForNone(kShutdownLimit),
                    "a session of the JAX front door did not end when it was cancelled");
      thread_->Stop();
      server_.reset();
    }
    calls_.timers.Stop();
  }

  int port() const { return accept_.empty() ? 0 : accept_.front()->port(); }

 private:
  absl::Status Listen(const std::string& address) {
    const bool local = absl::StartsWith(address, "unix:");
    const size_t colon = address.rfind(':');
    int port = 0;
    if (!local && !absl::SimpleAtoi(address.substr(colon + 1), &port))
      return absl::InvalidArgumentError(absl::StrCat("no port in the address ", address));
    std::string host = address.substr(0, colon);
    for (const char* prefix : {"ipv4:", "dns:"}) {
      if (absl::StartsWith(host, prefix)) host = host.substr(std::strlen(prefix));
    }
    if (host == "[::1]") host = "::1";
    auto accept = local ? AcceptLoop::ListenUnix(address.substr(std::strlen("unix:")))
                        : AcceptLoop::ListenTcp(host, port);
    if (!accept.ok()) {
      return absl::UnavailableError(
          absl::StrCat("the JAX front door cannot listen on ", address,
                       ": the address is in use or not this machine's; choose another (",
                       std::string(accept.status().message()), ")"));
    }
    accept_.push_back(*std::move(accept));
    return absl::OkStatus();
  }

  void ScheduleExpiry() {
    calls_.timers.PostAt(Clock::now() + kExpiryPeriod, [this] {
      for (const auto& buffers : calls_.registry.All()) buffers->Expire(Clock::now());
      ScheduleExpiry();
    });
  }

  CallEnvironment calls_;
  std::vector<std::unique_ptr<AcceptLoop>> accept_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<CompletionThread> thread_;
  std::unique_ptr<grpc::Server> server_;
};

IfrtServer::IfrtServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
IfrtServer::~IfrtServer() = default;

absl::StatusOr<std::unique_ptr<IfrtServer>> IfrtServer::Start(const std::string& address,
                                                              ClientFactory factory,
                                                              const IfrtServerOptions& options) {
  if (!IsLoopback(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the JAX front door was told to listen on ", address,
                     ", but its protocol has neither authentication nor encryption; use a loopback "
                     "address such as 127.0.0.1:38677"));
  }
  auto impl = std::make_unique<Impl>(std::move(factory), options);
  GANGWAY_RETURN_IF_ERROR(impl->Start(address));
  return std::unique_ptr<IfrtServer>(new IfrtServer(std::move(impl)));
}

int IfrtServer::port() const { return impl_->port(); }
void IfrtServer::Shutdown() { impl_->Shutdown(); }

}  // namespace gangway::ifrt
