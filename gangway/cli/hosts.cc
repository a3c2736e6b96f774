// Implementation of hosts.h.
#include "gangway/cli/hosts.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/cli/certs.h"
#include "gangway/cli/own_address.h"
#include "gangway/cli/plugin.h"
#include "gangway/cli/state_dir.h"
#include "gangway/cli/supervisor.h"
#include "gangway/cli/tool_link.h"
#include "gangway/cli/up.h"
#include "gangway/transport/grpc/address.h"

namespace gangway::cli {
namespace {

constexpr uint64_t kClusterDevicesMax = 4096;  // as in a file
constexpr std::chrono::seconds kAskLimit{10};
constexpr std::chrono::seconds kAnswerLimit{1};  // of a controller that an old address file names
// The file that the head reads: what the controller declares, by its own file or by its options.
constexpr char kDeclaredCluster[] = "cluster.toml";

int Fail(const absl::Status& status) {
  fprintf(stderr, "gangway controller: %s\n", std::string(status.message()).c_str());
  return 1;
}

// Copies what processes of this host need to the state folder, where they find it.
absl::Status WriteAccess(const StateDir& dir, const std::string& tls) {
  if (tls.empty()) {
    dir.Remove(kTlsFolder);
    return EnsureTokens(dir.path());
  }
  for (wire::Role role : {wire::ROLE_CLIENT, wire::ROLE_COMPILER, wire::ROLE_TOOL}) {
    GANGWAY_ASSIGN_OR_RETURN(auto access, ReadAccess({.tls = tls, .role = role}));
    GANGWAY_RETURN_IF_ERROR(WritePrivateFile(dir.File(TokenFile(role)), access.token + "\n"));
  }
  GANGWAY_ASSIGN_OR_RETURN(auto verifiers, ReadVerifiers({.tls = tls}));
  GANGWAY_RETURN_IF_ERROR(WritePrivateFile(dir.File(kVerifiersFile), verifiers.ToText()));
  return dir.Write(kTlsFolder, tls);
}

std::vector<ChildSpec> ControllerChildren(const ClusterConfig& config,
                                          const ControllerOptions& options,
                                          const std::string& plugin, const StateDir& dir) {
  auto access = [&](wire::Role role) {
    std::vector<std::string> flags = {"--token-file", dir.File(TokenFile(role))};
    if (!options.tls.empty()) flags.insert(flags.end(), {"--tls", options.tls});
    return flags;
  };
  std::vector<std::string> head = {RoleBinary(), "head", "--config", dir.File(kDeclaredCluster)};
  for (std::string& flag : access(wire::ROLE_TOOL)) head.push_back(std::move(flag));
  for (std::string& flag : FrontDoorSocket(dir)) head.push_back(std::move(flag));
  if (!options.latency_request) head.emplace_back("--no-latency-request");
  std::vector<ChildSpec> children =
      CompilerChildren(config.compilers, config.DevicesMax(), config.threads, plugin, dir,
                       access(wire::ROLE_COMPILER));
  children.insert(children.begin(), {"head", [head](const std::string&) { return head; }});
  return children;
}

// The file that tells others where the controller is. Without a path, there is none.
class AddressFile {
 public:
  explicit AddressFile(std::string path) : path_(std::move(path)) {}
  AddressFile(const AddressFile&) = delete;
  AddressFile& operator=(const AddressFile&) = delete;
  // Another cluster may have written its own address there since.
  ~AddressFile() {
    if (!text_.empty() && ReadPrivateFile(path_).value_or("") == text_) unlink(path_.c_str());
  }

  // Removes that of an earlier cluster, so that no process takes it for this one's. ALREADY_EXISTS: the file is another
  // one, or that cluster still runs.
  absl::Status Clear() const {
    if (path_.empty()) return absl::OkStatus();
    auto text = ReadPrivateFile(path_);
    if (absl::IsNotFound(text.status())) return absl::OkStatus();
    const std::string address(absl::StripAsciiWhitespace(text.value_or("")));
    if (!transport::ParseAddress(address, transport::Security::kCredentials).ok()) {
      return absl::AlreadyExistsError(absl::StrCat(
          path_,
          " is there already and holds no controller's address: name another file with "
          "--address-file, or delete this one"));
    }
    if (Answers(address, kAnswerLimit)) {
      return absl::AlreadyExistsError(
          absl::StrCat("another controller listens at ", address, ", which ", path_,
                       " names: end that one first, or name another file with --address-file"));
    }
    unlink(path_.c_str());
    return absl::OkStatus();
  }
  absl::Status Write(const std::string& address) {
    if (path_.empty()) return absl::OkStatus();
    text_ = address + "\n";
    return WritePrivateFile(path_, text_);
  }

 private:
  const std::string path_;
  std::string text_;
};

// The head listens at `control`, under any of this host's addresses.
absl::Status TellAddress(const ClusterConfig& config, const std::string& control,
                         AddressFile& file) {
  const std::string reached =
      absl::StrCat(BracketedHost(config.controller_host), control.substr(control.rfind(':')));
  printf("listening: control at %s, JAX at 127.0.0.1:%d\n", reached.c_str(),
         config.front_door_port);
  fflush(stdout);
  return file.Write(reached);
}

SupervisorOptions Describe(const ClusterConfig& config, const ControllerOptions& options,
                           const std::string& plugin, const StateDir& dir, AddressFile& file) {
  SupervisorOptions supervised;
  supervised.children = ControllerChildren(config, options, plugin, dir);
  supervised.ready_limit = std::chrono::seconds(options.ready_limit_s);
  supervised.ready_text = "ready: all declared workers are up";
  supervised.on_listening = [&config, &file](const std::string& control) {
    return TellAddress(config, control, file);
  };
  supervised.say = [](const std::string& line) {
    printf("%s\n", line.c_str());
    fflush(stdout);
  };
  supervised.complain = [](const std::string& text) {
    fprintf(stderr, "gangway controller: %s\n", text.c_str());
  };
  return supervised;
}

bool IsAnyAddress(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

// Fills in the shape and the addresses that the options declare.
absl::StatusOr<ClusterConfig> DeclaredByOptions(const ControllerOptions& options) {
  ClusterConfig config = options.cluster;
  const uint64_t devices = uint64_t{options.islands} * options.workers * options.devices;
  if (devices == 0 || devices > kClusterDevicesMax) {
    return absl::InvalidArgumentError(absl::StrCat("--islands ", options.islands, " --workers ",
                                                   options.workers, " --devices ", options.devices,
                                                   " declare ", devices, " devices: from 1 to ",
                                                   kClusterDevicesMax, " can be"));
  }
  HostIsland island;
  island.workers.assign(options.workers, {.devices = options.devices});
  config.islands.assign(options.islands, island);
  if (!options.listen.empty()) {
    GANGWAY_ASSIGN_OR_RETURN(
        auto at, transport::ParseAddress(options.listen, transport::Security::kCredentials));
    config.controller_listen = at.host;
    if (at.host.front() == '[') config.controller_listen = at.host.substr(1, at.host.size() - 2);
    config.control_port = at.port;
    config.controller_host = config.controller_listen;
  }
  if (!options.host.empty()) {
    config.controller_host = options.host;
  } else if (IsAnyAddress(config.controller_host)) {
    const auto own = OwnAddress();
    GANGWAY_RETURN_IF_ERROR(own.status());
    config.controller_host = *own;
  }
  GANGWAY_ASSIGN_OR_RETURN(const int port, ChoosePort(options.port));
  const absl::StatusOr<int> front_door = port == 0 ? ClaimPort(0) : port;
  GANGWAY_RETURN_IF_ERROR(front_door.status());
  config.front_door_port = *front_door;
  return ParseConfig(ToToml(config), "the options, as a file");  // checks all of them
}

// Without TLS, the token is in the controller's state folder, on the same host.
AccessFiles HostAccess(const HostOptions& options, int front_door_port, wire::Role role) {
  AccessFiles access = {.tls = options.tls, .role = role};
  if (!options.tls.empty()) return access;
  access.token_file =
      StateDir(StateRoot(options.state_root), front_door_port).File(TokenFile(role));
  return access;
}

// The end of a controller's preparations: `options` has absolute paths, and `config` is what it declares.
absl::Status Prepare(const ClusterConfig& config, const ControllerOptions& options,
                     const StateDir& dir) {
  GANGWAY_RETURN_IF_ERROR(WriteAccess(dir, options.tls));
  GANGWAY_RETURN_IF_ERROR(dir.Write(kDeclaredCluster, ToToml(config)));
  GANGWAY_RETURN_IF_ERROR(dir.Write(kDeviceCount, absl::StrCat(config.Devices())));
  GANGWAY_RETURN_IF_ERROR(dir.Write(kSupervisorPid, absl::StrCat(getpid())));
  return absl::OkStatus();
}

}  // namespace

int RunController(const ControllerOptions& given) {
  ControllerOptions options = given;
  if (!given.tls.empty()) options.tls = std::filesystem::absolute(given.tls);
  if (!given.address_file.empty())
    options.address_file = std::filesystem::absolute(given.address_file);
  auto config = options.config.empty() ? DeclaredByOptions(options) : ReadConfig(options.config);
  if (!config.ok()) return Fail(config.status());
  auto reach = CheckReach(config->controller_host, config->control_port, options.tls);
  if (reach.ok() && options.tls.empty()) {
    reach = transport::ParseAddress(config->ControlListenAddress(), transport::Security::kPlain)
                .status();
  }
  if (!reach.ok()) return Fail(reach);
  // The compiler's; the workers' own is found on their hosts.
  auto plugin = FindPlugin(config->plugin);
  if (!plugin.ok()) return Fail(plugin.status());
  StateDir dir(StateRoot(options.state_root), config->front_door_port);
  if (auto status = dir.Lock(); !status.ok()) return Fail(status);
  if (auto port = ClaimPort(config->front_door_port); !port.ok()) return Fail(port.status());
  if (auto status = Prepare(*config, options, dir); !status.ok()) return Fail(status);
  AddressFile file(options.address_file);
  if (auto status = file.Clear(); !status.ok()) return Fail(status);
  const int result = Supervisor(Describe(*config, options, *plugin, dir, file), &dir).Run();
  dir.Remove(kSupervisorPid);
  return result == 0 ? options.leave_status : result;
}

absl::StatusOr<std::string> HeadFromConfig(const std::string& path, const std::string& tls,
                                           HeadOptions& head) {
  GANGWAY_ASSIGN_OR_RETURN(auto config, ReadConfig(path));
  head.islands = config.Shape();
  for (uint32_t i = 0; i < config.islands.size(); ++i) {
    const auto& scheduler = config.islands[i].scheduler;
    if (scheduler) head.remote_schedulers[i] = HostAndPort(scheduler->host, scheduler->port);
  }
  head.declare = [declared = Declare(config)](const wire::DeclarationRequest& request) {
    std::optional<uint32_t> island;
    if (request.has_island()) island = request.island();
    return FindDeclaration(declared, island, request.index());
  };
  head.budget_bytes = config.memory_bytes.value_or(0);
  head.memory_bytes = config.head_memory_bytes;
  head.control_address = config.ControlListenAddress();
  head.front_door_address = absl::StrCat("127.0.0.1:", config.front_door_port);
  head.client_silence_max = std::chrono::seconds(config.client_silence_s);
  head.welcome_max = std::chrono::seconds(config.session_wait_s);
  head.worker_wait_max = std::chrono::seconds(config.worker_wait_s);
  head.late_after = std::chrono::seconds(config.late_after_s);
  head.collective_limit = std::chrono::seconds(config.collective_limit_s);
  head.compilers = config.compilers.count;
  head.compile_limit = std::chrono::seconds(config.compilers.limit_s);
  head.orphan_limit = std::chrono::seconds(config.orphan_limit_s);
  head.callback_hold_max = std::chrono::seconds(config.callback_hold_s);
  head.quarantine_time = std::chrono::seconds(config.quarantine_s);
  head.own_collectives = config.collectives == kOwnCollectives;
  head.isolates = config.isolation == kProcessIsolation;
  head.latency_request &= config.latency_request;
  // A certificate for any host serves loopback as well. There, nothing depends on names and on what lies between.
  GANGWAY_ASSIGN_OR_RETURN(const bool any_host, IsForAnyHost(tls));
  const std::string listen = config.ControlListenAddress();
  if (any_host && absl::StartsWith(listen, "0.0.0.0:"))
    return HostAndPort("127.0.0.1", config.control_port);
  if (any_host && absl::StartsWith(listen, "[::]:")) return HostAndPort("::1", config.control_port);
  return config.ControlAddress();
}

absl::StatusOr<SchedulerRoleOptions> SchedulerFromConfig(const HostOptions& options) {
  GANGWAY_ASSIGN_OR_RETURN(auto config, ReadConfig(options.config));
  const uint32_t island = options.place.island.value_or(0);
  if (island >= config.islands.size() || !config.islands[island].scheduler) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.config, " has no scheduler of its own for island ", island,
        ": write scheduler = { host = \"a.example\", port = 38620 } in its [[island]], or start "
        "none: the controller then schedules the island"));
  }
  const HostScheduler& declared = *config.islands[island].scheduler;
  GANGWAY_RETURN_IF_ERROR(CheckReach(declared.host, declared.port, options.tls));
  SchedulerRoleOptions scheduler;
  scheduler.control_address = config.ControlAddress();
  scheduler.listen_address = HostAndPort(ListenHost(declared.host), declared.port);
  scheduler.access = HostAccess(options, config.front_door_port, wire::ROLE_SCHEDULER);
  scheduler.island = island;
  scheduler.when_lost = WhenLost::kReturn;
  return scheduler;
}

absl::StatusOr<WorkerRoleOptions> WorkerFromConfig(const HostOptions& options,
                                                   const WorkerRoleOptions& told) {
  GANGWAY_ASSIGN_OR_RETURN(auto config, ReadConfig(options.config));
  if (config.control_port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.config,
                     " says control_port = 0, any free one: give the controller's address, which "
                     "its --address-file has, with --connect instead of --config"));
  }
  GANGWAY_ASSIGN_OR_RETURN(
      auto declared, FindDeclaration(Declare(config), options.place.island, options.place.index),
      options.config);
  WorkerRoleOptions worker = told;
  worker.control_address = config.ControlAddress();
  worker.access = HostAccess(options, config.front_door_port, wire::ROLE_WORKER);
  WorkerPlace place = options.place;
  if (place.plugin.empty()) place.plugin = config.plugin;  // the file is this user's
  GANGWAY_RETURN_IF_ERROR(Become(declared, place, worker));
  return worker;
}

absl::StatusOr<WorkerRoleOptions> WorkerByAddress(const HostOptions& options,
                                                  const WorkerRoleOptions& told) {
  HostOptions found = options;
  GANGWAY_ASSIGN_OR_RETURN(const int port, ChoosePort(options.port));
  if (found.connect.empty()) {
    const StateDir dir(StateRoot(options.state_root), port);
    GANGWAY_RETURN_IF_ERROR(dir.Supervisor());
    GANGWAY_ASSIGN_OR_RETURN(found.connect, dir.Read(kControlAddress), "the cluster on port ", port,
                             " is still starting: retry soon");
    const std::string tls = dir.Read(kTlsFolder).value_or("");
    if (tls.empty() || found.tls.empty()) found.tls = tls;  // GANGWAY_TLS may be of another cluster
  }
  WorkerRoleOptions worker = told;
  worker.control_address = found.connect;
  worker.access = HostAccess(found, port, wire::ROLE_WORKER);
  worker.when_lost = WhenLost::kReturn;
  worker.ask = [place = options.place](const Access& access, transport::Transport& transport,
                                       WorkerRoleOptions& asking) -> absl::Status {
    GANGWAY_ASSIGN_OR_RETURN(
        auto declared, AskDeclaration(transport, asking.control_address, access.token, place.island,
                                      place.index, kAskLimit));
    return Become(declared, place, asking);
  };
  return worker;
}

}  // namespace gangway::cli
