// One client's session over its bidirectional stream: opens the Client, reads requests into the
// Session, and ends both with the stream.
//
// Threading: requests are read, handled and mostly answered on the completion thread. What may
// block (opening a Client, ending it) runs on a thread of this call, which sleeps in between.
// Failure: whatever ends the stream ends the session; a session that could not be opened is told
// why in the answer to its first request, where JAX shows it.
#ifndef GANGWAY_FRONTDOOR_IFRT_SESSION_CALL_H_
#define GANGWAY_FRONTDOOR_IFRT_SESSION_CALL_H_

#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "google/protobuf/arena.h"

#include "gangway/base/mutex.h"
#include "gangway/frontdoor/ifrt/call.h"
#include "gangway/frontdoor/ifrt/response_writer.h"
#include "gangway/frontdoor/ifrt/session.h"

namespace gangway::ifrt {

class SessionCall final : public Call {
 public:
  static std::unique_ptr<Call> Make(CallEnvironment& environment) {
    return std::make_unique<SessionCall>(environment);
  }
  explicit SessionCall(CallEnvironment& environment);

  void Request(void* tag) override;
  void Begin() override;

 private:
  enum class Operation { kRead, kWrite, kDone, kFinish };
  struct Tag final : Completion {
    void Run(bool ok) override { call->Completed(operation, ok); }
    SessionCall* call = nullptr;
    Operation operation = Operation::kRead;
  };
  void* TagOf(Operation operation) {
    return static_cast<Completion*>(&tags_[static_cast<int>(operation)]);
  }

  void Serve();  // the call's own thread
  absl::Status CheckMetadata();
  absl::Status Open();
  void WaitForEnd() GANGWAY_EXCLUDES(mutex_);

  void Completed(Operation operation, bool ok);
  void OnRead(bool ok);
  // From any thread; nothing once the session ended.
  void StartRead() GANGWAY_EXCLUDES(mutex_);
  void StartWrite(const IfrtResponse& response, const grpc::WriteOptions& options)
      GANGWAY_EXCLUDES(mutex_);
  void FlushSoon() GANGWAY_EXCLUDES(mutex_);
  void End() GANGWAY_EXCLUDES(mutex_);
  // One operation less; the last one's end is the end of this object.
  void Settle() GANGWAY_EXCLUDES(mutex_);

  Tag tags_[4];
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<IfrtResponse, IfrtRequest> stream_;
  ResponseWriter writer_;
  std::string token_;  // what the client presented
  std::thread thread_;

  // Made before the first read is started, gone after the last has completed.
  absl::Status refused_;  // why there is no session
  std::unique_ptr<Session> session_;

  // Of the reads, which come one after the other.
  char first_block_[16384];
  google::protobuf::Arena arena_;
  IfrtRequest* request_ = nullptr;

  Mutex mutex_;
  CondVar changed_;
  int reading_ GANGWAY_GUARDED_BY(mutex_) = 0;  // requests awaited or being handled
  bool ended_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool finished_ GANGWAY_GUARDED_BY(mutex_) = false;
  int operations_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_SESSION_CALL_H_
