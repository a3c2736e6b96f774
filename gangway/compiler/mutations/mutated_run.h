// Runs programs that came out of mutations, beside arrays that are not theirs.
#ifndef GANGWAY_COMPILER_MUTATIONS_MUTATED_RUN_H_
#define GANGWAY_COMPILER_MUTATIONS_MUTATED_RUN_H_

#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "gangway/device/device.h"

namespace gangway::compiler {

// What became of one mutated program.
enum class Outcome {
  kRefused,      // by the check
  kNotCompiled,  // by the runtime, with an error
  kNotRun,       // its arguments are too large to try
  kFailed,       // its run ended with an error
  kRan,
  kEndless,    // its run did not end within the limit: the process must end
  kOverwrote,  // memory that is not its own changed
};

// Arrays of known bytes on a device. Not thread-safe.
class Victims {
 public:
  explicit Victims(device::Backend& backend);
  // Whether all have their bytes still.
  bool AreWhole() const;

 private:
  std::vector<std::string> bytes_;
  std::vector<std::unique_ptr<device::Buffer>> buffers_;
};

// Makes one to three changes in `module`, a serialized HloModuleProto, and does with it what the cluster would: checks
// it, compiles what passes, and runs that once on device 0 with arguments of random bits. `random` decides all.
// `on_passed` gets a program that passed the check before it is compiled.
Outcome RunMutated(device::Backend& backend, const std::string& module, std::mt19937& random,
                   absl::FunctionRef<void(const std::string& program)> on_passed);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_MUTATIONS_MUTATED_RUN_H_
