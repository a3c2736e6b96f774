// One client's session: its gRPC stream, its Client, its arrays, executables and host buffers. Ends
// with the stream, and everything goes with it (OB-2).
//
// Threading: Handle is called by one thread, the stream's reader; answers leave from any thread
// through Replies. The client library's callbacks use the parts that are thread-safe.
#ifndef GANGWAY_FRONTDOOR_IFRT_SESSION_H_
#define GANGWAY_FRONTDOOR_IFRT_SESSION_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

#include "gangway/base/mutex.h"
#include "gangway/client/include/gangway/client.h"
#include "gangway/frontdoor/ifrt/host_buffers.h"
#include "gangway/frontdoor/ifrt/requests.h"
#include "gangway/frontdoor/ifrt/response_writer.h"

namespace gangway::ifrt {

class Session {
 public:
  // `replies` and `buffers` outlive the session.
  Session(uint64_t id, std::unique_ptr<Client> client, Replies& replies, HostBuffers& buffers);
  ~Session();  // closes the buffers, then ends the client

  // Applies `request` and answers it, now or later. Never waits for anything but its own work.
  void Handle(IfrtRequest& request);

  // TM-2: at its bound on unfinished work the session stops reading. Waits for room up to `limit`;
  // true if there is room.
  bool WaitForRoom(std::chrono::milliseconds limit);

 private:
  absl::Status Dispatch(IfrtRequest& request, IfrtResponse& response, bool& answered_later);

  // What the client library's callback needs; it may come after a wait has been given up.
  struct Room {
    Mutex mutex;
    CondVar changed;
    bool asked GANGWAY_GUARDED_BY(mutex) = false;
  };
  struct Lost {
    Mutex mutex;
    absl::Status why GANGWAY_GUARDED_BY(mutex);
    std::atomic<bool> is_lost = false;
  };

  HostBuffers& buffers_;
  const std::shared_ptr<Room> room_ = std::make_shared<Room>();
  const std::shared_ptr<Lost> lost_ = std::make_shared<Lost>();
  std::unique_ptr<Client> client_;
  SessionContext context_;
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_SESSION_H_
