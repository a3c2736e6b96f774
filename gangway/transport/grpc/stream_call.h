// StreamCall: what a Stream starts in its gRPC call. The two ends of a call, which own it, differ here and nowhere
// else.
//
// Threading: any thread, one operation of a kind at a time. None blocks. A tag completes once, on the completion
// thread; the Stream counts its operation before the call.
#ifndef GANGWAY_TRANSPORT_GRPC_STREAM_CALL_H_
#define GANGWAY_TRANSPORT_GRPC_STREAM_CALL_H_

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace gangway::transport {

class StreamCall {
 public:
  enum class Operation { kStart, kMetadata, kRead, kWrite, kFinish, kDeadline, kConnecting };
  static constexpr int kOperations = 7;

  virtual ~StreamCall() = default;

 protected:
  virtual void StartRead(grpc::ByteBuffer* into, void* tag) = 0;
  virtual void StartWrite(const grpc::ByteBuffer& message, void* tag) = 0;
  // Sends the last message: a client half-closes (kWrite), a server ends the call with it
  // (kFinish).
  virtual void StartLastWrite(const grpc::ByteBuffer& message, void* tag) = 0;
  virtual Operation LastWriteOperation() const = 0;
  virtual void StartFinish(void* tag) = 0;  // a client receives the status, a server sends it
  virtual bool FinishNeedsIdleWriter() const = 0;
  virtual void CancelCall() = 0;
  virtual void ReleaseCall() = 0;               // gRPC has completed everything
  virtual absl::Status LostStatus() const = 0;  // why the call ended, if the peer gave no reason

  virtual void OnOpened(Operation /*operation*/, bool /*ok*/) {}
  virtual void OnClosing() {}  // this end has begun to close the link
  // Whether kConnecting was started again.
  virtual bool StillConnecting() { return false; }
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_STREAM_CALL_H_
