// Implementation of confinement.h: files and limits. confined_calls.cc has the filter of system calls.
#include "gangway/compiler/confinement.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"

namespace gangway::compiler {
namespace {

// The kernel's interface, of which the headers of older systems lack parts. Versions: access 0-12 are of 1, 13 of 2,
// 14 of 3, 15 of 5; scopes are of 6.
struct RulesetAttribute {
  uint64_t handled_access_fs = 0;
  uint64_t handled_access_net = 0;
  uint64_t scoped = 0;
};
struct [[gnu::packed]] PathAttribute {
  uint64_t allowed_access = 0;
  int32_t parent_fd = -1;
};
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;  // of all processors
constexpr uint32_t kAskVersion = 1;
constexpr int kPathBeneath = 1;
constexpr uint64_t kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadDir = 1 << 3, kRemoveDir = 1 << 4,
                   kRemoveFile = 1 << 5, kMakeDir = 1 << 7, kMakeFile = 1 << 8, kRefer = 1 << 13,
                   kTruncate = 1 << 14, kIoctl = 1 << 15;
constexpr uint64_t kFirstVersion = (1 << 13) - 1;
constexpr uint64_t kScopeSignals = 1 << 1;

constexpr int kThreadCheckMs = 1;
constexpr size_t kThreadsMax = 16384;

uint64_t AccessOf(int version) {
  uint64_t access = kFirstVersion;
  if (version >= 2) access |= kRefer;
  if (version >= 3) access |= kTruncate;
  if (version >= 5) access |= kIoctl;
  return access;
}

absl::Status Refused(const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::Status AddRule(int ruleset, const std::string& path, uint64_t access) {
  const FileDescriptor opened(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat found = {};
  if (!opened.valid() || fstat(opened.get(), &found) != 0) return absl::OkStatus();
  if (!S_ISDIR(found.st_mode)) access &= kReadFile | kWriteFile | kTruncate;
  const PathAttribute rule{.allowed_access = access, .parent_fd = opened.get()};
  if (syscall(kAddRule, ruleset, kPathBeneath, &rule, 0) == 0) return absl::OkStatus();
  return Refused(absl::StrCat("the kernel refused a rule for ", path));
}

absl::StatusOr<FileDescriptor> MakeRuleset(const FileAccess& access, int version) {
  const uint64_t handled = AccessOf(version);
  const RulesetAttribute attribute{.handled_access_fs = handled,
                                   .handled_access_net = 0,
                                   .scoped = version >= 6 ? kScopeSignals : 0};
  const size_t size = version >= 6   ? sizeof(attribute)
                      : version >= 4 ? 2 * sizeof(uint64_t)
                                     : sizeof(uint64_t);
  FileDescriptor ruleset(static_cast<int>(syscall(kCreateRuleset, &attribute, size, 0)));
  if (!ruleset.valid()) return Refused("the kernel refused a set of rules for files");
  const uint64_t reads = kReadFile | kReadDir;
  const uint64_t writes = handled & (reads | kWriteFile | kRemoveDir | kRemoveFile | kMakeDir |
                                     kMakeFile | kRefer | kTruncate);
  for (const std::string& path : access.readable)
    GANGWAY_RETURN_IF_ERROR(AddRule(ruleset.get(), path, reads));
  for (const std::string& path : access.writable)
    GANGWAY_RETURN_IF_ERROR(AddRule(ruleset.get(), path, writes));
  GANGWAY_RETURN_IF_ERROR(AddRule(ruleset.get(), "/dev/null", handled & (kReadFile | kWriteFile)));
  return ruleset;
}

// What the handler of the signal shares with ConfineFiles. Only one call is under way at a time.
struct Broadcast {
  std::atomic<int> ruleset{-1};
  std::atomic<int> error{0};
  std::atomic<size_t> count{0};                         // threads that have taken the rules on
  std::array<std::atomic<pid_t>, kThreadsMax> threads;  // the first `count`
};
Broadcast broadcast;

// Async-signal-safe.
void TakeOn(int) {
  const int before = errno;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(kRestrictSelf, broadcast.ruleset.load(), 0) != 0)
    broadcast.error.store(errno);
  const size_t index = broadcast.count.fetch_add(1);
  if (index < kThreadsMax) broadcast.threads[index].store(static_cast<pid_t>(syscall(SYS_gettid)));
  errno = before;
}

// Lists them by a folder that was opened before: the thread that lists is soon confined itself.
class ThreadList {
 public:
  ThreadList() : folder_(opendir("/proc/self/task"), &closedir) {}
  std::set<pid_t> Read() {
    std::set<pid_t> threads;
    if (folder_ == nullptr) return threads;
    rewinddir(folder_.get());
    while (const dirent* entry = readdir(folder_.get())) {
      const long thread = std::strtol(entry->d_name, nullptr, 10);  // 0: "." and ".."
      if (thread > 0) threads.insert(static_cast<pid_t>(thread));
    }
    return threads;
  }

 private:
  std::unique_ptr<DIR, int (*)(DIR*)> folder_;
};

std::set<pid_t> Confined() {
  std::set<pid_t> done;
  const size_t count = std::min(broadcast.count.load(), kThreadsMax);
  for (size_t i = 0; i < count; ++i) done.insert(broadcast.threads[i].load());
  return done;
}

// A thread that one without rules starts has none either, so this ends with a look at all threads that finds each of
// them confined before.
absl::Status ConfineThreads(int signal, std::chrono::milliseconds limit) {
  std::set<pid_t> told;
  ThreadList list;
  const auto deadline = Clock::now() + limit;
  while (Clock::now() < deadline) {
    const std::set<pid_t> done = Confined(), threads = list.Read();
    if (threads.empty()) return absl::InternalError("cannot list the threads of this process");
    if (broadcast.error.load() != 0) {
      errno = broadcast.error.load();
      return Refused("a thread could not take on the rules for files");
    }
    if (std::ranges::includes(done, threads)) return absl::OkStatus();
    for (const pid_t thread : threads) {
      if (done.contains(thread) || !told.insert(thread).second) continue;
      syscall(SYS_tgkill, static_cast<pid_t>(ProcessId()), thread, signal);  // it may have ended
    }
    poll(nullptr, 0, kThreadCheckMs);
  }
  return absl::DeadlineExceededError(absl::StrCat("not all ", list.Read().size(),
                                                  " threads took on the rules for files within ",
                                                  limit.count(), " ms"));
}

absl::Status Limit(int what, const char* name, uint64_t bytes) {
  rlimit limit = {};
  getrlimit(what, &limit);
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, bytes);
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(what, &limit) == 0) return absl::OkStatus();
  return Refused(absl::StrCat("the system refused the limit ", name, " of ", bytes, " bytes"));
}

// The first two fields of /proc/self/statm, in bytes: all addresses, and what is resident.
std::pair<uint64_t, uint64_t> MemoryUse() {
  std::ifstream file("/proc/self/statm");
  uint64_t addresses = 0, resident = 0;
  if (!(file >> addresses >> resident)) return {0, 0};
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {addresses * page, resident * page};
}

}  // namespace

int LandlockVersion() {
  return std::max(0, static_cast<int>(syscall(kCreateRuleset, nullptr, 0, kAskVersion)));
}

std::vector<std::string> SystemFiles() {
  return {"/proc/self",
          "/proc/cpuinfo",
          "/proc/meminfo",
          "/proc/stat",
          "/proc/sys/vm/overcommit_memory",
          "/sys/devices/system",
          "/sys/fs/cgroup",
          "/sys/kernel/mm/transparent_hugepage",
          "/dev/urandom",
          "/dev/zero",
          "/etc/ld.so.cache",
          "/etc/localtime",
          "/usr/share/zoneinfo",
          "/lib",
          "/lib64",
          "/usr/lib",
          "/usr/lib64"};
}

absl::Status ConfineFiles(const FileAccess& access, std::chrono::milliseconds limit) {
  const int version = LandlockVersion();
  if (version == 0) return absl::UnimplementedError("this kernel has no Landlock");
  GANGWAY_ASSIGN_OR_RETURN(const FileDescriptor ruleset, MakeRuleset(access, version));
  const int signal = SIGRTMAX - 1;
  struct sigaction action = {}, before = {};
  action.sa_handler = &TakeOn;
  action.sa_flags = SA_RESTART;
  broadcast.ruleset = ruleset.get();
  broadcast.error = 0;
  broadcast.count = 0;
  sigaction(signal, &action, &before);
  const absl::Status confined = ConfineThreads(signal, limit);
  // Where it failed, a thread may still have the signal pending, whose default action is to end the process.
  if (confined.ok()) sigaction(signal, &before, nullptr);
  return confined;
}

absl::Status LimitProcess(const ProcessLimits& limits) {
  GANGWAY_RETURN_IF_ERROR(Limit(RLIMIT_CORE, "RLIMIT_CORE", 0));
  if (limits.more_address_bytes != 0)
    GANGWAY_RETURN_IF_ERROR(
        Limit(RLIMIT_AS, "RLIMIT_AS", MemoryUse().first + limits.more_address_bytes));
  if (limits.file_bytes_max != 0) {
    signal(SIGXFSZ, SIG_IGN);  // the write then fails
    GANGWAY_RETURN_IF_ERROR(Limit(RLIMIT_FSIZE, "RLIMIT_FSIZE", limits.file_bytes_max));
  }
  return absl::OkStatus();
}

uint64_t ResidentBytes() { return MemoryUse().second; }

}  // namespace gangway::compiler
