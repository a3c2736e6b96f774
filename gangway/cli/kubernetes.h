// `gangway kubernetes`: prints the manifests of a cluster in Kubernetes. A JobSet has one pod for the controller, one
// for each worker, whose completion index is its index in the island, and one for a script, if one is given.
//
// The manifests depend on the options and on the files that they name, and on nothing else: the command talks to no
// Kubernetes.
//
// Threading: functions without state. Failure: INVALID_ARGUMENT with the option or setting, the mistake and what to
// write instead; NOT_FOUND if a file cannot be read.
#ifndef GANGWAY_CLI_KUBERNETES_H_
#define GANGWAY_CLI_KUBERNETES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/cli/config.h"

namespace gangway::cli {

// What the containers of a pod ask for. Empty: not asked for.
struct PodResources {
  std::string cpu;     // as Kubernetes writes quantities: "4", "500m"
  std::string memory;  // "16Gi"; it is the limit, too
};

struct KubernetesOptions {
  std::string config;            // path of the cluster's file
  std::string name = "gangway";  // of the JobSet; the other names begin with it
  std::string name_space;        // empty: that of the user's context
  std::string image;
  std::string queue;        // Kueue's LocalQueue; empty: none
  std::string accelerator;  // resource of one device; empty: NVIDIA's for CUDA plugins, else none
  PodResources worker;
  PodResources head = {.cpu = "2", .memory = "8Gi"};
  PodResources script = {.cpu = "1", .memory = "4Gi"};
  std::string tls;            // a folder, which becomes a Secret; empty: the user makes it
  std::string secret;         // its name; empty: NAME-tls
  std::string client_secret;  // the script's; empty: NAME-client-tls
  bool ships_script = false;  // the script is a local file; else a path in the image
  std::vector<std::string>
      arguments;  // the script and its arguments; empty: clients come from elsewhere
};

using NamedFiles = std::vector<std::pair<std::string, std::string>>;  // name, text

struct KubernetesFiles {
  NamedFiles tls;         // of the Secret; empty: none is printed
  NamedFiles client_tls;  // of the script's, likewise
  std::string script;     // of `ships_script`
};

// One YAML stream. INVALID_ARGUMENT as above.
absl::StatusOr<std::string> KubernetesManifests(const ClusterConfig& config,
                                                const KubernetesOptions& options,
                                                const KubernetesFiles& files);

// Runs the subcommand; returns the exit status.
int Kubernetes(const KubernetesOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_KUBERNETES_H_
