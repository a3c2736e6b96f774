// What opens a session with a cluster. Of Connect (cluster.h), and of ConnectClient (connect.h).
#ifndef GANGWAY_CLUSTER_OPTIONS_H_
#define GANGWAY_CLUSTER_OPTIONS_H_

#include <string>

namespace gangway {

// The address of a cluster, and what its client says of itself.
struct ClusterOptions {
  std::string address;  // of the controller: "unix:/path", "unix-abstract:name" or "host:port"
  std::string token;    // of the cluster
  std::string tls;      // a folder that `gangway certs` made; empty: no TLS, loopback only
  std::string name;     // for people, as in `gangway status`, `why` and traces: "train (pid 4711)"
  bool reports_ends = false;  // Client::reports_ends; Connect takes no notice of it
  // Bursts of calls and copies that come again and again are launched as programs, as if they were between BeginProgram
  // and EndProgram.
  bool captures_bursts = false;
};

}  // namespace gangway

#endif  // GANGWAY_CLUSTER_OPTIONS_H_
