// One client's session over its bidirectional stream: opens the Client, reads requests into the
// Session, and ends both with the stream.
//
// Threading: requests are read, handled and mostly answered on the completion thread. Blocking work
// (opening a Client, ending it) runs on the call's own thread, which sleeps in between.
// Failure: the end of the stream ends the session. If a session cannot be opened, the answer to its
// first request carries the reason, which JAX shows.
#ifndef GANGWAY_FRONTDOOR_IFRT_SESSION_CALL_H_
#define GANGWAY_FRONTDOOR_IFRT_SESSION_CALL_H_

#include <memory>

#include "absl/status/status.h"
#include "google/protobuf/arena.h"

#include "gangway/base/mutex.h"
#include "gangway/base/thread.h"
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
  // From any thread. StartRead does nothing once the session has ended.
  void StartRead() GANGWAY_EXCLUDES(mutex_);
  void StartWrite(const IfrtResponse& response, const grpc::WriteOptions& options)
      GANGWAY_EXCLUDES(mutex_);
  void FlushSoon() GANGWAY_EXCLUDES(mutex_);
  void End() GANGWAY_EXCLUDES(mutex_);
  // Ends one operation; the end of the last one deletes this object.
  void Settle() GANGWAY_EXCLUDES(mutex_);

  Tag tags_[4];
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<IfrtResponse, IfrtRequest> stream_;
  ResponseWriter writer_;
  std::string name_;   // for people
  std::string token_;  // what the client presented
  Thread thread_;

  // Created before the first read is started, destroyed after the last read has completed.
  absl::Status refused_;  // the reason why there is no session
  std::unique_ptr<Session> session_;

  // Used by the reads, one at a time.
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
