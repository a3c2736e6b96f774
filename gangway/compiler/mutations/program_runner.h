// Runs programs as workers do, in one process: collectives and positions are those of two workers' devices, and the
// host that a program calls reads all operands and answers with random bytes.
#ifndef GANGWAY_COMPILER_MUTATIONS_PROGRAM_RUNNER_H_
#define GANGWAY_COMPILER_MUTATIONS_PROGRAM_RUNNER_H_

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gangway/collective/execution/member.h"
#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::compiler {

// What became of one mutated program.
enum class Outcome {
  kRefused,      // by the check
  kNotCompiled,  // by the runtime, with an error
  kNotRun,       // its arrays are too large to try
  kFailed,       // its run ended with an error
  kRan,
  kEndless,    // its run did not end within the limit: the process must end
  kOverwrote,  // memory that is not its own changed
};

inline constexpr int kRunnerDevices = 8;

class ProgramRunner {
 public:
  // Of a backend with kRunnerDevices, which has the handlers.
  explicit ProgramRunner(device::Backend& backend);
  ~ProgramRunner();

  // Runs what was compiled for `positions` once, with arguments of random bits.
  Outcome Run(const wire::CompileResult& compiled, uint32_t positions, std::mt19937& random);

 private:
  struct Execution;

  absl::Status Start(const std::shared_ptr<Execution>& execution, uint32_t position,
                     std::mt19937& random);

  device::Backend& backend_;
  std::vector<std::vector<std::shared_ptr<const collective::Peer>>> peers_;  // by who sees them
  std::vector<std::shared_ptr<collective::LocalDevice>> devices_;
  int32_t launches_ = 0;
};

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_MUTATIONS_PROGRAM_RUNNER_H_
