// Implementation of compile.h.
#include "gangway/compiler/compile.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/collective/execution/collective_call.h"
#include "gangway/collective/execution/plan.h"
#include "gangway/collective/lowering/lowering.h"
#include "gangway/compiler/checked_program.h"
#include "gangway/compiler/partition.h"
#include "gangway/compiler/refusals.h"
#include "gangway/compiler/sharded_calls.h"
#include "gangway/device/pjrt/compile_options_edit.h"
#include "gangway/device/pjrt/host_call.h"
#include "gangway/device/pjrt/simulated_work.h"
#include "gangway/device/sim/sim_collectives.h"
#include "gangway/transport/pieces.h"
#include "gangway/wire/failure.h"
#include "gangway/xla/collectives.pb.h"
#include "gangway/xla/compile_options.pb.h"
#include "gangway/xla/cost_analysis.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/executable.h"
#include "gangway/xla/large_literals.h"
#include "gangway/xla/sharded_calls.h"
#include "gangway/xla/sharded_calls.pb.h"

namespace gangway::compiler {
namespace {

static_assert(collective::kCollectiveTarget == collective::kCollectiveCallTarget);

absl::Status FillTensor(int32_t element_type, const std::vector<int64_t>& shard_dims,
                        wire::TensorSpec& tensor) {
  GANGWAY_ASSIGN_OR_RETURN(auto bytes, xla::DenseBytes(element_type, shard_dims));
  tensor.set_element_type(element_type);
  tensor.mutable_shard_dims()->Add(shard_dims.begin(), shard_dims.end());
  tensor.set_shard_bytes(bytes);
  return absl::OkStatus();
}

absl::Status FillInterface(const xla::ExecutableDescription& description,
                           wire::ExecutableInfo& info) {
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

void FillCosts(const Costs& counted, wire::ExecutableInfo& info) {
  for (const auto& [name, value] : counted) (*info.mutable_cost())[name] = value;
}

// None, if they cannot be counted: the program still runs.
void CountCosts(const xla::HloWithConfigCostProto& program, wire::ExecutableInfo& info) {
  const auto costs = xla::AnalyzeCosts(program);
  if (!costs.ok()) return;
  info.mutable_cost()->insert({{"flops", costs->flops},
                               {"transcendentals", costs->transcendentals},
                               {"bytes accessed", costs->bytes_accessed}});
}

absl::Status FillMemory(const device::Executable& executable, wire::ExecutableInfo& info) {
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
  return absl::OkStatus();
}

absl::Status CheckSize(uint64_t bytes) {
  if (bytes <= transport::kLargeFieldsBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the compiled executable, with its optimized program, has ", bytes,
                   " bytes, over the limit of ", transport::kLargeFieldsBytesMax,
                   ": pass large constants as arguments"));
}

void FillMemoryKinds(std::span<const std::string> kinds, wire::ExecutableInfo& info) {
  for (size_t i = 0; i < kinds.size() && i < static_cast<size_t>(info.results_size()); ++i)
    info.mutable_results(static_cast<int>(i))->set_memory_kind(kinds[i]);
}

// What is known from the program for clients, the memory of `executable`, and the costs: `counted` by the runtime, or
// else by us. Clients get the program without the values of large constants, which the executable holds.
absl::Status Describe(const device::Executable& executable, std::string whole,
                      const absl::StatusOr<Costs>& counted, wire::ExecutableInfo& info) {
  std::string program = xla::WithoutLargeLiterals(std::move(whole));
  GANGWAY_ASSIGN_OR_RETURN(const auto description, xla::DescribeExecutable(program));
  GANGWAY_RETURN_IF_ERROR(FillInterface(description, info));
  GANGWAY_RETURN_IF_ERROR(FillMemory(executable, info));
  GANGWAY_RETURN_IF_ERROR(xla::CheckNoFeeds(program));
  info.set_calls_host(device::MayCallHost(program));
  const bool spans = description.replica_count * description.partition_count > 1;
  if (counted.ok()) {
    FillCosts(*counted, info);
  } else if (!absl::IsUnimplemented(counted.status())) {
    return counted.status();
  }
  if (spans || !counted.ok()) {
    GANGWAY_ASSIGN_OR_RETURN(const auto instructions, xla::ParseInstructions(program));
    if (spans) info.set_has_collectives(xla::HasCollectives(instructions));
    if (!counted.ok()) CountCosts(instructions, info);
  }
  info.set_optimized_program(std::move(program));
  return absl::OkStatus();
}

bool HasNarrowElements(const xla::ShapeProto& shape) {
  return xla::IsNarrow(shape.element_type()) ||
         std::ranges::any_of(shape.tuple_shapes(), HasNarrowElements);
}

// The runtime packs elements of less than a byte as its clients do, unless it takes a program as optimized: then the
// options have to say that they are packed.
void KeepPacked(const xla::ProgramShapeProto& shape, xla::CompileOptionsProto& options) {
  if (!HasNarrowElements(shape.result()) &&
      std::ranges::none_of(shape.parameters(), HasNarrowElements))
    return;
  *options.mutable_argument_layouts() = shape.parameters();
  *options.mutable_executable_build_options()->mutable_result_layout() = shape.result();
}

// The runtime's options for the program of one position, whose HLO is optimized already.
absl::StatusOr<std::string> OptionsForOne(const std::string& serialized,
                                          const xla::ProgramShapeProto& shape) {
  xla::CompileOptionsProto options;
  if (!options.ParseFromString(serialized))
    return absl::InvalidArgumentError("malformed compile options");
  options.set_compile_portable_executable(true);
  xla::ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  // Those of the client are of whole arrays; the partitioned program has them already.
  options.clear_argument_layouts();
  build.clear_result_layout();
  build.set_num_replicas(1);
  build.set_num_partitions(1);
  build.set_use_spmd_partitioning(false);
  build.set_use_shardy_partitioner(false);
  build.clear_device_assignment();
  build.set_run_backend_only(true);
  KeepPacked(shape, options);
  return options.SerializeAsString();
}

// Only the lowering puts calls of Gangway's own into a program.
absl::Status CheckCalls(const std::string& program) {
  const bool may_call = program.find(collective::kPositionTarget) != std::string::npos ||
                        program.find(collective::kCollectiveTarget) != std::string::npos;
  return may_call ? collective::CheckNoOwnCalls(program) : absl::OkStatus();
}

// A program for one device may have collectives, too: over an axis of size 1. XLA CPU takes any ids where the program
// has only one replica or partition. Such a group fails when it runs, and such a permutation yields zeros. Other
// platforms' optimized programs may have forms of their own.
absl::Status CheckRuntimesCollectives(const device::Backend& backend,
                                      const wire::ExecutableInfo& info) {
  if (backend.capabilities().platform != "cpu") return absl::OkStatus();
  return collective::CheckKeptCollectives(info.optimized_program());
}

wire::CompileResult RefusedOverWorkers(const std::string& why) {
  wire::CompileResult result;
  result.set_refused_over_workers(true);
  *result.mutable_failure() = wire::MakeFailure(
      absl::StatusCode::kUnimplemented, why,
      "Use a mesh inside one worker; move arrays between meshes with device_put.");
  return result;
}

absl::Status CheckDevices(const device::Backend& backend, const wire::CompileRequest& request) {
  const size_t available = backend.devices().size();
  if (request.device_count() <= available) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a program needs ", request.device_count(), " devices and the compiler has ",
                   available, ": start the compiler with as many devices as the largest slice"));
}

absl::StatusOr<wire::CompileResult> CompileDeclared(device::Backend& backend,
                                                    const wire::CompileRequest& request) {
  GANGWAY_RETURN_IF_ERROR(CheckDevices(backend, request));
  GANGWAY_ASSIGN_OR_RETURN(const auto executable,
                           CompileForPositions(backend, request, request.options()));
  GANGWAY_ASSIGN_OR_RETURN(const std::string serialized, executable->Serialize());
  auto lowered = device::LowerSim(serialized);
  if (absl::IsUnimplemented(lowered.status()))
    return RefusedOverWorkers(std::string(lowered.status().message()));
  GANGWAY_RETURN_IF_ERROR(lowered);
  wire::CompileResult result;
  result.mutable_info()->set_device_count(request.device_count());
  GANGWAY_ASSIGN_OR_RETURN(std::string program, executable->OptimizedProgram());
  GANGWAY_RETURN_IF_ERROR(Describe(*executable, std::move(program), executable->GetCostAnalysis(),
                                   *result.mutable_info()));
  result.set_serialized(*std::move(lowered));
  result.mutable_positions()->set_replicas(1);
  result.mutable_positions()->set_partitions(request.device_count());
  return result;
}

// Its programs are data: there is nothing to check, to partition or to lower.
bool TakesDeclared(const device::Backend& backend) {
  return backend.capabilities().programs == device::Capabilities::Programs::kDeclared;
}

// Of an array that is exchanged in several pieces for each member. XLA's slices and concatenation copy many small
// pieces two to three times as fast (measured from 2,048 on). Up to 256, they save less than a third of the exchange,
// and the second partitioning would cost more than many runs save.
constexpr uint64_t kPieceBytesMin = uint64_t{64} << 10;
constexpr uint64_t kSmallPiecesMax = 256;

bool ExchangesSmallPieces(const xla::CollectiveTable& table) {
  return std::ranges::any_of(table.collectives(), [](const xla::Collective& each) {
    return each.kind() == xla::Collective::ALL_TO_ALL &&
           each.operands(0).outer() > kSmallPiecesMax &&
           each.operands(0).piece_bytes() < kPieceBytesMin;
  });
}

// `may_diverge`: the client may have written the loops' lengths itself.
absl::StatusOr<wire::CompileResult> CompileSpanning(device::Backend& backend,
                                                    const wire::CompileRequest& request,
                                                    const OpenBackend& open, bool may_diverge) {
  if (TakesDeclared(backend)) return CompileDeclared(backend, request);
  // Other platforms' clients find real devices only, and bring collectives over processes of their own.
  if (!open ||
      backend.capabilities().ffi_handlers != device::Capabilities::FfiHandlers::kHostMemory ||
      backend.capabilities().platform != "cpu") {
    return RefusedOverWorkers(
        absl::StrCat("a program cannot span devices of several workers on platform ",
                     backend.capabilities().platform));
  }
  GANGWAY_ASSIGN_OR_RETURN(Partitioned partitioned,
                           Partition(backend, request, open, Exchanges::kOfArrays));
  auto lowered = collective::LowerCollectives(partitioned.program);
  // XLA CPU ends the process that compiles a concatenation of such integers.
  if (lowered.ok() && !lowered->widens && ExchangesSmallPieces(lowered->table)) {
    GANGWAY_ASSIGN_OR_RETURN(partitioned, Partition(backend, request, open, Exchanges::kOfSlices));
    lowered = collective::LowerCollectives(partitioned.program);
  }
  absl::Status known = lowered.status();
  if (known.ok()) known = collective::Plan::Make(lowered->table).status();
  if (absl::IsUnimplemented(known)) return RefusedOverWorkers(std::string(known.message()));
  GANGWAY_RETURN_IF_ERROR(known);
  if (may_diverge) lowered->table.set_may_diverge(true);
  GANGWAY_ASSIGN_OR_RETURN(const std::string options,
                           OptionsForOne(request.options(), lowered->shape));
  const int first = 0;
  const auto compiled = backend.Compile({lowered->program, "hlo"}, options, {&first, 1});
  if (!compiled.ok()) return Explain(compiled.status());
  const device::Executable& executable = **compiled;
  wire::CompileResult result;
  wire::ExecutableInfo& info = *result.mutable_info();
  info.set_device_count(request.device_count());
  // The costs are those of the partitioned program: what replaces its collectives are calls, which count as nothing.
  GANGWAY_RETURN_IF_ERROR(
      Describe(executable, std::move(partitioned.program), partitioned.costs, info));
  FillMemoryKinds(partitioned.memory_kinds, info);
  xla::LoweredExecutable serialized;
  GANGWAY_ASSIGN_OR_RETURN(*serialized.mutable_executable(), executable.Serialize());
  *serialized.mutable_table() = std::move(lowered->table);
  result.mutable_positions()->set_replicas(serialized.table().replica_count());
  result.mutable_positions()->set_partitions(serialized.table().partition_count());
  serialized.SerializeToString(result.mutable_serialized());
  return result;
}

absl::StatusOr<wire::CompileResult> CompileHere(device::Backend& backend,
                                                const wire::CompileRequest& request) {
  GANGWAY_RETURN_IF_ERROR(CheckDevices(backend, request));
  GANGWAY_ASSIGN_OR_RETURN(const auto executable,
                           CompileForPositions(backend, request, request.options()));
  wire::CompileResult result;
  wire::ExecutableInfo& info = *result.mutable_info();
  info.set_device_count(request.device_count());
  auto program = executable->OptimizedProgram();
  if (program.ok()) {
    GANGWAY_RETURN_IF_ERROR(CheckCalls(*program));
    GANGWAY_RETURN_IF_ERROR(
        Describe(*executable, *std::move(program), executable->GetCostAnalysis(), info));
    GANGWAY_RETURN_IF_ERROR(CheckRuntimesCollectives(backend, info));
    FillMemoryKinds(executable->output_memory_kinds(), info);
  } else if (absl::IsUnimplemented(program.status())) {
    GANGWAY_RETURN_IF_ERROR(FillFromOutputs(*executable, info));
    GANGWAY_RETURN_IF_ERROR(FillMemory(*executable, info));
    const auto costs = executable->GetCostAnalysis();
    if (costs.ok()) FillCosts(*costs, info);
    if (!costs.ok() && !absl::IsUnimplemented(costs.status())) return costs.status();
  } else {
    return program.status();
  }
  GANGWAY_ASSIGN_OR_RETURN(*result.mutable_serialized(), executable->Serialize());
  return result;
}

absl::StatusOr<wire::CompileResult> CompileAsAsked(device::Backend& backend,
                                                   const wire::CompileRequest& request,
                                                   const OpenBackend& open, bool may_diverge) {
  if (request.spans_workers()) return CompileSpanning(backend, request, open, may_diverge);
  // A declared program has collectives of either kind, and says which.
  if ((request.own_collectives() || TakesDeclared(backend)) && request.device_count() > 1) {
    GANGWAY_ASSIGN_OR_RETURN(auto result, CompileSpanning(backend, request, open, may_diverge));
    if (!result.refused_over_workers()) return result;  // else the runtime's own may do
  }
  return CompileHere(backend, request);
}

bool MayNeedCuts(const device::Backend& backend, const wire::CompileRequest& request,
                 const OpenBackend& open) {
  const bool is_cpu = backend.capabilities().platform == "cpu";
  if (request.device_count() <= 1 || TakesDeclared(backend)) return false;
  if (request.device_count() > backend.devices().size() && (!is_cpu || !open))
    return false;  // it is refused
  const auto shape = device::ReadLogicalShape(request.options());
  if (!shape.ok() || shape->num_partitions <= 1) return false;
  // LAPACK's functions are of CPUs.
  return is_cpu ? MayHaveCallsToCut(request.program()) : xla::MayAskItsClient(request.program());
}

// A program of any format but one, and its client's answers.
struct Asked {
  wire::CompileRequest request;
  google::protobuf::RepeatedPtrField<xla::PartitionedCall> answers;
  bool can_ask = false;  // its client answers
};

absl::StatusOr<Asked> Unpack(const wire::CompileRequest& request) {
  Asked asked{.request = request};
  if (request.format() != xla::kProgramWithCalls) return asked;
  xla::ProgramWithCalls program;
  if (request.program().size() > INT32_MAX || !program.ParseFromString(request.program()) ||
      program.format() == xla::kProgramWithCalls)
    return absl::InvalidArgumentError("the program and its partitioned calls are malformed");
  asked.request.set_program(std::move(*program.mutable_program()));
  asked.request.set_format(std::move(*program.mutable_format()));
  asked.answers = std::move(*program.mutable_calls());
  asked.can_ask = true;
  return asked;
}

// What arrives: the program, and the modules of the client's answers, which become HLO.
absl::Status CheckAsked(device::Backend& converter, const CallSettings& settings, Asked& asked) {
  GANGWAY_RETURN_IF_ERROR(CheckRequest(converter, asked.request, settings));
  std::map<std::string, std::string> modules;  // layers of a model often have the same
  for (xla::PartitionedCall& answer : asked.answers) {
    if (answer.module().empty()) continue;
    const auto [module, is_new] = modules.try_emplace(answer.module());
    if (is_new) {
      wire::CompileRequest converted;
      converted.set_program(answer.module());
      converted.set_format("mlir");
      converted.set_options(asked.request.options());
      GANGWAY_ASSIGN_OR_RETURN(module->second, CheckedHlo(converter, converted, settings));
    }
    answer.set_module(module->second);
  }
  return absl::OkStatus();
}

absl::Status CheckWith(device::Backend& backend, device::Backend* converter,
                       const OpenBackend& open, Asked& asked) {
  if (TakesDeclared(backend)) return absl::OkStatus();
  const CallSettings settings{.platform = backend.capabilities().platform,
                              .simulates_work = !device::SimulatedWorkHandlers().handlers.empty()};
  if (converter != nullptr) return CheckAsked(*converter, settings, asked);
  if (backend.capabilities().platform != "cpu") {
    const bool needs_none = asked.request.format() == "hlo";
    return needs_none ? CheckAsked(backend, settings, asked) : absl::OkStatus();
  }
  return WithPartitioner(backend, 2, open, [&](device::Backend& opened) {
    return CheckAsked(opened, settings, asked);
  });
}

}  // namespace

absl::StatusOr<wire::CompileResult> Compile(device::Backend& backend,
                                            const wire::CompileRequest& request,
                                            const OpenBackend& open, device::Backend* converter) {
  if (request.device_count() == 0)
    return absl::InvalidArgumentError("a program for 0 devices cannot be compiled");
  GANGWAY_ASSIGN_OR_RETURN(Asked asked, Unpack(request));
  const bool is_stablehlo = asked.request.format() == "mlir";
  GANGWAY_RETURN_IF_ERROR(CheckWith(backend, converter, open, asked));
  CutRequest cut;
  if (MayNeedCuts(backend, asked.request, open)) {
    GANGWAY_ASSIGN_OR_RETURN(cut, CutCallsOf(backend, asked.request, open, asked.answers));
  }
  if (cut.asked.calls_size() > asked.answers.size()) {
    if (!asked.can_ask)
      return absl::UnimplementedError(absl::StrCat(
          cut.asked.calls(0).target() == xla::kInspectTarget ? "jax.debug.inspect_array_sharding"
                                                             : "jax's custom_partitioning",
          " calls a function of the script while a program is compiled, which only the plugin's "
          "door can: `gangway run --door pjrt`, or gangway.connect(door=\"pjrt\")"));
    wire::CompileResult result;
    cut.asked.SerializeToString(result.mutable_info()->mutable_asks());
    GANGWAY_RETURN_IF_ERROR(CheckSize(result.info().asks().size()));
    return result;
  }
  GANGWAY_ASSIGN_OR_RETURN(
      wire::CompileResult result,
      CompileAsAsked(backend, cut.request ? *cut.request : asked.request, open, !is_stablehlo));
  GANGWAY_RETURN_IF_ERROR(
      CheckSize(result.serialized().size() + result.info().optimized_program().size()));
  return result;
}

}  // namespace gangway::compiler
