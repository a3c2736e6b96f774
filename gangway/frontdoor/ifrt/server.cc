// Implementation of server.h.
#include "gangway/frontdoor/ifrt/server.h"

#include <unistd.h>

#include <cstring>
#include <random>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/arena.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/frontdoor/ifrt/host_buffers.h"
#include "gangway/frontdoor/ifrt/session.h"
#include "gangway/frontdoor/ifrt/status.h"

namespace gangway::ifrt {
namespace {

namespace proxy = ::xla::ifrt::proxy;

constexpr char kSessionMetadata[] = "ifrt-proxy-grpc-ifrt-session-metadata-bin";
constexpr char kStoreMetadata[] = "ifrt-proxy-grpc-host-buffer-store-metadata-bin";
constexpr size_t kLookupChunkBytes = size_t{4} << 20;
constexpr std::chrono::seconds kExpiryPeriod{5};

bool IsLoopback(const std::string& address) {
  for (const char* prefix :
       {"127.", "localhost:", "[::1]:", "unix:", "ipv4:127.", "dns:localhost:"}) {
    if (absl::StartsWith(address, prefix)) return true;
  }
  return false;
}

uint64_t DefaultHostBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page_bytes > 0
             ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) / 2
             : uint64_t{1} << 30;
}

template <typename Message>
absl::Status ReadMetadata(const grpc::ServerContext& context, const char* key, Message& message) {
  auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end() ||
      !message.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the call lacks valid '", key, "' metadata: its client is no IFRT proxy client"));
  }
  return absl::OkStatus();
}

// Host buffers by session. Ids are random, since they are all that names a session to the host
// buffer calls (OB-3).
class SessionRegistry {
 public:
  uint64_t Add(std::shared_ptr<HostBuffers> buffers) {
    MutexLock lock(mutex_);
    uint64_t id = 0;
    do {
      id = (uint64_t{random_()} << 32 | random_());
    } while (id == 0 || !sessions_.try_emplace(id, buffers).second);
    return id;
  }
  void Remove(uint64_t id) {
    MutexLock lock(mutex_);
    sessions_.erase(id);
  }
  absl::StatusOr<std::shared_ptr<HostBuffers>> Find(uint64_t id) const {
    MutexLock lock(mutex_);
    auto found = sessions_.find(id);
    if (found == sessions_.end())
      return absl::NotFoundError("the session of this host buffer does not exist, or has ended");
    return found->second;
  }
  std::vector<std::shared_ptr<HostBuffers>> All() const {
    MutexLock lock(mutex_);
    std::vector<std::shared_ptr<HostBuffers>> all;
    for (const auto& [id, buffers] : sessions_) all.push_back(buffers);
    return all;
  }

 private:
  mutable Mutex mutex_;
  std::random_device random_ GANGWAY_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<HostBuffers>> sessions_ GANGWAY_GUARDED_BY(mutex_);
};

class Service final : public proxy::GrpcIfrtService::Service {
 public:
  Service(ClientFactory factory, const IfrtServerOptions& options)
      : factory_(std::move(factory)), options_(options) {
    if (options_.host_bytes_max == 0) options_.host_bytes_max = DefaultHostBytes();
  }

  void ExpireBuffers() {
    for (const auto& buffers : registry_.All()) buffers->Expire(HostBuffers::Clock::now());
  }

  grpc::Status GetVersion(grpc::ServerContext* context, const proxy::GetVersionRequest* request,
                          proxy::GetVersionResponse* response) override {
    absl::StatusOr<proxy::Version> version =
        NegotiateVersion(request->min_version(), request->max_version());
    if (!version.ok()) return ToGrpc(version.status());
    *response->mutable_version() = *version;
    return grpc::Status::OK;
  }

  grpc::Status IfrtSession(grpc::ServerContext* context, ResponseWriter::Stream* stream) override {
    proxy::SessionMetadata metadata;
    if (absl::Status status = ReadMetadata(*context, kSessionMetadata, metadata); !status.ok())
      return ToGrpc(status);
    if (absl::StatusOr<proxy::Version> agreed =
            NegotiateVersion(metadata.version(), metadata.version());
        !agreed.ok()) {
      return ToGrpc(agreed.status());
    }
    absl::StatusOr<std::unique_ptr<Client>> client =
        factory_(absl::StrCat("jax ", context->peer()));
    if (!client.ok()) return Refuse(*stream, client.status());
    auto buffers =
        std::make_shared<HostBuffers>(options_.host_bytes_max, options_.host_buffer_limit);
    const uint64_t id = registry_.Add(buffers);
    {
      ResponseWriter writer(stream, context, options_.response_queue_max);
      Session session(id, *std::move(client), writer, *buffers);
      Serve(*stream, *context, session);
      registry_.Remove(id);
    }
    return grpc::Status::OK;
  }

  grpc::Status HostBufferStore(grpc::ServerContext* context,
                               grpc::ServerReader<proxy::HostBufferStoreRequest>* reader,
                               proxy::HostBufferStoreResponse* response) override {
    proxy::HostBufferStoreMetadata metadata;
    if (absl::Status status = ReadMetadata(*context, kStoreMetadata, metadata); !status.ok())
      return ToGrpc(status);
    absl::StatusOr<std::shared_ptr<HostBuffers>> buffers = registry_.Find(metadata.session_id());
    if (!buffers.ok()) return ToGrpc(buffers.status());
    absl::StatusOr<HostBytesRef> bytes = Receive(**buffers, metadata, *reader);
    const absl::Status received = bytes.status();
    const absl::Status stored = (*buffers)->Put(metadata.handle(), std::move(bytes));
    return ToGrpc(received.ok() ? stored : received);
  }

  grpc::Status HostBufferLookup(
      grpc::ServerContext* context, const proxy::HostBufferLookupRequest* request,
      grpc::ServerWriter<proxy::HostBufferLookupResponse>* writer) override {
    absl::StatusOr<std::shared_ptr<HostBuffers>> buffers = registry_.Find(request->session_id());
    if (!buffers.ok()) return ToGrpc(buffers.status());
    absl::StatusOr<HostBytesRef> bytes = (*buffers)->Get(request->handle());
    if (!bytes.ok()) return ToGrpc(bytes.status());
    const std::string_view all = (*bytes)->view();
    proxy::HostBufferLookupResponse response;
    // An empty buffer is one empty chunk.
    for (size_t offset = 0; offset == 0 || offset < all.size(); offset += kLookupChunkBytes) {
      const std::string_view chunk = all.substr(offset, kLookupChunkBytes);
      response.set_data(chunk.data(), chunk.size());
      if (!writer->Write(response))
        return grpc::Status(grpc::StatusCode::CANCELLED, "the client went away");
    }
    return grpc::Status::OK;
  }

  grpc::Status HostBufferDelete(grpc::ServerContext* context,
                                const proxy::HostBufferDeleteRequest* request,
                                proxy::HostBufferDeleteResponse* response) override {
    absl::StatusOr<std::shared_ptr<HostBuffers>> buffers = registry_.Find(request->session_id());
    if (!buffers.ok()) return ToGrpc(buffers.status());
    (*buffers)->Erase(request->handle());
    return grpc::Status::OK;
  }

  grpc::Status HostBufferReadFromDisk(grpc::ServerContext* context,
                                      const proxy::HostBufferReadFromDiskRequest* request,
                                      proxy::HostBufferReadFromDiskResponse* response) override {
    return ToGrpc(
        absl::UnimplementedError("HostBufferReadFromDisk is not served; unset "
                                 "IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_* in the client"));
  }

 private:
  // Tells the client why there is no session, as the answer to its first request, where JAX shows
  // it.
  static grpc::Status Refuse(ResponseWriter::Stream& stream, const absl::Status& why) {
    IfrtRequest request;
    if (stream.Read(&request)) stream.Write(ErrorReply(request.request_metadata().op_id(), why));
    return ToGrpc(why);
  }

  static void Serve(ResponseWriter::Stream& stream, grpc::ServerContext& context,
                    Session& session) {
    char first_block[16384];
    google::protobuf::ArenaOptions arena_options;
    arena_options.initial_block = first_block;
    arena_options.initial_block_size = sizeof(first_block);
    google::protobuf::Arena arena(arena_options);
    for (;;) {
      auto* request = google::protobuf::Arena::CreateMessage<IfrtRequest>(&arena);
      if (!stream.Read(request)) return;
      session.Handle(*request);
      arena.Reset();
      while (!session.WaitForRoom(std::chrono::milliseconds(200))) {
        if (context.IsCancelled()) return;
      }
    }
  }

  static absl::StatusOr<HostBytesRef> Receive(
      HostBuffers& buffers, const proxy::HostBufferStoreMetadata& metadata,
      grpc::ServerReader<proxy::HostBufferStoreRequest>& reader) {
    if (metadata.buffer_size() < 0)
      return absl::InvalidArgumentError("a host buffer of negative size");
    const size_t size = static_cast<size_t>(metadata.buffer_size());
    absl::StatusOr<std::shared_ptr<HostBytes>> bytes = buffers.Allocate(size);
    if (!bytes.ok()) return bytes.status();
    size_t received = 0;
    proxy::HostBufferStoreRequest chunk;
    while (reader.Read(&chunk)) {
      if (chunk.data().size() > size - received) {
        return absl::InvalidArgumentError(
            absl::StrCat("host buffer ", metadata.handle(), " got more than its ", size, " bytes"));
      }
      std::memcpy((*bytes)->data() + received, chunk.data().data(), chunk.data().size());
      received += chunk.data().size();
    }
    if (received != size) {
      return absl::DataLossError(absl::StrCat("host buffer ", metadata.handle(), " ended after ",
                                              received, " of ", size, " bytes"));
    }
    return HostBytesRef(*std::move(bytes));
  }

  const ClientFactory factory_;
  IfrtServerOptions options_;
  SessionRegistry registry_;
};

}  // namespace

class IfrtServer::Impl {
 public:
  Impl(ClientFactory factory, const IfrtServerOptions& options)
      : service_(std::move(factory), options), options_(options), timers_("ifrt-timers") {}
  ~Impl() { Shutdown(); }

  absl::Status Start(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(options_.message_bytes_max);
    builder.SetMaxSendMessageSize(-1);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("the JAX front door cannot listen on ", address,
                       ": the address is in use or not this machine's; choose another"));
    }
    ScheduleExpiry();
    return absl::OkStatus();
  }

  void Shutdown() {
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now());
      server_->Wait();
      server_.reset();
    }
    timers_.Stop();
  }

  int port() const { return port_; }

 private:
  void ScheduleExpiry() {
    timers_.PostAt(EventLoop::Clock::now() + kExpiryPeriod, [this] {
      service_.ExpireBuffers();
      ScheduleExpiry();
    });
  }

  Service service_;
  const IfrtServerOptions options_;
  EventLoop timers_;
  int port_ = 0;
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
  if (absl::Status status = impl->Start(address); !status.ok()) return status;
  return std::unique_ptr<IfrtServer>(new IfrtServer(std::move(impl)));
}

int IfrtServer::port() const { return impl_->port(); }
void IfrtServer::Shutdown() { impl_->Shutdown(); }

}  // namespace gangway::ifrt
