// Implementation of executable.h.
#include "gangway/xla/executable.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/hlo_text.pb.h"
#include "gangway/xla/layout.h"
#include "gangway/xla/named_sharding.h"
#include "gangway/xla/source_line.h"

namespace gangway::xla {
namespace {

constexpr int64_t kDevicesMax = int64_t{1} << 20;

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("malformed compiled program: ", why));
}

absl::StatusOr<Operand> Describe(const ShapeProto& shape, const OpShardingProto* sharding,
                                 int64_t position_count) {
  Operand operand;
  operand.element_type = shape.element_type();
  if (shape.element_type() == TYPE_TUPLE) {
    return absl::UnimplementedError("a compiled program with nested tuples in its interface");
  }
  operand.shard_dims.assign(shape.dimensions().begin(), shape.dimensions().end());
  if (shape.has_layout())
    GANGWAY_RETURN_IF_ERROR(CheckRowMajor(shape.layout(), operand.shard_dims.size()));
  GANGWAY_RETURN_IF_ERROR(DenseBytes(operand.element_type, operand.shard_dims));
  if (sharding != nullptr) {
    GANGWAY_ASSIGN_OR_RETURN(operand.sharding, AsTiles(*sharding));
  }
  // On a single position nothing is tiled: the shape is the global one for every recorded kind.
  if (position_count == 1 || operand.element_type == TYPE_TOKEN) operand.sharding.Clear();
  GANGWAY_ASSIGN_OR_RETURN(Sharding parsed, Sharding::FromProto(operand.sharding, position_count));
  GANGWAY_ASSIGN_OR_RETURN(operand.global_dims, parsed.GlobalShape(operand.shard_dims));
  operand.fully_replicated = parsed.fully_replicated();
  return operand;
}

// The parts of a result: a tuple's elements, or the single array.
std::vector<const ShapeProto*> Flatten(const ShapeProto& shape) {
  if (shape.element_type() != TYPE_TUPLE) return {&shape};
  std::vector<const ShapeProto*> parts;
  for (const ShapeProto& part : shape.tuple_shapes()) parts.push_back(&part);
  return parts;
}

// Sharding of part `i` of `count`; nullptr if the program records none.
absl::StatusOr<const OpShardingProto*> PartSharding(const HloModuleProto& module, bool is_tuple,
                                                    int i, int count) {
  if (!module.has_spmd_output_sharding()) return nullptr;
  const OpShardingProto& sharding = module.spmd_output_sharding();
  if (!is_tuple || sharding.type() != OpShardingProto::TYPE_TUPLE) return &sharding;
  if (sharding.tuple_shardings_size() != count) {
    return Malformed(
        absl::StrCat(sharding.tuple_shardings_size(), " output shardings for ", count, " outputs"));
  }
  return &sharding.tuple_shardings(i);
}

absl::Status DescribeParameters(const HloModuleProto& module, ExecutableDescription& description) {
  const auto& parameters = module.host_program_shape().parameters();
  const auto& shardings = module.spmd_parameters_shardings();
  if (!shardings.empty() && shardings.size() != parameters.size()) {
    return Malformed(absl::StrCat(shardings.size(), " parameter shardings for ", parameters.size(),
                                  " parameters"));
  }
  for (int i = 0; i < parameters.size(); ++i) {
    absl::StatusOr<Operand> operand = Describe(
        parameters[i], shardings.empty() ? nullptr : &shardings[i], description.partition_count);
    if (!operand.ok()) {
      return absl::Status(operand.status().code(),
                          absl::StrCat("parameter ", i, ": ", operand.status().message()));
    }
    description.parameters.push_back(*std::move(operand));
  }
  return absl::OkStatus();
}

absl::Status DescribeResults(const HloModuleProto& module, ExecutableDescription& description) {
  const ShapeProto& result = module.host_program_shape().result();
  std::vector<const ShapeProto*> parts = Flatten(result);
  for (size_t i = 0; i < parts.size(); ++i) {
    GANGWAY_ASSIGN_OR_RETURN(const OpShardingProto* sharding,
                             PartSharding(module, result.element_type() == TYPE_TUPLE,
                                          static_cast<int>(i), static_cast<int>(parts.size())));
    absl::StatusOr<Operand> operand = Describe(*parts[i], sharding, description.partition_count);
    if (!operand.ok()) {
      return absl::Status(operand.status().code(),
                          absl::StrCat("output ", i, ": ", operand.status().message()));
    }
    description.results.push_back(*std::move(operand));
  }
  return absl::OkStatus();
}

absl::Status DescribeDonation(const HloModuleProto& module, ExecutableDescription& description) {
  auto add = [&](int64_t parameter) {
    if (parameter < 0 || parameter >= static_cast<int64_t>(description.parameters.size())) {
      return Malformed(
          absl::StrCat("donated parameter ", parameter, " of ", description.parameters.size()));
    }
    description.donated.push_back(static_cast<int32_t>(parameter));
    return absl::OkStatus();
  };
  for (const auto& entry : module.input_output_alias().entries()) {
    GANGWAY_RETURN_IF_ERROR(add(entry.parameter_number()));
  }
  std::sort(description.donated.begin(), description.donated.end());
  description.donated.erase(std::unique(description.donated.begin(), description.donated.end()),
                            description.donated.end());
  return absl::OkStatus();
}

bool Parse(google::protobuf::MessageLite& message, std::string_view bytes) {
  return bytes.size() <= INT32_MAX &&
         message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

void AppendShape(const ShapeProto& shape, int depth, std::string& text) {
  if (shape.element_type() == TYPE_TUPLE && depth < 8) {
    text += "(";
    for (int i = 0; i < shape.tuple_shapes_size(); ++i) {
      if (i > 0) text += ", ";
      AppendShape(shape.tuple_shapes(i), depth + 1, text);
    }
    text += ")";
    return;
  }
  absl::StrAppend(&text, std::string(ElementName(shape.element_type())), "[");
  for (int i = 0; i < shape.dimensions_size(); ++i)
    absl::StrAppend(&text, i ? "," : "", shape.dimensions(i));
  text += "]";
}

void AppendInstruction(const HloInstructionTextProto& instruction, bool root,
                       const absl::flat_hash_map<int64_t, const std::string*>& names,
                       std::string& text) {
  absl::StrAppend(&text, root ? "  ROOT " : "  ", instruction.name(), " = ");
  AppendShape(instruction.shape(), 0, text);
  absl::StrAppend(&text, " ", instruction.opcode(), "(");
  if (instruction.opcode() == "parameter") absl::StrAppend(&text, instruction.parameter_number());
  for (int i = 0; i < instruction.operand_ids_size(); ++i) {
    auto name = names.find(instruction.operand_ids(i));
    absl::StrAppend(&text, i ? ", " : "", name == names.end() ? "?" : *name->second);
  }
  text += ")";
  if (!instruction.custom_call_target().empty()) {
    absl::StrAppend(&text, ", custom_call_target=\"", instruction.custom_call_target(), "\"");
  }
  text += "\n";
}

}  // namespace

absl::StatusOr<ExecutableDescription> DescribeExecutable(std::string_view hlo_with_config) {
  HloModuleWithConfigProto program;
  if (!Parse(program, hlo_with_config))
    return Malformed("not a serialized HLO module with its configuration");
  if (!program.module().has_host_program_shape()) return Malformed("it has no entry shapes");
  ExecutableDescription description;
  description.name = program.module().name();
  description.source = SourceLine(program.module());
  description.replica_count = std::max<int64_t>(1, program.config().replica_count());
  description.partition_count = std::max<int64_t>(1, program.config().num_partitions());
  if (description.replica_count > kDevicesMax || description.partition_count > kDevicesMax) {
    return Malformed("it needs more than 2^20 devices");
  }
  GANGWAY_RETURN_IF_ERROR(DescribeParameters(program.module(), description));
  GANGWAY_RETURN_IF_ERROR(DescribeResults(program.module(), description));
  GANGWAY_RETURN_IF_ERROR(DescribeDonation(program.module(), description));
  return description;
}

absl::StatusOr<HloWithConfigCostProto> ParseInstructions(std::string_view hlo_with_config) {
  HloWithConfigCostProto program;
  if (!Parse(program, hlo_with_config))
    return Malformed("not a serialized HLO module with its configuration");
  return program;
}

bool HasCollectives(const HloWithConfigCostProto& program) {
  for (const HloComputationCostProto& computation : program.module().computations()) {
    for (const HloInstructionCostProto& instruction : computation.instructions()) {
      // all-reduce, all-reduce-start, ...
      for (std::string_view kind : {"all-gather", "all-reduce", "all-to-all", "collective-",
                                    "ragged-all-to-all", "recv", "reduce-scatter", "send"}) {
        if (std::string_view(instruction.opcode()).starts_with(kind)) return true;
      }
    }
  }
  return false;
}

absl::Status CheckNoFeeds(std::string_view hlo_with_config) {
  // "outfeed" has no "infeed" in it. Nearly all programs have neither, and are not read.
  if (hlo_with_config.find("infeed") == std::string_view::npos &&
      hlo_with_config.find("outfeed") == std::string_view::npos)
    return absl::OkStatus();
  HloWithConfigTextProto program;
  if (!Parse(program, hlo_with_config))
    return Malformed("not a serialized HLO module with its configuration");
  for (const HloComputationTextProto& computation : program.module().computations()) {
    for (const HloInstructionTextProto& instruction : computation.instructions()) {
      if (instruction.opcode() != "infeed" && instruction.opcode() != "outfeed") continue;
      return absl::UnimplementedError(
          absl::StrCat("the program's ", instruction.opcode(), " ", instruction.name(),
                       " would wait for the host, which feeds no device of the cluster: pass "
                       "arrays as arguments "
                       "and results, or use jax.pure_callback or jax.experimental.io_callback"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> WithParameterLayouts(
    std::string_view hlo_with_config, std::span<const std::vector<int64_t>> minor_to_major) {
  HloModuleWithConfigProto program;
  if (!Parse(program, hlo_with_config))
    return Malformed("not a serialized HLO module with its configuration");
  ProgramShapeProto& shape = *program.mutable_config()->mutable_entry_computation_layout();
  if (static_cast<size_t>(shape.parameters_size()) != minor_to_major.size())
    return Malformed(absl::StrCat("it has ", shape.parameters_size(), " parameters, expected ",
                                  minor_to_major.size()));
  for (size_t i = 0; i < minor_to_major.size(); ++i) {
    if (minor_to_major[i].empty()) continue;
    // Without the size of sub-byte elements, which their type tells: buffers' layouts have none either.
    LayoutProto& layout = *shape.mutable_parameters(static_cast<int>(i))->mutable_layout();
    layout.Clear();
    layout.mutable_minor_to_major()->Assign(minor_to_major[i].begin(), minor_to_major[i].end());
  }
  return program.SerializeAsString();
}

absl::StatusOr<std::string> ProgramText(std::string_view hlo_with_config) {
  HloWithConfigTextProto program;
  if (!Parse(program, hlo_with_config))
    return Malformed("not a serialized HLO module with its configuration");
  const HloModuleTextProto& module = program.module();
  std::string text = absl::StrCat("HloModule ", module.name(), "\n");
  for (const HloComputationTextProto& computation : module.computations()) {
    absl::flat_hash_map<int64_t, const std::string*> names;
    for (const auto& instruction : computation.instructions())
      names[instruction.id()] = &instruction.name();
    absl::StrAppend(&text, "\n", computation.id() == module.entry_computation_id() ? "ENTRY " : "",
                    computation.name(), " {\n");
    for (const auto& instruction : computation.instructions()) {
      AppendInstruction(instruction, instruction.id() == computation.root_id(), names, text);
    }
    text += "}\n";
  }
  return text;
}

}  // namespace gangway::xla
