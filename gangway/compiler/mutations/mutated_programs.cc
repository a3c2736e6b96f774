// gangway_mutated_programs: changes programs field by field, and runs each that the check of programs lets pass, beside
// arrays that are not its own, in memory between guard pages. What ends the process, changes an array, or is a compile
// without end is a finding, and the exit status is 1. A run without end is counted only: a loop may have none. Each of
// these programs is written to a folder.
//
//   gangway_mutated_programs FINDINGS SECONDS [SEED]
//
// A child process runs the programs. When it ends or is silent, the parent starts the next one after the seed that did
// this. Seeds repeat: the same seed gives the same program.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/package.h"
#include "gangway/compiler/check/corpus.h"
#include "gangway/compiler/mutations/guarded_memory.h"
#include "gangway/compiler/mutations/mutated_run.h"
#include "gangway/device/handler_group.h"
#include "gangway/device/pjrt/linalg/linalg_handlers.h"
#include "gangway/device/pjrt/pjrt_backend.h"

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;

constexpr int kRunsPerChild = 2000;  // then it is started afresh: what it leaks has an end
constexpr int kRunsPerLook = 16;     // between two looks at the victims
constexpr int kSilenceMs = 60'000;   // a compile that takes longer is a finding

// What the child says, a byte each: a seed begins, and an Outcome.
constexpr char kBegins = 'b';
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

[[noreturn]] void RunChild(const std::vector<std::string>& programs, const fs::path& findings,
                           uint32_t seed, int pipe) {
  device::PjrtOptions options{
      .plugin_path = SourcePath(GANGWAY_TEST_PJRT_PLUGIN), .device_count = 1, .nproc = 4};
  auto backend = device::OpenPjrt(options);
  if (!backend.ok()) _exit(1);
  device::OfferHandlers(**backend, std::vector{device::LinalgHandlers((*backend)->capabilities())});
  const Victims victims(**backend);
  for (int i = 0; i < kRunsPerChild; ++i, ++seed) {
    Say(pipe, kBegins);
    std::mt19937 random(seed);
    const std::string& program = programs[random() % programs.size()];
    Outcome outcome = RunMutated(**backend, program, random, [&](const std::string& code) {
      WriteTo(findings / kRunning, code);
    });
    if (i % kRunsPerLook == 0 && !victims.AreWhole()) outcome = Outcome::kOverwrote;
    if (outcome == Outcome::kOverwrote || outcome == Outcome::kEndless) Keep(findings, seed);
    Say(pipe, static_cast<char>('0' + static_cast<int>(outcome)));
    if (outcome == Outcome::kEndless) break;
  }
  std::fprintf(stderr, "%lu blocks were guarded\n", GuardedBlocks());
  _exit(0);
}

struct Counts {
  std::map<char, int> outcomes;
  int crashes = 0, silences = 0;
};

// Runs one child from `seed` on. Returns the seed after the last one that it began.
uint32_t RunSeeds(const std::vector<std::string>& programs, const fs::path& findings, uint32_t seed,
                  Clock::time_point end, Counts& counts) {
  int pipes[2];
  if (pipe(pipes) != 0) std::exit(1);
  const pid_t child = fork();
  if (child == 0) {
    close(pipes[0]);
    RunChild(programs, findings, seed, pipes[1]);
  }
  close(pipes[1]);
  bool silent = false, running = false;
  while (Clock::now() < end) {
    pollfd each{pipes[0], POLLIN, 0};
    silent = poll(&each, 1, kSilenceMs) == 0;
    char said = 0;
    if (silent || read(pipes[0], &said, 1) != 1) break;
    running = said == kBegins;
    if (running)
      ++seed;
    else
      ++counts.outcomes[said];
  }
  const bool over = Clock::now() >= end;
  if (silent || over) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  close(pipes[0]);
  if (silent || (running && !over)) {
    std::printf("finding: seed %u: %s\n", seed - 1,
                silent ? "no answer" : strsignal(WTERMSIG(status)));
    ++(silent ? counts.silences : counts.crashes);
    Keep(findings, seed - 1);
  }
  return seed;
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: gangway_mutated_programs FINDINGS SECONDS [SEED]\n");
    return 2;
  }
  const std::vector<std::string> programs = Corpus();
  const fs::path findings = argv[1];
  const auto end = Clock::now() + std::chrono::seconds(std::strtoul(argv[2], nullptr, 10));
  auto seed = static_cast<uint32_t>(argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 1);
  if (programs.empty()) {
    std::fprintf(stderr, "the modules of the check's tests are missing\n");
    return 2;
  }
  fs::create_directories(findings);
  Counts counts;
  while (Clock::now() < end) seed = RunSeeds(programs, findings, seed, end, counts);
  constexpr const char* kNames[] = {"refused", "not compiled", "not run",  "failed",
                                    "ran",     "endless",      "overwrote"};
  for (const auto& [outcome, count] : counts.outcomes)
    std::printf("%-12s %d\n", kNames[outcome - '0'], count);
  std::printf("%-12s %d\n%-12s %d\n", "crashed", counts.crashes, "no answer", counts.silences);
  const bool found = counts.crashes + counts.silences > 0 || counts.outcomes.contains('6');
  return found ? 1 : 0;
}

}  // namespace
}  // namespace gangway::compiler

int main(int argc, char** argv) { return gangway::compiler::Main(argc, argv); }
