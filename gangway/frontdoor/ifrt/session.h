// One client's session: its gRPC stream, its Client, its arrays, executables and host buffers. Ends
// with the stream, and frees everything that it owns (OB-2).
//
// Threading: Handle is called by one thread at a time, for one request after the other; answers are
// sent from any thread through Replies. The client library's callbacks use only thread-safe parts.
#ifndef GANGWAY_FRONTDOOR_IFRT_SESSION_H_
#define GANGWAY_FRONTDOOR_IFRT_SESSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

#include "gangway/base/mutex.h"
#include "gangway/client/client.h"
#include "gangway/frontdoor/ifrt/host_buffers.h"
#include "gangway/frontdoor/ifrt/requests.h"
#include "gangway/frontdoor/ifrt/response_writer.h"

namespace gangway::ifrt {

class Session {
 public:
  // `replies` and `bulk` (which may be null) outlive the session; large copies go to `bulk`.
  Session(uint64_t id, std::unique_ptr<Client> client, Replies& replies,
          std::shared_ptr<HostBuffers> buffers, Executor* bulk);
  ~Session();  // closes the buffers, then ends the client

  // Applies `request` and answers it, now or later. Never waits for other work.
  void Handle(IfrtRequest& request);

  // TM-2: at its limit of pending work the session stops reading. True: there is room. False:
  // `resume` is called once, from any thread, when there is room; not after the session has ended.
  bool HasRoomOr(std::function<void()> resume);

  uint64_t id() const { return context_.session_id; }

 private:
  absl::Status Dispatch(IfrtRequest& request, IfrtResponse& response, bool& answered_later);

  struct Lost {
    Mutex mutex;
    absl::Status why GANGWAY_GUARDED_BY(mutex);
    std::atomic<bool> is_lost = false;
  };

  const std::shared_ptr<HostBuffers> buffers_;
  const std::shared_ptr<Lost> lost_ = std::make_shared<Lost>();
  std::unique_ptr<Client> client_;
  SessionContext context_;
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_SESSION_H_
