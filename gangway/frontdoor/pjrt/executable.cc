// Compiling a program, and what the C API tells about it (executable.h).
#include "gangway/frontdoor/pjrt/executable.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/memory_kinds.h"
#include "gangway/frontdoor/pjrt/buffer.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/layout.h"
#include "gangway/frontdoor/pjrt/partitioner.h"
#include "gangway/frontdoor/program_devices.h"
#include "gangway/xla/compile_options.h"
#include "gangway/xla/compile_options.pb.h"
#include "gangway/xla/executable.h"

namespace gangway::pjrt {
namespace {

constexpr char kExecutable[] = "the executable";
constexpr char kHloFormat[] = "hlo_with_config";

int KindIndex(const std::string& kind) {
  for (int i = 0; i < kMemoryKindCount; ++i) {
    if (MemoryKindForClient(kind) == kMemoryKinds[i]) return i;
  }
  return 0;
}

PJRT_NamedValue Named(const std::string& name, double value) {
  PJRT_NamedValue named{};
  named.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  named.name = name.data();
  named.name_size = name.size();
  named.type = PJRT_NamedValue_kFloat;
  named.float_value = static_cast<float>(value);
  named.value_size = 1;
  return named;
}

Layout* NewLayout(const Order& order, Program& program) {
  return program.layouts.emplace_back(std::make_unique<Layout>(Layout{order, true})).get();
}

// Of parameter or result `index`, which has this rank.
absl::StatusOr<Order> OrderOf(const std::vector<Order>& orders, size_t index, size_t rank) {
  return FullOrder(orders.empty() ? Order() : orders[index], rank);
}

absl::StatusOr<Orders> OrdersFor(const StoredProgram& source, const ExecutableInfo& info) {
  GANGWAY_ASSIGN_OR_RETURN(Orders orders, ReadOrders(source.layouts));
  const bool fits =
      (orders.parameters.empty() || orders.parameters.size() == info.parameters.size()) &&
      (orders.results.empty() || orders.results.size() == info.results.size());
  if (fits) return orders;
  return absl::InvalidArgumentError(absl::StrCat(
      "layouts of ", orders.parameters.size(), " parameters and ", orders.results.size(),
      " results, the program has ", info.parameters.size(), " and ", info.results.size()));
}

absl::StatusOr<std::shared_ptr<const Program>> Describe(
    std::shared_ptr<const ExecutableInfo> info, const xla::CompileOptionsProto& options,
    std::shared_ptr<const StoredProgram> source) {
  auto program = std::make_shared<Program>();
  GANGWAY_ASSIGN_OR_RETURN(const Orders orders, OrdersFor(*source, *info));
  program->source = std::move(source);
  const auto& build = options.executable_build_options();
  program->replicas = static_cast<size_t>(std::max<int64_t>(1, build.num_replicas()));
  program->partitions = static_cast<size_t>(std::max<int64_t>(1, build.num_partitions()));
  for (const TensorSpec& result : info->results) {
    GANGWAY_ASSIGN_OR_RETURN(const std::shared_ptr<const Shape> row_major,
                             MakeShape(result.element_type, result.shard_dims));
    auto shape = std::make_shared<Shape>(*row_major);
    GANGWAY_ASSIGN_OR_RETURN(shape->minor_to_major,
                             OrderOf(orders.results, program->results.size(), shape->dims.size()));
    program->result_types.push_back(shape->type);
    program->result_dims.insert(program->result_dims.end(), shape->dims.begin(), shape->dims.end());
    program->result_ranks.push_back(shape->dims.size());
    const int kind = KindIndex(result.memory_kind);
    program->result_kinds.push_back(kind);
    program->kind_names.push_back(kMemoryKinds[kind]);
    program->kind_sizes.push_back(std::strlen(kMemoryKinds[kind]));
    program->result_layouts.push_back(NewLayout(shape->minor_to_major, *program));
    program->results.push_back(std::move(shape));
  }
  for (const TensorSpec& parameter : info->parameters) {
    GANGWAY_ASSIGN_OR_RETURN(
        const Order order,
        OrderOf(orders.parameters, program->parameter_layouts.size(), parameter.shard_dims.size()));
    program->parameter_layouts.push_back(NewLayout(order, *program));
  }
  // jaxlib asks the program for the layouts of its parameters.
  if (!orders.parameters.empty() && !info->optimized_program.empty()) {
    GANGWAY_ASSIGN_OR_RETURN(program->optimized,
                             xla::WithParameterLayouts(info->optimized_program, orders.parameters));
  }
  for (const auto& [name, value] : info->cost) program->cost.push_back(Named(name, value));
  program->info = std::move(info);
  return program;
}

// Answers what the program asks.
absl::StatusOr<Compiled> CompileAnswering(Client* client, Source& source,
                                          const std::vector<uint32_t>& devices) {
  {
    GANGWAY_ASSIGN_OR_RETURN(Compiled compiled, CompileFor(client, source, devices));
    if (compiled.info->asks.empty()) return compiled;
    GANGWAY_ASSIGN_OR_RETURN(StoredProgram answered, Answer(*source.stored, compiled.info->asks));
    source.stored = std::make_shared<const StoredProgram>(std::move(answered));
  }
  GANGWAY_ASSIGN_OR_RETURN(Compiled compiled, CompileFor(client, source, devices));
  if (!compiled.info->asks.empty())
    return absl::InternalError("the compiler asks again what was answered");
  return compiled;
}

}  // namespace

absl::StatusOr<PJRT_LoadedExecutable*> Compile(PJRT_Client* owner, StoredProgram stored) {
  Source source;
  xla::CompileOptionsProto& options = source.options;
  if (!options.ParseFromString(stored.options))
    return absl::InvalidArgumentError("the compile options are not XLA's");
  xla::DropLocalOptions(options);
  if (std::string layouts = xla::TakeOption(kLayoutsOption, options); !layouts.empty()) {
    stored.layouts = std::move(layouts);
    HideLayouts(stored.program);
  }
  GANGWAY_RETURN_IF_ERROR(CheckPortable(options));
  const bool is_portable = options.compile_portable_executable();
  options.set_compile_portable_executable(false);  // the cluster compiles for devices
  Client* const client = owner->session.get();
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<uint32_t> devices,
                           ProgramDevices(client->cluster(), options));
  source.stored =
      std::make_shared<const StoredProgram>(AsAsking(std::move(stored), devices.size()));
  GANGWAY_ASSIGN_OR_RETURN(Compiled compiled, CompileAnswering(client, source, devices));
  auto loaded = std::make_unique<PJRT_LoadedExecutable>();
  GANGWAY_ASSIGN_OR_RETURN(loaded->program, Describe(compiled.info, options, source.stored));
  loaded->client = owner;
  loaded->drops = owner->drops;
  if (is_portable) {
    loaded->portable = std::make_unique<Portable>(client, owner->drops, std::move(source));
    loaded->portable->Add(devices[0], compiled.Take());
  } else {
    for (uint32_t device : devices) loaded->devices.push_back(FindDevice(*owner, device));
    loaded->handle = compiled.Take();
  }
  return loaded.release();
}

absl::Status ClientCompile(PJRT_Client_Compile_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, "the client"));
  GANGWAY_RETURN_IF_ERROR(Need(args.program, "the program"));
  GANGWAY_RETURN_IF_ERROR(
      NeedSize(args.program->struct_size, PJRT_Program_STRUCT_SIZE, "the program"));
  if (args.program->code_size > 0)
    GANGWAY_RETURN_IF_ERROR(Need(args.program->code, "the program's code"));
  if (args.program->format_size > 0)
    GANGWAY_RETURN_IF_ERROR(Need(args.program->format, "the program's format"));
  if (args.compile_options_size > 0)
    GANGWAY_RETURN_IF_ERROR(Need(args.compile_options, "the compile options"));
  GANGWAY_ASSIGN_OR_RETURN(
      args.executable,
      Compile(args.client,
              {.program = std::string(args.program->code, args.program->code_size),
               .format = std::string(args.program->format, args.program->format_size),
               .options = std::string(args.compile_options, args.compile_options_size)}));
  return absl::OkStatus();
}

absl::Status ExecutableDestroy(PJRT_Executable_Destroy_Args& args) {
  delete args.executable;
  return absl::OkStatus();
}

absl::Status ExecutableName(PJRT_Executable_Name_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  args.executable_name = args.executable->program->info->name.data();
  args.executable_name_size = args.executable->program->info->name.size();
  return absl::OkStatus();
}

absl::Status ExecutableReplicas(PJRT_Executable_NumReplicas_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  args.num_replicas = args.executable->program->replicas;
  return absl::OkStatus();
}

absl::Status ExecutablePartitions(PJRT_Executable_NumPartitions_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  args.num_partitions = args.executable->program->partitions;
  return absl::OkStatus();
}

absl::Status ExecutableResults(PJRT_Executable_NumOutputs_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  args.num_outputs = args.executable->program->results.size();
  return absl::OkStatus();
}

absl::Status ExecutableCodeSize(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  args.size_in_bytes = static_cast<int64_t>(args.executable->program->info->code_bytes);
  return absl::OkStatus();
}

absl::Status ExecutableFingerprint(PJRT_Executable_Fingerprint_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  const std::string& fingerprint = args.executable->program->info->fingerprint;
  if (fingerprint.empty()) return absl::UnimplementedError("this executable has no fingerprint");
  args.executable_fingerprint = fingerprint.data();
  args.executable_fingerprint_size = fingerprint.size();
  return absl::OkStatus();
}

absl::Status ExecutableCost(PJRT_Executable_GetCostAnalysis_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  args.properties = args.executable->program->cost.data();
  args.num_properties = args.executable->program->cost.size();
  return absl::OkStatus();
}

// The struct of an older caller ends before the later numbers.
absl::Status ExecutableMemory(PJRT_Executable_GetCompiledMemoryStats_Args& args) {
  using Args = PJRT_Executable_GetCompiledMemoryStats_Args;
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  const ExecutableInfo& info = *args.executable->program->info;
  args.generated_code_size_in_bytes = static_cast<int64_t>(info.code_bytes);
  args.argument_size_in_bytes = static_cast<int64_t>(info.argument_bytes);
  args.output_size_in_bytes = static_cast<int64_t>(info.output_bytes);
  args.alias_size_in_bytes = static_cast<int64_t>(info.alias_bytes);
  if (args.struct_size < PJRT_STRUCT_SIZE(Args, temp_size_in_bytes)) return absl::OkStatus();
  args.temp_size_in_bytes = static_cast<int64_t>(info.temp_bytes);
  if (args.struct_size < PJRT_STRUCT_SIZE(Args, host_temp_size_in_bytes)) return absl::OkStatus();
  args.host_generated_code_size_in_bytes = args.host_argument_size_in_bytes = 0;
  args.host_output_size_in_bytes = args.host_alias_size_in_bytes = 0;
  args.host_temp_size_in_bytes = 0;
  if (args.struct_size < PJRT_STRUCT_SIZE(Args, peak_memory_in_bytes)) return absl::OkStatus();
  args.peak_memory_in_bytes = args.argument_size_in_bytes + args.output_size_in_bytes +
                              args.temp_size_in_bytes - args.alias_size_in_bytes;
  return absl::OkStatus();
}

absl::Status ExecutableResultTypes(PJRT_Executable_OutputElementTypes_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  // The API takes no const here, and its callers only read.
  args.output_types = const_cast<PJRT_Buffer_Type*>(args.executable->program->result_types.data());
  args.num_output_types = args.executable->program->result_types.size();
  return absl::OkStatus();
}

absl::Status ExecutableResultDims(PJRT_Executable_OutputDimensions_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  const Program& program = *args.executable->program;
  args.num_outputs = program.results.size();
  args.dims = program.result_dims.data();
  args.dim_sizes = program.result_ranks.data();
  return absl::OkStatus();
}

absl::Status ExecutableResultKinds(PJRT_Executable_OutputMemoryKinds_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  const Program& program = *args.executable->program;
  args.num_outputs = program.results.size();
  args.memory_kinds = program.kind_names.data();
  args.memory_kind_sizes = program.kind_sizes.data();
  return absl::OkStatus();
}

// Called twice: without memory for the code it says how much is needed.
absl::Status ExecutableOptimized(PJRT_Executable_OptimizedProgram_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  GANGWAY_RETURN_IF_ERROR(Need(args.program, "the program"));
  GANGWAY_RETURN_IF_ERROR(
      NeedSize(args.program->struct_size, PJRT_Program_STRUCT_SIZE, "the program"));
  const Program& program = *args.executable->program;
  const std::string& code =
      program.optimized.empty() ? program.info->optimized_program : program.optimized;
  if (code.empty()) return absl::UnimplementedError("the backend keeps no optimized program");
  args.program->format = kHloFormat;
  args.program->format_size = std::strlen(kHloFormat);
  if (args.program->code == nullptr) {
    args.program->code_size = code.size();
    return absl::OkStatus();
  }
  if (args.program->code_size < code.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the program has ", code.size(), " bytes, room is for ", args.program->code_size));
  }
  std::memcpy(args.program->code, code.data(), code.size());
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
