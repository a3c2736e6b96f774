// Implementation of kubernetes.h. The order of the documents is that in which they are needed.
#include "gangway/cli/kubernetes.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/private_file.h"
#include "gangway/base/status.h"
#include "gangway/cli/access.h"
#include "gangway/cli/certs.h"
#include "gangway/cli/json.h"
#include "gangway/cli/restart_policy.h"
#include "gangway/cli/yaml_text.h"
#include "gangway/wire/version.h"

namespace gangway::cli {
namespace {

constexpr char kFilesFolder[] = "/etc/gangway/files";
constexpr char kConfigFile[] = "cluster.toml";
constexpr char kTlsMount[] = "/etc/gangway/tls";
constexpr char kStateMount[] = "/var/lib/gangway";
// Below the mount, since the folder of an emptyDir volume is open to all users of the pod.
constexpr char kStateFolder[] = "/var/lib/gangway/state";
constexpr char kHead[] = "head", kWorker[] = "worker", kScript[] = "script";
constexpr char kAddressVariable[] = "GANGWAY_ADDRESS";
// Of `gangway certs`: with these, one could make certificates and tokens.
constexpr std::string_view kKeptHere[] = {"ca.key", kSecretFile};
constexpr char kClientFolder[] = "client";  // in that folder: what the script presents

constexpr int64_t kUser = 65532;         // of the image (deploy/kubernetes/Containerfile)
constexpr int kSecretMode = 0440;        // its owner is root, its group the pod's
constexpr int kNameMax = 63;             // of a DNS label
constexpr size_t kPodSuffix = 6;         // "-abcde", which Kubernetes adds
constexpr size_t kFilesMax = 1'000'000;  // in a ConfigMap; an object has at most 1 MiB
constexpr int64_t kRetriesMax = INT32_MAX;
constexpr int kHeadRetries = 6;
constexpr int kWorkerLeaveS = 30, kGraceS = 45;
constexpr int kToldToEnd = 143;  // 128 + SIGTERM
constexpr uint64_t kGiB = uint64_t{1} << 30;
// Of a worker's host memory, for each device: the least for one of CPU, and for one with memory of its own.
constexpr uint64_t kCpuDeviceMemory = 4 * kGiB, kOtherDeviceMemory = 8 * kGiB;

// --- Checks ---

absl::Status Wrong(const std::string& option, const std::string& value,
                   const std::string& mistake) {
  return absl::InvalidArgumentError(absl::StrCat(option, " \"", value, "\" ", mistake));
}

// RFC 1035, as Kubernetes wants for services; names of pods and jobs follow.
bool IsLabel(std::string_view text) {
  const bool letters = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
  return letters && !text.empty() && text.size() <= kNameMax &&
         absl::ascii_islower(static_cast<unsigned char>(text.front())) && text.back() != '-';
}

// As in names of objects, such as a Secret's: labels with dots between them.
bool IsObjectName(std::string_view text) {
  const bool letters = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.';
  });
  return letters && !text.empty() && text.size() <= 253 &&
         absl::ascii_isalnum(static_cast<unsigned char>(text.front())) &&
         absl::ascii_isalnum(static_cast<unsigned char>(text.back())) &&
         text.find("..") == std::string_view::npos;
}

bool IsQuantity(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  if (!absl::SimpleAtod(std::string(text.substr(0, digits)), &number) || number <= 0) return false;
  const std::string_view unit = text.substr(digits);
  for (const char* known : {"", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"}) {
    if (unit == known) return true;
  }
  return false;
}

// Such as nvidia.com/gpu.
bool IsResource(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != std::string_view::npos && IsObjectName(text.substr(0, slash)) &&
         IsObjectName(text.substr(slash + 1));
}

std::string IslandName(size_t island) { return absl::StrCat("island-", island); }

// The longest name of a pod is NAME-JOB-0-INDEX-SUFFIX.
absl::Status CheckName(const ClusterConfig& config, const std::string& name) {
  if (!IsLabel(name)) {
    return Wrong("--name", name,
                 "is no DNS label: use lower-case letters, digits and hyphens, beginning with a "
                 "letter and ending with a letter or a digit");
  }
  size_t longest = std::string_view(kScript).size() + 1;
  for (size_t i = 0; i < config.islands.size(); ++i) {
    const size_t last = config.islands[i].workers.size() - 1;
    longest = std::max(longest, absl::StrCat(IslandName(i), "-0-", last).size());
  }
  const size_t most = kNameMax - 1 - longest - kPodSuffix;
  if (name.size() <= most) return absl::OkStatus();
  return Wrong("--name", name,
               absl::StrCat("has ", name.size(), " characters: with more than ", most,
                            ", the names of this cluster's pods exceed ", kNameMax));
}

absl::Status CheckResources(const PodResources& resources, const char* prefix) {
  for (const auto& [what, value] :
       {std::pair{"cpu", resources.cpu}, {"memory", resources.memory}}) {
    if (value.empty() || IsQuantity(value)) continue;
    return Wrong(
        absl::StrCat("--", prefix, what), value,
        "is no quantity as Kubernetes writes it: such as 4 or 500m of CPUs, 16Gi of memory");
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const KubernetesOptions& options) {
  if (options.image.empty() || options.image.find_first_of(" \t\n") != std::string::npos) {
    return Wrong("--image", options.image,
                 "names no image: give that which deploy/kubernetes/Containerfile makes, by the "
                 "name under which the nodes pull it");
  }
  if (!options.name_space.empty() && !IsLabel(options.name_space))
    return Wrong("--namespace", options.name_space, "is no DNS label, as a namespace's name is");
  if (!options.queue.empty() && !IsObjectName(options.queue))
    return Wrong("--queue", options.queue, "cannot be the name of a LocalQueue of Kueue");
  for (const auto& [option, name] :
       {std::pair{"--secret", options.secret}, {"--client-secret", options.client_secret}}) {
    if (!name.empty() && !IsObjectName(name))
      return Wrong(option, name, "cannot be the name of a Secret");
  }
  if (!options.accelerator.empty() && !IsResource(options.accelerator)) {
    return Wrong("--accelerator", options.accelerator,
                 "is no resource of a device plugin: write its domain and name, such as "
                 "nvidia.com/gpu");
  }
  if (!options.arguments.empty() && absl::StartsWith(options.arguments.front(), "-")) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no option ", options.arguments.front(),
                     ": `gangway kubernetes --help` lists them; options of the script follow it"));
  }
  GANGWAY_RETURN_IF_ERROR(CheckResources(options.worker, ""));
  GANGWAY_RETURN_IF_ERROR(CheckResources(options.head, "head-"));
  return CheckResources(options.script, "script-");
}

// Kubernetes chooses the hosts, and the pods of one job are alike.
absl::Status CheckIslands(const ClusterConfig& config, const KubernetesOptions& options) {
  for (size_t i = 0; i < config.islands.size(); ++i) {
    const HostIsland& island = config.islands[i];
    const std::string where = absl::StrCat(options.config, " declares in island ", i);
    if (island.scheduler) {
      return absl::InvalidArgumentError(absl::StrCat(
          where,
          " a scheduler in a process of its own, for which Kubernetes has no pod: remove "
          "scheduler, and the controller schedules the island"));
    }
    for (const HostWorker& worker : island.workers) {
      if (!worker.host.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            where, " a worker on host ", worker.host, ", but Kubernetes chooses the hosts: write ",
            "workers = ", island.workers.size(), " and devices = ", worker.devices, " instead"));
      }
      if (worker.devices != island.workers.front().devices) {
        return absl::InvalidArgumentError(absl::StrCat(
            where, " workers of ", island.workers.front().devices, " and of ", worker.devices,
            " devices, but the pods of one job are alike: give each number an island of its own"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCluster(const ClusterConfig& config, const KubernetesOptions& options) {
  const std::string service = absl::StrCat(options.name, "-head");
  if (config.controller_host != ClusterConfig().controller_host &&
      config.controller_host != service) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.config, " has the controller on host ", config.controller_host,
                     ", but in Kubernetes it is behind the Service ", service, ": remove host"));
  }
  if (!config.controller_listen.empty() || config.control_port == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.config, " says where the controller listens, but in its pod it listens at all ",
        "addresses, and at one port: remove listen, and a control_port of 0"));
  }
  return CheckIslands(config, options);
}

std::string ScriptName(const KubernetesOptions& options) {
  return std::filesystem::path(options.arguments.front()).filename();
}

absl::Status CheckScript(const KubernetesOptions& options, const std::string& text) {
  const std::string name = ScriptName(options);
  const bool letters = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (!letters || name.empty() || name == kConfigFile || name.front() == '.') {
    return Wrong("--ship", name,
                 "cannot be the key of a ConfigMap: name the script with letters, digits, hyphens, "
                 "underscores and dots");
  }
  if (IsUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--ship: ", name, " is not UTF-8 text: put it into the image instead"));
}

// --- Parts of pods ---

struct Cluster {
  const ClusterConfig& config;
  const KubernetesOptions& options;

  std::string Service() const { return absl::StrCat(options.name, "-head"); }
  std::string Files() const { return absl::StrCat(options.name, "-files"); }
  std::string Secret() const {
    return options.secret.empty() ? absl::StrCat(options.name, "-tls") : options.secret;
  }
  std::string ClientSecret() const {
    return options.client_secret.empty() ? absl::StrCat(options.name, "-client-tls")
                                         : options.client_secret;
  }
  std::string Address() const { return absl::StrCat(Service(), ":", config.control_port); }
};

// Whether a plugin's devices are GPUs of NVIDIA, by what `plugin` of the file may be.
std::string Accelerator(const Cluster& cluster) {
  if (!cluster.options.accelerator.empty()) return cluster.options.accelerator;
  const bool cuda = cluster.config.plugin.find("cuda") != std::string::npos;
  return cuda ? "nvidia.com/gpu" : "";
}

Json Labels(const Cluster& cluster, const char* component) {
  Json labels = {{"app.kubernetes.io/name", "gangway"},
                 {"app.kubernetes.io/instance", cluster.options.name},
                 {"app.kubernetes.io/version", wire::kBuildVersion}};
  if (component != nullptr) labels["app.kubernetes.io/component"] = component;
  return labels;
}

Json Metadata(const Cluster& cluster, const std::string& name) {
  Json metadata = {{"name", name}};
  if (!cluster.options.name_space.empty()) metadata["namespace"] = cluster.options.name_space;
  metadata["labels"] = Labels(cluster, nullptr);
  return metadata;
}

Json Variable(const char* name, const std::string& value) {
  return {{"name", name}, {"value", value}};
}

Json Resources(const PodResources& asked, const std::string& accelerator, uint32_t devices) {
  Json requests = Json::object(), limits = Json::object();
  if (!asked.cpu.empty()) requests["cpu"] = asked.cpu;
  if (!asked.memory.empty()) requests["memory"] = limits["memory"] = asked.memory;
  if (!accelerator.empty()) requests[accelerator] = limits[accelerator] = absl::StrCat(devices);
  return {{"requests", requests}, {"limits", limits}};
}

// Holds what a worker's plan of its memory makes of it (memory_plan.h): the arrays of CPU devices may have half.
std::string MemoryOfWorker(const Cluster& cluster, uint32_t devices) {
  const uint64_t declared = cluster.config.memory_bytes.value_or(0) * 2;
  const uint64_t each =
      Accelerator(cluster).empty() ? std::max(declared, kCpuDeviceMemory) : kOtherDeviceMemory;
  return absl::StrCat((each * devices + kGiB - 1) / kGiB, "Gi");
}

Json Mount(const char* volume, const char* path, bool read_only) {
  Json mount = {{"name", volume}, {"mountPath", path}};
  if (read_only) mount["readOnly"] = true;
  return mount;
}

Json Container(const Cluster& cluster, const char* name, Json command) {
  Json container = {{"name", name},
                    {"image", cluster.options.image},
                    {"command", std::move(command)},
                    {"env", Json::array({Variable("GANGWAY_TLS", kTlsMount),
                                         Variable("GANGWAY_STATE_DIR", kStateFolder)})}};
  container["securityContext"] = {{"allowPrivilegeEscalation", false},
                                  {"capabilities", {{"drop", {"ALL"}}}}};
  container["volumeMounts"] = {Mount("files", kFilesFolder, true), Mount("tls", kTlsMount, true),
                               Mount("state", kStateMount, false), Mount("tmp", "/tmp", false)};
  return container;
}

Json Pod(const Cluster& cluster, const char* component, const std::string& secret, Json container) {
  Json empty = Json::object();
  return {{"metadata", {{"labels", Labels(cluster, component)}}},
          {"spec",
           {{"restartPolicy", "Never"},
            {"terminationGracePeriodSeconds", kGraceS},
            {"automountServiceAccountToken", false},
            {"enableServiceLinks", false},
            {"securityContext",
             {{"runAsNonRoot", true},
              {"runAsUser", kUser},
              {"runAsGroup", kUser},
              {"fsGroup", kUser},
              {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
            {"containers", Json::array({std::move(container)})},
            {"volumes",
             {{{"name", "files"}, {"configMap", {{"name", cluster.Files()}}}},
              {{"name", "tls"}, {"secret", {{"secretName", secret}, {"defaultMode", kSecretMode}}}},
              {{"name", "state"}, {"emptyDir", empty}},
              {{"name", "tmp"}, {"emptyDir", empty}}}}}}};
}

// A pod that Kubernetes itself ends, such as one on a drained node, costs no retry. A process that could never start as
// it is ends the job, which keeps its pod's log.
Json FailurePolicy(const char* container) {
  Json hopeless = {
      {"action", "FailJob"},
      {"onExitCodes",
       {{"containerName", container}, {"operator", "In"}, {"values", {RestartPolicy::kHopeless}}}}};
  Json disrupted = {
      {"action", "Ignore"},
      {"onPodConditions", Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}};
  return {{"rules", Json::array({std::move(hopeless), std::move(disrupted)})}};
}

Json ReplicatedJob(const std::string& name, size_t pods, const Json& limit, Json policy, Json pod) {
  Json job = {{"completionMode", "Indexed"}, {"completions", pods}, {"parallelism", pods}};
  job.update(limit);
  job["podFailurePolicy"] = std::move(policy);
  job["template"] = std::move(pod);
  return {{"name", name}, {"replicas", 1}, {"template", {{"spec", std::move(job)}}}};
}

// --- Jobs ---

Json Probe(const Cluster& cluster, const std::vector<std::string>& more, int period_s,
           int failures) {
  Json command = {"gangway", "status", "--connect",
                  absl::StrCat("127.0.0.1:", cluster.config.control_port)};
  for (const std::string& each : more) command.push_back(each);
  return {{"exec", {{"command", std::move(command)}}},
          {"periodSeconds", period_s},
          {"timeoutSeconds", 10},
          {"failureThreshold", failures}};
}

// It is ready when all workers have registered: the script waits for that. It is restarted when it has not answered for
// a minute. Like a worker, it ends with another status than 0 when it is told to: a job whose pod has ended with 0 is
// complete, and makes no other pod.
Json HeadJob(const Cluster& cluster) {
  Json container = Container(
      cluster, kHead,
      {"gangway", "controller", "--config", absl::StrCat(kFilesFolder, "/", kConfigFile), "--tls",
       kTlsMount, "--state-dir", kStateFolder, "--leave-status", absl::StrCat(kToldToEnd)});
  container["ports"] =
      Json::array({{{"name", "control"}, {"containerPort", cluster.config.control_port}}});
  const std::string accelerator = Accelerator(cluster);  // its compiler opens the plugin, too
  container["resources"] = Resources(cluster.options.head, accelerator, 1);
  container["startupProbe"] = Probe(cluster, {}, 2, 150);
  container["readinessProbe"] = Probe(cluster, {"--wait", "1"}, 5, 1);
  container["livenessProbe"] = Probe(cluster, {}, 10, 6);
  return ReplicatedJob(kHead, 1, {{"backoffLimit", kHeadRetries}}, FailurePolicy(kHead),
                       Pod(cluster, kHead, cluster.Secret(), std::move(container)));
}

// A worker that is told to end must not look as if its index were completed, so its exit status is not 0.
Json IslandJob(const Cluster& cluster, size_t island) {
  const auto& workers = cluster.config.islands[island].workers;
  const uint32_t devices = workers.front().devices;
  Json container =
      Container(cluster, kWorker,
                {"gangway", "worker", "--island", absl::StrCat(island), "--index",
                 "$(JOB_COMPLETION_INDEX)", "--connect-limit", "0", "--leave-limit",
                 absl::StrCat(kWorkerLeaveS), "--leave-status", absl::StrCat(kToldToEnd)});
  container["env"].push_back(Variable(kAddressVariable, cluster.Address()));
  PodResources asked = cluster.options.worker;
  if (asked.cpu.empty()) asked.cpu = absl::StrCat(devices);
  if (asked.memory.empty()) asked.memory = MemoryOfWorker(cluster, devices);
  container["resources"] = Resources(asked, Accelerator(cluster), devices);
  return ReplicatedJob(IslandName(island), workers.size(), {{"backoffLimitPerIndex", kRetriesMax}},
                       FailurePolicy(kWorker),
                       Pod(cluster, kWorker, cluster.Secret(), std::move(container)));
}

Json ScriptJob(const Cluster& cluster) {
  const KubernetesOptions& options = cluster.options;
  Json command = {"gangway", "run"};
  for (const std::string& each : options.arguments) command.push_back(each);
  if (options.ships_script) command[2] = absl::StrCat(kFilesFolder, "/", ScriptName(options));
  Json container = Container(cluster, kScript, std::move(command));
  container["env"].push_back(Variable(kAddressVariable, cluster.Address()));
  container["resources"] = Resources(options.script, "", 0);
  Json job = ReplicatedJob(kScript, 1, {{"backoffLimit", 0}}, FailurePolicy(kScript),
                           Pod(cluster, kScript, cluster.ClientSecret(), std::move(container)));
  job["dependsOn"] = Json::array({{{"name", kHead}, {"status", "Ready"}}});
  return job;
}

// --- Documents ---

Json JobSet(const Cluster& cluster) {
  Json metadata = Metadata(cluster, cluster.options.name);
  if (!cluster.options.queue.empty())
    metadata["labels"]["kueue.x-k8s.io/queue-name"] = cluster.options.queue;
  Json jobs = Json::array({HeadJob(cluster)});
  for (size_t i = 0; i < cluster.config.islands.size(); ++i) jobs.push_back(IslandJob(cluster, i));
  Json spec = {{"network", {{"enableDNSHostnames", false}}},  // the Service has the only name
               {"failurePolicy", {{"maxRestarts", 0}}}};
  if (!cluster.options.arguments.empty()) {
    jobs.push_back(ScriptJob(cluster));
    spec["successPolicy"] = {{"operator", "All"}, {"targetReplicatedJobs", {kScript}}};
  }
  spec["replicatedJobs"] = std::move(jobs);
  return {{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
          {"kind", "JobSet"},
          {"metadata", std::move(metadata)},
          {"spec", std::move(spec)}};
}

// It also serves while the head is not ready: the workers, for which it waits, come through it.
Json Service(const Cluster& cluster) {
  const int port = cluster.config.control_port;
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", Metadata(cluster, cluster.Service())},
          {"spec",
           {{"publishNotReadyAddresses", true},
            {"selector",
             {{"jobset.sigs.k8s.io/jobset-name", cluster.options.name},
              {"jobset.sigs.k8s.io/replicatedjob-name", kHead}}},
            {"ports",
             Json::array({{{"name", "control"}, {"port", port}, {"targetPort", "control"}}})}}}};
}

// Immutable, as the Secret is: a second cluster of this name is refused instead of changing the first one's files.
absl::StatusOr<Json> ConfigMap(const Cluster& cluster, const std::string& script) {
  ClusterConfig config = cluster.config;
  config.controller_host = cluster.Service();
  config.workers_per_host = 1;  // a pod is the worker's host
  const std::string declared = ToToml(config);
  if (declared.size() + script.size() > kFilesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the cluster's file (", declared.size(), " bytes) and the script (",
                     script.size(), ") exceed the ", kFilesMax,
                     " bytes of a ConfigMap: put the script into the image, and give its path "
                     "there without --ship"));
  }
  Json data = {{kConfigFile, declared}};
  if (cluster.options.ships_script) data[ScriptName(cluster.options)] = script;
  return Json{{"apiVersion", "v1"},
              {"kind", "ConfigMap"},
              {"metadata", Metadata(cluster, cluster.Files())},
              {"immutable", true},
              {"data", std::move(data)}};
}

Json Secret(const Cluster& cluster, const std::string& name, const NamedFiles& files) {
  Json data = Json::object();
  for (const auto& [name, text] : files) data[name] = absl::Base64Escape(text);
  return {{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", Metadata(cluster, name)},
          {"immutable", true},  {"type", "Opaque"}, {"data", std::move(data)}};
}

std::string Header(const Cluster& cluster, const KubernetesFiles& files) {
  std::vector<std::string> needed = {"JobSet (jobset.x-k8s.io/v1alpha2)"};
  if (!cluster.options.queue.empty()) needed.emplace_back("Kueue");
  if (files.tls.empty()) needed.push_back(absl::StrCat("the Secret ", cluster.Secret()));
  if (files.client_tls.empty() && !cluster.options.arguments.empty())
    needed.push_back(absl::StrCat("the Secret ", cluster.ClientSecret()));
  return absl::StrCat("# The Gangway cluster ", cluster.options.name,
                      ", for `kubectl create -f`; deploy/kubernetes/README.md explains it.\n",
                      "# Needed before: ", absl::StrJoin(needed, ", "), ".\n");
}

// --- Files ---

absl::StatusOr<std::string> ReadText(const std::string& path, const char* option) {
  std::ifstream file(path);
  std::ostringstream text;
  std::error_code error;
  if (!file || std::filesystem::is_directory(path, error) || !(text << file.rdbuf())) {
    return absl::NotFoundError(
        absl::StrCat(option, ": cannot read ", path, ": it must be a file here that is not empty"));
  }
  return text.str();
}

// `made_by`: the options of `gangway certs` that make the folder.
absl::StatusOr<NamedFiles> ReadTls(const std::string& folder, const std::string& made_by) {
  NamedFiles files;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = each.path().filename();
    const bool kept =
        std::find(std::begin(kKeptHere), std::end(kKeptHere), name) != std::end(kKeptHere);
    if (!each.is_regular_file(error) || kept) continue;
    GANGWAY_ASSIGN_OR_RETURN(std::string text, ReadPrivateFile(each.path()));
    files.emplace_back(name, std::move(text));
  }
  std::sort(files.begin(), files.end());
  const bool holds = std::any_of(files.begin(), files.end(),
                                 [](const auto& file) { return file.first == "cert.pem"; });
  if (!error && holds) return files;
  return absl::NotFoundError(
      absl::StrCat("--tls: ", folder, " holds no certificate: make the folder by `gangway certs ",
                   made_by, "`"));
}

// Hosts are not known beforehand, and change with each pod.
absl::Status CheckTls(const std::string& folder, const std::string& name) {
  GANGWAY_ASSIGN_OR_RETURN(const bool any_host, IsForAnyHost(folder));
  if (any_host) return CheckCertificate(folder, name);
  return absl::FailedPreconditionError(
      absl::StrCat("--tls: the certificates in ", folder,
                   " are for the hosts that they name, but Kubernetes chooses the hosts: make "
                   "another folder by `gangway certs DIR --any-host`"));
}

absl::StatusOr<std::string> ReadAndPrint(const KubernetesOptions& options) {
  GANGWAY_ASSIGN_OR_RETURN(auto config, ReadConfig(options.config));
  KubernetesFiles files;
  if (!options.tls.empty()) {
    GANGWAY_ASSIGN_OR_RETURN(files.tls,
                             ReadTls(options.tls, absl::StrCat(options.tls, " --any-host")));
    GANGWAY_RETURN_IF_ERROR(CheckTls(options.tls, absl::StrCat(options.name, "-head")));
    if (!options.arguments.empty()) {
      GANGWAY_ASSIGN_OR_RETURN(
          files.client_tls,
          ReadTls(absl::StrCat(options.tls, "/", kClientFolder),
                  absl::StrCat(options.tls, " --add ", kClientFolder, " --role client")));
    }
  }
  if (options.ships_script && !options.arguments.empty()) {
    GANGWAY_ASSIGN_OR_RETURN(files.script, ReadText(options.arguments.front(), "--ship"));
  }
  return KubernetesManifests(config, options, files);
}

}  // namespace

absl::StatusOr<std::string> KubernetesManifests(const ClusterConfig& config,
                                                const KubernetesOptions& options,
                                                const KubernetesFiles& files) {
  GANGWAY_RETURN_IF_ERROR(CheckOptions(options));
  GANGWAY_RETURN_IF_ERROR(CheckCluster(config, options));
  GANGWAY_RETURN_IF_ERROR(CheckName(config, options.name));
  if (options.ships_script && options.arguments.empty())
    return absl::InvalidArgumentError("--ship needs a script: write its path after the options");
  if (options.ships_script) GANGWAY_RETURN_IF_ERROR(CheckScript(options, files.script));
  const Cluster cluster{config, options};
  GANGWAY_ASSIGN_OR_RETURN(const Json config_map, ConfigMap(cluster, files.script));
  std::vector<std::string> documents = {ToYaml(config_map)};
  if (!files.tls.empty()) documents.push_back(ToYaml(Secret(cluster, cluster.Secret(), files.tls)));
  if (!files.client_tls.empty())
    documents.push_back(ToYaml(Secret(cluster, cluster.ClientSecret(), files.client_tls)));
  documents.push_back(ToYaml(Service(cluster)));
  documents.push_back(ToYaml(JobSet(cluster)));
  return absl::StrCat(Header(cluster, files), absl::StrJoin(documents, "---\n"));
}

int Kubernetes(const KubernetesOptions& options) {
  auto manifests = ReadAndPrint(options);
  if (!manifests.ok()) {
    fprintf(stderr, "gangway kubernetes: %s\n", std::string(manifests.status().message()).c_str());
    return 1;
  }
  return fputs(manifests->c_str(), stdout) < 0 || fflush(stdout) != 0 ? 1 : 0;
}

}  // namespace gangway::cli
