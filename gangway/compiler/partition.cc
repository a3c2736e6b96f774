// Implementation of partition.h.
#include "gangway/compiler/partition.h"

#include <google/protobuf/unknown_field_set.h>

#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/heap.h"
#include "gangway/base/status.h"
#include "gangway/compiler/hlo_field.h"
#include "gangway/compiler/refusals.h"
#include "gangway/compiler/sharded_calls.h"
#include "gangway/compiler/thread_room.h"
#include "gangway/compiler/written_hlo.h"
#include "gangway/device/pjrt/compile_options_edit.h"
#include "gangway/xla/compile_options.pb.h"
#include "gangway/xla/hlo_edit.pb.h"

namespace gangway::compiler {
namespace {

// A client's programs have their devices: only OptionsForOne (compile.cc) asks for a portable one.
std::string WithDevices(const std::string& serialized) {
  xla::CompileOptionsProto options;
  if (!options.ParseFromString(serialized) || !options.compile_portable_executable())
    return serialized;  // malformed ones are the runtime's to refuse
  options.clear_compile_portable_executable();
  return options.SerializeAsString();
}

// What OptimizedProgram would be, from a serialized xla.HloProto. Its module passes through as it is. Clients that read
// the program end without the layout of its entry.
absl::StatusOr<std::string> AddConfig(const std::string& hlo, const device::LogicalShape& shape) {
  constexpr int kModule = 1, kConfig = 2;  // of HloProto and HloModuleProtoWithConfig
  constexpr int kProgramShape = 4;         // of HloModuleProto
  constexpr int kLayout = 1, kReplicas = 4, kPartitions = 5;  // of HloModuleConfigProto
  const std::optional<std::string> module = FieldOf(hlo, kModule);
  if (!module) return absl::InternalError("the runtime wrote a program without its module");
  const std::optional<std::string> layout = FieldOf(*module, kProgramShape);
  if (!layout) return absl::InternalError("the runtime wrote a program without its shape");
  google::protobuf::UnknownFieldSet config, whole;
  config.AddLengthDelimited(kLayout, *layout);
  config.AddVarint(kReplicas, static_cast<uint64_t>(shape.num_replicas));
  config.AddVarint(kPartitions, static_cast<uint64_t>(shape.num_partitions));
  std::string config_bytes, bytes;
  config.SerializeToString(&config_bytes);
  whole.AddLengthDelimited(kModule, *module);
  whole.AddLengthDelimited(kConfig, config_bytes);
  whole.SerializeToString(&bytes);
  return bytes;
}

std::string With(const std::string& options, Exchanges exchanges) {
  const char* const flags = std::getenv("XLA_FLAGS");
  const bool flags_choose = flags != nullptr && absl::StrContains(flags, "hlo_passes");
  if (exchanges == Exchanges::kOfSlices || flags_choose) return options;
  return device::WithoutXlaPass(options, "all_to_all_decomposer");
}

// XLA CPU partitions and optimizes some collectives for which it has no code.
bool LacksOnlyCode(const absl::Status& status) {
  return absl::IsUnimplemented(status) && absl::StrContains(status.message(), "ThunkEmitter");
}

// The optimized program of a compile that then fails for lack of code: the runtime writes it to a file before that.
absl::StatusOr<std::string> ReadWhatWasOptimized(device::Backend& partitioner,
                                                 const wire::CompileRequest& request,
                                                 const std::string& options) {
  GANGWAY_ASSIGN_OR_RETURN(const device::LogicalShape shape, device::ReadLogicalShape(options));
  GANGWAY_ASSIGN_OR_RETURN(
      const std::string hlo,
      WrittenHlo(options, "", "cpu_after_optimizations", [&](const std::string& writes) {
        return CompileForPositions(partitioner, request, writes).status();
      }));
  return AddConfig(hlo, shape);
}

absl::StatusOr<Partitioned> ReadExecutable(const device::Executable& executable) {
  Partitioned partitioned;
  GANGWAY_ASSIGN_OR_RETURN(partitioned.program, executable.OptimizedProgram());
  const auto kinds = executable.output_memory_kinds();
  partitioned.memory_kinds.assign(kinds.begin(), kinds.end());
  partitioned.costs = executable.GetCostAnalysis();
  return partitioned;
}

absl::StatusOr<Partitioned> PartitionWith(device::Backend& partitioner,
                                          const wire::CompileRequest& request,
                                          Exchanges exchanges) {
  // Its code is not used, so it need not be good: that halves the time, and the optimized HLO, which the costs are
  // counted from, is the same.
  const std::string options = device::WithXlaOption(With(request.options(), exchanges),
                                                    "xla_backend_optimization_level", "0");
  const auto partitioned = CompileForPositions(partitioner, request, options);
  if (partitioned.ok()) return ReadExecutable(**partitioned);
  if (!LacksOnlyCode(partitioned.status())) return partitioned.status();
  Partitioned read;
  GANGWAY_ASSIGN_OR_RETURN(read.program, ReadWhatWasOptimized(partitioner, request, options));
  return read;
}

// UNAVAILABLE: it was written to a disk that is full.
absl::StatusOr<xla::HloEditProto> Parse(const std::string& written) {
  xla::HloEditProto program;
  if (written.size() > INT32_MAX || !program.ParseFromString(written) ||
      program.module().computations().empty())
    return absl::UnavailableError("the runtime wrote a part of a program: is its disk full?");
  return program;
}

// The program before the partitioning, when all shardings are known.
absl::StatusOr<xla::HloEditProto> Propagate(device::Backend& partitioner,
                                            const wire::CompileRequest& request) {
  const std::string options =
      device::WithXlaOption(request.options(), "xla_backend_optimization_level", "0");
  GANGWAY_ASSIGN_OR_RETURN(
      const std::string written,
      WrittenHlo(options, "spmd-partitioning", "before_spmd-partitioning",
                 [&](const std::string& writes) {
                   return CompileForPositions(partitioner, request, writes).status();
                 }));
  return Parse(written);
}

// A client's answers, and their modules.
struct Answers {
  std::map<std::string_view, xla::HloModuleEditProto>
      modules;  // layers of a model often have the same
  std::vector<CallAnswer> calls;
};

absl::StatusOr<Answers> ReadAnswers(
    const google::protobuf::RepeatedPtrField<xla::PartitionedCall>& answers) {
  Answers read;
  for (const xla::PartitionedCall& answer : answers) {
    CallAnswer& call = read.calls.emplace_back(CallAnswer{.shardings = &answer});
    if (answer.module().empty()) continue;
    const auto [module, is_new] = read.modules.try_emplace(answer.module());
    if (is_new && !module->second.ParseFromString(answer.module()))
      return absl::InvalidArgumentError("the module of a partitioned call is malformed");
    call.module = &module->second;
  }
  return read;
}

// The options for a program whose shardings are all known.
absl::StatusOr<std::string> OptionsAfterPropagation(const std::string& serialized) {
  xla::CompileOptionsProto options;
  if (!options.ParseFromString(serialized))
    return absl::InvalidArgumentError("malformed compile options");
  xla::ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  build.set_use_shardy_partitioner(false);
  build.clear_allow_spmd_sharding_propagation_to_output();
  build.clear_allow_spmd_sharding_propagation_to_parameters();
  return options.SerializeAsString();
}

}  // namespace

absl::StatusOr<std::unique_ptr<device::Executable>> CompileForPositions(
    device::Backend& backend, const wire::CompileRequest& request, const std::string& options) {
  std::vector<int> positions(request.device_count());
  std::iota(positions.begin(), positions.end(), 0);
  auto compiled =
      backend.Compile({request.program(), request.format()}, WithDevices(options), positions);
  if (!compiled.ok()) return Explain(compiled.status());
  return compiled;
}

absl::Status WithPartitioner(device::Backend& backend, uint32_t device_count,
                             const OpenBackend& open,
                             absl::FunctionRef<absl::Status(device::Backend&)> use) {
  if (device_count <= backend.devices().size()) return use(backend);
  if (device_count > kSpanMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a program over ", device_count, " devices is over the limit of ", kSpanMax));
  }
  GANGWAY_RETURN_IF_ERROR(CheckThreadRoom(device_count + kPartitionThreads));
  absl::Status used;
  {
    GANGWAY_ASSIGN_OR_RETURN(const auto partitioner, open(static_cast<int>(device_count)));
    used = use(*partitioner);
  }
  ReleaseHeap(device_count * kPartitionBytes);  // malloc would keep it for the next
  return used;
}

absl::StatusOr<Partitioned> Partition(device::Backend& backend, const wire::CompileRequest& request,
                                      const OpenBackend& open, Exchanges exchanges) {
  Partitioned partitioned;
  GANGWAY_RETURN_IF_ERROR(WithPartitioner(
      backend, request.device_count(), open, [&](device::Backend& partitioner) -> absl::Status {
        GANGWAY_ASSIGN_OR_RETURN(partitioned, PartitionWith(partitioner, request, exchanges));
        return absl::OkStatus();
      }));
  return partitioned;
}

absl::StatusOr<CutRequest> CutCallsOf(
    device::Backend& backend, const wire::CompileRequest& request, const OpenBackend& open,
    const google::protobuf::RepeatedPtrField<xla::PartitionedCall>& answers) {
  xla::HloEditProto program;
  GANGWAY_RETURN_IF_ERROR(WithPartitioner(
      backend, request.device_count(), open, [&](device::Backend& partitioner) -> absl::Status {
        GANGWAY_ASSIGN_OR_RETURN(program, Propagate(partitioner, request));
        return absl::OkStatus();
      }));
  GANGWAY_ASSIGN_OR_RETURN(const Answers read, ReadAnswers(answers));
  GANGWAY_ASSIGN_OR_RETURN(const device::LogicalShape shape,
                           device::ReadLogicalShape(request.options()));
  GANGWAY_ASSIGN_OR_RETURN(CutCalls cut,
                           Cut(*program.mutable_module(), shape.num_partitions, read.calls));
  CutRequest result{.request = std::nullopt, .asked = std::move(cut.asked)};
  if (cut.cut == 0) return result;
  result.request = request;
  program.module().SerializeToString(result.request->mutable_program());
  result.request->set_format("hlo");
  GANGWAY_ASSIGN_OR_RETURN(*result.request->mutable_options(),
                           OptionsAfterPropagation(request.options()));
  return result;
}

}  // namespace gangway::compiler
