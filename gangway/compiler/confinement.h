// Confines the compiler process. XLA's compiler was written for programs of its own front end, so what a hostile
// program makes of it must reach nothing but its own result: no other file, no other process, no network.
//
// Files: Landlock, which each thread takes on for itself and for the threads that it starts. System calls: a seccomp
// filter. Limits: those of the process (setrlimit). All of it lasts until the process ends. What XLA's client, its
// threads and the link to the head opened before stays open.
//
// Threading: call these from one thread, after the threads of XLA's client have started: ConfineFiles interrupts each
// thread of the process once with a signal, whose handler applies the rules there.
#ifndef GANGWAY_COMPILER_CONFINEMENT_H_
#define GANGWAY_COMPILER_CONFINEMENT_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gangway::compiler {

// The version of the kernel's Landlock interface. 0: it has none, or does not offer it to this process.
int LandlockVersion();

// Whether the kernel takes seccomp filters.
bool HasSeccomp();

// What may still be opened. Paths that do not exist are left out.
struct FileAccess {
  std::vector<std::string>
      writable;  // folders: all that is in them, also to write, make and remove
  std::vector<std::string> readable;  // folders and files
};

// What XLA, LLVM and the C library read of the system while they compile: the processor, the limits of the process, its
// own state, shared libraries.
std::vector<std::string> SystemFiles();

// From now on, no thread of the process can open another file, or (Landlock 6) signal a process. UNIMPLEMENTED: the
// kernel has no Landlock. INTERNAL: the kernel refused the rules. DEADLINE_EXCEEDED: a thread did not take them on
// within `limit`, since it blocks signals. After the last two, a part of the process may be confined: end it.
absl::Status ConfineFiles(const FileAccess& access,
                          std::chrono::milliseconds limit = std::chrono::seconds(5));

// From now on, the process can make no socket, connect none, run no program, start no process (threads only), signal,
// trace or read no other process, and change neither its identity nor modes and owners of files: such calls fail with
// EPERM. UNIMPLEMENTED: the kernel takes no filters, or the processor is unknown here. INTERNAL: it refused this one.
absl::Status ConfineCalls();

struct ProcessLimits {
  // Addresses beyond what the process has now. Stacks of threads count, touched or not. 0: no limit.
  uint64_t more_address_bytes = 0;
  uint64_t file_bytes_max =
      0;  // of each file that is written; a longer write fails with EFBIG. 0: no limit
};

// Also: no core dumps, whose size would delay the next start. INTERNAL: the system refused.
absl::Status LimitProcess(const ProcessLimits& limits);

// The memory that is resident now. 0: unknown.
uint64_t ResidentBytes();

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CONFINEMENT_H_
