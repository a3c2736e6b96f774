// Implementation of sim_executable.h.
#include "gangway/device/sim/sim_executable.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/check.h"
#include "gangway/base/status.h"
#include "gangway/device/element_type.h"
#include "gangway/device/sim/sim_buffer.h"

namespace gangway::device {
namespace {

constexpr std::string_view kMagic = "GWSIM001";

uint64_t NextId() {
  static std::atomic<uint64_t> next = 1;
  return next++;
}

}  // namespace

absl::StatusOr<SimProgram> ReadSerializedSim(std::string_view serialized) {
  if (serialized.substr(0, kMagic.size()) != kMagic) {
    return absl::InvalidArgumentError(absl::StrCat(
        "these ", serialized.size(), " bytes are not a serialized sim program; compile it again"));
  }
  return ParseSimProgram(serialized.substr(kMagic.size()));
}

absl::StatusOr<std::unique_ptr<Executable>> SimExecutable::Place(std::shared_ptr<SimEngine> engine,
                                                                 std::shared_ptr<SimMemory> memory,
                                                                 int device_count,
                                                                 SimProgram program,
                                                                 std::span<const int> devices) {
  std::vector<int> placed(devices.begin(), devices.end());
  for (int i = 0; devices.empty() && i < program.partitions; ++i) placed.push_back(i);
  const bool exist = std::all_of(placed.begin(), placed.end(),
                                 [&](int device) { return device >= 0 && device < device_count; });
  const bool distinct = std::set<int>(placed.begin(), placed.end()).size() == placed.size();
  const int partitions = program.partitions, count = static_cast<int>(placed.size());
  const bool enough = count == partitions || (!program.collectives.empty() && count < partitions);
  if (!enough || !exist || !distinct) {
    return absl::InvalidArgumentError(
        absl::StrCat("sim program '", program.name, "' has ", program.partitions,
                     " partitions and cannot run on local devices [", absl::StrJoin(placed, ","),
                     "] of ", device_count, "; give one distinct existing device per partition"));
  }
  return std::unique_ptr<Executable>(new SimExecutable(
      std::move(engine), std::move(memory), device_count, std::move(program), std::move(placed)));
}

SimExecutable::SimExecutable(std::shared_ptr<SimEngine> engine, std::shared_ptr<SimMemory> memory,
                             int device_count, SimProgram program, std::vector<int> devices)
    : engine_(std::move(engine)),
      memory_(std::move(memory)),
      device_count_(device_count),
      id_(NextId()),
      program_(std::make_shared<const SimProgram>(std::move(program))),
      devices_(std::move(devices)) {}

absl::StatusOr<MemoryStats> SimExecutable::GetMemoryStats() const {
  MemoryStats stats;
  for (const ArraySpec& input : program_->inputs)
    stats.argument_bytes += HostBytes(input).value_or(0);
  for (size_t i = 0; i < program_->outputs.size(); ++i) {
    const int64_t bytes = HostBytes(program_->outputs[i]).value_or(0);
    stats.output_bytes += bytes;
    if (program_->donated_input[i] >= 0) stats.alias_bytes += bytes;
  }
  stats.temp_bytes = program_->temp_bytes;
  return stats;
}

absl::StatusOr<std::vector<std::pair<std::string, double>>> SimExecutable::GetCostAnalysis() const {
  return std::vector<std::pair<std::string, double>>{
      {"cost_us", static_cast<double>(program_->cost_us)}};
}

absl::StatusOr<std::string> SimExecutable::Serialize() const {
  const std::string code(static_cast<size_t>(program_->code_bytes), 'x');  // as a comment
  return absl::StrCat(std::string(kMagic), FormatSimProgram(*program_),
                      code.empty() ? "" : absl::StrCat("# ", code));
}

absl::Status SimExecutable::CheckArguments(int device, std::span<Buffer* const> arguments) const {
  if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(program_->name, " is loaded on local devices ",
                                                   absl::StrJoin(devices_, ","), ", not on ",
                                                   device));
  }
  if (arguments.size() != program_->inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        program_->name, " takes ", program_->inputs.size(), " arguments, not ", arguments.size()));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    GANGWAY_CHECK(arguments[i] != nullptr, "an argument of ExecuteOn is null");
    const bool fits =
        arguments[i]->spec() == program_->inputs[i] && arguments[i]->device() == device;
    if (!fits || arguments[i]->IsDeleted()) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", i, " of ", program_->name, " on device ", device,
                       fits ? " was deleted or donated before"
                            : " has another shape or element type, or another device"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<Buffer>>> SimExecutable::ExecuteOn(
    int device, std::span<Buffer* const> arguments, const ExecuteOptions& options,
    StatusCallback on_complete) {
  GANGWAY_RETURN_IF_ERROR(CheckArguments(device, arguments));
  auto run = std::make_shared<SimRun>();
  run->program = program_;
  run->device = device;
  run->position =
      static_cast<int>(std::find(devices_.begin(), devices_.end(), device) - devices_.begin());
  run->on_complete = std::move(on_complete);
  run->collective = options.collective;
  for (Buffer* argument : arguments) {
    run->inputs.push_back(static_cast<SimBuffer*>(argument)->storage());
    if (!run->inputs.back())
      return absl::InvalidArgumentError("another thread deleted an argument during this call");
  }
  std::vector<std::unique_ptr<Buffer>> outputs;
  for (const ArraySpec& spec : program_->outputs) {
    run->outputs.push_back(std::make_shared<SimStorage>());
    outputs.push_back(
        std::make_unique<SimBuffer>(device, device_count_, spec, run->outputs.back()));
  }
  const std::vector<std::shared_ptr<SimStorage>> inputs = run->inputs;  // Enqueue takes them
  GANGWAY_RETURN_IF_ERROR(engine_->Enqueue(run, id_, options.launch_id));
  for (size_t i = 0; i < program_->outputs.size(); ++i) {
    const int input = program_->donated_input[i];
    const auto& kept = options.non_donatable;
    const bool reuses = input >= 0 && std::find(kept.begin(), kept.end(), input) == kept.end();
    std::shared_ptr<SimMemory::Lease> lease;
    if (reuses) lease = inputs[static_cast<size_t>(input)]->TakeLease();
    if (!lease) lease = memory_->Take(device, HostBytes(program_->outputs[i]).value_or(0));
    run->outputs[i]->Hold(std::move(lease));
    if (reuses) arguments[static_cast<size_t>(input)]->Delete();
  }
  return outputs;
}

}  // namespace gangway::device
