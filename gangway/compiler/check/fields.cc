// Implementation of fields.h. One overload for each message, because reflection would cost more than all rules
// together; check_test.cc puts an unknown field into each message that there is.
#include "gangway/compiler/check/fields.h"

#include "absl/strings/str_cat.h"

namespace gangway::compiler {
namespace {

namespace hlo = xla::hlo;

// The number of the first unknown field of the message itself, or 0.
template <typename Message>
int Own(const Message& message) {
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  return unknown.empty() ? 0 : unknown.field(0).number();
}

// The same, or that of a message in it. All overloads come before their first use in a template.
template <typename Message>
int Unknown(const Message& message) {
  return Own(message);
}
int Unknown(const hlo::Layout& layout);
int Unknown(const hlo::Shape& shape);
int Unknown(const hlo::Sharding& sharding);
int Unknown(const hlo::Literal& literal);
int Unknown(const hlo::Mesh& mesh);
int Unknown(const hlo::AxisRef& axis);
int Unknown(const hlo::NamedSharding& sharding);
int Unknown(const hlo::NamedSharding::DimensionSharding& sharding);

template <typename Messages>
int UnknownInAll(const Messages& messages) {
  for (const auto& each : messages)
    if (const int number = Unknown(each); number != 0) return number;
  return 0;
}

// The first that is not 0.
template <typename... Rest>
int First(int number, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return number;
  } else {
    return number != 0 ? number : First(rest...);
  }
}

int Unknown(const hlo::Layout& layout) { return First(Own(layout), UnknownInAll(layout.tiles())); }

int Unknown(const hlo::Shape& shape) {
  return First(Own(shape), shape.has_layout() ? Unknown(shape.layout()) : 0,
               UnknownInAll(shape.tuple_shapes()));
}

int Unknown(const hlo::ProgramShape& shape) {
  return First(Own(shape), UnknownInAll(shape.parameters()), Unknown(shape.result()));
}

int Unknown(const hlo::Literal& literal) {
  return First(Own(literal), Unknown(literal.shape()), UnknownInAll(literal.tuple_literals()));
}

int Unknown(const hlo::AxisRef& axis) { return First(Own(axis), Own(axis.sub_axis_info())); }

int Unknown(const hlo::Mesh& mesh) {
  return First(Own(mesh), UnknownInAll(mesh.axes()), Own(mesh.iota_transform()));
}

int Unknown(const hlo::NamedSharding::DimensionSharding& sharding) {
  return First(Own(sharding), UnknownInAll(sharding.axes()));
}

int Unknown(const hlo::NamedSharding& sharding) {
  return First(Own(sharding), Unknown(sharding.mesh()), UnknownInAll(sharding.dim_shardings()),
               UnknownInAll(sharding.replicated_axes()), UnknownInAll(sharding.unreduced_axes()),
               UnknownInAll(sharding.manual_axes()), UnknownInAll(sharding.metadata()));
}

int Unknown(const hlo::Sharding& sharding) {
  return First(Own(sharding), UnknownInAll(sharding.tuple_shardings()),
               UnknownInAll(sharding.metadata()),
               sharding.has_named_sharding() ? Unknown(sharding.named_sharding()) : 0);
}

int Unknown(const hlo::Window& window) {
  return First(Own(window), UnknownInAll(window.dimensions()));
}

int Unknown(const hlo::PaddingConfig& padding) {
  return First(Own(padding), UnknownInAll(padding.dimensions()));
}

int Unknown(const hlo::CollectiveDeviceList& list) {
  return First(Own(list), UnknownInAll(list.replica_groups()), Own(list.iota_replica_group_list()));
}

int Unknown(const hlo::MeshAxesReplicaGroupList& list) {
  return First(Own(list), Unknown(list.mesh()), UnknownInAll(list.axes()));
}

int Unknown(const hlo::StatisticsViz& statistics) {
  return First(Own(statistics), UnknownInAll(statistics.statistics()));
}

int Unknown(const hlo::ResultAccuracy& accuracy) {
  return First(Own(accuracy), Own(accuracy.tolerance()));
}

int Unknown(const hlo::Schedule& schedule) {
  int number = Own(schedule);
  for (const auto& [_, sequence] : schedule.sequences()) number = First(number, Own(sequence));
  return number;
}

int Unknown(const hlo::InputOutputAlias& alias) {
  return First(Own(alias), UnknownInAll(alias.entries()));
}

int Unknown(const hlo::BufferDonors& donors) {
  return First(Own(donors), UnknownInAll(donors.entries()));
}

int Unknown(const hlo::DeviceAssignment& assignment) {
  return First(Own(assignment), UnknownInAll(assignment.computation_devices()));
}

int Unknown(const hlo::StackFrameIndex& index) {
  return First(Own(index), UnknownInAll(index.file_locations()),
               UnknownInAll(index.stack_frames()));
}

// Of a message that may not be set. Asking a message for its fields costs more than asking whether it is there.
template <typename Message>
int IfSet(bool is_set, const Message& message) {
  return is_set ? Unknown(message) : 0;
}

int UnknownInNumbers(const hlo::Instruction& each) {
  return First(
      IfSet(each.has_convolution_dimension_numbers(), each.convolution_dimension_numbers()),
      IfSet(each.has_window(), each.window()),
      IfSet(each.has_padding_config(), each.padding_config()),
      IfSet(each.has_dot_dimension_numbers(), each.dot_dimension_numbers()),
      IfSet(each.has_gather_dimension_numbers(), each.gather_dimension_numbers()),
      IfSet(each.has_scatter_dimension_numbers(), each.scatter_dimension_numbers()),
      IfSet(each.has_triangular_solve_options(), each.triangular_solve_options()),
      IfSet(each.has_cholesky_options(), each.cholesky_options()));
}

// Messages that few instructions have.
int UnknownInRare(const hlo::Instruction& each) {
  return First(
      UnknownInNumbers(each), UnknownInAll(each.slice_dimensions()),
      IfSet(each.has_literal(), each.literal()), IfSet(each.has_sharding(), each.sharding()),
      IfSet(each.has_frontend_attributes(), each.frontend_attributes()),
      UnknownInAll(each.replica_groups()),
      IfSet(each.has_precision_config(), each.precision_config()),
      UnknownInAll(each.source_target_pairs()), UnknownInAll(each.operand_shapes_with_layout()),
      UnknownInAll(each.output_operand_aliasing()),
      IfSet(each.has_collective_device_list(), each.collective_device_list()),
      IfSet(each.has_iota_collective_device_list(), each.iota_collective_device_list()),
      IfSet(each.has_mesh_axes_replica_group_list(), each.mesh_axes_replica_group_list()),
      IfSet(each.has_result_accuracy(), each.result_accuracy()),
      IfSet(each.has_sparsity_config(), each.sparsity_config()),
      IfSet(each.has_block_scaling_config(), each.block_scaling_config()));
}

absl::Status Refused(int number, absl::string_view what) {
  if (number == 0) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      what, " has field ", number,
      " of XLA's, which is not known here: compile it with another version of the client"));
}

}  // namespace

absl::Status CheckFields(const hlo::Module& module) {
  return Refused(
      First(Own(module), Unknown(module.host_program_shape()), Unknown(module.schedule()),
            Unknown(module.input_output_alias()), Unknown(module.buffer_donor()),
            Unknown(module.spmd_output_sharding()),
            UnknownInAll(module.spmd_parameters_shardings()), Unknown(module.device_assignment()),
            Unknown(module.stack_frame_index()), Own(module.frontend_attributes())),
      "the module");
}

absl::Status CheckFields(const hlo::Computation& computation) {
  return Refused(First(Own(computation), Unknown(computation.program_shape())), "the computation");
}

absl::Status CheckFields(const hlo::Instruction& each) {
  return Refused(
      First(Own(each), Unknown(each.shape()), IfSet(each.has_metadata(), each.metadata()),
            IfSet(each.has_statistics_viz(), each.statistics_viz()), UnknownInRare(each)),
      "it");
}

}  // namespace gangway::compiler
