// Implementation of kubernetes_command.h.
#include "gangway/cli/kubernetes_command.h"

#include <string>

namespace gangway::cli {
namespace {

void AddPodResources(CLI::App* command, const std::string& prefix, const std::string& whose,
                     PodResources& resources) {
  command->add_option("--" + prefix + "cpu", resources.cpu, "CPUs that " + whose + " requests")
      ->capture_default_str();
  command
      ->add_option("--" + prefix + "memory", resources.memory,
                   "memory that " + whose + " requests and may not exceed")
      ->capture_default_str();
}

}  // namespace

void AddKubernetes(CLI::App& app, KubernetesOptions& options, int& result) {
  CLI::App* command = app.add_subcommand(
      "kubernetes", "print manifests: gangway kubernetes cluster.toml --image I [script.py ...]");
  command->add_option("config", options.config, "the file that declares the cluster")->required();
  command->add_option("--image", options.image, "the image that all pods run")->required();
  command->add_option("--name", options.name, "of the cluster: a DNS label")->capture_default_str();
  command->add_option("--namespace", options.name_space, "default: that of kubectl");
  command->add_option("--queue", options.queue, "the LocalQueue of Kueue that admits the cluster");
  command->add_option(
      "--accelerator", options.accelerator,
      "the resource that a device is (default: nvidia.com/gpu for the plugin cuda)");
  AddPodResources(command, "", "a worker (default: by its devices)", options.worker);
  AddPodResources(command, "head-", "the controller", options.head);
  AddPodResources(command, "script-", "the script", options.script);
  command->add_option("--tls", options.tls,
                      "print the Secrets, too, of this folder that `gangway certs` made and, for "
                      "the script, of the folder client in it");
  command->add_option("--secret", options.secret,
                      "the name of the cluster's Secret (default: NAME-tls)");
  command->add_option("--client-secret", options.client_secret,
                      "the name of the script's Secret (default: NAME-client-tls)");
  command->add_flag("--ship", options.ships_script,
                    "send the script, a file here, along (default: it is a path in the image)");
  command->prefix_command();
  command->callback([&, command] {
    options.arguments = command->remaining();
    result = Kubernetes(options);
  });
}

}  // namespace gangway::cli
