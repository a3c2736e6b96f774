// Implementation of subjects.h.
#include "gangway/compiler/mutations/subjects.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/compiler/check/check.h"
#include "gangway/compiler/check/corpus.h"
#include "gangway/compiler/check_calls/check_calls.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {
namespace {

using xla::hlo::Module;

bool Passes(const Subject& subject) {
  return CheckProgram(subject.module,
                      [&](const Module& module) {
                        return MakeCustomCallRule(
                            module, {.platform = "cpu", .partitions = subject.partitions});
                      },
                      {.replicas = subject.replicas, .partitions = subject.partitions})
      .ok();
}

// A call of jax_calls.txt has its operands and its attributes; a program also has names and an interface.
void Complete(Module& module) {
  module.set_name("call");
  int64_t parameters = 0;
  for (auto& computation : *module.mutable_computations()) {
    computation.set_name(absl::StrCat("computation.", computation.id()));
    auto& shape = *computation.mutable_program_shape();
    for (auto& each : *computation.mutable_instructions()) {
      each.set_name(absl::StrCat(each.opcode(), ".", computation.id(), ".", each.id()));
      if (each.id() == computation.root_id()) *shape.mutable_result() = each.shape();
      if (each.opcode() != "parameter") continue;
      each.set_parameter_number(shape.parameters_size());
      *shape.add_parameters() = each.shape();
      shape.add_parameter_names(absl::StrCat("p", parameters++));
    }
    if (computation.id() != module.entry_computation_id()) continue;
    module.set_entry_computation_name(computation.name());
    *module.mutable_host_program_shape() = shape;
  }
}

std::vector<Subject> CallsOfOurs() {
  std::ifstream file(GANGWAY_JAX_CALLS);
  std::vector<Subject> subjects;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string platform;
    int64_t partitions = 0;
    words >> platform >> partitions;
    Module module;
    if (platform != "cpu" || !google::protobuf::TextFormat::ParseFromString(
                                 line.substr(static_cast<size_t>(words.tellg())), &module))
      continue;
    Complete(module);
    Subject subject{.module = module.SerializeAsString()};
    if (Passes(subject)) subjects.push_back(std::move(subject));
  }
  return subjects;
}

}  // namespace

Subjects ReadSubjects() {
  Subjects subjects{.calling = CallsOfOurs()};
  for (std::string& bytes : Corpus()) {
    Module module;
    if (!module.ParseFromString(bytes)) continue;
    const auto& devices = module.device_assignment();
    Subject subject{.module = std::move(bytes),
                    .replicas = std::max<int64_t>(1, devices.replica_count()),
                    .partitions = std::max<int64_t>(1, devices.computation_count())};
    if (!Passes(subject)) continue;
    if (subject.positions() > 1) {
      subjects.spanning.push_back(std::move(subject));
    } else if (absl::StrContains(subject.module, "_ffi")) {
      subjects.calling.push_back(std::move(subject));
    } else {
      subjects.plain.push_back(std::move(subject));
    }
  }
  return subjects;
}

}  // namespace gangway::compiler
