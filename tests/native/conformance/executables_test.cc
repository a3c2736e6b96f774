// Compiling programs, what executables say of themselves, and serialized ones.
#include <map>
#include <set>

#include "tests/native/conformance/plugin.h"

namespace conformance {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// (f32[2,3], s32[]) -> (s32[], f32[2,3], f32[3,2])
constexpr std::string_view kThreeResults =
    "module @three { func.func public @main(%x: tensor<2x3xf32>, %n: tensor<i32>)\n"
    "    -> (tensor<i32>, tensor<2x3xf32>, tensor<3x2xf32>) {\n"
    "  %y = stablehlo.add %x, %x : tensor<2x3xf32>\n"
    "  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"
    "  return %n, %y, %t : tensor<i32>, tensor<2x3xf32>, tensor<3x2xf32> } }\n";

class ExecutablesTest : public Conformance {
 protected:
  template <typename Args, typename Handle, typename Value>
  static Value Get(PJRT_Error* (*function)(Args*), Value Args::* value, const Handle& of) {
    auto args = Make<Args>();
    args.executable = of.get();
    Do(function, args);
    return args.*value;
  }

  template <typename Args, typename Handle>
  static std::string FingerprintOf(PJRT_Error* (*function)(Args*), const Handle& of) {
    auto args = Make<Args>();
    args.executable = of.get();
    Do(function, args);
    return {args.executable_fingerprint, args.executable_fingerprint_size};
  }

  Said TryCompile(std::string_view code, std::string_view format = "mlir") const {
    Loaded loaded;
    return Compile(ProgramOf(code, format), Serialized({}), loaded);
  }
  Said TryOptions(std::string_view options) const {
    Loaded loaded;
    return Compile(ProgramOf(kTwice), options, loaded);
  }

  static std::pair<std::string, std::string> Optimized(const Executable& executable) {
    auto program = Make<PJRT_Program>();
    auto optimized = Make<PJRT_Executable_OptimizedProgram_Args>();
    optimized.executable = executable.get();
    optimized.program = &program;
    Do(Api().PJRT_Executable_OptimizedProgram, optimized);
    std::string code(program.code_size, '\0');
    program.code = code.data();
    Do(Api().PJRT_Executable_OptimizedProgram, optimized);
    return {code, {program.format, program.format_size}};
  }

  // The serialized executable's bytes.
  static std::string SerializedOf(const Executable& executable) {
    auto serialize = Make<PJRT_Executable_Serialize_Args>();
    serialize.executable = executable.get();
    Do(Api().PJRT_Executable_Serialize, serialize);
    std::string bytes(serialize.serialized_bytes, serialize.serialized_bytes_size);
    serialize.serialized_executable_deleter(serialize.serialized_executable);
    return bytes;
  }

  Said Load(std::string_view bytes, Loaded& loaded, std::string_view options = {}) const {
    auto load = Make<PJRT_Executable_DeserializeAndLoad_Args>();
    load.client = client();
    load.serialized_executable = bytes.data();
    load.serialized_executable_size = bytes.size();
    if (!options.empty()) {
      load.overridden_serialized_compile_options = options.data();
      load.overridden_serialized_compile_options_size = options.size();
    }
    Said said = Ask(Api().PJRT_Executable_DeserializeAndLoad, load);
    if (said.ok()) loaded.reset(load.loaded_executable);
    return said;
  }

  std::vector<float> Run(const Loaded& loaded, size_t device_index = 0) const {
    const Buffer argument = Upload(std::vector<float>{1, 2, 3, 4}, device_index);
    const Called called = Call(loaded, {{argument.get()}});
    EXPECT_TRUE(called.said.ok()) << called.said.message;
    return called.said.ok() ? Values<float>(called.results[0][0]) : std::vector<float>();
  }
};

TEST_F(ExecutablesTest, SayWhatTheyAre) {
  const Loaded loaded = Compile(kThreeResults);
  const Executable executable = ExecutableOf(loaded);
  auto name = Make<PJRT_Executable_Name_Args>();
  name.executable = executable.get();
  Do(Api().PJRT_Executable_Name, name);
  EXPECT_THAT(std::string(name.executable_name, name.executable_name_size), HasSubstr("three"));
  EXPECT_EQ(Get(Api().PJRT_Executable_NumReplicas, &PJRT_Executable_NumReplicas_Args::num_replicas,
                executable),
            1u);
  EXPECT_EQ(Get(Api().PJRT_Executable_NumPartitions,
                &PJRT_Executable_NumPartitions_Args::num_partitions, executable),
            1u);
  EXPECT_EQ(Get(Api().PJRT_Executable_NumOutputs, &PJRT_Executable_NumOutputs_Args::num_outputs,
                executable),
            3u);
  EXPECT_GE(Get(Api().PJRT_Executable_SizeOfGeneratedCodeInBytes,
                &PJRT_Executable_SizeOfGeneratedCodeInBytes_Args::size_in_bytes, executable),
            0);
}

TEST_F(ExecutablesTest, DescribeTheirResults) {
  const Loaded loaded = Compile(kThreeResults);
  const Executable executable = ExecutableOf(loaded);
  auto types = Make<PJRT_Executable_OutputElementTypes_Args>();
  types.executable = executable.get();
  Do(Api().PJRT_Executable_OutputElementTypes, types);
  EXPECT_THAT(std::span(types.output_types, types.num_output_types),
              ElementsAre(PJRT_Buffer_Type_S32, PJRT_Buffer_Type_F32, PJRT_Buffer_Type_F32));
  auto dims = Make<PJRT_Executable_OutputDimensions_Args>();
  dims.executable = executable.get();
  Do(Api().PJRT_Executable_OutputDimensions, dims);
  ASSERT_EQ(dims.num_outputs, 3u);
  EXPECT_THAT(std::span(dims.dim_sizes, 3), ElementsAre(0, 2, 2));
  EXPECT_THAT(std::span(dims.dims, 4), ElementsAre(2, 3, 3, 2));
  auto kinds = Make<PJRT_Executable_OutputMemoryKinds_Args>();
  kinds.executable = executable.get();
  const Said said = Ask(Api().PJRT_Executable_OutputMemoryKinds, kinds);
  ASSERT_EQ(said.code, Expected(Topic::kOutputMemoryKinds)) << said.message;
  if (!said.ok()) return;
  ASSERT_EQ(kinds.num_outputs, 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::string_view(kinds.memory_kinds[i], kinds.memory_kind_sizes[i]), "device");
  }
}

TEST_F(ExecutablesTest, SayWhatTheyCost) {
  const Loaded loaded = Compile(kTwice);
  const Executable executable = ExecutableOf(loaded);
  auto cost = Make<PJRT_Executable_GetCostAnalysis_Args>();
  cost.executable = executable.get();
  const Said said = Ask(Api().PJRT_Executable_GetCostAnalysis, cost);
  EXPECT_EQ(said.code, Expected(Topic::kCostAnalysis)) << said.message;
  if (said.ok()) {
    std::map<std::string, float> properties;
    for (const PJRT_NamedValue& each : std::span(cost.properties, cost.num_properties)) {
      EXPECT_EQ(each.type, PJRT_NamedValue_kFloat);
      properties[{each.name, each.name_size}] = each.float_value;
    }
    EXPECT_EQ(properties["flops"], 4);
    EXPECT_EQ(properties["transcendentals"], 0);
    EXPECT_EQ(properties["bytes accessed"], 32);
  }
  auto memory = Make<PJRT_Executable_GetCompiledMemoryStats_Args>();
  memory.executable = executable.get();
  Do(Api().PJRT_Executable_GetCompiledMemoryStats, memory);
  EXPECT_EQ(memory.argument_size_in_bytes, 16);
  EXPECT_EQ(memory.output_size_in_bytes, 16);
  EXPECT_EQ(memory.alias_size_in_bytes, 0);
  EXPECT_GE(memory.peak_memory_in_bytes, 0);
}

TEST_F(ExecutablesTest, SayWhatTheyCostToOlderCallers) {
  if (!Runs(Topic::kOlderMemoryStats)) return;
  using Args = PJRT_Executable_GetCompiledMemoryStats_Args;
  const Loaded loaded = Compile(kTwice);
  const Executable executable = ExecutableOf(loaded);
  for (const size_t size : {PJRT_STRUCT_SIZE(Args, temp_size_in_bytes),
                            PJRT_STRUCT_SIZE(Args, host_temp_size_in_bytes)}) {
    auto memory = Make<Args>();
    memory.struct_size = size;
    memory.executable = executable.get();
    memory.peak_memory_in_bytes = -7;  // behind the end of their struct
    Do(Api().PJRT_Executable_GetCompiledMemoryStats, memory);
    EXPECT_EQ(memory.argument_size_in_bytes, 16);
    EXPECT_EQ(memory.peak_memory_in_bytes, -7);
  }
}

TEST_F(ExecutablesTest, OfDonatedArgumentsSayWhatTheyAlias) {
  const Loaded loaded = Compile(kDonating);
  const Executable executable = ExecutableOf(loaded);
  auto memory = Make<PJRT_Executable_GetCompiledMemoryStats_Args>();
  memory.executable = executable.get();
  Do(Api().PJRT_Executable_GetCompiledMemoryStats, memory);
  EXPECT_EQ(memory.alias_size_in_bytes, 16);
}

TEST_F(ExecutablesTest, ShowTheOptimizedProgramWhichCompilesAgain) {
  const Loaded loaded = Compile(kTwice);
  const auto [code, format] = Optimized(ExecutableOf(loaded));
  EXPECT_EQ(format, "hlo_with_config");
  Loaded again;
  EXPECT_THAT(Compile(ProgramOf(code, format), Serialized({}), again).message,
              HasSubstr("Unknown program format"));
  // Field 1 of it is the bare HloModuleProto, below 16 KiB here.
  ASSERT_EQ(code[0], 0x0a);
  size_t size = 0, at = 1;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(code[at++]);
    size |= static_cast<size_t>(byte & 127) << shift;
    if (byte < 128) break;
  }
  const Said hlo = Compile(ProgramOf(code.substr(at, size), "hlo"), Serialized({}), again);
  if (hlo.ok()) {
    EXPECT_THAT(Run(again), ElementsAre(2, 4, 6, 8));
  } else {  // a plugin that checks programs, which have rules before the optimization only
    EXPECT_THAT(hlo.message, HasSubstr("send it as it is before XLA optimizes it"));
  }
}

TEST_F(ExecutablesTest, HaveFingerprintsOfTheirPrograms) {
  const Loaded twice = Compile(kTwice), again = Compile(kTwice), other = Compile(kThreeResults);
  std::set<std::string> fingerprints;
  for (const Loaded* each : {&twice, &again, &other}) {
    auto args = Make<PJRT_Executable_Fingerprint_Args>();
    const Executable executable = ExecutableOf(*each);
    args.executable = executable.get();
    const Said said = Ask(Api().PJRT_Executable_Fingerprint, args);
    ASSERT_TRUE(said.ok()) << said.message;
    fingerprints.emplace(args.executable_fingerprint, args.executable_fingerprint_size);
  }
  EXPECT_EQ(fingerprints.size(), 2u);
}

TEST_F(ExecutablesTest, HaveFingerprintsWhenLoaded) {
  auto args = Make<PJRT_LoadedExecutable_Fingerprint_Args>();
  const Loaded loaded = Compile(kTwice);
  args.executable = loaded.get();
  const Said said = Ask(Api().PJRT_LoadedExecutable_Fingerprint, args);
  EXPECT_EQ(said.code, Expected(Topic::kLoadedFingerprint)) << said.message;
}

TEST_F(ExecutablesTest, RunOnTheDevicesThatTheyAreAssigned) {
  const Loaded first = Compile(kTwice), sixth = Compile(kTwice, {.devices = {5}});
  for (const auto& [loaded, index] : {std::pair{&first, 0}, {&sixth, 5}}) {
    auto devices = Make<PJRT_LoadedExecutable_AddressableDevices_Args>();
    devices.executable = loaded->get();
    Do(Api().PJRT_LoadedExecutable_AddressableDevices, devices);
    EXPECT_THAT(std::span(devices.addressable_devices, devices.num_addressable_devices),
                ElementsAre(device(index)));
    EXPECT_THAT(Run(*loaded, index), ElementsAre(2, 4, 6, 8));
    auto assignment = Make<PJRT_LoadedExecutable_GetDeviceAssignment_Args>();
    assignment.executable = loaded->get();
    Do(Api().PJRT_LoadedExecutable_GetDeviceAssignment, assignment);
    // xla.DeviceAssignmentProto: 1 replica, 1 computation, on one device.
    const std::string bytes(assignment.serialized_bytes, assignment.serialized_bytes_size);
    EXPECT_THAT(bytes, testing::StartsWith("\x08\x01\x10\x01\x1a"));
    EXPECT_EQ(bytes.back(), index);
    assignment.serialized_device_assignment_deleter(assignment.serialized_device_assignment);
  }
}

TEST_F(ExecutablesTest, AreDeletedBeforeTheyAreDestroyed) {
  Loaded loaded = Compile(kTwice);
  const Executable executable = ExecutableOf(loaded);
  const auto is_deleted = [&loaded] {
    return Get(Api().PJRT_LoadedExecutable_IsDeleted,
               &PJRT_LoadedExecutable_IsDeleted_Args::is_deleted, loaded);
  };
  EXPECT_FALSE(is_deleted());
  auto args = Make<PJRT_LoadedExecutable_Delete_Args>();
  args.executable = loaded.get();
  Do(Api().PJRT_LoadedExecutable_Delete, args);
  if (!Runs(Topic::kDeletedExecutable)) return;
  EXPECT_TRUE(is_deleted());
  Do(Api().PJRT_LoadedExecutable_Delete, args);
  const Buffer argument = Upload(std::vector<float>{1, 2, 3, 4});
  EXPECT_EQ(Call(loaded, {{argument.get()}}).said.code, PJRT_Error_Code_INVALID_ARGUMENT);
  loaded.reset();
  EXPECT_EQ(Get(Api().PJRT_Executable_NumOutputs, &PJRT_Executable_NumOutputs_Args::num_outputs,
                executable),
            1u)
      << "what describes a program outlives it";
}

TEST_F(ExecutablesTest, AreSerializedAndLoaded) {
  const Loaded loaded = Compile(kTwice);
  const std::string bytes = SerializedOf(ExecutableOf(loaded));
  Loaded again;
  ASSERT_TRUE(Load(bytes, again).ok());
  EXPECT_THAT(Run(again), ElementsAre(2, 4, 6, 8));
  Loaded elsewhere;
  const Said said = Load(bytes, elsewhere, Serialized({.devices = {3}}));
  ASSERT_EQ(said.code, PJRT_Error_Code_OK) << said.message;
  EXPECT_THAT(Run(elsewhere, 3), ElementsAre(2, 4, 6, 8));
}

TEST_F(ExecutablesTest, ThatWereDamagedAreNotLoaded) {
  if (!Runs(Topic::kDamagedExecutable)) return;
  const Loaded loaded = Compile(kTwice);
  const std::string bytes = SerializedOf(ExecutableOf(loaded));
  std::string changed = bytes;
  changed[changed.size() / 2] ^= 1;
  for (const std::string& bad : {std::string(), std::string("x"), std::string(5000, '\xff'),
                                 bytes.substr(0, bytes.size() / 2), bytes + "x", changed}) {
    Loaded never;
    const Said said = Load(bad.empty() ? std::string_view("", 0) : std::string_view(bad), never);
    EXPECT_EQ(said.code, Expected(Topic::kDamagedExecutable)) << said.message;
  }
  Loaded never;
  EXPECT_FALSE(Load(bytes, never, "no options").ok());
}

TEST_F(ExecutablesTest, OfNoProgramAreErrors) {
  const std::string cut(kTwice.substr(0, kTwice.size() / 2));
  std::string bytecode("ML\xefR\x0dStableHLO_v1.0.0");
  bytecode += std::string(200, '\x81');
  for (const std::string& code :
       {std::string(), std::string("no program"), std::string(10000, '\xff'), cut, bytecode,
        std::string("module { }"),
        std::string("module { func.func @main() -> tensor<f32> { return } }"),
        std::string("module { func.func @main() { \"no.such\"() : () -> () return } }")}) {
    const Said said = TryCompile(code);
    EXPECT_FALSE(said.ok()) << code.substr(0, 100);
    EXPECT_THAT(said.message, testing::Not(testing::IsEmpty()));
  }
  for (const char* format : {"hlo", "hlo_with_config"}) {
    EXPECT_FALSE(TryCompile("no program", format).ok());
    EXPECT_FALSE(TryCompile("", format).ok());
    EXPECT_FALSE(TryCompile(std::string(1000, '\xff'), format).ok());
  }
}

TEST_F(ExecutablesTest, OfAnUnknownFormatAreErrors) {
  for (const char* format : {"", "MLIR", "cuda", "mlir "}) {
    EXPECT_FALSE(TryCompile(kTwice, format).ok()) << format;
  }
  EXPECT_FALSE(TryCompile(kTwice, std::string(1 << 16, 'x')).ok());
}

TEST_F(ExecutablesTest, WithHostileOptionsAreErrors) {
  EXPECT_FALSE(TryOptions("no options").ok());
  EXPECT_FALSE(TryOptions(std::string(1000, '\xff')).ok());
  EXPECT_FALSE(TryOptions(Serialized({.devices = {12345}})).ok());
  EXPECT_FALSE(TryOptions(Serialized({.replicas = 100})).ok());
  EXPECT_FALSE(TryOptions(Serialized({.partitions = 9})).ok());
  if (!Runs(Topic::kHugeReplicas)) return;
  EXPECT_FALSE(TryOptions(Serialized({.replicas = 2, .devices = {0, 0}})).ok());
  EXPECT_FALSE(TryOptions(Serialized({.replicas = 1 << 30, .partitions = 1 << 30})).ok());
  EXPECT_FALSE(TryOptions(Serialized({.replicas = -1})).ok());
  EXPECT_FALSE(TryOptions(Serialized({.replicas = 2, .devices = {0, -1}})).ok());
}

TEST_F(ExecutablesTest, AreMadeWithoutAnyOptions) {
  if (!Runs(Topic::kNoOptions)) GTEST_SKIP() << Reason(Topic::kNoOptions);
  Loaded loaded;
  const Said said = Compile(ProgramOf(kTwice), "", loaded);
  EXPECT_EQ(said.code, PJRT_Error_Code_OK) << said.message;
  if (said.ok()) {
    EXPECT_THAT(Run(loaded), ElementsAre(2, 4, 6, 8));
  }
}

TEST_F(ExecutablesTest, AreNotMadeForATopologyAlone) {
  auto topology = Make<PJRT_Client_TopologyDescription_Args>();
  topology.client = client();
  Do(Api().PJRT_Client_TopologyDescription, topology);
  const PJRT_Program program = ProgramOf(kTwice);
  const std::string options = Serialized({});
  auto compile = Make<PJRT_Compile_Args>();
  compile.topology = topology.topology;
  compile.program = &program;
  compile.compile_options = options.data();
  compile.compile_options_size = options.size();
  compile.client = client();
  const Said said = Ask(Api().PJRT_Compile, compile);
  EXPECT_EQ(said.code, Expected(Topic::kCompileForTopology)) << said.message;
  if (said.ok()) Executable(compile.executable).reset();
}

}  // namespace
}  // namespace conformance
