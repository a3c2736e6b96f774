// Implementation of grpc.h.
#include "gangway/transport/grpc/grpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <atomic>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/accept_loop.h"
#include "gangway/base/check.h"
#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/transport/grpc/address.h"
#include "gangway/transport/grpc/client_stream.h"
#include "gangway/transport/grpc/server_stream.h"
#include "gangway/transport/grpc/stranger_watch.h"

namespace gangway::transport {
namespace {

constexpr std::chrono::seconds kShutdownLimit{30};
constexpr int kHandshakeMs = 10000;      // for an accepted connection, TLS included
constexpr int kIdleMs = 60000;           // of an accepted connection without a stream
constexpr int kPingIntervalMinMs = 500;  // more frequent pings of a peer close its connection

// Settings of both ends: windows wide enough for bulk chunks without probing, large HTTP/2 frames,
// nothing from the environment.
std::map<std::string, int> CommonArguments(const GrpcOptions& options) {
  // The interval of pings, and the limit of their answers.
  const int keepalive_ms =
      static_cast<int>(std::max<int64_t>(1000, options.silence_max.count() / 2));
  return {
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 20},
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20},
      {GRPC_ARG_TCP_READ_CHUNK_SIZE, 256 << 10},
      {GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingIntervalMinMs},
  };
}

absl::StatusOr<std::unique_ptr<AcceptLoop>> Accepting(const Address& parsed) {
  const bool bracketed = parsed.host.front() == '[';
  return AcceptLoop::ListenTcp(
      bracketed ? parsed.host.substr(1, parsed.host.size() - 2) : parsed.host, parsed.port);
}

// Ends the links of a set whose peers the policy rejects, now and when its answers change.
class PeerWatch {
 public:
  PeerWatch(std::shared_ptr<PeerPolicy> policy, const std::shared_ptr<StreamSet>& streams)
      : policy_(std::move(policy)) {
    if (policy_ == nullptr) return;
    id_ = policy_->Subscribe([policy = policy_.get(), streams] {
      for (const auto& stream : streams->List()) {
        if (stream->certificate().empty()) continue;
        if (auto name = policy->Check(stream->certificate()); !name.ok())
          stream->End(name.status());
      }
    });
  }
  ~PeerWatch() {
    if (policy_ != nullptr) policy_->Unsubscribe(id_);
  }

  // Whether the peer of a stream of the set may have a link.
  absl::Status Admit(Stream& stream) const {
    if (policy_ == nullptr || stream.certificate().empty()) return absl::OkStatus();
    GANGWAY_ASSIGN_OR_RETURN(auto name, policy_->Check(stream.certificate()));
    stream.SetCertificateName(std::move(name));
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<PeerPolicy> policy_;
  uint64_t id_ = 0;
};

class GrpcListener final : public Listener {
 public:
  GrpcListener(const GrpcOptions& options, Accept accept, LinkOptions link_options)
      : message_bytes_max_(options.message_bytes_max),
        accept_(std::move(accept)),
        link_options_(link_options),
        peers_(options.peers, streams_) {}

  // The completion thread outlives the server: it runs the operations that gRPC cancels.
  ~GrpcListener() override {
    if (server_ == nullptr) return;
    loop_->Stop();
    if (watch_ != nullptr) watch_->Stop();
    streams_->Shut(absl::CancelledError(absl::StrCat("the listener at ", address_, " was closed")));
    server_->Shutdown(WallClock::now());
    {
      MutexLock lock(mutex_);
      // gRPC completes the request at once, and uses the server while it does.
      const bool none = idle_.WaitFor(mutex_, kShutdownLimit,
                                      [this]() GANGWAY_NO_ANALYSIS { return !requested_; });
      GANGWAY_CHECK(none, "gRPC did not complete a request for calls that its server ended");
    }
    server_.reset();
  }

  const std::shared_ptr<CompletionThread>& thread() const { return thread_; }

  absl::Status Open(const std::string& address, const Address& parsed, const GrpcOptions& options) {
    grpc::ServerBuilder builder;
    auto credentials =
        options.server_credentials ? options.server_credentials : grpc::InsecureServerCredentials();
    auto accept = Accepting(parsed);
    if (!accept.ok()) {
      return absl::UnavailableError(absl::StrCat("cannot listen at ", address,
                                                 ": it is in use or not on this machine (",
                                                 std::string(accept.status().message()), ")"));
    }
    loop_ = *std::move(accept);
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
    builder.RegisterAsyncGenericService(&service_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(message_bytes_max_));
    builder.SetMaxSendMessageSize(-1);
    for (const auto& [name, value] : CommonArguments(options))
      builder.AddChannelArgument(name, value);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
    auto queue = builder.AddCompletionQueue();
    queue_ = queue.get();
    thread_ = std::make_shared<CompletionThread>(std::move(queue));
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::UnavailableError("gRPC refused to start a server");
    address_ = absl::StrCat(parsed.host, ":", loop_->port());
    if (options.admits_peers) watch_ = StrangerWatch::Make(queue_);
    thread_->Start();
    RequestCall();
    loop_->Start([this](int fd) {
      if (watch_ != nullptr) watch_->strangers()->Watch(fd);
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      connections_->HandleNewConnection(&connection);
    });
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
  // Waits for the next call; deletes itself when the call arrives or the server shuts down.
  struct Request final : Completion {
    void Run(bool ok) override {
      std::unique_ptr<Request> self(this);
      if (!ok) return listener->OnNoMoreCalls();
      listener->RequestCall();
      listener->OnCall(std::move(call));
    }
    GrpcListener* listener = nullptr;
    std::unique_ptr<ServerCall> call = std::make_unique<ServerCall>();
  };

  void RequestCall() {
    {
      MutexLock lock(mutex_);
      requested_ = true;
    }
    auto* request = new Request;
    request->listener = this;
    ServerCall& call = *request->call;
    service_.RequestCall(&call.context, &call.call, queue_, queue_,
                         static_cast<Completion*>(request));
  }

  void OnNoMoreCalls() {
    MutexLock lock(mutex_);
    requested_ = false;
    idle_.NotifyAll();
  }

  void OnCall(std::unique_ptr<ServerCall> call) {
    bool known = call->context.method() == kMethod;
    auto stream =
        std::make_shared<ServerStream>(streams_, queue_, link_options_, message_bytes_max_,
                                       std::move(call), watch_ ? watch_->strangers() : nullptr);
    stream->Init();
    if (!streams_->Add(stream)) return;  // shutting down; the server cancels the call
    if (!known)
      return stream->Refuse(
          {grpc::StatusCode::UNIMPLEMENTED, "only /gangway.Link/Open is served here"});
    if (absl::Status admitted = peers_.Admit(*stream); !admitted.ok()) {
      return stream->Refuse({grpc::StatusCode::PERMISSION_DENIED, std::string(admitted.message())});
    }
    stream->Accept();
    stream->Start(accept_(std::make_shared<LinkHandle<Stream>>(stream)));
  }

  const size_t message_bytes_max_;
  const Accept accept_;
  const LinkOptions link_options_;
  std::string address_;
  std::shared_ptr<StrangerWatch> watch_;  // null: every peer is welcome
  std::unique_ptr<AcceptLoop> loop_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  const std::shared_ptr<StreamSet> streams_ = std::make_shared<StreamSet>();
  const PeerWatch peers_;
  grpc::AsyncGenericService service_;
  std::shared_ptr<CompletionThread> thread_;
  grpc::ServerCompletionQueue* queue_ = nullptr;  // of thread_
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  CondVar idle_;
  bool requested_ GANGWAY_GUARDED_BY(mutex_) = false;  // gRPC holds a Request
};

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(GrpcOptions options)
      : options_(std::move(options)), peers_(options_.peers, streams_) {}
  ~GrpcTransport() override {
    streams_->Shut(absl::CancelledError("the gRPC transport was closed"));
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Accept accept,
                                                   LinkOptions options) override {
    GANGWAY_ASSIGN_OR_RETURN(auto parsed, ParseAddress(address, security()));
    GANGWAY_RETURN_IF_ERROR(CheckListenable(address, parsed));
    auto listener = std::make_unique<GrpcListener>(options_, std::move(accept), options);
    GANGWAY_RETURN_IF_ERROR(listener->Open(address, parsed, options_));
    MutexLock lock(mutex_);
    if (thread_ == nullptr) thread_ = listener->thread();
    return listener;
  }

  absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address, LinkEvents events,
                                                std::chrono::milliseconds limit,
                                                LinkOptions options) override {
    GANGWAY_ASSIGN_OR_RETURN(auto parsed, ParseAddress(address, security()));
    if (parsed.port == 0) {
      return absl::InvalidArgumentError(absl::StrCat("cannot connect to port 0 of ", address));
    }
    auto stream = std::make_shared<ClientStream>(
        streams_, Queue(), options, options_.message_bytes_max, address, NewChannel(parsed.target));
    stream->Init();
    if (!streams_->Add(stream)) return absl::UnavailableError("the gRPC transport is closed");
    GANGWAY_RETURN_IF_ERROR(stream->Open(limit));
    if (absl::Status admitted = peers_.Admit(*stream); !admitted.ok()) {
      stream->Cancel();
      return admitted;
    }
    stream->Start(std::move(events));
    return std::make_shared<LinkHandle<Stream>>(std::move(stream));
  }

 private:
  Security security() const {
    return options_.channel_credentials == nullptr ? Security::kPlain : Security::kCredentials;
  }

  std::shared_ptr<grpc::Channel> NewChannel(const std::string& target) const {
    grpc::ChannelArguments arguments;
    for (const auto& [name, value] : CommonArguments(options_)) arguments.SetInt(name, value);
    if (!options_.server_name.empty()) arguments.SetSslTargetNameOverride(options_.server_name);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    arguments.SetMaxReceiveMessageSize(static_cast<int>(options_.message_bytes_max));
    arguments.SetMaxSendMessageSize(-1);
    auto credentials = options_.channel_credentials ? options_.channel_credentials
                                                    : grpc::InsecureChannelCredentials();
    return grpc::CreateCustomChannel(target, credentials, arguments);
  }

  // The queue of the first listener's thread or else of a separate thread, which the first link
  // starts.
  grpc::CompletionQueue* Queue() {
    MutexLock lock(mutex_);
    if (thread_ == nullptr) {
      thread_ = std::make_shared<CompletionThread>(std::make_unique<grpc::CompletionQueue>());
      thread_->Start();
    }
    return thread_->queue();
  }

  const GrpcOptions options_;
  const std::shared_ptr<StreamSet> streams_ = std::make_shared<StreamSet>();
  const PeerWatch peers_;
  Mutex mutex_;
  std::shared_ptr<CompletionThread> thread_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> NewGrpcTransport(GrpcOptions options) {
  if ((options.server_credentials == nullptr) != (options.channel_credentials == nullptr)) {
    return absl::InvalidArgumentError(
        "give both the server's and the channel's credentials, or neither");
  }
  if (options.message_bytes_max == 0 || options.message_bytes_max > (size_t{1} << 30)) {
    return absl::InvalidArgumentError("message_bytes_max is not from 1 byte to 1 GiB");
  }
  return std::make_unique<GrpcTransport>(std::move(options));
}

}  // namespace gangway::transport
