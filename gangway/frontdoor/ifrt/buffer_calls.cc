// Implementation of buffer_calls.h.
#include "gangway/frontdoor/ifrt/buffer_calls.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "gangway/frontdoor/ifrt/requests.h"
#include "gangway/frontdoor/ifrt/status.h"

namespace gangway::ifrt {
namespace {

constexpr char kStoreMetadata[] = "ifrt-proxy-grpc-host-buffer-store-metadata-bin";
constexpr size_t kLookupChunkBytes = size_t{4} << 20;

// A call with one request and one response, answered at once.
template <typename RequestMessage, typename ResponseMessage>
class UnaryCall : public Call, public Completion {
 public:
  explicit UnaryCall(CallEnvironment& environment) : Call(environment), responder_(&context_) {}

  void Begin() override {
    ResponseMessage response;
    const absl::Status status = Answer(request_, response);
    if (status.ok()) {
      responder_.Finish(response, grpc::Status::OK, static_cast<Completion*>(this));
    } else {
      responder_.FinishWithError(ToGrpc(status), static_cast<Completion*>(this));
    }
  }
  void Run(bool ok) override { delete this; }

 protected:
  virtual absl::Status Answer(const RequestMessage& request, ResponseMessage& response) = 0;

  grpc::ServerContext context_;
  RequestMessage request_;
  grpc::ServerAsyncResponseWriter<ResponseMessage> responder_;
};

class VersionCall final : public UnaryCall<proxy::GetVersionRequest, proxy::GetVersionResponse> {
 public:
  using UnaryCall::UnaryCall;
  void Request(void* tag) override {
    environment_.service.RequestGetVersion(&context_, &request_, &responder_, environment_.queue,
                                           environment_.queue, tag);
  }

 private:
  absl::Status Answer(const proxy::GetVersionRequest& request,
                      proxy::GetVersionResponse& response) override {
    absl::StatusOr<proxy::Version> version =
        NegotiateVersion(request.min_version(), request.max_version());
    if (!version.ok()) return version.status();
    *response.mutable_version() = *version;
    return absl::OkStatus();
  }
};

class DeleteCall final
    : public UnaryCall<proxy::HostBufferDeleteRequest, proxy::HostBufferDeleteResponse> {
 public:
  using UnaryCall::UnaryCall;
  void Request(void* tag) override {
    environment_.service.RequestHostBufferDelete(&context_, &request_, &responder_,
                                                 environment_.queue, environment_.queue, tag);
  }

 private:
  absl::Status Answer(const proxy::HostBufferDeleteRequest& request,
                      proxy::HostBufferDeleteResponse& response) override {
    auto buffers = environment_.registry.Find(request.session_id());
    if (!buffers.ok()) return buffers.status();
    (*buffers)->Erase(request.handle());
    return absl::OkStatus();
  }
};

class DiskCall final : public UnaryCall<proxy::HostBufferReadFromDiskRequest,
                                        proxy::HostBufferReadFromDiskResponse> {
 public:
  using UnaryCall::UnaryCall;
  void Request(void* tag) override {
    environment_.service.RequestHostBufferReadFromDisk(&context_, &request_, &responder_,
                                                       environment_.queue, environment_.queue, tag);
  }

 private:
  absl::Status Answer(const proxy::HostBufferReadFromDiskRequest& request,
                      proxy::HostBufferReadFromDiskResponse& response) override {
    return absl::UnimplementedError(
        "HostBufferReadFromDisk is not served; unset "
        "IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_* in the client");
  }
};

// A call of several operations, one after the other; each Step starts the next one, or ends it.
class StreamCall : public Call, public Completion {
 public:
  using Call::Call;

  void Run(bool ok) override {
    if (finishing_) {
      delete this;
    } else if (bulk_) {
      environment_.bulk.Post([this, ok] { Step(ok); });
    } else {
      Step(ok);
    }
  }

 protected:
  virtual void Step(bool ok) = 0;
  void* tag() { return static_cast<Completion*>(this); }

  grpc::ServerContext context_;
  bool bulk_ = false;       // Step copies much
  bool finishing_ = false;  // the operation in flight is the last
};

class StoreCall final : public StreamCall {
 public:
  explicit StoreCall(CallEnvironment& environment) : StreamCall(environment), reader_(&context_) {}
  ~StoreCall() override {
    if (allocating_.joinable()) allocating_.join();  // it has nothing left to do
  }

  void Request(void* tag) override {
    environment_.service.RequestHostBufferStore(&context_, &reader_, environment_.queue,
                                                environment_.queue, tag);
  }

  void Begin() override {
    if (absl::Status status = ReadMetadata(context_, kStoreMetadata, metadata_); !status.ok())
      return Finish(status);
    auto buffers = environment_.registry.Find(metadata_.session_id());
    if (!buffers.ok()) return Finish(buffers.status());
    buffers_ = *std::move(buffers);
    if (metadata_.buffer_size() < 0)
      return Store(absl::InvalidArgumentError("a host buffer of negative size"));
    size_ = static_cast<size_t>(metadata_.buffer_size());
    bulk_ = size_ > kInlineBytes;
    auto bytes = buffers_->TryAllocate(size_);
    if (bytes.ok()) return Receive(std::move(bytes));
    // Waits for room, up to a limit, where that keeps nobody else waiting.
    allocating_ = std::thread([this] { Receive(buffers_->Allocate(size_)); });
  }

 private:
  void Receive(absl::StatusOr<std::shared_ptr<HostBytes>> bytes) {
    if (!bytes.ok()) return Store(bytes.status());
    bytes_ = *std::move(bytes);
    reader_.Read(&chunk_, tag());
  }

  void Step(bool ok) override {
    if (!ok) return End();
    if (chunk_.data().size() > size_ - received_) {
      return Store(absl::InvalidArgumentError(absl::StrCat(
          "host buffer ", metadata_.handle(), " got more than its ", size_, " bytes")));
    }
    std::memcpy(bytes_->data() + received_, chunk_.data().data(), chunk_.data().size());
    received_ += chunk_.data().size();
    reader_.Read(&chunk_, tag());
  }

  void End() {
    if (received_ == size_) return Store(HostBytesRef(std::move(bytes_)));
    Store(absl::DataLossError(absl::StrCat("host buffer ", metadata_.handle(), " ended after ",
                                           received_, " of ", size_, " bytes")));
  }

  void Store(absl::StatusOr<HostBytesRef> bytes) {
    const absl::Status received = bytes.status();
    const absl::Status stored = buffers_->Put(metadata_.handle(), std::move(bytes));
    Finish(received.ok() ? stored : received);
  }

  void Finish(const absl::Status& status) {
    finishing_ = true;
    if (status.ok()) {
      reader_.Finish({}, grpc::Status::OK, tag());
    } else {
      reader_.FinishWithError(ToGrpc(status), tag());
    }
  }

  grpc::ServerAsyncReader<proxy::HostBufferStoreResponse, proxy::HostBufferStoreRequest> reader_;
  proxy::HostBufferStoreMetadata metadata_;
  proxy::HostBufferStoreRequest chunk_;
  std::shared_ptr<HostBuffers> buffers_;
  std::shared_ptr<HostBytes> bytes_;
  size_t size_ = 0;
  size_t received_ = 0;
  std::thread allocating_;
};

class LookupCall final : public StreamCall {
 public:
  explicit LookupCall(CallEnvironment& environment) : StreamCall(environment), writer_(&context_) {}

  void Request(void* tag) override {
    environment_.service.RequestHostBufferLookup(&context_, &request_, &writer_, environment_.queue,
                                                 environment_.queue, tag);
  }

  void Begin() override {
    auto buffers = environment_.registry.Find(request_.session_id());
    if (!buffers.ok()) return Finish(ToGrpc(buffers.status()));
    auto bytes = (*buffers)->Get(request_.handle());
    if (!bytes.ok()) return Finish(ToGrpc(bytes.status()));
    bytes_ = *std::move(bytes);
    bulk_ = bytes_->size() > kInlineBytes;
    if (bulk_) {
      environment_.bulk.Post([this] { WriteNext(); });
    } else {
      WriteNext();
    }
  }

 private:
  void Step(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client went away"));
    if (sent_ == bytes_->size()) return Finish(grpc::Status::OK);
    WriteNext();
  }

  // An empty buffer is one empty chunk.
  void WriteNext() {
    const std::string_view chunk = bytes_->view().substr(sent_, kLookupChunkBytes);
    proxy::HostBufferLookupResponse response;
    response.set_data(chunk.data(), chunk.size());
    sent_ += chunk.size();
    writer_.Write(response, tag());
  }

  void Finish(const grpc::Status& status) {
    finishing_ = true;
    writer_.Finish(status, tag());
  }

  proxy::HostBufferLookupRequest request_;
  grpc::ServerAsyncWriter<proxy::HostBufferLookupResponse> writer_;
  HostBytesRef bytes_;
  size_t sent_ = 0;
};

template <typename Kind>
std::unique_ptr<Call> Make(CallEnvironment& environment) {
  return std::make_unique<Kind>(environment);
}

}  // namespace

void AcceptBufferCalls(CallEnvironment& environment) {
  for (Acceptor::Make make : {&Make<VersionCall>, &Make<DeleteCall>, &Make<DiskCall>,
                              &Make<StoreCall>, &Make<LookupCall>}) {
    Acceptor::Start(environment, make);
  }
}

}  // namespace gangway::ifrt
