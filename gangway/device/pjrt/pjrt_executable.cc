// Implementation of pjrt_executable.h.
#include "gangway/device/pjrt/pjrt_executable.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/check.h"
#include "gangway/base/status.h"
#include "gangway/device/pjrt/compile_options_edit.h"
#include "gangway/device/pjrt/pjrt_buffer.h"
#include "gangway/xla/pjrt_type.h"

namespace gangway::device {
namespace {

constexpr std::string_view kEnvelopeMagic = "GWPJRT01";

std::string WriteEnvelope(std::string_view compile_options, std::string_view payload) {
  std::string bytes(kEnvelopeMagic);
  const uint64_t size = compile_options.size();
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(size >> shift));
  bytes.append(compile_options).append(payload);
  return bytes;
}

struct Envelope {
  std::string_view compile_options;
  std::string_view payload;
};

absl::StatusOr<Envelope> ReadEnvelope(std::string_view bytes) {
  constexpr size_t kHeader = kEnvelopeMagic.size() + sizeof(uint64_t);
  uint64_t size = 0;
  const bool recognized =
      bytes.size() >= kHeader && bytes.substr(0, kEnvelopeMagic.size()) == kEnvelopeMagic;
  for (size_t i = 0; recognized && i < sizeof(uint64_t); ++i) {
    size |= uint64_t{static_cast<unsigned char>(bytes[kEnvelopeMagic.size() + i])} << (8 * i);
  }
  if (!recognized || size > bytes.size() - kHeader) {
    return absl::InvalidArgumentError(
        absl::StrCat("these ", bytes.size(),
                     " bytes are not an executable serialized by this version of Gangway; "
                     "compile the program again"));
  }
  return Envelope{bytes.substr(kHeader, size), bytes.substr(kHeader + size)};
}

struct Placement {
  std::vector<int> devices;
  std::string compile_options;
};

// Decides the devices (empty: 0..n-1) and writes them into the options.
absl::StatusOr<Placement> Place(const PjrtClient& client, std::string_view compile_options,
                                std::span<const int> devices) {
  GANGWAY_ASSIGN_OR_RETURN(LogicalShape shape, ReadLogicalShape(compile_options));
  Placement placement;
  placement.devices.assign(devices.begin(), devices.end());
  if (devices.empty()) {
    for (int i = 0; i < shape.num_replicas * shape.num_partitions; ++i)
      placement.devices.push_back(i);
  }
  std::vector<int64_t> ids;
  for (int device : placement.devices) {
    if (device < 0 || device >= static_cast<int>(client.devices().size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the program is placed on local devices ", absl::StrJoin(placement.devices, ","),
          " but only ", client.devices().size(), " exist; open more devices or use other ones"));
    }
    ids.push_back(client.devices()[device].runtime_id);
  }
  if (std::set<int>(placement.devices.begin(), placement.devices.end()).size() !=
      placement.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the program is placed on local devices ", absl::StrJoin(placement.devices, ","),
        ": one device appears twice. Give each logical position its own device"));
  }
  const bool is_portable = shape.is_portable && shape.num_replicas * shape.num_partitions == 1;
  GANGWAY_ASSIGN_OR_RETURN(placement.compile_options,
                           is_portable ? WithoutDeviceAssignment(compile_options)
                                       : WithDeviceAssignment(compile_options, ids));
  return placement;
}

absl::StatusOr<PJRT_LoadedExecutable*> CompileAsAsked(const PjrtClient& client,
                                                      const Program& program,
                                                      const std::string& compile_options) {
  PJRT_Program pjrt_program{};
  pjrt_program.struct_size = PJRT_Program_STRUCT_SIZE;
  pjrt_program.code = const_cast<char*>(program.code.data());  // an in/out field; only read here
  pjrt_program.code_size = program.code.size();
  pjrt_program.format = program.format.data();
  pjrt_program.format_size = program.format.size();
  PJRT_Client_Compile_Args compile{};
  compile.client = client.client();
  compile.program = &pjrt_program;
  compile.compile_options = compile_options.data();
  compile.compile_options_size = compile_options.size();
  GANGWAY_RETURN_IF_ERROR(client.api().Call(&PJRT_Api::PJRT_Client_Compile, compile));
  return compile.executable;
}

// Options of XLA CPU that are not the client's to choose.
struct XlaOption {
  const char* name;
  const char* value;
};
constexpr XlaOption kCpuOptions[] = {
    // XLA creates the parts of its YNNPACK fusions on their first run, from a list that all devices share without a
    // lock. Devices that start a program together then sometimes corrupt the heap (docs/internals/probes.md).
    {"xla_cpu_experimental_ynn_fusion_type", ""},
};

absl::StatusOr<PJRT_LoadedExecutable*> CompileSafely(const PjrtClient& client,
                                                     const Program& program,
                                                     const std::string& compile_options) {
  std::vector<XlaOption> chosen;
  if (client.capabilities().platform == "cpu")
    chosen.assign(std::begin(kCpuOptions), std::end(kCpuOptions));
  while (true) {
    std::string options = compile_options;
    for (const XlaOption& each : chosen) options = WithXlaOption(options, each.name, each.value);
    auto compiled = CompileAsAsked(client, program, options);
    if (!absl::IsInvalidArgument(compiled.status())) return compiled;
    // An older version of XLA has no such option, and does not need it.
    const size_t unknown = std::erase_if(chosen, [&compiled](const XlaOption& each) {
      return absl::StrContains(compiled.status().message(), each.name);
    });
    if (unknown == 0) return compiled;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executable>> PjrtExecutable::Compile(
    std::shared_ptr<const PjrtClient> client, const Program& program,
    std::string_view compile_options, std::span<const int> devices) {
  GANGWAY_ASSIGN_OR_RETURN(Placement placement, Place(*client, compile_options, devices));
  GANGWAY_ASSIGN_OR_RETURN(auto* compiled,
                           CompileSafely(*client, program, placement.compile_options));
  std::unique_ptr<PjrtExecutable> executable(
      new PjrtExecutable(std::move(client), compiled, std::move(placement.compile_options),
                         std::move(placement.devices)));
  GANGWAY_RETURN_IF_ERROR(executable->Describe());
  return executable;
}

absl::StatusOr<std::unique_ptr<Executable>> PjrtExecutable::Load(
    std::shared_ptr<const PjrtClient> client, std::string_view serialized,
    std::span<const int> devices) {
  GANGWAY_ASSIGN_OR_RETURN(Envelope envelope, ReadEnvelope(serialized));
  GANGWAY_ASSIGN_OR_RETURN(Placement placement, Place(*client, envelope.compile_options, devices));
  PJRT_Executable_DeserializeAndLoad_Args load{};
  load.client = client->client();
  load.serialized_executable = envelope.payload.data();
  load.serialized_executable_size = envelope.payload.size();
  load.overridden_serialized_compile_options = placement.compile_options.data();
  load.overridden_serialized_compile_options_size = placement.compile_options.size();
  GANGWAY_RETURN_IF_ERROR(client->api().Call(&PJRT_Api::PJRT_Executable_DeserializeAndLoad, load));
  std::unique_ptr<PjrtExecutable> executable(
      new PjrtExecutable(std::move(client), load.loaded_executable,
                         std::move(placement.compile_options), std::move(placement.devices)));
  GANGWAY_RETURN_IF_ERROR(executable->Describe());
  return executable;
}

PjrtExecutable::~PjrtExecutable() {
  if (executable_ != nullptr) {
    PJRT_Executable_Destroy_Args destroy{};
    destroy.executable = executable_;
    (void)client_->api().Call(&PJRT_Api::PJRT_Executable_Destroy, destroy);
  }
  PJRT_LoadedExecutable_Destroy_Args destroy{};
  destroy.executable = loaded_;
  (void)client_->api().Call(&PJRT_Api::PJRT_LoadedExecutable_Destroy, destroy);
}

absl::Status PjrtExecutable::Describe() {
  const PjrtApi& api = client_->api();
  PJRT_LoadedExecutable_GetExecutable_Args get{};
  get.loaded_executable = loaded_;
  GANGWAY_RETURN_IF_ERROR(api.Call(&PJRT_Api::PJRT_LoadedExecutable_GetExecutable, get));
  executable_ = get.executable;
  PJRT_Executable_Name_Args name{};
  name.executable = executable_;
  GANGWAY_RETURN_IF_ERROR(api.Call(&PJRT_Api::PJRT_Executable_Name, name));
  name_.assign(name.executable_name, name.executable_name_size);
  PJRT_Executable_NumReplicas_Args replicas{};
  replicas.executable = executable_;
  GANGWAY_RETURN_IF_ERROR(api.Call(&PJRT_Api::PJRT_Executable_NumReplicas, replicas));
  num_replicas_ = static_cast<int>(replicas.num_replicas);
  PJRT_Executable_NumPartitions_Args partitions{};
  partitions.executable = executable_;
  GANGWAY_RETURN_IF_ERROR(api.Call(&PJRT_Api::PJRT_Executable_NumPartitions, partitions));
  num_partitions_ = static_cast<int>(partitions.num_partitions);
  return DescribeOutputs();
}

absl::Status PjrtExecutable::DescribeOutputs() {
  const PjrtApi& api = client_->api();
  PJRT_Executable_NumOutputs_Args count{};
  count.executable = executable_;
  GANGWAY_RETURN_IF_ERROR(api.Call(&PJRT_Api::PJRT_Executable_NumOutputs, count));
  PJRT_Executable_OutputElementTypes_Args types{};
  types.executable = executable_;
  GANGWAY_RETURN_IF_ERROR(api.Call(&PJRT_Api::PJRT_Executable_OutputElementTypes, types));
  PJRT_Executable_OutputDimensions_Args dimensions{};
  dimensions.executable = executable_;
  GANGWAY_RETURN_IF_ERROR(api.Call(&PJRT_Api::PJRT_Executable_OutputDimensions, dimensions));
  if (types.num_output_types != count.num_outputs || dimensions.num_outputs != count.num_outputs) {
    return absl::InternalError(absl::StrCat("the plugin has ", count.num_outputs, " outputs of ",
                                            name_, " but ", types.num_output_types, " types and ",
                                            dimensions.num_outputs, " shapes"));
  }
  std::vector<ArraySpec> outputs(count.num_outputs);
  const int64_t* next = dimensions.dims;
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].element_type = xla::FromPjrtType(types.output_types[i]);
    outputs[i].dims.assign(next, next + dimensions.dim_sizes[i]);
    next += dimensions.dim_sizes[i];
  }
  outputs_ = std::make_shared<const std::vector<ArraySpec>>(std::move(outputs));
  return DescribeMemoryKinds();
}

absl::Status PjrtExecutable::DescribeMemoryKinds() {
  const PjrtApi& api = client_->api();
  if (api.table()->PJRT_Executable_OutputMemoryKinds == nullptr) return absl::OkStatus();
  PJRT_Executable_OutputMemoryKinds_Args kinds{};
  kinds.executable = executable_;
  const absl::Status told = api.Call(&PJRT_Api::PJRT_Executable_OutputMemoryKinds, kinds);
  if (absl::IsUnimplemented(told)) return absl::OkStatus();
  GANGWAY_RETURN_IF_ERROR(told);
  const std::string& usual = client_->devices()[0].memory_kinds[0];
  for (size_t i = 0; i < kinds.num_outputs; ++i) {
    const std::string_view kind(kinds.memory_kinds[i], kinds.memory_kind_sizes[i]);
    memory_kinds_.emplace_back(kind == usual ? "" : kind);
  }
  return absl::OkStatus();
}

absl::StatusOr<MemoryStats> PjrtExecutable::GetMemoryStats() const {
  if (client_->api().table()->PJRT_Executable_GetCompiledMemoryStats == nullptr) {
    return absl::UnimplementedError("the plugin does not report the memory of its programs");
  }
  PJRT_Executable_GetCompiledMemoryStats_Args args{};
  args.executable = executable_;
  GANGWAY_RETURN_IF_ERROR(
      client_->api().Call(&PJRT_Api::PJRT_Executable_GetCompiledMemoryStats, args));
  MemoryStats stats;
  stats.argument_bytes = args.argument_size_in_bytes;
  stats.output_bytes = args.output_size_in_bytes;
  stats.temp_bytes = args.temp_size_in_bytes;
  stats.alias_bytes = args.alias_size_in_bytes;
  stats.generated_code_bytes = args.generated_code_size_in_bytes;
  return stats;
}

absl::StatusOr<std::vector<std::pair<std::string, double>>> PjrtExecutable::GetCostAnalysis()
    const {
  if (client_->api().table()->PJRT_Executable_GetCostAnalysis == nullptr)
    return absl::UnimplementedError("the plugin does not count the costs of its programs");
  PJRT_Executable_GetCostAnalysis_Args args{};
  args.executable = executable_;
  GANGWAY_RETURN_IF_ERROR(client_->api().Call(&PJRT_Api::PJRT_Executable_GetCostAnalysis, args));
  std::vector<std::pair<std::string, double>> costs;
  for (size_t i = 0; i < args.num_properties; ++i) {
    const PJRT_NamedValue& property = args.properties[i];
    std::string name(property.name, property.name_size);
    if (property.type == PJRT_NamedValue_kFloat)
      costs.emplace_back(std::move(name), property.float_value);
    else if (property.type == PJRT_NamedValue_kInt64)
      costs.emplace_back(std::move(name), property.int64_value);
  }
  return costs;
}

absl::StatusOr<std::string> PjrtExecutable::Serialize() const {
  PJRT_Executable_Serialize_Args args{};
  args.executable = executable_;
  GANGWAY_RETURN_IF_ERROR(client_->api().Call(&PJRT_Api::PJRT_Executable_Serialize, args));
  std::string bytes =
      WriteEnvelope(compile_options_, {args.serialized_bytes, args.serialized_bytes_size});
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

absl::StatusOr<std::string> PjrtExecutable::OptimizedProgram() const {
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  PJRT_Executable_OptimizedProgram_Args args{};
  args.executable = executable_;
  args.program = &program;
  GANGWAY_RETURN_IF_ERROR(client_->api().Call(&PJRT_Api::PJRT_Executable_OptimizedProgram, args));
  std::string bytes(program.code_size, '\0');
  program.code = bytes.data();
  GANGWAY_RETURN_IF_ERROR(client_->api().Call(&PJRT_Api::PJRT_Executable_OptimizedProgram, args));
  return bytes;
}

absl::Status PjrtExecutable::CheckArguments(int device, std::span<Buffer* const> arguments) const {
  if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name_, " is loaded on local devices ", absl::StrJoin(devices_, ","), ", not on ", device));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    GANGWAY_CHECK(arguments[i] != nullptr, "an argument of ExecuteOn is null");
    if (arguments[i]->device() != device) {
      return absl::InvalidArgumentError(absl::StrCat(
          "argument ", i, " of ", name_, " is on local device ", arguments[i]->device(),
          " but the program runs on ", device, "; copy it there first"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<Buffer>>> PjrtExecutable::ExecuteOn(
    int device, std::span<Buffer* const> arguments, const ExecuteOptions& options,
    StatusCallback on_complete) {
  GANGWAY_RETURN_IF_ERROR(CheckArguments(device, arguments));
  GANGWAY_ASSIGN_OR_RETURN(auto* pjrt_device, client_->Device(device));
  std::vector<PJRT_Buffer*> inputs(arguments.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = static_cast<PjrtBuffer*>(arguments[i])->pjrt();
  std::vector<PJRT_Buffer*> results(outputs_->size());
  PJRT_ExecuteOptions execute_options{};
  execute_options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  execute_options.launch_id = options.launch_id;
  execute_options.non_donatable_input_indices = options.non_donatable.data();
  execute_options.num_non_donatable_input_indices = options.non_donatable.size();
  PJRT_Buffer* const* argument_list = inputs.data();
  PJRT_Buffer** output_list = results.data();
  PJRT_Event* complete = nullptr;
  PJRT_LoadedExecutable_Execute_Args execute{};
  execute.executable = loaded_;
  execute.options = &execute_options;
  execute.argument_lists = &argument_list;
  execute.num_devices = 1;
  execute.num_args = inputs.size();
  execute.output_lists = &output_list;
  execute.device_complete_events = &complete;
  execute.execute_device = pjrt_device;
  const std::shared_ptr<LaunchesInFlight> launches =
      devices_.size() > 1 && num_replicas_ * num_partitions_ > 1 ? client_->launches() : nullptr;
  if (launches != nullptr)
    GANGWAY_RETURN_IF_ERROR(launches->Begin(options.launch_id, this, device));
  const absl::Status taken = client_->api().Call(&PJRT_Api::PJRT_LoadedExecutable_Execute, execute);
  if (!taken.ok() && launches != nullptr) launches->End(options.launch_id);
  GANGWAY_RETURN_IF_ERROR(taken);
  std::vector<std::unique_ptr<Buffer>> buffers;
  buffers.reserve(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    buffers.push_back(std::make_unique<PjrtBuffer>(
        client_, results[i], device, std::shared_ptr<const ArraySpec>(outputs_, &(*outputs_)[i])));
  }
  client_->api().OnEvent(complete, [on_complete = std::move(on_complete), launches,
                                    id = options.launch_id](absl::Status done) {
    if (launches != nullptr) launches->End(id);
    if (on_complete) on_complete(std::move(done));
  });
  return buffers;
}

}  // namespace gangway::device
