// Implementation of doctor.h.
#include "gangway/cli/doctor.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/cli/open_files.h"
#include "gangway/cli/plugin.h"
#include "gangway/cli/state_dir.h"
#include "gangway/cli/tool_link.h"
#include "gangway/cli/trace_file.h"
#include "gangway/cli/up.h"
#include "gangway/cli/wakes.h"
#include "gangway/compiler/confinement.h"
#include "gangway/device/pjrt/pjrt_api.h"
#include "gangway/wire/version.h"

namespace gangway::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kDescriptorsMin = 1024;
constexpr uint64_t kMemoryMin = kGiB;
constexpr uint64_t kDiskMin = kGiB;
constexpr std::chrono::seconds kStatusLimit{5};
constexpr std::chrono::seconds kRingsLimit{10};

class Report {
 public:
  void Ok(const char* what, const std::string& text) { Line("ok   ", what, text); }
  void Wrong(const char* what, const std::string& text) {
    wrong_ = true;
    Line("WRONG", what, text);
  }
  void Note(const char* what, const std::string& text) { Line("--   ", what, text); }
  int exit_status() const { return wrong_ ? 1 : 0; }

 private:
  static void Line(const char* verdict, const char* what, const std::string& text) {
    printf("%s %-12s %s\n", verdict, what, text.c_str());
  }
  bool wrong_ = false;
};

std::string GiB(uint64_t bytes) {
  return absl::StrCat(bytes / kGiB, ".", bytes % kGiB * 10 / kGiB, " GiB");
}

void CheckPlugin(const DoctorOptions& options, Report& report) {
  auto path = FindPlugin(options.plugin);
  if (!path.ok()) return report.Wrong("plugin", std::string(path.status().message()));
  auto api = device::PjrtApi::Load(*path, /*thread_pool_size=*/0);
  if (!api.ok()) return report.Wrong("plugin", std::string(api.status().message()));
  report.Ok("plugin", absl::StrCat(*path, ", PJRT API ", (*api)->version()));
}

void CheckDescriptors(Report& report) {
  const uint64_t limit = RaiseOpenFiles();  // as `gangway up` and the roles do
  if (limit >= kDescriptorsMin)
    return report.Ok("descriptors", absl::StrCat(limit, " open files (ulimit -Hn)"));
  report.Wrong("descriptors",
               absl::StrCat("this shell allows ", limit, " open files, too few for several ",
                            "clients: raise the hard limit (`ulimit -Hn`) to ", kDescriptorsMin,
                            " or more before `gangway up`"));
}

void CheckMemory(Report& report) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  uint64_t kib = 0;
  while (file >> word) {
    if (word == "MemAvailable:") file >> kib;
  }
  const uint64_t bytes = kib * 1024;
  if (bytes >= kMemoryMin) return report.Ok("memory", absl::StrCat(GiB(bytes), " available"));
  report.Wrong("memory", absl::StrCat("only ", GiB(bytes), " are available, workers need about ",
                                      GiB(kMemoryMin),
                                      ": end other programs, or start fewer "
                                      "workers"));
}

void CheckDisk(const DoctorOptions& options, Report& report) {
  const std::string folder = CacheFolder(StateRoot(options.cluster.state_root));
  std::filesystem::path there = folder;
  std::error_code error;
  while (!std::filesystem::exists(there, error) && there.has_relative_path())
    there = there.parent_path();
  struct statvfs disk = {};
  if (statvfs(there.c_str(), &disk) != 0 || access(there.c_str(), W_OK) != 0) {
    return report.Wrong("disk", absl::StrCat("the cache folder ", folder, " cannot be written: ",
                                             "give one with GANGWAY_CACHE_DIR"));
  }
  const uint64_t bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (bytes >= kDiskMin) return report.Ok("disk", absl::StrCat(GiB(bytes), " free for ", folder));
  report.Wrong("disk", absl::StrCat("only ", GiB(bytes), " are free for ", folder,
                                    ": compiled programs will not be kept; make room, or give "
                                    "another folder with GANGWAY_CACHE_DIR"));
}

// Slow wakes cost time, and nothing else: a remark.
void CheckWakes(Report& report) {
  const WakesAdvice advice = Judge(MeasureWakes());
  advice.needed ? report.Note("wakes", advice.text) : report.Ok("wakes", advice.text);
}

// Of the compiler, which runs what strangers' programs make of XLA's. A remark: it runs without, too.
void CheckConfinement(Report& report) {
  const int landlock = compiler::LandlockVersion();
  const bool seccomp = compiler::HasSeccomp();
  if (landlock > 0 && seccomp) {
    return report.Ok("confinement",
                     absl::StrCat("the compiler of CPU devices opens no files but its own ",
                                  "(Landlock ", landlock, "), sockets or processes (seccomp)"));
  }
  std::string lacks;
  if (landlock == 0)
    lacks =
        "Landlock (5.13 with CONFIG_SECURITY_LANDLOCK): a program that takes "
        "the compiler over can read and write this user's files";
  if (!seccomp)
    absl::StrAppend(&lacks, lacks.empty() ? "" : "; ",
                    "seccomp filters: it can open connections and start processes");
  report.Note("confinement", absl::StrCat("this kernel lacks ", lacks));
}

// Whether the executable of this machine's process was replaced since the process started.
bool IsReplaced(uint64_t process_id) {
  std::error_code error;
  const auto program =
      std::filesystem::read_symlink(absl::StrCat("/proc/", process_id, "/exe"), error);
  return !error && program.string().ends_with(" (deleted)");
}

void CheckVersions(const std::string& build, const TraceCollection& rings, Report& report) {
  if (build != wire::kBuildVersion) {
    return report.Wrong("versions", absl::StrCat("the cluster runs ", build, ", this command is ",
                                                 wire::kBuildVersion, ": use the same everywhere"));
  }
  for (const auto& process : rings.processes()) {
    if (!IsReplaced(process.process_id)) continue;
    return report.Wrong("versions",
                        absl::StrCat(process.name, " (pid ", process.process_id,
                                     ") runs a program that was replaced since it started: run "
                                     "`gangway down`, then `gangway up`"));
  }
  // All registered processes have this version: others are rejected at their Hello.
  report.Ok("versions", absl::StrCat(build, " everywhere"));
}

void CheckClocks(const TraceCollection& rings, Report& report) {
  std::string moved;
  for (const auto& process : rings.processes()) {
    if (process.offset_ns == 0) continue;
    absl::StrAppend(&moved, moved.empty() ? "" : ", ", process.name, " by ",
                    process.offset_ns / 1000, " us +/- ", process.uncertain_ns / 1000);
  }
  report.Ok("clocks", moved.empty() ? "all processes read the same clock"
                                    : absl::StrCat("traces are aligned: ", moved));
}

void CheckProcesses(const wire::StatusReply& status, Report& report) {
  for (const auto& worker : status.workers()) {
    const wire::WorkerState& state = worker.state();
    if (state.up()) continue;
    report.Wrong(
        "processes",
        absl::StrCat("island", state.worker().island(), "/worker", state.worker().index(),
                     " is down", state.has_failure() ? ": " : "", state.failure().message(),
                     ". See its log; its supervisor restarts it"));
  }
  if (!status.compiler_up()) report.Wrong("processes", "the compiler is down: see its log");
}

// The replies of one query to every process.
struct Rings {
  std::string build;
  TraceCollection collection;
  std::vector<std::string> missing;
};

absl::Status AskRings(const ControlDoor& door, Rings& rings) {
  wire::Frame request;
  request.mutable_trace_request();
  return AskTool(*door.transport, door.address, door.token, "gangway doctor", std::move(request),
                 kRingsLimit, [&rings](const wire::Frame& frame) {
                   if (frame.has_hello_reply()) rings.build = frame.hello_reply().build_version();
                   if (!frame.has_trace_reply()) return false;
                   const wire::TraceReply& reply = frame.trace_reply();
                   if (!reply.end()) rings.collection.Add(reply);
                   rings.missing.assign(reply.missing().begin(), reply.missing().end());
                   return reply.end();
                 });
}

void CheckLinks(const Rings& rings, Report& report) {
  for (const std::string& name : rings.missing) {
    report.Wrong("links", absl::StrCat(name,
                                       " did not answer: it is down, stopped or cut off; `"
                                       "gangway why` says since when"));
  }
  if (!rings.missing.empty()) return;
  uint64_t slowest_ns = 0;
  for (const auto& process : rings.collection.processes())
    slowest_ns = std::max(slowest_ns, process.uncertain_ns * 2);
  report.Ok("links",
            absl::StrCat("all ", rings.collection.processes().size(),
                         " processes answer, the slowest after ", slowest_ns / 1000, " us"));
}

// Whether a cluster runs on this host, as its state folder and port say.
bool CheckHere(const DoctorOptions& options, Report& report) {
  auto port = ChoosePort(options.cluster.port);
  if (!port.ok()) {
    report.Wrong("ports", std::string(port.status().message()));
    return false;
  }
  StateDir dir(StateRoot(options.cluster.state_root), *port);
  if (!dir.Supervisor().ok()) {
    auto claimed = ClaimPort(*port);
    if (claimed.ok()) {
      report.Note("cluster", absl::StrCat("none runs on port ", *port, ", which is free"));
    } else {
      report.Wrong("ports", std::string(claimed.status().message()));
    }
    return false;
  }
  if (ClaimPort(*port).ok()) {
    report.Wrong("ports", absl::StrCat("no process listens on port ", *port,
                                       ", but a cluster runs: see head.log in ", dir.path()));
  } else {
    report.Ok("ports", absl::StrCat("the front door listens on port ", *port));
  }
  return true;
}

void CheckCluster(const DoctorOptions& options, Report& report) {
  if (options.cluster.Address().empty() && !CheckHere(options, report)) return;
  auto door = OpenControl(options.cluster);
  if (!door.ok()) return report.Wrong("cluster", std::string(door.status().message()));
  auto status = AskStatus(*door->transport, door->address, door->token, kStatusLimit);
  if (!status.ok()) return report.Wrong("cluster", std::string(status.status().message()));
  report.Ok("cluster", absl::StrCat(status->workers_size(), " workers, ", status->sessions_size(),
                                    " sessions, control at ", door->address));
  CheckProcesses(*status, report);
  Rings rings;
  absl::Status asked = AskRings(*door, rings);
  if (!asked.ok()) return report.Wrong("links", std::string(asked.message()));
  CheckLinks(rings, report);
  CheckVersions(rings.build, rings.collection, report);
  CheckClocks(rings.collection, report);
}

}  // namespace

int Doctor(const DoctorOptions& options) {
  Report report;
  CheckPlugin(options, report);
  CheckDescriptors(report);
  CheckMemory(report);
  CheckDisk(options, report);
  CheckConfinement(report);
  CheckWakes(report);
  CheckCluster(options, report);
  return report.exit_status();
}

}  // namespace gangway::cli
