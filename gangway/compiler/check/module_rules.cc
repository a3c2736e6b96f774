// Implementation of module_rules.h.
#include "gangway/compiler/check/module_rules.h"

#include <set>
#include <utility>
#include <vector>

#include "gangway/base/status.h"
#include "gangway/compiler/check/attributes.h"
#include "gangway/compiler/check/fields.h"

namespace gangway::compiler {
namespace {

using xla::hlo::Module;

// XLA follows a frame's callers without counting, so they come earlier in the list.
absl::Status CheckStackFrames(const xla::hlo::StackFrameIndex& index) {
  const auto is_position = [](int id, int size) { return id >= 0 && id <= size; };
  for (const auto& location : index.file_locations())
    if (!is_position(location.file_name_id(), index.file_names_size()) ||
        !is_position(location.function_name_id(), index.function_names_size()))
      return Bad("a stack frame's location names a file or function that is not listed");
  for (int i = 0; i < index.stack_frames_size(); ++i) {
    const auto& frame = index.stack_frames(i);
    if (!is_position(frame.file_location_id(), index.file_locations_size()) ||
        !is_position(frame.parent_frame_id(), i))
      return Bad("stack frame ", i + 1, " names a location or caller that is not listed before");
  }
  return absl::OkStatus();
}

absl::Status CheckDevices(const xla::hlo::DeviceAssignment& devices) {
  const int64_t replicas = devices.replica_count(), partitions = devices.computation_count();
  if (replicas < 0 || partitions < 0 || replicas * partitions > kPositionsMax ||
      partitions != devices.computation_devices_size())
    return Bad("its device assignment is for ", replicas, " x ", partitions, " positions");
  std::vector<int64_t> ids;
  for (const auto& partition : devices.computation_devices()) {
    if (partition.replica_device_ids_size() != replicas)
      return Bad("its device assignment is not for ", replicas, " replicas each");
    ids.insert(ids.end(), partition.replica_device_ids().begin(),
               partition.replica_device_ids().end());
  }
  if (!AreDistinct(ids, int64_t{1} << 40)) return Bad("its device assignment names a device twice");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModuleHead(const Module& module) {
  GANGWAY_RETURN_IF_ERROR(CheckFields(module));
  GANGWAY_RETURN_IF_ERROR(CheckName(module.name()));
  GANGWAY_RETURN_IF_ERROR(CheckFrontendAttributes(module.frontend_attributes()));
  GANGWAY_RETURN_IF_ERROR(CheckStackFrames(module.stack_frame_index()));
  GANGWAY_RETURN_IF_ERROR(CheckDevices(module.device_assignment()));
  if (module.has_schedule())
    return NotTaken("the module has a schedule: send it as it is before XLA optimizes it");
  if (module.is_dynamic())
    return NotTaken("dynamic dimensions are not supported: pad arrays to a fixed size");
  if (module.use_auto_spmd_partitioning())
    return NotTaken("automatic partitioning is not supported: give shardings");
  if (!module.device_type().empty())
    return NotTaken("the module is made for device type \"", Shown(module.device_type()), "\"");
  return absl::OkStatus();
}

namespace {

absl::Status CheckSignature(const Module& module, const Callee& entry) {
  const auto& host = module.host_program_shape();
  if (static_cast<size_t>(host.parameters_size()) != entry.parameters.size())
    return Bad("the module has ", host.parameters_size(), " parameters, and its entry ",
               entry.parameters.size());
  for (int i = 0; i < host.parameters_size(); ++i) {
    GANGWAY_RETURN_IF_ERROR(CheckShape(host.parameters(i)), "parameter ", i, " of the module");
    const Shape& own = *entry.parameters[static_cast<size_t>(i)];
    if (!Same(host.parameters(i), own))
      return Bad("parameter ", i, " of the module is ", Text(host.parameters(i)),
                 ", and of its entry ", Text(own));
  }
  GANGWAY_RETURN_IF_ERROR(CheckShape(host.result()), "the result of the module");
  if (!Same(host.result(), *entry.result))
    return Bad("the result of the module is ", Text(host.result()), ", and of its entry ",
               Text(*entry.result));
  return absl::OkStatus();
}

using Index = std::vector<int64_t>;

template <typename Field>
absl::StatusOr<std::pair<int64_t, Index>> PartOfParameter(const Callee& entry, int64_t parameter,
                                                          const Field& index) {
  if (parameter < 0 || parameter >= static_cast<int64_t>(entry.parameters.size()))
    return Bad("it donates parameter ", parameter, " of ", entry.parameters.size());
  const Shape* part = PartAt(*entry.parameters[static_cast<size_t>(parameter)], index);
  if (part == nullptr || !IsArray(*part))
    return Bad("it donates a part of parameter ", parameter, " that is no array");
  return std::pair(parameter, Index(index.begin(), index.end()));
}

absl::Status CheckDonations(const Module& module, const Callee& entry) {
  enum : int { kUndefined, kMayAlias, kMustAlias };
  std::set<std::pair<int64_t, Index>> given;
  std::set<Index> taken;
  for (const auto& alias : module.input_output_alias().entries()) {
    GANGWAY_ASSIGN_OR_RETURN(
        auto from, PartOfParameter(entry, alias.parameter_number(), alias.parameter_shape_index()));
    const Shape* out = PartAt(*entry.result, alias.output_shape_index());
    const Shape* in = PartAt(*entry.parameters[static_cast<size_t>(alias.parameter_number())],
                             alias.parameter_shape_index());
    if (alias.kind() != kMayAlias && alias.kind() != kMustAlias)
      return Bad("its aliasing is of kind ", alias.kind());
    if (out == nullptr || !IsArray(*out) || !Same(*out, *in))
      return Bad("parameter ", alias.parameter_number(), " shares memory with a result that is ",
                 out == nullptr ? "not there" : Text(*out), " instead of ", Text(*in));
    const auto& index = alias.output_shape_index();
    if (!given.insert(std::move(from)).second ||
        !taken.insert(Index(index.begin(), index.end())).second)
      return Bad("parameter ", alias.parameter_number(), " or its result shares memory twice");
  }
  for (const auto& donor : module.buffer_donor().entries()) {
    GANGWAY_ASSIGN_OR_RETURN(
        auto from, PartOfParameter(entry, donor.parameter_number(), donor.parameter_shape_index()));
    if (!given.insert(std::move(from)).second)
      return Bad("parameter ", donor.parameter_number(), " is donated twice");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModuleInterface(const Program& program, const Callee& entry) {
  const Module& module = program.module;
  GANGWAY_RETURN_IF_ERROR(CheckSignature(module, entry));
  GANGWAY_RETURN_IF_ERROR(CheckDonations(module, entry));
  if (module.has_spmd_output_sharding())
    GANGWAY_RETURN_IF_ERROR(
        CheckSharding(module.spmd_output_sharding(), *entry.result, program.positions),
        "the module's result");
  const auto given = static_cast<size_t>(module.spmd_parameters_shardings_size());
  if (given != 0 && given != entry.parameters.size())
    return Bad("the module shards ", given, " of ", entry.parameters.size(), " parameters");
  for (size_t i = 0; i < given; ++i) {
    GANGWAY_RETURN_IF_ERROR(CheckSharding(module.spmd_parameters_shardings(static_cast<int>(i)),
                                          *entry.parameters[i], program.positions),
                            "parameter ", i);
  }
  return absl::OkStatus();
}

}  // namespace gangway::compiler
