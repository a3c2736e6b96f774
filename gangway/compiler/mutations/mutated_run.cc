// Implementation of mutated_run.h.
#include "gangway/compiler/mutations/mutated_run.h"

#include <chrono>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/strings/match.h"

#include "gangway/base/answer.h"
#include "gangway/compiler/checked_program.h"
#include "gangway/compiler/compile.h"
#include "gangway/compiler/mutations/guarded_memory.h"
#include "gangway/compiler/mutations/program_mutations.h"
#include "gangway/compiler/mutations/random_bytes.h"
#include "gangway/device/element_type.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/xla/compile_options.pb.h"

namespace gangway::compiler {
namespace {

constexpr std::chrono::seconds kCopyLimit{10};
constexpr int kVictims = 32;

std::string CompileOptions(const Subject& subject) {
  xla::CompileOptionsProto options;
  auto& build = *options.mutable_executable_build_options();
  build.set_num_replicas(subject.replicas);
  build.set_num_partitions(subject.partitions);
  build.set_use_spmd_partitioning(subject.partitions > 1);
  build.set_use_shardy_partitioner(absl::StrContains(subject.module, "xla.sdy."));
  return options.SerializeAsString();
}

wire::CompileRequest RequestOf(const Subject& subject, std::string program) {
  wire::CompileRequest request;
  request.set_program(std::move(program));
  request.set_format("hlo");
  request.set_options(CompileOptions(subject));
  request.set_device_count(static_cast<uint32_t>(subject.positions()));
  request.set_spans_workers(subject.positions() > 1);
  return request;
}

}  // namespace

Victims::Victims(device::Backend& backend) {
  std::mt19937 random;
  for (int i = 0; i < kVictims; ++i) {
    const int64_t size = int64_t{64} << (i % 11);
    bytes_.push_back(RandomBytes(static_cast<size_t>(size), random));
    auto made =
        backend.BufferFromHost(0, "", {.element_type = device::kU8, .dims = {size}},
                               std::as_bytes(std::span(bytes_.back())),
                               device::HostSemantics::kCopyDuringCall, [](const absl::Status&) {});
    buffers_.push_back(made.ok() ? *std::move(made) : nullptr);
  }
}

bool Victims::AreWhole() const {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (buffers_[i] == nullptr) return false;
    std::string read(bytes_[i].size(), '\0');
    auto done = std::make_shared<Answer<absl::Status>>();
    buffers_[i]->CopyToHost(read.data(), read.size(),
                            [done](const absl::Status& status) { done->Set(status); });
    const auto status = done->WaitFor(kCopyLimit);
    if (!status || !status->ok() || read != bytes_[i]) return false;
  }
  return true;
}

Outcome RunMutated(device::Backend& backend, ProgramRunner& runner, const Subject& subject,
                   std::mt19937& random,
                   absl::FunctionRef<void(Stage stage, const std::string& program)> on_stage) {
  wire::CompileRequest request = RequestOf(subject, MutatedProgram(subject.module, random));
  if (!CheckRequest(backend, request, {.platform = "cpu"}).ok()) return Outcome::kRefused;
  const std::string program = request.program();
  on_stage(Stage::kCompile, program);
  const uint64_t before = OverwrittenBlocks();
  Outcome outcome = Outcome::kNotCompiled;
  {
    const auto compiled = Compile(backend, request, [](int) {
      return absl::UnimplementedError(
          "a program has at most as many positions as there are devices");
    });
    // The compiler refuses what XLA has put in; a program that asks its client is not compiled.
    if (compiled.ok() && !compiled->has_failure() && !compiled->serialized().empty()) {
      on_stage(Stage::kRun, program);
      outcome = runner.Run(*compiled, request.device_count(), random);
    }
  }
  return OverwrittenBlocks() == before ? outcome : Outcome::kOverwrote;
}

}  // namespace gangway::compiler
