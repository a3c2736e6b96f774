// Implementation of up.h.
#include "gangway/cli/up.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/host_memory.h"
#include "gangway/base/private_file.h"
#include "gangway/base/status.h"
#include "gangway/cli/access.h"
#include "gangway/cli/memory_plan.h"
#include "gangway/cli/open_files.h"
#include "gangway/cli/plugin.h"

namespace gangway::cli {
namespace {

constexpr uint32_t kDevicesMax = 4096;
constexpr size_t kSocketPathMax = 100;  // of the 108 that the kernel takes
constexpr char kReadyWord[] = "ready: ";
// Its crashes may be due to what one client sent, and all others wait for it.
constexpr std::chrono::seconds kCompilerDelayMax{1};

int Fail(const absl::Status& status) {
  fprintf(stderr, "gangway up: %s\n", std::string(status.message()).c_str());
  return 1;
}

void WriteLine(int fd, const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
}

// A socket in the state folder.
std::string LocalAddress(const StateDir& dir, const std::string& name) {
  const std::string path = dir.File(name);
  if (path.size() < kSocketPathMax) return absl::StrCat("unix:", path);
  return absl::StrCat("127.0.0.1:",
                      ClaimPort(0).value_or(0));  // the path is too long for a socket
}

std::string Count(uint32_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

SupervisorOptions Describe(const UpOptions& options, const StateDir& dir) {
  const uint32_t workers = options.islands * options.workers;
  SupervisorOptions supervised;
  supervised.children = Children(options, dir);
  supervised.ready_limit = std::chrono::seconds(options.ready_limit_s);
  supervised.ready_text = absl::StrCat(
      kReadyWord, Count(workers * options.devices, "device"), " on ", Count(workers, "worker"),
      " in ", Count(options.islands, "island"), ", at 127.0.0.1:", options.port);
  return supervised;
}

ChildSpec SchedulerChild(uint32_t island, const std::string& address, const StateDir& dir) {
  return {absl::StrCat("island", island, "/scheduler"),
          [island, address,
           token = dir.File(TokenFile(wire::ROLE_SCHEDULER))](const std::string& control) {
            return std::vector<std::string>{
                RoleBinary(), "scheduler", "--island", absl::StrCat(island), "--listen",
                address,      "--control", control,    "--token-file",       token};
          }};
}

int RunForeground(const UpOptions& options, StateDir& dir) {
  SupervisorOptions supervised = Describe(options, dir);
  supervised.say = [](const std::string& line) { WriteLine(STDOUT_FILENO, line); };
  supervised.complain = [](const std::string& text) {
    WriteLine(STDERR_FILENO, "gangway up: " + text);
  };
  return Supervisor(std::move(supervised), &dir).Run();
}

absl::StatusOr<std::unique_ptr<BoundedLog>> OpenUpLog(const StateDir& dir) {
  GANGWAY_ASSIGN_OR_RETURN(auto folder, dir.Logs());
  return BoundedLog::Open(std::make_shared<const PrivateFolder>(std::move(folder)), "up.log");
}

// Runs in the background process: writes to `starter` until the cluster is ready, and always to
// up.log.
int RunDetached(const UpOptions& options, StateDir& dir, FileDescriptor starter) {
  setsid();
  FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.get(), fd);
  auto open_end = std::make_shared<FileDescriptor>(std::move(starter));
  auto log = OpenUpLog(dir);
  if (!log.ok()) {
    WriteLine(open_end->get(), absl::StrCat("gangway up: ", log.status().message()));
    return 1;
  }
  SupervisorOptions supervised = Describe(options, dir);
  supervised.say = [&log, open_end](const std::string& line) {
    (*log)->Write(line + "\n");
    if (open_end->get() >= 0) WriteLine(open_end->get(), line);
  };
  supervised.complain = [say = supervised.say](const std::string& text) {
    say("gangway up: " + text);
  };
  supervised.on_ready = [open_end] { open_end->Reset(); };
  return Supervisor(std::move(supervised), &dir).Run();
}

// Runs in the process that returns to the shell: repeats the background process's output until the
// cluster is ready or has failed.
int FollowUntilReady(FileDescriptor from) {
  std::string text;
  char buffer[4096];
  ssize_t count;
  while ((count = read(from.get(), buffer, sizeof(buffer))) > 0 || (count < 0 && errno == EINTR)) {
    if (count < 0) continue;
    text.append(buffer, static_cast<size_t>(count));
    fwrite(buffer, 1, static_cast<size_t>(count), stdout);
    fflush(stdout);
  }
  const bool ready =
      absl::StartsWith(text, kReadyWord) || absl::StrContains(text, absl::StrCat("\n", kReadyWord));
  if (!ready) {
    const size_t complaint = text.find("gangway up: ");
    fprintf(stderr, "%s\n",
            complaint == std::string::npos ? "gangway up: the cluster did not become ready"
                                           : text.c_str() + complaint);
  }
  return ready ? 0 : 1;
}

}  // namespace

std::string RoleBinary() {
  if (const char* binary = std::getenv("GANGWAY_ROLE_BINARY")) return binary;
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

absl::Status CheckUp(const UpOptions& options) {
  const uint64_t devices = uint64_t{options.islands} * options.workers * options.devices;
  if (devices == 0 || devices > kDevicesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--islands ", options.islands, " --workers ", options.workers, " --devices ",
        options.devices, " make ", devices, " devices: choose from 1 to ", kDevicesMax));
  }
  return options.simulated > 0 ? absl::OkStatus() : FindPlugin(options.plugin).status();
}

absl::StatusOr<int> ClaimPort(int wanted) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(wanted));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  if (bind(fd.get(), generic, size) != 0 || listen(fd.get(), 1) != 0 ||
      getsockname(fd.get(), generic, &size) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on 127.0.0.1:", wanted, ": ", std::strerror(errno),
                     ". Another program has that port: choose another with --port (0: any "
                     "free one)"));
  }
  return ntohs(address.sin_port);
}

int DefaultThreads(uint32_t devices, unsigned cores) {
  return static_cast<int>(uint64_t{devices} + cores);
}

std::vector<std::string> FrontDoorSocket(const StateDir& dir) {
  std::string path = dir.File(kFrontDoorSocket);
  if (path.size() >= kSocketPathMax) return {};
  return {"--front-door-socket", std::move(path)};
}

std::vector<ChildSpec> CompilerChildren(const CompilerChoice& compilers, uint32_t devices,
                                        int threads, const std::string& plugin, const StateDir& dir,
                                        const std::vector<std::string>& access) {
  std::vector<ChildSpec> children;
  const uint64_t memory = PlanCompiler(HostMemoryBytes(), compilers.memory_bytes);
  for (uint32_t i = 0; i < compilers.count; ++i) {
    const std::string name = i == 0 ? "compiler" : absl::StrCat("compiler", i);
    const std::string scratch = dir.File(absl::StrCat("scratch-", name));
    std::vector<std::string> compiler = {RoleBinary(), "compiler",
                                         "--number",   absl::StrCat(i),
                                         "--devices",  absl::StrCat(devices),
                                         "--threads",  absl::StrCat(threads),
                                         "--scratch",  scratch,
                                         "--memory",   absl::StrCat(memory)};
    if (plugin.empty()) {
      compiler.emplace_back("--simulate");
    } else {
      compiler.insert(compiler.end(), {"--plugin", plugin});
    }
    if (compilers.caches) compiler.insert(compiler.end(), {"--cache", CacheFolder(dir.root())});
    compiler.insert(compiler.end(), access.begin(), access.end());
    children.push_back({.name = name,
                        .command =
                            [compiler](const std::string& control) {
                              std::vector<std::string> command = compiler;
                              command.insert(command.end(), {"--control", control});
                              return command;
                            },
                        .on_demand = i > 0,
                        .restart_delay_max = kCompilerDelayMax,
                        .scratch = scratch});
  }
  return children;
}

namespace {

std::vector<std::string> HeadCommand(const UpOptions& options, const StateDir& dir) {
  auto text = [](auto number) { return absl::StrCat(number); };
  std::vector<std::string> head = {RoleBinary(), "head"};
  auto add = [&head](const char* flag, std::string value) {
    head.emplace_back(flag);
    head.push_back(std::move(value));
  };
  add("--islands", text(options.islands));
  add("--workers", text(options.workers));
  add("--devices", text(options.devices));
  add("--memory", text(options.memory_bytes.value_or(0)));
  add("--session-wait", text(options.waits.session_s));
  add("--worker-wait", text(options.waits.worker_s));
  add("--late-after", text(options.waits.late_s));
  add("--collective-limit", text(options.waits.collective_s));
  add("--compilers", text(options.compilers.count));
  add("--compile-limit", text(options.compilers.limit_s));
  add("--orphan-limit", text(options.waits.orphan_s));
  add("--callback-hold", text(options.waits.callback_hold_s));
  add("--quarantine", text(options.waits.quarantine_s));
  add("--front-door", absl::StrCat("127.0.0.1:", options.port));
  add("--control", LocalAddress(dir, "control.sock"));
  add("--metrics-port", text(options.metrics_port));
  if (options.head_memory_bytes) add("--head-memory", text(*options.head_memory_bytes));
  add("--token-file", dir.File(TokenFile(wire::ROLE_TOOL)));
  for (std::string& flag : FrontDoorSocket(dir)) head.push_back(std::move(flag));
  if (options.separate_schedulers) head.emplace_back("--separate-schedulers");
  add("--collectives", options.collectives);
  add("--isolation", options.isolation);
  if (!options.latency_request) head.emplace_back("--no-latency-request");
  return head;
}

struct FirstWorker {
  uint32_t island = 0, index = 0;
};

// Of a process with `count` workers, which are simulated, or with one.
std::vector<std::string> WorkerCommand(const UpOptions& options, const StateDir& dir,
                                       const WorkerMemory& memory, int threads,
                                       const FirstWorker& first, uint32_t count) {
  auto text = [](auto number) { return absl::StrCat(number); };
  std::vector<std::string> worker = {
      RoleBinary(),      "worker",
      "--island",        text(first.island),
      "--index",         text(first.index),
      "--devices",       text(options.devices),
      "--threads",       text(threads),
      "--staging",       text(options.staging_bytes.value_or(memory.staging_bytes)),
      "--shared-memory", text(options.shared_memory_bytes.value_or(memory.shared_bytes)),
      "--heap",          text(memory.heap_bytes * count),
      "--token-file",    dir.File(TokenFile(wire::ROLE_WORKER))};
  auto add = [&worker](const char* flag, std::string value) {
    worker.emplace_back(flag);
    worker.push_back(std::move(value));
  };
  if (options.simulated > 0) add("--simulate", text(count));
  if (options.simulated == 0) add("--plugin", options.plugin);
  if (options.device_memory.fraction != 0)
    add("--device-memory-fraction", text(options.device_memory.fraction));
  if (!options.device_memory.preallocate) worker.emplace_back("--no-preallocate");
  if (memory.device_bytes) add("--memory", text(*memory.device_bytes));
  return worker;
}

ChildSpec WorkerChild(const std::string& name, const std::vector<std::string>& worker,
                      const std::string& scheduler) {
  return {name, [worker, scheduler](const std::string& control) {
            std::vector<std::string> command = worker;
            command.insert(command.end(), {"--control", scheduler.empty() ? control : scheduler});
            return command;
          }};
}

}  // namespace

std::vector<ChildSpec> Children(const UpOptions& options, const StateDir& dir) {
  const int threads = options.threads > 0
                          ? options.threads
                          : DefaultThreads(options.devices, std::thread::hardware_concurrency());
  const uint32_t workers = options.islands * options.workers;
  const WorkerMemory memory =
      PlanWorker(HostMemoryBytes(), workers, options.devices, options.plugin, options.memory_bytes);
  CompilerChoice compilers = options.compilers;
  compilers.caches = options.isolation == kNoIsolation && options.simulated == 0;
  // XLA finds as many devices as a program needs; simulated ones are counted.
  const uint32_t compiling = options.simulated == 0 ? options.devices : workers * options.devices;
  std::vector<ChildSpec> children;
  children.push_back(
      {"head", [head = HeadCommand(options, dir)](const std::string&) { return head; }});
  for (ChildSpec& compiler :
       CompilerChildren(compilers, compiling, threads, options.plugin, dir,
                        {"--token-file", dir.File(TokenFile(wire::ROLE_COMPILER))}))
    children.push_back(std::move(compiler));
  const uint32_t in_process = std::max(options.simulated, 1U);
  for (uint32_t island = 0; island < options.islands; ++island) {
    std::string scheduler;  // the address for the island's workers, if not the head's
    if (options.separate_schedulers) {
      scheduler = LocalAddress(dir, absl::StrCat("scheduler", island, ".sock"));
      children.push_back(SchedulerChild(island, scheduler, dir));
    }
    for (uint32_t index = 0; index < options.workers; index += in_process) {
      const uint32_t count = std::min(in_process, options.workers - index);
      children.push_back(WorkerChild(
          absl::StrCat("island", island, "/worker", index,
                       count > 1 ? absl::StrCat("-", index + count - 1) : std::string()),
          WorkerCommand(options, dir, memory, threads, {.island = island, .index = index}, count),
          scheduler));
    }
  }
  return children;
}

int Up(UpOptions options) {
  if (auto status = CheckUp(options); !status.ok()) return Fail(status);
  const uint64_t workers = uint64_t{options.islands} * options.workers;
  if (auto status = CheckOpenFiles(workers, RaiseOpenFiles()); !status.ok()) return Fail(status);
  if (options.simulated == 0) options.plugin = *FindPlugin(options.plugin);
  auto port = ChoosePort(options.port);
  if (!port.ok()) return Fail(port.status());
  const std::string root = StateRoot(options.state_root);
  if (*port != 0) {  // "a cluster already runs" says more than "port in use"
    auto pid = StateDir(root, *port).Supervisor();
    if (pid.ok()) return Fail(StateDir(root, *port).Lock());
    if (absl::IsPermissionDenied(pid.status())) return Fail(pid.status());
  }
  port = ClaimPort(*port);
  if (!port.ok()) return Fail(port.status());
  options.port = *port;
  StateDir dir(root, *port);
  if (auto status = dir.Lock(); !status.ok()) return Fail(status);
  if (auto status = EnsureTokens(dir.path()); !status.ok()) return Fail(status);
  dir.Remove(kTlsFolder);
  const uint64_t devices = uint64_t{options.islands} * options.workers * options.devices;
  if (auto status = dir.Write(kDeviceCount, absl::StrCat(devices)); !status.ok())
    return Fail(status);
  FileDescriptor follow;
  if (options.detach) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return Fail(absl::InternalError("cannot create a pipe"));
    follow.Reset(ends[0]);
    FileDescriptor starter(ends[1]);
    const pid_t pid = fork();
    if (pid < 0) return Fail(absl::InternalError("cannot start a background process"));
    if (pid > 0) {
      starter.Reset();
      return FollowUntilReady(std::move(follow));
    }
    follow.Reset();
    auto status = dir.Write(kSupervisorPid, absl::StrCat(getpid()));
    const int result = status.ok() ? RunDetached(options, dir, std::move(starter)) : Fail(status);
    dir.Remove(kSupervisorPid);
    return result;
  }
  if (auto status = dir.Write(kSupervisorPid, absl::StrCat(getpid())); !status.ok())
    return Fail(status);
  const int result = RunForeground(options, dir);
  dir.Remove(kSupervisorPid);
  return result;
}

}  // namespace gangway::cli
