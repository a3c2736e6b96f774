// ServerStream: the accepting end of a link.
#ifndef GANGWAY_TRANSPORT_GRPC_SERVER_STREAM_H_
#define GANGWAY_TRANSPORT_GRPC_SERVER_STREAM_H_

#include <grpcpp/generic/async_generic_service.h>

#include <memory>

#include "gangway/base/mutex.h"
#include "gangway/base/strangers.h"
#include "gangway/transport/grpc/stream.h"

namespace gangway::transport {

// A call that gRPC hands out. `call` refers to `context`.
struct ServerCall {
  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter call{&context};
};

class ServerStream final : public Stream {
 public:
  ServerStream(std::shared_ptr<StreamSet> set, grpc::CompletionQueue* queue, LinkOptions options,
               size_t message_bytes_max, std::unique_ptr<ServerCall> call,
               std::shared_ptr<Strangers> strangers);
  ~ServerStream() override { LeaveStrangers(); }

  void Admit() override GANGWAY_EXCLUDES(strangers_mutex_);
  void Accept();                            // once: tells the client that its link is open
  void Refuse(const grpc::Status& status);  // instead of Accept

 protected:
  void StartRead(grpc::ByteBuffer* into, void* tag) override { call_->call.Read(into, tag); }
  void StartWrite(const grpc::ByteBuffer& message, void* tag) override {
    call_->call.Write(message, tag);
  }
  void StartLastWrite(const grpc::ByteBuffer& message, void* tag) override {
    call_->call.WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK, tag);
  }
  Operation LastWriteOperation() const override { return Operation::kFinish; }
  void StartFinish(void* tag) override { call_->call.Finish(status_, tag); }
  bool FinishNeedsIdleWriter() const override { return true; }
  void CancelCall() override { call_->context.TryCancel(); }
  void ReleaseCall() override { call_.reset(); }
  void OnClosing() override { LeaveStrangers(); }
  absl::Status LostStatus() const override;

 private:
  void LeaveStrangers() GANGWAY_EXCLUDES(strangers_mutex_);

  std::unique_ptr<ServerCall> call_;
  grpc::Status status_;
  const std::shared_ptr<Strangers> strangers_;  // null: every peer is welcome
  Mutex strangers_mutex_;
  // Null: every peer is welcome, or this end has closed the link.
  std::shared_ptr<Strangers::Connection> connection_ GANGWAY_GUARDED_BY(strangers_mutex_);
  bool is_admitted_ GANGWAY_GUARDED_BY(strangers_mutex_) = false;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_SERVER_STREAM_H_
