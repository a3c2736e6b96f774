// Implementation of sim_collectives.h.
#include "gangway/device/sim/sim_collectives.h"

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/device/element_type.h"
#include "gangway/device/sim/sim_executable.h"
#include "gangway/xla/collectives.pb.h"

namespace gangway::device {
namespace {

xla::CollectiveTable TableOf(const SimProgram& program) {
  xla::CollectiveTable table;
  const auto partitions = static_cast<uint32_t>(program.partitions);
  table.set_replica_count(1);
  table.set_partition_count(partitions);
  table.set_may_diverge(program.rounds > 1);  // they do not, but the word of it is simulated, too
  auto* group = table.add_groups()->add_groups();
  for (uint32_t position = 0; position < partitions; ++position) group->add_positions(position);
  for (const SimCollective& each : program.collectives) {
    xla::Collective& collective = *table.add_collectives();
    const bool reduces = each.kind == SimCollective::Kind::kAllReduce;
    collective.set_kind(reduces ? xla::Collective::ALL_REDUCE : xla::Collective::PERMUTE);
    collective.set_name(absl::StrCat(reduces ? "all_reduce." : "permute.", each.input));
    collective.set_source(program.name);
    xla::Collective::Operand& operand = *collective.add_operands();
    operand.set_element_type(kU32);
    operand.set_outer(1);
    operand.set_piece_bytes(HostBytes(program.inputs[each.input]).value_or(0));
    if (reduces) {
      collective.set_reduction(xla::Collective::SUM);
      continue;
    }
    for (uint32_t position = 0; position < partitions; ++position) {
      collective.add_sources(position);
      collective.add_targets((position + static_cast<uint32_t>(each.shift)) % partitions);
    }
  }
  return table;
}

}  // namespace

absl::StatusOr<std::string> LowerSim(std::string_view serialized) {
  GANGWAY_ASSIGN_OR_RETURN(const SimProgram program, ReadSerializedSim(serialized));
  if (program.collectives.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "sim program '", program.name, "' has no collectives that can be between workers"));
  }
  xla::LoweredExecutable lowered;
  if (program.communicates()) *lowered.mutable_table() = TableOf(program);
  lowered.set_executable(std::string(serialized));
  return lowered.SerializeAsString();
}

absl::Status RunCollectives(const SimProgram& program, int device, const SimTimer& timer,
                            const CollectiveCall& call,
                            std::vector<std::vector<std::byte>>& inputs) {
  const auto failure = [&] {
    return absl::InternalError(absl::StrCat("sim program '", program.name, "' failed on device ",
                                            device, ", at ", timer.NowMicros(), " us"));
  };
  const bool fails = device == program.failing_device;
  if (program.partitions == 1)  // it is alone in each of them
    return fails ? failure() : absl::OkStatus();
  if (!call && program.communicates()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "sim program '", program.name, "' communicates, but was executed without other members"));
  }
  int done = 0;
  for (int round = 0; round < program.rounds; ++round) {
    for (size_t number = 0; number < program.collectives.size(); ++number) {
      if (fails && done++ == program.fails_before) return failure();
      std::vector<std::byte>& input = inputs[program.collectives[number].input];
      std::vector<std::byte> made(input.size());
      const std::span<const std::byte> operand(input);
      const std::span<std::byte> result(made);
      GANGWAY_RETURN_IF_ERROR(call(static_cast<int64_t>(number), {&operand, 1}, {&result, 1}));
      input = std::move(made);
    }
  }
  return fails ? failure() : absl::OkStatus();
}

}  // namespace gangway::device
