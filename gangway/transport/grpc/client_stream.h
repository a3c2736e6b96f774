// ClientStream: the connecting end of a link. It owns its channel, so that a link is a TCP
// connection: its loss is noticed at once and affects no other link.
//
// A channel that is destroyed while it connects leaks its socket if the peer answers later (gRPC 1.51 forgets the
// connection). So an attempt that is given up keeps its channel until gRPC has connected or given up itself.
#ifndef GANGWAY_TRANSPORT_GRPC_CLIENT_STREAM_H_
#define GANGWAY_TRANSPORT_GRPC_CLIENT_STREAM_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "gangway/base/clock.h"
#include "gangway/transport/grpc/stream.h"

namespace gangway::transport {

inline constexpr char kMethod[] = "/gangway.Link/Open";
// Initial metadata of a server that has accepted the link.
inline constexpr char kAcceptedKey[] = "gangway-link";

class ClientStream final : public Stream {
 public:
  ClientStream(std::shared_ptr<StreamSet> set, grpc::CompletionQueue* queue, LinkOptions options,
               size_t message_bytes_max, std::string address,
               std::shared_ptr<grpc::Channel> channel);

  // Called once, after the set has the stream: waits until the server has accepted the link.
  // UNAVAILABLE, with gRPC's reason.
  absl::Status Open(std::chrono::milliseconds limit);

 protected:
  void StartRead(grpc::ByteBuffer* into, void* tag) override { call_->Read(into, tag); }
  void StartWrite(const grpc::ByteBuffer& message, void* tag) override {
    call_->Write(message, tag);
  }
  void StartLastWrite(const grpc::ByteBuffer& message, void* tag) override {
    call_->WriteLast(message, grpc::WriteOptions(), tag);
  }
  Operation LastWriteOperation() const override { return Operation::kWrite; }
  void StartFinish(void* tag) override { call_->Finish(&status_, tag); }
  bool FinishNeedsIdleWriter() const override { return false; }
  void CancelCall() override { context_->TryCancel(); }
  void ReleaseCall() override;
  absl::Status LostStatus() const override;
  void OnOpened(Operation operation, bool ok) override;
  bool StillConnecting() override;

 private:
  void AwaitConnection();

  grpc::CompletionQueue* const queue_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;                 // written by gRPC until kFinish completes
  Clock::time_point connecting_max_{};  // until then, an abandoned connection attempt is awaited

  Mutex opening_mutex_;
  CondVar opened_;
  bool open_done_ GANGWAY_GUARDED_BY(opening_mutex_) = false;
  absl::Status open_status_ GANGWAY_GUARDED_BY(opening_mutex_);
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_CLIENT_STREAM_H_
