// Callers that make mistakes, with Gangway's plugin alone: the CPU plugin dereferences what it gets. Each mistake that
// shows is an error with the function's name; none ends the process. The sweeps call every function.
#include <array>
#include <functional>
#include <map>
#include <set>

#include "tests/native/conformance/plugin.h"
#include "tests/native/conformance/sweep.h"

namespace conformance {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Functions that report no errors.
const std::set<std::string> kSilent = {"PJRT_Error_Destroy", "PJRT_Error_Message"};

// Functions that read arguments of the CPU plugin's callers whatever their size is.
const std::set<std::string> kUnchecked = {"PJRT_Error_Destroy", "PJRT_Error_Message",
                                          "PJRT_Client_CreateViewOfDeviceBuffer"};

// Of the oldest header whose callers a function serves, if that is smaller.
const std::map<std::string, size_t> kOldestSize = {
    {"PJRT_Executable_GetCompiledMemoryStats",
     PJRT_STRUCT_SIZE(PJRT_Executable_GetCompiledMemoryStats_Args, alias_size_in_bytes)}};

// Functions that succeed without a handle, and why.
const std::map<std::string, const char*> kNeedNoHandle = {
    {"PJRT_Plugin_Initialize", "takes nothing"},
    {"PJRT_Plugin_Attributes", "takes nothing"},
    {"PJRT_ExecuteContext_Create", "takes nothing"},
    {"PJRT_Event_Destroy", "to destroy nothing is allowed, as to delete a null pointer"},
    {"PJRT_Client_Destroy", "likewise"},
    {"PJRT_Executable_Destroy", "likewise"},
    {"PJRT_LoadedExecutable_Destroy", "likewise"},
    {"PJRT_Buffer_Destroy", "likewise"},
    {"PJRT_ExecuteContext_Destroy", "likewise"},
    {"PJRT_AsyncHostToDeviceTransferManager_Destroy", "likewise"},
    {"PJRT_TopologyDescription_Destroy", "likewise"},
};

bool IsErrorOf(const Swept& function, const Said& said) {
  if (said.code == PJRT_Error_Code_UNIMPLEMENTED) return said.message.starts_with(function.name);
  return said.code == PJRT_Error_Code_INVALID_ARGUMENT &&
         said.message.starts_with(function.name + ": ");
}

class BadInputTest : public Conformance {
 protected:
  void SetUp() override {
    if (!Runs(Topic::kNullHandles)) GTEST_SKIP() << Reason(Topic::kNullHandles);
    Conformance::SetUp();
  }
  Buffer One() const { return Upload(std::vector<float>{1, 2, 3, 4}); }
};

// --- Sweeps over the table ---

TEST_F(BadInputTest, NoArgumentsAtAll) {
  for (const Swept& each : AllFunctions()) {
    const Said said = each.call(nullptr);
    if (!kSilent.contains(each.name)) {
      EXPECT_TRUE(IsErrorOf(each, said)) << each.name;
    }
  }
}

TEST(OldFormTest, ArgumentsThatEndTooEarlyAreErrors) {
  for (const Swept& each : AllFunctions()) {
    if (!IsGangway() && kUnchecked.contains(each.name)) continue;
    const auto oldest = kOldestSize.find(each.name);
    const size_t needed = oldest == kOldestSize.end() ? each.size : oldest->second;
    for (size_t size : {size_t{0}, sizeof(size_t), needed - sizeof(size_t), needed - 1}) {
      alignas(16) std::array<char, 512> args{};
      std::memcpy(args.data(), &size, sizeof(size));
      const Said said = each.call(args.data());
      if (kSilent.contains(each.name)) continue;
      EXPECT_EQ(said.ok(), false) << each.name << " of " << size << " bytes";
      if (IsGangway()) {
        EXPECT_TRUE(IsErrorOf(each, said)) << each.name << ": " << said.message;
      }
    }
  }
}

void SweepNullHandles(size_t more, char fill) {
  for (const Swept& each : AllFunctions()) {
    if (each.name == "PJRT_Client_Create") continue;  // its handles are all out
    alignas(16) std::array<char, 512> args{};
    const size_t size = each.size + more;
    std::memset(args.data() + each.size, fill, more);
    std::memcpy(args.data(), &size, sizeof(size));
    const Said said = each.call(args.data());
    if (kSilent.contains(each.name)) continue;
    if (kNeedNoHandle.contains(each.name)) {
      EXPECT_TRUE(said.ok()) << each.name << ": " << said.message;
    } else {
      EXPECT_TRUE(IsErrorOf(each, said)) << each.name << ": " << said.message;
    }
    if (each.name == "PJRT_ExecuteContext_Create") {
      Context(reinterpret_cast<PJRT_ExecuteContext_Create_Args*>(args.data())->context).reset();
    }
  }
}

TEST_F(BadInputTest, NullHandles) { SweepNullHandles(0, '\0'); }

// What a newer header adds is not read, whatever it says.
TEST_F(BadInputTest, NullHandlesOfANewerCaller) { SweepNullHandles(64, '\xff'); }

TEST_F(BadInputTest, ANewerCallersFieldsAreNotRead) {
  const Buffer buffer = One();
  struct {
    PJRT_Buffer_Dimensions_Args known;
    std::array<char, 100> more;
  } args{};
  args.more.fill('\xff');
  args.known.struct_size = sizeof(args);
  args.known.buffer = buffer.get();
  Do(Api().PJRT_Buffer_Dimensions, args.known);
  EXPECT_EQ(args.known.num_dims, 1u);
  EXPECT_EQ(args.known.dims[0], 4);
  EXPECT_EQ(args.more[0], '\xff');
}

// --- Null pointers and counts inside of arguments ---

TEST_F(BadInputTest, CountsWithoutTheirLists) {
  const auto invalid = [](const Said& said) {
    EXPECT_EQ(said.code, PJRT_Error_Code_INVALID_ARGUMENT) << said.message;
    EXPECT_THAT(said.message, HasSubstr("null"));
  };
  auto create = Make<PJRT_Client_Create_Args>();
  create.num_options = 1;
  invalid(Ask(Api().PJRT_Client_Create, create));
  auto option = Make<PJRT_NamedValue>();
  create.create_options = &option;
  option.name_size = 3;
  invalid(Ask(Api().PJRT_Client_Create, create));
  option.name = "tls";
  option.value_size = 5;
  invalid(Ask(Api().PJRT_Client_Create, create));

  const float data[4] = {};
  const int64_t dims[] = {4};
  auto upload = UploadOf(data, PJRT_Buffer_Type_F32, dims);
  upload.dims = nullptr;
  invalid(Ask(Api().PJRT_Client_BufferFromHostBuffer, upload));
  upload = UploadOf(nullptr, PJRT_Buffer_Type_F32, dims);
  invalid(Ask(Api().PJRT_Client_BufferFromHostBuffer, upload));
  upload = UploadOf(data, PJRT_Buffer_Type_F32, dims);
  upload.device = nullptr;
  invalid(Ask(Api().PJRT_Client_BufferFromHostBuffer, upload));

  auto layout = Make<PJRT_Buffer_MemoryLayout>();
  layout.tiled = Make<PJRT_Buffer_MemoryLayout_Tiled>();
  layout.tiled.minor_to_major_size = 1;
  upload = UploadOf(data, PJRT_Buffer_Type_F32, dims);
  upload.device_layout = &layout;
  invalid(Ask(Api().PJRT_Client_BufferFromHostBuffer, upload));
  const Buffer buffer = One();
  float read[4];
  auto to_host = Make<PJRT_Buffer_ToHostBuffer_Args>();
  to_host.src = buffer.get();
  to_host.dst = read;
  to_host.dst_size = sizeof(read);
  to_host.host_layout = &layout;
  invalid(Ask(Api().PJRT_Buffer_ToHostBuffer, to_host));
  layout.type = PJRT_Buffer_MemoryLayout_Type_Strides;
  layout.strides = Make<PJRT_Buffer_MemoryLayout_Strides>();
  layout.strides.num_byte_strides = 1;
  invalid(Ask(Api().PJRT_Buffer_ToHostBuffer, to_host));
  auto raw = Make<PJRT_Buffer_CopyRawToHost_Args>();
  raw.buffer = buffer.get();
  raw.transfer_size = 4;
  invalid(Ask(Api().PJRT_Buffer_CopyRawToHost, raw));
}

TEST_F(BadInputTest, ProgramsWithoutTheirBytes) {
  const auto invalid = [](const Said& said) {
    EXPECT_EQ(said.code, PJRT_Error_Code_INVALID_ARGUMENT) << said.message;
    EXPECT_THAT(said.message, HasSubstr("null"));
  };
  Loaded loaded;
  PJRT_Program program = ProgramOf(kTwice);
  program.code = nullptr;
  invalid(Compile(program, "", loaded));
  program = ProgramOf(kTwice);
  program.format = nullptr;
  invalid(Compile(program, "", loaded));
  invalid(Compile(ProgramOf(kTwice), std::string_view(nullptr, 0).substr(0, 0), loaded).ok()
              ? Said{PJRT_Error_Code_INVALID_ARGUMENT, "no options are no null"}
              : Said{});
  program = ProgramOf(kTwice);
  auto compile = Make<PJRT_Client_Compile_Args>();
  compile.client = client();
  compile.program = &program;
  compile.compile_options_size = 5;
  invalid(Ask(Api().PJRT_Client_Compile, compile));
  const std::string serialized = "x";
  auto load = Make<PJRT_Executable_DeserializeAndLoad_Args>();
  load.client = client();
  load.serialized_executable_size = 5;
  invalid(Ask(Api().PJRT_Executable_DeserializeAndLoad, load));
}

TEST_F(BadInputTest, CallsWithoutTheirLists) {
  const Loaded twice = Compile(kTwice);
  const Buffer argument = One();
  PJRT_Buffer* const arguments[] = {argument.get()};
  PJRT_Buffer* const nulls[] = {nullptr};
  PJRT_Buffer* const* const lists[] = {arguments};
  PJRT_Buffer* const* const null_lists[] = {nullptr};
  PJRT_Buffer* const* const lists_of_nulls[] = {nulls};
  PJRT_Buffer* results[] = {nullptr};
  PJRT_Buffer** const result_lists[] = {results};
  PJRT_Buffer** const null_result_lists[] = {nullptr};
  auto good = Make<PJRT_LoadedExecutable_Execute_Args>();
  good.executable = twice.get();
  good.argument_lists = lists;
  good.num_devices = 1;
  good.num_args = 1;
  good.output_lists = result_lists;

  using Args = PJRT_LoadedExecutable_Execute_Args;
  auto options = Make<PJRT_ExecuteOptions>();
  options.num_non_donatable_input_indices = 1;
  auto sending = Make<PJRT_ExecuteOptions>();
  sending.num_send_ops = 1;
  auto old = Make<PJRT_ExecuteOptions>();
  old.struct_size = sizeof(size_t);
  const std::pair<const char*, std::function<void(Args&)>> mistakes[] = {
      {"no lists", [](Args& args) { args.argument_lists = nullptr; }},
      {"a null list", [&](Args& args) { args.argument_lists = null_lists; }},
      {"a null buffer", [&](Args& args) { args.argument_lists = lists_of_nulls; }},
      {"no result lists", [](Args& args) { args.output_lists = nullptr; }},
      {"a null result list", [&](Args& args) { args.output_lists = null_result_lists; }},
      {"no indices", [&](Args& args) { args.options = &options; }},
      {"options of an old form", [&](Args& args) { args.options = &old; }},
      {"no devices", [](Args& args) { args.num_devices = 0; }},
      {"too many devices", [](Args& args) { args.num_devices = size_t{1} << 60; }},
      {"too many arguments", [](Args& args) { args.num_args = size_t{1} << 60; }},
  };
  for (const auto& [name, make] : mistakes) {
    Args args = good;
    make(args);
    const Said said = Ask(Api().PJRT_LoadedExecutable_Execute, args);
    EXPECT_EQ(said.code, PJRT_Error_Code_INVALID_ARGUMENT) << name << ": " << said.message;
  }
  good.options = &sending;
  EXPECT_EQ(Ask(Api().PJRT_LoadedExecutable_Execute, good).code, PJRT_Error_Code_UNIMPLEMENTED);
  good.options = nullptr;  // no options are allowed
  Do(Api().PJRT_LoadedExecutable_Execute, good);
  EXPECT_THAT(Values<float>(Buffer(results[0])), testing::ElementsAre(2, 4, 6, 8));
}

TEST_F(BadInputTest, OptionsOfAnOlderCaller) {
  const Loaded twice = Compile(kTwice);
  const Buffer argument = One();
  PJRT_Buffer* const arguments[] = {argument.get()};
  PJRT_Buffer* const* const lists[] = {arguments};
  PJRT_Buffer* results[] = {nullptr};
  PJRT_Buffer** const result_lists[] = {results};
  auto options = Make<PJRT_ExecuteOptions>();
  options.struct_size = PJRT_STRUCT_SIZE(PJRT_ExecuteOptions, num_non_donatable_input_indices);
  std::memset(reinterpret_cast<char*>(&options) + options.struct_size, 0xff,
              sizeof(options) - options.struct_size);
  auto execute = Make<PJRT_LoadedExecutable_Execute_Args>();
  execute.executable = twice.get();
  execute.options = &options;
  execute.argument_lists = lists;
  execute.num_devices = 1;
  execute.num_args = 1;
  execute.output_lists = result_lists;
  Do(Api().PJRT_LoadedExecutable_Execute, execute);
  EXPECT_THAT(Values<float>(Buffer(results[0])), testing::ElementsAre(2, 4, 6, 8));
}

// Whether they are refused is a matter of limits; the session goes on.
TEST_F(BadInputTest, ProgramsAndOptionsOfManyBytes) {
  Loaded loaded;
  const std::string program = std::string(kTwice) + std::string(2 << 20, '\n');
  const Said large = Compile(ProgramOf(program), Serialized({}), loaded);
  EXPECT_TRUE(large.ok() || large.code == PJRT_Error_Code_INVALID_ARGUMENT ||
              large.code == PJRT_Error_Code_RESOURCE_EXHAUSTED)
      << large.message;
  // An unknown field of XLA's options, of 2 MiB.
  const std::string options =
      Serialized({}) + "\xc2\x3e\x80\x80\x80\x01" + std::string(2 << 20, 'x');
  const Said many = Compile(ProgramOf(kTwice), options, loaded);
  EXPECT_TRUE(many.ok() || many.code == PJRT_Error_Code_INVALID_ARGUMENT ||
              many.code == PJRT_Error_Code_RESOURCE_EXHAUSTED)
      << many.message;
  const Loaded twice = Compile(kTwice);
  const Buffer argument = One();
  const Called called = Call(twice, {{argument.get()}});
  EXPECT_THAT(Values<float>(called.results[0][0]), testing::ElementsAre(2, 4, 6, 8));
}

TEST_F(BadInputTest, TransfersWithoutTheirBytes) {
  const int64_t dims[] = {4};
  PJRT_ShapeSpec spec{sizeof(PJRT_ShapeSpec), nullptr, dims, 1, PJRT_Buffer_Type_U8};
  auto create = Make<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
  create.client = client();
  create.memory = Memory(device());
  create.num_shape_specs = 1;
  const auto refused = [&create] {
    const Said said = Ask(Api().PJRT_Client_CreateBuffersForAsyncHostToDevice, create);
    EXPECT_EQ(said.code, PJRT_Error_Code_INVALID_ARGUMENT) << said.message;
  };
  refused();
  create.shape_specs = &spec;
  spec.dims = nullptr;
  refused();
  spec.dims = dims;
  spec.num_dims = size_t{1} << 60;
  refused();
  spec.num_dims = 1;
  spec.struct_size = sizeof(size_t);
  refused();
  spec.struct_size = sizeof(spec);
  Do(Api().PJRT_Client_CreateBuffersForAsyncHostToDevice, create);
  const Manager manager(create.transfer_manager);
  auto send = Make<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
  send.transfer_manager = manager.get();
  for (int64_t size : {int64_t{4}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    send.transfer_size = size;
    EXPECT_EQ(Ask(Api().PJRT_AsyncHostToDeviceTransferManager_TransferData, send).code,
              PJRT_Error_Code_INVALID_ARGUMENT);
  }
  auto error = Make<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
  error.transfer_manager = manager.get();
  error.error_message_size = 5;
  EXPECT_EQ(Ask(Api().PJRT_AsyncHostToDeviceTransferManager_SetBufferError, error).code,
            PJRT_Error_Code_INVALID_ARGUMENT);
}

TEST_F(BadInputTest, SizesThatCannotBe) {
  const float data[4] = {};
  const int64_t huge = int64_t{1} << 40;
  const std::vector<int64_t> shapes[] = {
      {-1}, {huge, huge}, {huge, huge, 0, -1}, std::vector<int64_t>(65, 1)};
  for (const auto& dims : shapes) {
    auto upload = UploadOf(data, PJRT_Buffer_Type_F32, dims);
    EXPECT_EQ(Ask(Api().PJRT_Client_BufferFromHostBuffer, upload).code,
              PJRT_Error_Code_INVALID_ARGUMENT);
  }
  const int64_t dims[] = {4};
  auto upload = UploadOf(data, PJRT_Buffer_Type_F32, dims);
  for (size_t rank : {size_t{1} << 40, size_t{1} << 62, ~size_t{0}}) {
    upload.num_dims = rank;
    EXPECT_EQ(Ask(Api().PJRT_Client_BufferFromHostBuffer, upload).code,
              PJRT_Error_Code_INVALID_ARGUMENT);
  }
  // Strides of another rank, and such as leave the address space.
  const int64_t strides[] = {std::numeric_limits<int64_t>::max(), 4};
  for (size_t count : {1u, 2u}) {
    upload = UploadOf(data, PJRT_Buffer_Type_F32, dims);
    upload.byte_strides = strides;
    upload.num_byte_strides = count;
    EXPECT_EQ(Ask(Api().PJRT_Client_BufferFromHostBuffer, upload).code,
              PJRT_Error_Code_INVALID_ARGUMENT);
  }
}

TEST_F(BadInputTest, LayoutsThatCannotBe) {
  const Buffer buffer = Upload(std::vector<float>(6), {2, 3});
  float read[6];
  const auto answer = [&](PJRT_Buffer_MemoryLayout layout) {
    auto to_host = Make<PJRT_Buffer_ToHostBuffer_Args>();
    to_host.src = buffer.get();
    to_host.dst = read;
    to_host.dst_size = sizeof(read);
    to_host.host_layout = &layout;
    return Ask(Api().PJRT_Buffer_ToHostBuffer, to_host);
  };
  for (const std::vector<int64_t>& order :
       std::initializer_list<std::vector<int64_t>>{{}, {0}, {0, 0}, {0, 2}, {-1, 0}, {0, 1, 2}}) {
    auto layout = Make<PJRT_Buffer_MemoryLayout>();
    layout.tiled = Make<PJRT_Buffer_MemoryLayout_Tiled>();
    layout.tiled.minor_to_major = order.data();
    layout.tiled.minor_to_major_size = order.size();
    EXPECT_FALSE(answer(layout).ok());
  }
  for (const std::vector<int64_t>& steps : std::initializer_list<std::vector<int64_t>>{
           {}, {4}, {1000, 4}, {-12, 4}, {std::numeric_limits<int64_t>::max(), 4}}) {
    auto layout = Make<PJRT_Buffer_MemoryLayout>();
    layout.type = PJRT_Buffer_MemoryLayout_Type_Strides;
    layout.strides = Make<PJRT_Buffer_MemoryLayout_Strides>();
    layout.strides.byte_strides = steps.data();
    layout.strides.num_byte_strides = steps.size();
    EXPECT_FALSE(answer(layout).ok());
  }
  auto unknown = Make<PJRT_Buffer_MemoryLayout>();
  unknown.type = static_cast<PJRT_Buffer_MemoryLayout_Type>(77);
  EXPECT_FALSE(answer(unknown).ok());
}

// --- Handles of others ---

TEST_F(BadInputTest, HandlesOfAnotherClient) {
  const Client other = NewClient();
  auto devices = Make<PJRT_Client_Devices_Args>();
  devices.client = other.get();
  Do(Api().PJRT_Client_Devices, devices);
  PJRT_Device* const foreign = devices.devices[0];
  const auto invalid = [](const Said& said) {
    EXPECT_EQ(said.code, PJRT_Error_Code_INVALID_ARGUMENT) << said.message;
    EXPECT_THAT(said.message, HasSubstr("another client"));
  };
  const float data[4] = {};
  const int64_t dims[] = {4};
  auto upload = UploadOf(data, PJRT_Buffer_Type_F32, dims);
  upload.device = foreign;
  invalid(Ask(Api().PJRT_Client_BufferFromHostBuffer, upload));
  PJRT_ShapeSpec spec{sizeof(PJRT_ShapeSpec), nullptr, dims, 1, PJRT_Buffer_Type_F32};
  auto create = Make<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
  create.client = client();
  create.memory = Memory(foreign);
  create.shape_specs = &spec;
  create.num_shape_specs = 1;
  invalid(Ask(Api().PJRT_Client_CreateBuffersForAsyncHostToDevice, create));
  const Buffer buffer = One();
  auto to_device = Make<PJRT_Buffer_CopyToDevice_Args>();
  to_device.buffer = buffer.get();
  to_device.dst_device = foreign;
  invalid(Ask(Api().PJRT_Buffer_CopyToDevice, to_device));
  auto to_memory = Make<PJRT_Buffer_CopyToMemory_Args>();
  to_memory.buffer = buffer.get();
  to_memory.dst_memory = Memory(foreign);
  invalid(Ask(Api().PJRT_Buffer_CopyToMemory, to_memory));
  upload = UploadOf(data, PJRT_Buffer_Type_F32, dims);
  upload.client = other.get();
  upload.device = foreign;
  const Buffer theirs = Upload(upload);
  const Loaded twice = Compile(kTwice);
  invalid(Call(twice, {{theirs.get()}}).said);
}

TEST_F(BadInputTest, AMemoryOfAnotherDevice) {
  const float data[4] = {};
  const int64_t dims[] = {4};
  auto upload = UploadOf(data, PJRT_Buffer_Type_F32, dims);
  upload.memory = Memory(device(1));
  EXPECT_EQ(Ask(Api().PJRT_Client_BufferFromHostBuffer, upload).code,
            PJRT_Error_Code_INVALID_ARGUMENT);
}

// --- Too late ---

// The CPU plugin has an answer, too.
class LateTest : public Conformance {};

TEST_F(LateTest, BuffersAndExecutablesMayOutliveTheirClient) {
  Buffer buffer = Upload(std::vector<float>{1, 2, 3, 4});
  Loaded twice = Compile(kTwice);
  Executable executable = ExecutableOf(twice);
  ASSERT_TRUE(Ready(buffer).ok());
  client_.reset();
  buffer.reset();
  twice.reset();
  executable.reset();
}

TEST_F(LateTest, AClientThatIsDestroyedDuringWorkFailsIt) {
  const Loaded twice = Compile(kTwice);
  const int64_t dims[] = {4};
  PJRT_ShapeSpec spec{sizeof(PJRT_ShapeSpec), nullptr, dims, 1, PJRT_Buffer_Type_F32};
  auto create = Make<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
  create.client = client();
  create.memory = Memory(device());
  create.shape_specs = &spec;
  create.num_shape_specs = 1;
  Do(Api().PJRT_Client_CreateBuffersForAsyncHostToDevice, create);
  Manager manager(create.transfer_manager);
  auto retrieve = Make<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
  retrieve.transfer_manager = manager.get();
  Do(Api().PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, retrieve);
  Buffer never(retrieve.buffer_out);
  Called called = Call(twice, {{never.get()}});
  ASSERT_TRUE(called.said.ok());
  manager.reset();  // a client's transfers end before it
  never.reset();
  Event ended = std::move(called.ended[0]);
  called.results.clear();
  client_.reset();
  EXPECT_FALSE(Await(ended).ok());
}

}  // namespace
}  // namespace conformance
