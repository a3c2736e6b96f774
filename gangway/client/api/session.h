// The session that a Cluster and all that was made with it share: its client, and what the calls of the API have in
// common: new handles, waits, and arrays that hold a mistake of the caller.
//
// Threading: thread-safe. Waits are not for callbacks of the client; the API has none.
// Failure: as Client. It ends when the last value of the API that is part of it is gone, on that one's thread.
#ifndef GANGWAY_CLIENT_API_SESSION_H_
#define GANGWAY_CLIENT_API_SESSION_H_

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "gangway/client/client.h"
#include "gangway/client/client_impl.h"
#include "gangway/client/include/gangway/cluster.h"

namespace gangway::api {

class Session {
 public:
  // `client` is one that Connect of client/connect.h made.
  explicit Session(std::unique_ptr<Client> client) : client_(std::move(client)) {}

  static Cluster ToCluster(std::shared_ptr<Session> session) { return Cluster(std::move(session)); }
  static const std::shared_ptr<Session>& Of(const Cluster& cluster) { return cluster.session_; }

  Client& client() { return *client_; }
  // Programs are no part of the interface for front doors.
  client::ClientImpl& implementation() { return static_cast<client::ClientImpl&>(*client_); }

  std::vector<ArrayHandle> NewHandles(size_t count);
  // OK, or INVALID_ARGUMENT naming a device that the session does not have, or why the mesh makes no sense.
  absl::Status Check(const Mesh& mesh) const;

  // Starts what calls back with a status, and waits for that.
  absl::Status Ask(const std::function<void(StatusCallback)>& start);
  absl::Status Await(std::span<const ArrayHandle> arrays);
  // Waits while too many nodes have not ended (TM-2).
  void AwaitRoom();

 private:
  const std::unique_ptr<Client> client_;
};

}  // namespace gangway::api

#endif  // GANGWAY_CLIENT_API_SESSION_H_
