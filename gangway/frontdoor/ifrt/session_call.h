// One client's session over its bidirectional stream: opens the Client, reads requests into the
// Session, and ends both with the stream.
//
// Threading: requests are read, handled and mostly answered on the completion thread. Blocking work
// (opening a Client, ending it) runs on the call's own thread, which sleeps in between. The thread
// starts when the client has been admitted by its token.
// Failure: the end of the stream ends the session. If a session cannot be opened, the answer to its
// first request carries the reason, which JAX shows. A first request that does not come within
// DoorLimits::token ends the stream.
#ifndef GANGWAY_FRONTDOOR_IFRT_SESSION_CALL_H_
#define GANGWAY_FRONTDOOR_IFRT_SESSION_CALL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/arena.h"

#include "gangway/base/mutex.h"
#include "gangway/base/thread.h"
#include "gangway/frontdoor/ifrt/call.h"
#include "gangway/frontdoor/ifrt/response_writer.h"
#include "gangway/frontdoor/ifrt/session.h"
#include "gangway/frontdoor/ifrt/stream_life.h"

namespace gangway::ifrt {

class SessionCall final : public Call {
 public:
  static std::unique_ptr<Call> Make(CallEnvironment& environment) {
    return std::make_unique<SessionCall>(environment);
  }
  explicit SessionCall(CallEnvironment& environment);
  ~SessionCall() override;

  void Request(void* tag) override;

 private:
  // The limit of the first request, which may pass after the call has ended.
  struct FirstLimit {
    Mutex mutex;
    SessionCall* call GANGWAY_GUARDED_BY(mutex) = nullptr;
  };

  // What the door has given it: a place among the sessions, with a thread, or among the refusals.
  enum class Seat { kNone, kSession, kRefusal };

  void Begin() override;
  void Refuse(const absl::Status& why) override;
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
  absl::Status Admit();
  absl::Status Open();
  absl::Status TooLate() const;

  void Completed(Operation operation, bool ok);
  void OnRead(bool ok);
  void AnswerRefusal(bool ok);
  void StartFirstRead();
  void OnFirstLimit();
  // Sends the stream's status, unless it is sent already.
  void FinishWith(const absl::Status& status);
  // From any thread. StartRead does nothing once the session has ended.
  void StartRead();
  void StartWrite(const IfrtResponse& response, const grpc::WriteOptions& options);
  void FlushSoon();
  // Ends one operation; the end of the last one deletes this object.
  void Settle();

  Tag tags_[4];
  grpc::ServerAsyncReaderWriter<IfrtResponse, IfrtRequest> stream_;
  ResponseWriter writer_;
  std::string name_;   // for people
  std::string token_;  // what the client presented
  Seat seat_ = Seat::kNone;
  Thread thread_;

  // Created before the first read is started, destroyed after the last read has completed.
  absl::Status refused_;  // the reason why there is no session
  std::unique_ptr<Session> session_;

  // Used by the reads, one at a time.
  char first_block_[16384];
  google::protobuf::Arena arena_;
  IfrtRequest* request_ = nullptr;

  const std::shared_ptr<FirstLimit> first_limit_ = std::make_shared<FirstLimit>();

  StreamLife life_;
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_SESSION_CALL_H_
