// Runs programs that came out of mutations, beside arrays that are not theirs.
#ifndef GANGWAY_COMPILER_MUTATIONS_MUTATED_RUN_H_
#define GANGWAY_COMPILER_MUTATIONS_MUTATED_RUN_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "gangway/compiler/mutations/program_runner.h"
#include "gangway/compiler/mutations/subjects.h"
#include "gangway/device/device.h"

namespace gangway::compiler {

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

// What RunMutated does next with a program that has passed the check.
enum class Stage { kCompile, kRun };

// Changes `subject` and does with it what the cluster would: checks it, compiles what passes, and runs that once with
// arguments of random bits. `random` decides all. `on_stage` gets the program.
Outcome RunMutated(device::Backend& backend, ProgramRunner& runner, const Subject& subject,
                   std::mt19937& random,
                   absl::FunctionRef<void(Stage stage, const std::string& program)> on_stage);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_MUTATIONS_MUTATED_RUN_H_
