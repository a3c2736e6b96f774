// Implementation of mutated_run.h.
#include "gangway/compiler/mutations/mutated_run.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "gangway/base/answer.h"
#include "gangway/compiler/check/check.h"
#include "gangway/compiler/check_calls/check_calls.h"
#include "gangway/compiler/mutations/guarded_memory.h"
#include "gangway/device/element_type.h"
#include "gangway/xla/compile_options.pb.h"
#include "gangway/xla/executable.h"
#include "gangway/xla/fuzz_message.h"
#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {
namespace {

constexpr size_t kArgumentBytesMax = size_t{16} << 20;
constexpr std::chrono::seconds kRunLimit{10};
constexpr int kVictims = 32;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string CompileOptions() {
  xla::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_num_replicas(1);
  options.mutable_executable_build_options()->set_num_partitions(1);
  return options.SerializeAsString();
}

// The parameters of a compiled program. Nothing if they are too large, or of a form that no array has.
std::optional<std::vector<device::ArraySpec>> Parameters(const device::Executable& executable) {
  const auto program = executable.OptimizedProgram();
  if (!program.ok()) return std::nullopt;
  const auto description = xla::DescribeExecutable(*program);
  if (!description.ok()) return std::nullopt;
  std::vector<device::ArraySpec> specs;
  size_t total = 0;
  for (const xla::Operand& each : description->parameters) {
    device::ArraySpec spec{.element_type = each.element_type, .dims = each.shard_dims};
    const auto bytes = device::HostBytes(spec);
    if (!bytes || *bytes > kArgumentBytesMax - total) return std::nullopt;
    total += *bytes;
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::unique_ptr<device::Buffer> Upload(device::Backend& backend, const device::ArraySpec& spec,
                                       const std::string& bytes) {
  auto made = backend.BufferFromHost(0, "", spec, Bytes(bytes),
                                     device::HostSemantics::kCopyDuringCall, [](absl::Status) {});
  return made.ok() ? *std::move(made) : nullptr;
}

std::string Random(size_t bytes, std::mt19937& random) {
  std::string text(bytes, '\0');
  std::ranges::generate(text, [&random] { return static_cast<char>(random()); });
  return text;
}

Outcome Run(device::Backend& backend, device::Executable& executable, std::mt19937& random) {
  const auto specs = Parameters(executable);
  if (!specs) return Outcome::kNotRun;
  std::vector<std::unique_ptr<device::Buffer>> arguments;
  std::vector<device::Buffer*> pointers;
  for (const device::ArraySpec& spec : *specs) {
    arguments.push_back(Upload(backend, spec, Random(*device::HostBytes(spec), random)));
    if (arguments.back() == nullptr) return Outcome::kNotRun;
    pointers.push_back(arguments.back().get());
  }
  auto ended = std::make_shared<Answer<absl::Status>>();  // outlives a run without end
  const auto results = executable.ExecuteOn(
      0, pointers, {.launch_id = 1}, [ended](const absl::Status& status) { ended->Set(status); });
  if (!results.ok()) return Outcome::kFailed;
  const auto status = ended->WaitFor(kRunLimit);
  if (!status) return Outcome::kEndless;
  return status->ok() ? Outcome::kRan : Outcome::kFailed;
}

}  // namespace

Victims::Victims(device::Backend& backend) {
  std::mt19937 random;
  for (int i = 0; i < kVictims; ++i) {
    const int64_t size = int64_t{64} << (i % 11);
    bytes_.push_back(Random(static_cast<size_t>(size), random));
    buffers_.push_back(
        Upload(backend, {.element_type = xla::TYPE_U8, .dims = {size}}, bytes_.back()));
  }
}

bool Victims::AreWhole() const {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (buffers_[i] == nullptr) return false;
    std::string read(bytes_[i].size(), '\0');
    auto done = std::make_shared<Answer<absl::Status>>();
    buffers_[i]->CopyToHost(read.data(), read.size(),
                            [done](const absl::Status& status) { done->Set(status); });
    const auto status = done->WaitFor(kRunLimit);
    if (!status || !status->ok() || read != bytes_[i]) return false;
  }
  return true;
}

Outcome RunMutated(device::Backend& backend, const std::string& module, std::mt19937& random,
                   absl::FunctionRef<void(const std::string& program)> on_passed) {
  xla::hlo::Module program;
  if (!program.ParseFromString(module)) return Outcome::kRefused;
  for (uint32_t changes = 1 + random() % 3; changes > 0; --changes)
    xla::MutateMessage(program, random);
  const std::string mutated = program.SerializePartialAsString();
  const auto checked = CheckProgram(
      mutated,
      [](const xla::hlo::Module& each) { return MakeCustomCallRule(each, {.platform = "cpu"}); },
      {.replicas = 1, .partitions = 1});
  if (!checked.ok()) return Outcome::kRefused;
  std::string code = mutated;
  if (checked->wants_stable_sorts) {
    auto stable = WithStableSorts(mutated);
    if (!stable.ok()) return Outcome::kRefused;
    code = *std::move(stable);
  }
  on_passed(code);
  const uint64_t before = OverwrittenBlocks();
  Outcome outcome = Outcome::kNotCompiled;
  {
    const auto executable = backend.Compile({code, "hlo"}, CompileOptions(), {});
    if (executable.ok()) outcome = Run(backend, **executable, random);
  }
  return OverwrittenBlocks() == before ? outcome : Outcome::kOverwrote;
}

}  // namespace gangway::compiler
