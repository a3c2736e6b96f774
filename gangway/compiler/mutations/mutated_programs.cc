// gangway_mutated_programs: changes programs field by field, and runs each that the check of programs lets pass, beside
// arrays that are not its own, in memory between guard pages. What ends the process, changes an array, or hangs outside
// of a compile and a run is a finding, and the exit status is 1. A compile and a run without end are counted only: the
// cluster limits the one, and a loop may be the other. Each of these programs but the runs is written to a folder.
//
//   gangway_mutated_programs FINDINGS SECONDS [SEED]
//
// A child process runs the programs. When it ends or is silent, the parent starts the next one after the seed that did
// this. Seeds repeat: the same seed gives the same program. Built with a sanitizer, it also sees what handlers of ours
// do with buffers of the runtime.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/package.h"
#include "gangway/collective/execution/collective_call.h"
#include "gangway/compiler/mutations/guarded_memory.h"
#include "gangway/compiler/mutations/mutated_run.h"
#include "gangway/compiler/mutations/program_runner.h"
#include "gangway/compiler/mutations/subjects.h"
#include "gangway/device/handler_group.h"
#include "gangway/device/pjrt/host_call.h"
#include "gangway/device/pjrt/linalg/linalg_handlers.h"
#include "gangway/device/pjrt/pjrt_backend.h"
#include "gangway/device/pjrt/position_call.h"

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;

constexpr int kRunsPerChild = 1000;  // then it is started afresh: what it leaks has an end
constexpr int kRunsPerLook = 16;     // between two looks at the victims
constexpr int kLookMs = 2000;
// A silent child has no end after this much time of its processors, or of the clock: machines are busy.
constexpr std::chrono::seconds kBusyLimit{60}, kSilenceLimit{600};
constexpr int kThreads =
    32;  // of XLA's pool: more than the positions of a program, which wait for one another

// What the child says, a byte each: a seed begins, its program is compiled, is run, and an Outcome.
constexpr char kBegins = 'b', kCompiles = 'c', kRuns = 'r';
constexpr char kRunning[] = "running.hlo.pb";  // what the child compiles and runs

void Say(int pipe, char what) {
  if (write(pipe, &what, 1) != 1) _exit(1);  // the parent is gone
}

void WriteTo(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// The program at hand becomes that of a finding.
void Keep(const fs::path& findings, uint32_t seed) {
  std::error_code ignored;  // it may be gone where two find the same
  fs::rename(findings / kRunning, findings / ("seed-" + std::to_string(seed) + ".hlo.pb"), ignored);
}

const Subject& Choose(const Subjects& subjects, std::mt19937& random) {
  const std::vector<Subject>* const kinds[] = {&subjects.plain, &subjects.calling,
                                               &subjects.spanning};
  const std::vector<Subject>& kind = *kinds[random() % std::size(kinds)];
  return kind[random() % kind.size()];
}

std::unique_ptr<device::Backend> Open() {
  device::PjrtOptions options{.plugin_path = SourcePath(GANGWAY_TEST_PJRT_PLUGIN),
                              .device_count = kRunnerDevices,
                              .nproc = kThreads};
  auto backend = device::OpenPjrt(options);
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", backend.status().ToString().c_str());
    _exit(2);
  }
  device::OfferHandlers(
      **backend,
      std::vector{device::LinalgHandlers((*backend)->capabilities()), device::HostCallHandlers(),
                  device::PositionHandlers(), collective::CollectiveHandlers()});
  return *std::move(backend);
}

[[noreturn]] void RunChild(const Subjects& subjects, const fs::path& findings, uint32_t seed,
                           int pipe) {
  const std::unique_ptr<device::Backend> backend = Open();
  ProgramRunner runner(*backend);
  const Victims victims(*backend);
  for (int i = 0; i < kRunsPerChild; ++i, ++seed) {
    Say(pipe, kBegins);
    std::mt19937 random(seed);
    Outcome outcome = RunMutated(*backend, runner, Choose(subjects, random), random,
                                 [&](Stage stage, const std::string& code) {
                                   if (stage == Stage::kCompile) WriteTo(findings / kRunning, code);
                                   Say(pipe, stage == Stage::kCompile ? kCompiles : kRuns);
                                 });
    if (i % kRunsPerLook == 0 && !victims.AreWhole()) outcome = Outcome::kOverwrote;
    if (outcome == Outcome::kOverwrote) Keep(findings, seed);
    Say(pipe, static_cast<char>('0' + static_cast<int>(outcome)));
    if (outcome == Outcome::kEndless) break;
  }
  std::fprintf(stderr, "%lu blocks were guarded\n", GuardedBlocks());
  _exit(0);
}

// Since a child said something.
class Silence {
 public:
  explicit Silence(pid_t child) : child_(child) { Break(); }
  void Break() {
    began_ = Clock::now();
    used_then_ = Used();
  }
  bool IsTooLong() const {
    return Used() - used_then_ >= kBusyLimit || Clock::now() - began_ >= kSilenceLimit;
  }

 private:
  // Of its processors, by all its threads.
  std::chrono::nanoseconds Used() const {
    clockid_t clock = 0;
    timespec time{};
    if (clock_getcpuclockid(child_, &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }

  const pid_t child_;
  Clock::time_point began_;
  std::chrono::nanoseconds used_then_{};
};

struct Counts {
  std::map<char, int> outcomes;
  int crashes = 0, silences = 0, long_compiles = 0;
};

std::string EndOf(int status) {
  return WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
                             : "exit status " + std::to_string(WEXITSTATUS(status));
}

void Report(const fs::path& findings, uint32_t seed, const std::string& what, int& count) {
  std::printf("finding: seed %u: %s\n", seed, what.c_str());
  std::fflush(stdout);
  ++count;
  Keep(findings, seed);
}

// Runs one child from `seed` on. Returns the seed after the last one that it began.
uint32_t RunSeeds(const Subjects& subjects, const fs::path& findings, uint32_t seed,
                  Clock::time_point end, Counts& counts) {
  int pipes[2];
  if (pipe(pipes) != 0) std::exit(1);
  const pid_t child = fork();
  if (child == 0) {
    close(pipes[0]);
    RunChild(subjects, findings, seed, pipes[1]);
  }
  close(pipes[1]);
  bool silent = false;
  char stage = 0;  // of the program at hand; an outcome between two programs
  Silence silence(child);
  while (Clock::now() < end) {
    pollfd each{pipes[0], POLLIN, 0};
    if (poll(&each, 1, kLookMs) == 0) {
      silent = silence.IsTooLong();
      if (silent) break;
      continue;
    }
    char said = 0;
    if (read(pipes[0], &said, 1) != 1) break;
    silence.Break();
    stage = said;
    if (said == kBegins)
      ++seed;
    else if (said != kCompiles && said != kRuns)
      ++counts.outcomes[said];
  }
  const bool over = Clock::now() >= end;
  if (silent || over) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  close(pipes[0]);
  const bool is_busy = stage == kBegins || stage == kCompiles || stage == kRuns;
  if (silent && stage == kCompiles)
    Report(findings, seed - 1, "a compile without end", counts.long_compiles);
  else if (silent)
    Report(findings, seed - 1, "no answer", counts.silences);
  else if (!over && (is_busy || stage == 0))
    Report(findings, seed - 1, EndOf(status), counts.crashes);
  return seed;
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: gangway_mutated_programs FINDINGS SECONDS [SEED]\n");
    return 2;
  }
  const Subjects programs = ReadSubjects();
  const fs::path findings = argv[1];
  const auto end = Clock::now() + std::chrono::seconds(std::strtoul(argv[2], nullptr, 10));
  auto seed = static_cast<uint32_t>(argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 1);
  if (programs.plain.empty() || programs.calling.empty() || programs.spanning.empty()) {
    std::fprintf(stderr, "the modules of the check's tests are missing\n");
    return 2;
  }
  std::printf("%zu programs, %zu with calls, %zu over several positions\n", programs.plain.size(),
              programs.calling.size(), programs.spanning.size());
  fs::create_directories(findings);
  Counts counts;
  while (Clock::now() < end) seed = RunSeeds(programs, findings, seed, end, counts);
  constexpr const char* kNames[] = {"refused", "not compiled", "not run",  "failed",
                                    "ran",     "endless",      "overwrote"};
  for (const auto& [outcome, count] : counts.outcomes)
    std::printf("%-12s %d\n", kNames[outcome - '0'], count);
  std::printf("%-12s %d\n%-12s %d\n%-12s %d\n", "crashed", counts.crashes, "no answer",
              counts.silences, "long compile", counts.long_compiles);
  const bool found = counts.crashes + counts.silences > 0 || counts.outcomes.contains('6');
  return found ? 1 : 0;
}

}  // namespace
}  // namespace gangway::compiler

int main(int argc, char** argv) { return gangway::compiler::Main(argc, argv); }
