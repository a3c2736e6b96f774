// Opens plugins that are missing, broken or incompatible, and edits compile options.
#include <cstdlib>
#include <fstream>

#include "gangway/base/lasting_error.h"
#include "gangway/base/package.h"
#include "gangway/device/pjrt/compile_options_edit.h"
#include "gangway/device/pjrt/pjrt_test_programs.h"

namespace gangway::device {
namespace {

absl::Status OpenAt(const std::string& path, int nproc = 64) {
  PjrtOptions options;
  options.plugin_path = path;
  options.nproc = nproc;
  return OpenPjrt(options).status();
}

void ExpectSays(const absl::Status& status, absl::StatusCode code, std::vector<std::string> words) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  for (const std::string& word : words) {
    EXPECT_NE(std::string(status.message()).find(word), std::string::npos)
        << word << " in: " << status.ToString();
  }
}

TEST(PjrtOpen, WrongPathSaysWhatToDo) {
  ExpectSays(OpenAt("/no/such/plugin.so"), absl::StatusCode::kNotFound,
             {"/no/such/plugin.so", "tools/setup.sh"});
}

TEST(PjrtOpen, FileThatIsNoLibrary) {
  const std::string path = testing::TempDir() + "gangway_not_a_library.so";
  std::ofstream(path) << "not a library";
  ExpectSays(OpenAt(path), absl::StatusCode::kInvalidArgument, {path, "shared library"});
}

TEST(PjrtOpen, LibraryWithoutGetPjrtApi) {
  ExpectSays(OpenAt(SourcePath(GANGWAY_TEST_PLAIN_LIBRARY)), absl::StatusCode::kInvalidArgument,
             {"GetPjrtApi"});
}

TEST(PjrtOpen, PluginOfAnotherApiVersion) {
  ExpectSays(OpenAt(SourcePath(GANGWAY_TEST_OTHER_VERSION_PLUGIN)),
             absl::StatusCode::kFailedPrecondition, {"PJRT C API 99.1", "0.81", "tools/setup.sh"});
}

TEST(PjrtOpen, PluginThatLacksFunctions) {
  ExpectSays(OpenAt(SourcePath(GANGWAY_TEST_EMPTY_PLUGIN)), absl::StatusCode::kFailedPrecondition,
             {"lacks", "PJRT_Client_Create", "PJRT_LoadedExecutable_Execute"});
}

TEST(PjrtOpen, OnePoolSizePerProcess) {
  ASSERT_TRUE(OpenTestPlugin(2).ok());
  ExpectSays(OpenAt(SourcePath(GANGWAY_TEST_PJRT_PLUGIN), 16),
             absl::StatusCode::kFailedPrecondition, {"NPROC", "64", "16"});
}

TEST(PjrtOpen, ClientOptionThatThePluginRefuses) {
  PjrtOptions options;
  options.plugin_path = SourcePath(GANGWAY_TEST_PJRT_PLUGIN);
  options.client_options = {{"cpu_device_count", std::string("many")}};
  EXPECT_FALSE(OpenPjrt(options).ok());
}

TEST(PjrtOpen, AnotherPlatformsPluginIsAskedOnlyWhatItKnows) {
  for (bool compiles_only : {false, true}) {
    PjrtOptions options;
    options.plugin_path = SourcePath(GANGWAY_TEST_CUDA_LIKE_PLUGIN);
    options.device_count = 2;  // the CPU client's option
    options.compiles_only = compiles_only;
    auto backend = OpenPjrt(options);
    ASSERT_TRUE(backend.ok()) << backend.status().ToString();
    EXPECT_EQ((*backend)->devices().size(), 4u) << "all devices of the plugin";
    const Capabilities& capabilities = (*backend)->capabilities();
    EXPECT_EQ(capabilities.platform, "cuda");
    EXPECT_FALSE(capabilities.host_zero_copy || capabilities.executes_inline);
    EXPECT_NE(capabilities.ffi_handlers, Capabilities::FfiHandlers::kHostMemory);
  }
}

TEST(PjrtOpen, AShareOfTheMemoryIsForPluginsThatTakeItInAdvance) {
  PjrtOptions options;
  options.device_count = 2;
  for (const DeviceMemory memory : {DeviceMemory{.fraction = 0.4}, {.preallocate = false}}) {
    options.memory = memory;
    options.plugin_path = SourcePath(GANGWAY_TEST_CUDA_LIKE_PLUGIN);
    auto backend = OpenPjrt(options);
    EXPECT_TRUE(backend.ok()) << backend.status().ToString();
    options.plugin_path = SourcePath(GANGWAY_TEST_PJRT_PLUGIN);
    ExpectSays(OpenPjrt(options).status(), absl::StatusCode::kInvalidArgument,
               {"--device-memory-fraction", "--memory"});
  }
}

TEST(PjrtOpen, NoVisibleGpuSaysWhatToCheckAndThatItLasts) {
  PjrtOptions options;
  options.plugin_path = SourcePath(GANGWAY_TEST_CUDA_LIKE_PLUGIN);
  ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
  for (bool compiles_only : {false, true}) {
    options.compiles_only = compiles_only;
    const absl::Status error = OpenPjrt(options).status();
    ExpectSays(error, absl::StatusCode::kFailedPrecondition,
               {"No visible GPU devices. ", options.plugin_path, "nvidia-smi",
                "CUDA_VISIBLE_DEVICES (here \"\")", "--plugin cpu"});
    EXPECT_TRUE(IsLasting(error));
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
}

// Gangway compiles programs with an option that disables fusions which share memory without a lock
// (PjrtTraps.ProgramsAreCompiledWithoutTheFusionsThatDevicesShareWithoutALock).
TEST(PjrtOpen, ACpuPluginThatDoesNotKnowAnOptionOfOursCompilesWithoutIt) {
  PjrtOptions options;
  options.plugin_path = SourcePath(GANGWAY_TEST_OTHER_CPU_PLUGIN);
  options.device_count = 1;
  auto backend = OpenPjrt(options);
  ASSERT_TRUE(backend.ok()) << backend.status().ToString();
  const TestProgram program = UnaryProgram();
  auto compiled = (*backend)->Compile({program.code, program.format}, program.compile_options, {});
  EXPECT_TRUE(compiled.ok()) << compiled.status().ToString();
}

TEST(PjrtOpen, SeveralClientsOfOnePlugin) {
  auto first = OpenTestPlugin(2);
  auto second = OpenTestPlugin(5);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ((*first)->devices().size(), 2u);
  EXPECT_EQ((*second)->devices().size(), 5u);
}

// device_assignment {replica_count 2, computation_count 1, computation_devices {replica_device_ids
// 7, 3}}
constexpr std::string_view kAssignment73("\x08\x02\x10\x01\x1a\x04\x08\x07\x08\x03", 10);

TEST(CompileOptionsEdit, WritesTheAssignmentByLogicalPosition) {
  auto edited = WithDeviceAssignment(TestCompileOptions(2, 1), std::vector<int64_t>{7, 3});
  ASSERT_TRUE(edited.ok()) << edited.status().ToString();
  EXPECT_NE(edited->find(kAssignment73), std::string::npos);
  auto shape = ReadLogicalShape(*edited);
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->num_replicas, 2);
  EXPECT_EQ(shape->num_partitions, 1);
}

TEST(CompileOptionsEdit, ReplacesAnOldAssignmentAndKeepsEverythingElse) {
  auto first = WithDeviceAssignment(
      TestCompileOptions(2, 1) + std::string("\xfa\x3e\x03xyz", 6),  // field 1007
      std::vector<int64_t>{7, 3});
  ASSERT_TRUE(first.ok());
  auto second = WithDeviceAssignment(*first, std::vector<int64_t>{0, 1});
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->find(kAssignment73), std::string::npos);
  EXPECT_NE(second->find("xyz"), std::string::npos);
  EXPECT_EQ(*WithDeviceAssignment(*second, std::vector<int64_t>{7, 3}), *first);
}

// A field of bytes, its number and size below 16 and 128.
std::string Field(int number, const std::string& bytes) {
  return absl::StrCat(std::string(1, static_cast<char>(number << 3 | 2)),
                      std::string(1, static_cast<char>(bytes.size())), bytes);
}

// An entry of env_option_overrides.
std::string Override(const std::string& name, const std::string& value) {
  return Field(7, Field(1, name) + Field(2, Field(1, value)));
}

TEST(CompileOptionsEdit, APassIsLeftOutUnlessTheClientChoosesPasses) {
  const std::string options = TestCompileOptions(2, 1) + Override("xla_dump_to", "/tmp");
  EXPECT_EQ(WithoutXlaPass(options, "first"),
            options + Override("xla_disable_hlo_passes", "first"));
  // executable_build_options {debug_options {...}}, with a list of passes, and with another list.
  const auto debug = [](const std::string& list) { return Field(3, Field(3, list)); };
  for (const std::string& chosen :
       {Override("xla_disable_hlo_passes", "a"), Override("xla_enable_hlo_passes_only", "a"),
        debug(std::string("\xf2\x01\x01", 3) + "a"), debug(std::string("\xe2\x07\x01", 3) + "a"),
        std::string("\x1a\x7f")}) {
    EXPECT_EQ(WithoutXlaPass(options + chosen, "first"), options + chosen);
  }
}

TEST(CompileOptionsEdit, RefusesWhatItCannotRead) {
  EXPECT_EQ(ReadLogicalShape("\x1a\x7f").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WithDeviceAssignment("", std::vector<int64_t>{1, 2}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadLogicalShape(TestCompileOptions(-1, 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadLogicalShape("")->num_partitions, 1);
}

}  // namespace
}  // namespace gangway::device
