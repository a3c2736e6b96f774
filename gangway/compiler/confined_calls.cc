// The filter of system calls of confinement.h. It lists what is refused: XLA's threads, LLVM and gRPC use too many
// others, which change with their versions.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/thread.h"
#include "gangway/compiler/confinement.h"

namespace gangway::compiler {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kProcessor = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kProcessor = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kProcessor = 0;
#endif

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kUnknown = SECCOMP_RET_ERRNO | ENOSYS;

// Numbers that headers of older systems lack; they are the same on all processors.
constexpr uint32_t kPidfdSendSignal = 424, kIoUringSetup = 425, kIoUringEnter = 426,
                   kIoUringRegister = 427, kOpenTree = 428, kMoveMount = 429, kFsopen = 430,
                   kFsconfig = 431, kFsmount = 432, kFspick = 433, kPidfdOpen = 434, kClone3 = 435,
                   kPidfdGetfd = 438, kProcessMadvise = 440, kMountSetattr = 442,
                   kProcessMrelease = 448, kFchmodat2 = 452;

// Without the files' modes and owners, which Landlock leaves open.
std::vector<uint32_t> Refused() {
  std::vector<uint32_t> calls = {
      // Network.
      SYS_socket, SYS_connect, SYS_bind, SYS_listen, SYS_accept4, kIoUringSetup, kIoUringEnter,
      kIoUringRegister,
      // Programs and other processes.
      SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp,
      kPidfdOpen, kPidfdGetfd, kPidfdSendSignal, kProcessMadvise, kProcessMrelease, SYS_tkill,
      SYS_migrate_pages, SYS_move_pages,
      // Memory and messages that processes share by name.
      SYS_shmget, SYS_shmat, SYS_shmctl, SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_semget,
      SYS_semop, SYS_semtimedop, SYS_semctl, SYS_mq_open, SYS_mq_unlink,
      // Identity and privileges.
      SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid,
      SYS_setgroups, SYS_setfsuid, SYS_setfsgid, SYS_capset, SYS_unshare, SYS_setns,
      // Modes, owners and attributes of files.
      SYS_fchmod, SYS_fchmodat, kFchmodat2, SYS_fchown, SYS_fchownat, SYS_setxattr, SYS_lsetxattr,
      SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_name_to_handle_at,
      SYS_open_by_handle_at,
      // The machine.
      SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, kOpenTree, kMoveMount, kFsopen, kFsconfig,
      kFsmount, kFspick, kMountSetattr, SYS_swapon, SYS_swapoff, SYS_reboot, SYS_init_module,
      SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_acct, SYS_quotactl, SYS_syslog,
      SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_sethostname,
      SYS_setdomainname, SYS_personality,
      // What has often had faults of its own.
      SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_add_key, SYS_request_key, SYS_keyctl,
      SYS_fanotify_init};
#if defined(__x86_64__)
  calls.insert(calls.end(), {SYS_accept, SYS_fork, SYS_vfork, SYS_chmod, SYS_chown, SYS_lchown,
                             SYS_ioperm, SYS_iopl, SYS_modify_ldt, SYS_kexec_file_load, SYS_mknod});
#endif
  calls.push_back(SYS_mknodat);
  return calls;
}

class Filter {
 public:
  void Load(size_t offset) { Add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
  void Return(uint32_t what) { Add(BPF_RET | BPF_K, what); }
  // The next instruction runs only if the loaded value equals this one.
  void IfEqual(uint32_t value) { Add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1); }
  void IfNotEqual(uint32_t value) { Add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0); }
  void IfAnyBit(uint32_t bits) { Add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1); }
  void IfAtLeast(uint32_t value) { Add(BPF_JMP | BPF_JGE | BPF_K, value, 0, 1); }
  // The next `count` instructions run only if the loaded value equals this one.
  void SkipUnless(uint32_t value, uint8_t count) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count);
  }
  std::vector<sock_filter>& code() { return code_; }

 private:
  void Add(int operation, uint32_t value, uint8_t if_true = 0, uint8_t if_false = 0) {
    code_.push_back({static_cast<uint16_t>(operation), if_true, if_false, value});
  }
  std::vector<sock_filter> code_;
};

// The low half of an argument; processors here have their low bytes first.
constexpr size_t Argument(size_t index) { return offsetof(seccomp_data, args) + index * 8; }

// Signals to the own process only, of which abort is one.
void AddCallsOnProcesses(Filter& filter, uint32_t own_process) {
  for (const uint32_t call : {SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo}) {
    filter.SkipUnless(call, 4);
    filter.Load(Argument(0));
    filter.IfEqual(own_process);
    filter.Return(SECCOMP_RET_ALLOW);
    filter.Return(kRefuse);
  }
  filter.SkipUnless(SYS_prlimit64, 6);
  filter.Load(Argument(0));
  for (const uint32_t process : {0u, own_process}) {
    filter.IfEqual(process);
    filter.Return(SECCOMP_RET_ALLOW);
  }
  filter.Return(kRefuse);
  // Threads, but no processes. The flags of clone3 are in memory, where no filter sees them; the C library then uses
  // clone.
  filter.IfEqual(kClone3);
  filter.Return(kUnknown);
  filter.SkipUnless(SYS_clone, 4);
  filter.Load(Argument(0));
  filter.IfAnyBit(CLONE_THREAD);
  filter.Return(SECCOMP_RET_ALLOW);
  filter.Return(kRefuse);
}

std::vector<sock_filter> MakeFilter() {
  Filter filter;
  filter.Load(offsetof(seccomp_data, arch));
  filter.IfNotEqual(kProcessor);
  filter.Return(kUnknown);
  filter.Load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
  constexpr uint32_t kOtherNumbers = 0x40000000;  // x32's numbers begin here
  filter.IfAtLeast(kOtherNumbers);
  filter.Return(kUnknown);
#endif
  for (const uint32_t call : Refused()) {
    filter.IfEqual(call);
    filter.Return(kRefuse);
  }
  AddCallsOnProcesses(filter, static_cast<uint32_t>(ProcessId()));
  filter.Return(SECCOMP_RET_ALLOW);
  return std::move(filter.code());
}

}  // namespace

bool HasSeccomp() {
  const uint32_t action = SECCOMP_RET_ERRNO;
  return kProcessor != 0 && syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

absl::Status ConfineCalls() {
  if (!HasSeccomp())
    return absl::UnimplementedError("this kernel takes no filters of system calls");
  std::vector<sock_filter> code = MakeFilter();
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const long refused =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  if (refused == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the kernel refused the filter of system calls: ",
                   refused < 0 ? std::strerror(errno) : "a thread has another"));
}

}  // namespace gangway::compiler
