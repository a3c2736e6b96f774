// Implementation of buffer_calls.h.
#include "gangway/frontdoor/ifrt/buffer_calls.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/frontdoor/ifrt/requests.h"
#include "gangway/frontdoor/ifrt/status.h"

namespace gangway::ifrt {
namespace {

using ::google::protobuf::internal::WireFormatLite;
using ::google::protobuf::io::CodedInputStream;
using ::google::protobuf::io::CodedOutputStream;

constexpr char kStoreMetadata[] = "ifrt-proxy-grpc-host-buffer-store-metadata-bin";
constexpr size_t kLookupChunkBytes = size_t{1} << 20;
constexpr size_t kHeldBytesMax = size_t{4} << 20;  // while their destination is unknown
// `data` of both messages that carry bytes: field 1, length-delimited.
constexpr uint32_t kDataTag = (1 << 3) | 2;

// A call with one request and one response, answered at once.
template <typename RequestMessage, typename ResponseMessage>
class UnaryCall : public Call, public Completion {
 public:
  explicit UnaryCall(CallEnvironment& environment) : Call(environment), responder_(&context_) {}

  void Run(bool ok) override { delete this; }

 protected:
  void Begin() override {
    ResponseMessage response;
    const absl::Status status = Answer(request_, response);
    if (status.ok()) {
      responder_.Finish(response, grpc::Status::OK, static_cast<Completion*>(this));
    } else {
      Refuse(status);
    }
  }
  void Refuse(const absl::Status& why) override {
    responder_.FinishWithError(ToGrpc(why), static_cast<Completion*>(this));
  }
  virtual absl::Status Answer(const RequestMessage& request, ResponseMessage& response) = 0;

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
    GANGWAY_ASSIGN_OR_RETURN(proxy::Version version,
                             NegotiateVersion(request.min_version(), request.max_version()));
    *response.mutable_version() = version;
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
    GANGWAY_ASSIGN_OR_RETURN(auto buffers, FindSession(request.session_id()));
    buffers->Erase(request.handle());
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

// Copies the data of a serialized HostBufferStoreRequest to `to` and returns its size. The error
// says what arrived instead.
absl::StatusOr<size_t> CopyData(grpc::ByteBuffer& message, char* to, size_t room) {
  grpc::ProtoBufferReader reader(&message);
  CodedInputStream input(&reader);
  size_t copied = 0;
  while (reader.status().ok()) {
    const uint32_t tag = input.ReadTag();
    if (tag == 0 && input.ConsumedEntireMessage()) return copied;
    if (tag == kDataTag) {
      uint32_t size = 0;
      if (!input.ReadVarint32(&size)) break;
      if (size > room - copied) return absl::InvalidArgumentError("more bytes than fit");
      if (!input.ReadRaw(to + copied, static_cast<int>(size))) break;
      copied += size;
    } else if (!WireFormatLite::SkipField(&input, tag)) {
      break;
    }
  }
  return absl::InvalidArgumentError("an invalid HostBufferStoreRequest");
}

// A call of several operations, one after the other; each Step starts the next one or ends the
// call.
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

  bool bulk_ = false;       // Step copies much
  bool finishing_ = false;  // the operation in flight is the last
};

class StoreCall final : public StreamCall {
 public:
  explicit StoreCall(CallEnvironment& environment) : StreamCall(environment), reader_(&context_) {}
  ~StoreCall() override {
    if (allocating_.joinable()) allocating_.Join();  // it has finished its work
  }

  void Request(void* tag) override {
    environment_.service.RequestHostBufferStore(&context_, &reader_, environment_.queue,
                                                environment_.queue, tag);
  }

 private:
  void Begin() override {
    if (absl::Status status = ReadMetadata(context_, kStoreMetadata, metadata_); !status.ok())
      return Finish(status);
    auto buffers = FindSession(metadata_.session_id());
    if (!buffers.ok()) return Finish(buffers.status());
    buffers_ = *std::move(buffers);
    if (metadata_.buffer_size() < 0)
      return StoreError(absl::InvalidArgumentError("a host buffer has a negative size"));
    size_ = static_cast<size_t>(metadata_.buffer_size());
    bulk_ = size_ > kInlineBytes;
    auto bytes = buffers_->TryAllocate(size_);
    if (bytes.ok()) return Receive(std::move(bytes));
    // Waits for room, up to a limit, on a separate thread, which delays no other call.
    allocating_ = Thread("ifrt-allocate", [this] { Receive(buffers_->Allocate(size_)); });
  }
  void Refuse(const absl::Status& why) override { Finish(why); }

  void Receive(absl::StatusOr<std::shared_ptr<HostBytes>> bytes) {
    if (bytes.ok()) {
      bytes_ = *std::move(bytes);
    } else {  // a call that failed would end the client's session, so its bytes are dropped
      buffers_->Put(metadata_.handle(), bytes.status()).IgnoreError();
      dropped_ = true;
    }
    reader_.Read(&chunk_, tag());
  }

  void Step(bool ok) override {
    if (dropped_) {
      chunk_.Clear();
      return ok ? reader_.Read(&chunk_, tag()) : Finish(absl::OkStatus());
    }
    if (!ok) return End();
    if (stored_) {
      if (auto extra = CopyData(chunk_, nullptr, 0); !extra.ok())
        return Finish(Wrong(extra.status()));
      return reader_.Read(&chunk_, tag());
    }
    held_bytes_ += chunk_.Length();
    held_.push_back(std::exchange(chunk_, {}));
    if (absl::Status status = Write(FindMemory()); !status.ok()) return StoreError(status);
    if (received_ == size_) StoreAll();
    reader_.Read(&chunk_, tag());
  }

  void End() {
    if (stored_) return Finish(*stored_);
    if (absl::Status status = Write(FindMemory(Patience::kNone)); !status.ok())
      return StoreError(status);
    if (received_ == size_) {
      StoreAll();
      return Finish(*stored_);
    }
    StoreError(absl::DataLossError(absl::StrCat("host buffer ", metadata_.handle(), " ended after ",
                                                received_, " of ", size_, " bytes")));
  }

  // A waiting request gets the bytes before the client ends the call.
  void StoreAll() {
    bytes_->Refer(std::move(memory_));
    stored_ = buffers_->Put(metadata_.handle(), HostBytesRef(std::move(bytes_)));
  }

  // The destination of the bytes: memory of the worker that gets them, if it is known before many
  // bytes have arrived; otherwise private memory. Null: not yet known.
  enum class Patience { kSome, kNone };
  char* FindMemory(Patience patience = Patience::kSome) {
    if (memory_ != nullptr) return memory_.get();
    if (size_ >= kPlacedBytesMin) {
      HostBuffers::HostPlace place = buffers_->TakePlace(metadata_.handle());
      if (place.memory != nullptr && place.size == size_) {
        memory_ = std::move(place.memory);
        return memory_.get();
      }
      if (patience == Patience::kSome && held_bytes_ <= kHeldBytesMax) return nullptr;
    }
    std::shared_ptr<char[]> own(new char[size_]);
    memory_ = std::shared_ptr<char>(own, own.get());
    return memory_.get();
  }

  // Copies the held chunks to `memory`, unless it is null.
  absl::Status Write(char* memory) {
    if (memory == nullptr) return absl::OkStatus();
    for (grpc::ByteBuffer& chunk : held_) {
      absl::StatusOr<size_t> copied = CopyData(chunk, memory + received_, size_ - received_);
      if (!copied.ok()) return Wrong(copied.status());
      received_ += *copied;
    }
    held_.clear();
    held_bytes_ = 0;
    return absl::OkStatus();
  }

  absl::Status Wrong(const absl::Status& what_came) const {
    return absl::InvalidArgumentError(
        absl::StrCat("host buffer ", metadata_.handle(), " of ", size_, " bytes: after ", received_,
                     " bytes came ", std::string(what_came.message())));
  }

  void StoreError(const absl::Status& error) {
    buffers_->Put(metadata_.handle(), error).IgnoreError();
    Finish(error);
  }

  void Finish(const absl::Status& status) {
    finishing_ = true;
    if (status.ok()) {
      const grpc::Slice empty;  // a HostBufferStoreResponse has no fields
      reader_.Finish(grpc::ByteBuffer(&empty, 1), grpc::Status::OK, tag());
    } else {
      reader_.FinishWithError(ToGrpc(status), tag());
    }
  }

  grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer> reader_;
  proxy::HostBufferStoreMetadata metadata_;
  grpc::ByteBuffer chunk_;              // of the read in flight
  std::vector<grpc::ByteBuffer> held_;  // received, but not in memory_ yet
  size_t held_bytes_ = 0;
  std::shared_ptr<HostBuffers> buffers_;
  std::shared_ptr<HostBytes> bytes_;
  std::shared_ptr<char> memory_;        // becomes the memory of bytes_
  std::optional<absl::Status> stored_;  // set: the buffer has been put
  bool dropped_ = false;  // for want of room; the request that takes the buffer is told
  size_t size_ = 0;
  size_t received_ = 0;
  Thread allocating_;
};

class LookupCall final : public StreamCall {
 public:
  explicit LookupCall(CallEnvironment& environment) : StreamCall(environment), writer_(&context_) {}

  void Request(void* tag) override {
    environment_.service.RequestHostBufferLookup(&context_, &raw_request_, &writer_,
                                                 environment_.queue, environment_.queue, tag);
  }

 private:
  void Begin() override {
    proxy::HostBufferLookupRequest request;
    grpc::ProtoBufferReader reader(&raw_request_);
    if (!reader.status().ok() || !request.ParseFromZeroCopyStream(&reader)) {
      return Finish(
          grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "not a HostBufferLookupRequest"));
    }
    auto buffers = FindSession(request.session_id());
    if (!buffers.ok()) return Finish(ToGrpc(buffers.status()));
    (*buffers)->Lookup(request.handle(), [this](absl::StatusOr<HostBytesRef> bytes) {
      if (bytes.ok()) {
        Answer(*std::move(bytes));
      } else {
        Finish(ToGrpc(bytes.status()));
      }
    });
  }
  void Refuse(const absl::Status& why) override { Finish(ToGrpc(why)); }

  void Answer(HostBytesRef bytes) {
    bytes_ = std::move(bytes);
    bulk_ = bytes_->size() > kInlineBytes;
    if (bulk_) {
      environment_.bulk.Post([this] { WriteNext(); });
    } else {
      WriteNext();
    }
  }

  void Step(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client went away"));
    WriteNext();
  }

  // Writes a HostBufferLookupResponse that refers to the bytes where they are. An empty buffer is
  // one empty chunk. The last chunk and the end of the call go together.
  void WriteNext() {
    const std::string_view chunk = bytes_->view().substr(sent_, kLookupChunkBytes);
    uint8_t header[16];
    uint8_t* end = CodedOutputStream::WriteVarint32ToArray(kDataTag, header);
    end = CodedOutputStream::WriteVarint64ToArray(chunk.size(), end);
    const grpc::Slice slices[] = {grpc::Slice(header, static_cast<size_t>(end - header)),
                                  SliceOf(chunk)};
    sent_ += chunk.size();
    const grpc::ByteBuffer message(slices, 2);
    finishing_ = sent_ == bytes_->size();
    if (finishing_) {
      writer_.WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK, tag());
    } else {
      writer_.Write(message, tag());
    }
  }

  grpc::Slice SliceOf(std::string_view chunk) const {
    if (chunk.size() <= kInlineBytes) return {chunk.data(), chunk.size()};
    return {const_cast<char*>(chunk.data()), chunk.size(),
            [](void* kept) { delete static_cast<HostBytesRef*>(kept); }, new HostBytesRef(bytes_)};
  }

  void Finish(const grpc::Status& status) {
    finishing_ = true;
    writer_.Finish(status, tag());
  }

  grpc::ByteBuffer raw_request_;
  grpc::ServerAsyncWriter<grpc::ByteBuffer> writer_;
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
