// Implementation of compile.h.
#include "gangway/compiler/compile.h"

#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/transport/pieces.h"
#include "gangway/wire/failure.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/executable.h"

namespace gangway::compiler {
namespace {

absl::Status FillTensor(int32_t element_type, const std::vector<int64_t>& shard_dims,
                        wire::TensorSpec& tensor) {
  GANGWAY_ASSIGN_OR_RETURN(auto bytes, xla::DenseBytes(element_type, shard_dims));
  tensor.set_element_type(element_type);
  tensor.mutable_shard_dims()->Add(shard_dims.begin(), shard_dims.end());
  tensor.set_shard_bytes(bytes);
  return absl::OkStatus();
}

absl::Status FillFromProgram(std::string program, wire::ExecutableInfo& info) {
  GANGWAY_ASSIGN_OR_RETURN(auto description, xla::DescribeExecutable(program));
  info.set_name(description.name);
  info.set_source(wire::ValidUtf8(description.source));
  for (const auto& parameter : description.parameters) {
    GANGWAY_RETURN_IF_ERROR(
        FillTensor(parameter.element_type, parameter.shard_dims, *info.add_parameters()));
  }
  for (const auto& result : description.results) {
    GANGWAY_RETURN_IF_ERROR(
        FillTensor(result.element_type, result.shard_dims, *info.add_results()));
  }
  for (int32_t parameter : description.donated) info.add_donated(parameter);
  if (description.replica_count * description.partition_count > 1) {
    GANGWAY_ASSIGN_OR_RETURN(auto collectives, xla::HasCollectives(program));
    info.set_has_collectives(collectives);
  }
  info.set_optimized_program(std::move(program));
  return absl::OkStatus();
}

// A runtime without an HLO program still describes its outputs.
absl::Status FillFromOutputs(const device::Executable& executable, wire::ExecutableInfo& info) {
  info.set_name(std::string(executable.name()));
  for (const auto& output : executable.outputs()) {
    GANGWAY_RETURN_IF_ERROR(FillTensor(output.element_type, output.dims, *info.add_results()));
  }
  return absl::OkStatus();
}

absl::Status FillCosts(const device::Executable& executable, wire::ExecutableInfo& info) {
  auto memory = executable.GetMemoryStats();
  if (memory.ok()) {
    info.mutable_memory()->set_argument_bytes(memory->argument_bytes);
    info.mutable_memory()->set_output_bytes(memory->output_bytes);
    info.mutable_memory()->set_temp_bytes(memory->temp_bytes);
    info.mutable_memory()->set_alias_bytes(memory->alias_bytes);
    info.mutable_memory()->set_code_bytes(memory->generated_code_bytes);
  } else if (!absl::IsUnimplemented(memory.status())) {
    return memory.status();
  }
  auto costs = executable.GetCostAnalysis();
  if (!costs.ok()) return absl::IsUnimplemented(costs.status()) ? absl::OkStatus() : costs.status();
  for (const auto& [name, value] : *costs) (*info.mutable_cost())[name] = value;
  return absl::OkStatus();
}

absl::Status CheckSize(uint64_t bytes) {
  if (bytes <= transport::kLargeFieldsBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the compiled executable, with its optimized program, has ", bytes,
                   " bytes, over the limit of ", transport::kLargeFieldsBytesMax,
                   ": pass large constants as arguments"));
}

// JAX marks values for another kind of memory with a custom call that XLA's CPU plugin lacks, and
// that its partitioner rejects. Neither error names the cause.
absl::Status ExplainCompile(const absl::Status& status) {
  if (!absl::StrContains(status.message(), "annotate_device_placement")) return status;
  return absl::UnimplementedError(absl::StrCat(
      "this program places a value in another kind of memory (memory_kind, such as pinned_host, in "
      "out_shardings or in a device_put inside of a jit), and the devices' runtime cannot: call "
      "jax.device_put(result, sharding.with_memory_kind(...)) outside of the jit instead. The "
      "runtime says: ",
      status.message()));
}

}  // namespace

absl::StatusOr<wire::CompileResult> Compile(device::Backend& backend,
                                            const wire::CompileRequest& request) {
  size_t available = backend.devices().size();
  if (request.device_count() == 0)
    return absl::InvalidArgumentError("a program for 0 devices cannot be compiled");
  if (request.device_count() > available) {
    return absl::FailedPreconditionError(
        absl::StrCat("a program needs ", request.device_count(), " devices and the compiler has ",
                     available, ": start the compiler with as many devices as the largest slice"));
  }
  std::vector<int> positions(request.device_count());
  std::iota(positions.begin(), positions.end(), 0);
  auto compiled =
      backend.Compile({request.program(), request.format()}, request.options(), positions);
  if (!compiled.ok()) return ExplainCompile(compiled.status());
  const auto executable = *std::move(compiled);

  wire::CompileResult result;
  wire::ExecutableInfo& info = *result.mutable_info();
  info.set_device_count(request.device_count());
  auto program = executable->OptimizedProgram();
  if (program.ok()) {
    GANGWAY_RETURN_IF_ERROR(FillFromProgram(*std::move(program), info));
  } else if (absl::IsUnimplemented(program.status())) {
    GANGWAY_RETURN_IF_ERROR(FillFromOutputs(*executable, info));
  } else {
    return program.status();
  }
  GANGWAY_RETURN_IF_ERROR(FillCosts(*executable, info));
  GANGWAY_ASSIGN_OR_RETURN(auto serialized, executable->Serialize());
  GANGWAY_RETURN_IF_ERROR(CheckSize(serialized.size() + info.optimized_program().size()));
  result.set_serialized(std::move(serialized));
  return result;
}

}  // namespace gangway::compiler
