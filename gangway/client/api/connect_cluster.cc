// Connect of the public header cluster.h.
#include <memory>
#include <utility>

#include "gangway/client/api/session.h"
#include "gangway/client/include/gangway/cluster.h"
#include "gangway/client/include/gangway/connect.h"

namespace gangway {

Result<Cluster> Connect(const ClusterOptions& options) {
  ClusterOptions usual = options;
  usual.reports_ends = false;  // what waits for an array asks for it
  Result<std::unique_ptr<Client>> client = ConnectClient(usual);
  if (!client.ok()) return client.status();
  return api::Session::ToCluster(std::make_shared<api::Session>(*std::move(client)));
}

}  // namespace gangway
