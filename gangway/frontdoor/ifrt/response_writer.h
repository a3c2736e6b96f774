// Where responses of a session go. Requests are answered in any order, from any thread; the client
// matches them by op_id.
#ifndef GANGWAY_FRONTDOOR_IFRT_RESPONSE_WRITER_H_
#define GANGWAY_FRONTDOOR_IFRT_RESPONSE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/mutex.h"
#include "gangway/xla/ifrt_service.grpc.pb.h"

namespace gangway::ifrt {

using ::xla::ifrt::proxy::IfrtRequest;
using ::xla::ifrt::proxy::IfrtResponse;

class Replies {
 public:
  virtual ~Replies() = default;
  // Never blocks. Thread-safe.
  virtual void Send(IfrtResponse response) = 0;
};

// A response to `op_id` whose body is still to be set, and one that is an error.
IfrtResponse ReplyTo(uint64_t op_id);
IfrtResponse ErrorReply(uint64_t op_id, const absl::Status& status);

// Writes to a session's stream with a thread of its own, which takes all that is queued at once and
// lets gRPC coalesce it. A client that does not read makes the queue grow; at `queue_max` the
// session is ended (TM-2).
class ResponseWriter final : public Replies {
 public:
  using Stream = grpc::ServerReaderWriter<IfrtResponse, IfrtRequest>;

  // Both outlive this object.
  ResponseWriter(Stream* stream, grpc::ServerContext* context, size_t queue_max);
  ~ResponseWriter() override;  // Close()

  void Send(IfrtResponse response) override;

  // Writes what is queued, unless the stream is broken, and ends the thread.
  void Close();

 private:
  void Run();

  Stream* const stream_;
  grpc::ServerContext* const context_;
  const size_t queue_max_;
  Mutex mutex_;
  CondVar wake_;
  std::vector<IfrtResponse> queue_ GANGWAY_GUARDED_BY(mutex_);
  bool idle_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool closing_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool broken_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_RESPONSE_WRITER_H_
