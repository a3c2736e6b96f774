// Implementation of plugin.h.
#include "tests/native/conformance/plugin.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <ostream>

namespace conformance {
namespace {

enum Function : size_t {
#define CONFORMANCE_NUMBER(name) k##name,
  CONFORMANCE_FUNCTIONS(CONFORMANCE_NUMBER)
#undef CONFORMANCE_NUMBER
      kFunctionCount
};

#define CONFORMANCE_CHECK(name)                    \
  static_assert(offsetof(PJRT_Api, PJRT_##name) == \
                offsetof(PJRT_Api, PJRT_Error_Destroy) + size_t{k##name} * sizeof(void*));
CONFORMANCE_FUNCTIONS(CONFORMANCE_CHECK)
#undef CONFORMANCE_CHECK
static_assert(sizeof(PJRT_Api) ==
                  offsetof(PJRT_Api, PJRT_Error_Destroy) + kFunctionCount * sizeof(void*),
              "functions.h lacks a function of the header");

constexpr const char* kNames[] = {
#define CONFORMANCE_NAME(name) "PJRT_" #name,
    CONFORMANCE_FUNCTIONS(CONFORMANCE_NAME)
#undef CONFORMANCE_NAME
};

std::array<std::atomic<int64_t>, kFunctionCount> calls;

PJRT_Api MakeCounting() {
  PJRT_Api table = RawApi();
#define CONFORMANCE_COUNT(name)                             \
  table.PJRT_##name = [](PJRT_##name##_Args* args) {        \
    calls[k##name].fetch_add(1, std::memory_order_relaxed); \
    return RawApi().PJRT_##name(args);                      \
  };
  CONFORMANCE_FUNCTIONS(CONFORMANCE_COUNT)
#undef CONFORMANCE_COUNT
  return table;
}

// --- xla.CompileOptionsProto, as far as Options go ---

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}
std::string Number(uint64_t field, uint64_t value) { return Varint(field << 3) + Varint(value); }
std::string Nested(uint64_t field, const std::string& bytes) {
  return Varint(field << 3 | 2) + Varint(bytes.size()) + bytes;
}

std::string Assignment(const Options& options) {
  std::string assignment = Number(1, static_cast<uint64_t>(options.replicas)) +
                           Number(2, static_cast<uint64_t>(options.partitions));
  for (int p = 0; p < options.partitions; ++p) {
    std::string ids;
    for (int r = 0; r < options.replicas; ++r)
      ids += Varint(static_cast<uint64_t>(options.devices[r * options.partitions + p]));
    assignment += Nested(3, Nested(1, ids));
  }
  return assignment;
}

template <typename Args, typename Handle>
void DestroyWith(PJRT_Error* (*function)(Args*), Handle* Args::* field, Handle* handle) {
  auto args = Make<Args>();
  args.*field = handle;
  Do(function, args);
}

}  // namespace

const PJRT_Api& RawApi() {
  static const PJRT_Api* const api = [] {
    const char* const path = std::getenv("GANGWAY_TEST_PLUGIN");
    void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "GANGWAY_TEST_PLUGIN is no library: %s\n", dlerror());
      std::exit(1);
    }
    return reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
  }();
  return *api;
}

const PJRT_Api& Api() {
  static const PJRT_Api counting = MakeCounting();
  return counting;
}

std::vector<std::string> FunctionsNotCalled() {
  std::vector<std::string> names;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (calls[i] == 0) names.emplace_back(kNames[i]);
  }
  return names;
}

void PrintTo(const Said& said, std::ostream* to) {
  *to << "code " << said.code << ": " << said.message;
}

Said Take(PJRT_Error* error) {
  if (error == nullptr) return {};
  auto code = Make<PJRT_Error_GetCode_Args>();
  code.error = error;
  EXPECT_EQ(Api().PJRT_Error_GetCode(&code), nullptr);
  auto message = Make<PJRT_Error_Message_Args>();
  message.error = error;
  Api().PJRT_Error_Message(&message);
  Said said{code.code, {message.message, message.message_size}};
  auto destroy = Make<PJRT_Error_Destroy_Args>();
  destroy.error = error;
  Api().PJRT_Error_Destroy(&destroy);
  return said;
}

void Destroyer::operator()(PJRT_Event* event) const {
  DestroyWith(Api().PJRT_Event_Destroy, &PJRT_Event_Destroy_Args::event, event);
}
void Destroyer::operator()(PJRT_Buffer* buffer) const {
  DestroyWith(Api().PJRT_Buffer_Destroy, &PJRT_Buffer_Destroy_Args::buffer, buffer);
}
void Destroyer::operator()(PJRT_Executable* executable) const {
  DestroyWith(Api().PJRT_Executable_Destroy, &PJRT_Executable_Destroy_Args::executable, executable);
}
void Destroyer::operator()(PJRT_LoadedExecutable* executable) const {
  DestroyWith(Api().PJRT_LoadedExecutable_Destroy, &PJRT_LoadedExecutable_Destroy_Args::executable,
              executable);
}
void Destroyer::operator()(PJRT_AsyncHostToDeviceTransferManager* manager) const {
  DestroyWith(Api().PJRT_AsyncHostToDeviceTransferManager_Destroy,
              &PJRT_AsyncHostToDeviceTransferManager_Destroy_Args::transfer_manager, manager);
}
void Destroyer::operator()(PJRT_ExecuteContext* context) const {
  DestroyWith(Api().PJRT_ExecuteContext_Destroy, &PJRT_ExecuteContext_Destroy_Args::context,
              context);
}
void Destroyer::operator()(PJRT_Client* client) const {
  DestroyWith(Api().PJRT_Client_Destroy, &PJRT_Client_Destroy_Args::client, client);
}

Said Await(const Event& event) {
  auto await = Make<PJRT_Event_Await_Args>();
  await.event = event.get();
  return Ask(Api().PJRT_Event_Await, await);
}

bool IsReady(const Event& event) {
  auto ready = Make<PJRT_Event_IsReady_Args>();
  ready.event = event.get();
  Do(Api().PJRT_Event_IsReady, ready);
  return ready.is_ready;
}

Client NewClient() {
  PJRT_NamedValue count{};
  count.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  count.name = "cpu_device_count";
  count.name_size = std::strlen(count.name);
  count.type = PJRT_NamedValue_kInt64;
  count.int64_value = kDeviceCount;
  count.value_size = 1;
  auto create = Make<PJRT_Client_Create_Args>();
  if (!IsGangway()) {
    create.create_options = &count;
    create.num_options = 1;
  }
  Do(Api().PJRT_Client_Create, create);
  return Client(create.client);
}

std::string Serialized(const Options& options) {
  std::string build = Number(4, static_cast<uint64_t>(options.replicas)) +
                      Number(5, static_cast<uint64_t>(options.partitions));
  if (options.spmd) build += Number(6, 1);
  if (!options.devices.empty()) build += Nested(9, Assignment(options));
  std::string bytes = Nested(3, build);
  if (options.portable) bytes += Number(4, 1);
  return bytes;
}

PJRT_Program ProgramOf(std::string_view code, std::string_view format) {
  auto program = Make<PJRT_Program>();
  program.code = const_cast<char*>(code.data());
  program.code_size = code.size();
  program.format = format.data();
  program.format_size = format.size();
  return program;
}

void Conformance::SetUp() {
  client_ = NewClient();
  ASSERT_NE(client_, nullptr);
  auto devices = Make<PJRT_Client_AddressableDevices_Args>();
  devices.client = client();
  Do(Api().PJRT_Client_AddressableDevices, devices);
  ASSERT_EQ(devices.num_addressable_devices, kDeviceCount);
  devices_.assign(devices.addressable_devices, devices.addressable_devices + kDeviceCount);
}

std::vector<PJRT_Memory*> Conformance::Memories(PJRT_Device* device) const {
  auto memories = Make<PJRT_Device_AddressableMemories_Args>();
  memories.device = device;
  Do(Api().PJRT_Device_AddressableMemories, memories);
  return {memories.memories, memories.memories + memories.num_memories};
}

PJRT_Memory* Conformance::Memory(PJRT_Device* device, std::string_view kind) const {
  for (PJRT_Memory* memory : Memories(device)) {
    auto args = Make<PJRT_Memory_Kind_Args>();
    args.memory = memory;
    Do(Api().PJRT_Memory_Kind, args);
    if (std::string_view(args.kind, args.kind_size) == kind) return memory;
  }
  ADD_FAILURE() << "the device has no memory of the kind " << kind;
  return nullptr;
}

PJRT_Client_BufferFromHostBuffer_Args Conformance::UploadOf(const void* data, PJRT_Buffer_Type type,
                                                            std::span<const int64_t> dims,
                                                            size_t device_index) const {
  auto upload = Make<PJRT_Client_BufferFromHostBuffer_Args>();
  upload.client = client();
  upload.data = data;
  upload.type = type;
  upload.dims = dims.data();
  upload.num_dims = dims.size();
  upload.device = device(device_index);
  upload.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  return upload;
}

Buffer Conformance::Upload(PJRT_Client_BufferFromHostBuffer_Args args) const {
  const Said said = Ask(Api().PJRT_Client_BufferFromHostBuffer, args);
  EXPECT_TRUE(said.ok()) << said.message;
  if (!said.ok()) return nullptr;
  const Event done(args.done_with_host_buffer);
  if (args.host_buffer_semantics != PJRT_HostBufferSemantics_kImmutableZeroCopy &&
      args.host_buffer_semantics != PJRT_HostBufferSemantics_kMutableZeroCopy) {
    EXPECT_TRUE(Await(done).ok());
  }
  return Buffer(args.buffer);
}

Said Conformance::Read(PJRT_Buffer* buffer, void* to, size_t size) const {
  auto read = Make<PJRT_Buffer_ToHostBuffer_Args>();
  read.src = buffer;
  char nothing = 0;  // null asks for the size
  read.dst = size == 0 ? &nothing : to;
  read.dst_size = size;
  const Said said = Ask(Api().PJRT_Buffer_ToHostBuffer, read);
  return said.ok() ? Await(Event(read.event)) : said;
}

Said Conformance::Ready(const Buffer& buffer) const {
  auto ready = Make<PJRT_Buffer_ReadyEvent_Args>();
  ready.buffer = buffer.get();
  const Said said = Ask(Api().PJRT_Buffer_ReadyEvent, ready);
  return said.ok() ? Await(Event(ready.event)) : said;
}

bool Conformance::IsDeleted(const Buffer& buffer) const {
  auto deleted = Make<PJRT_Buffer_IsDeleted_Args>();
  deleted.buffer = buffer.get();
  Do(Api().PJRT_Buffer_IsDeleted, deleted);
  return deleted.is_deleted;
}

void Conformance::Delete(const Buffer& buffer) const {
  auto args = Make<PJRT_Buffer_Delete_Args>();
  args.buffer = buffer.get();
  Do(Api().PJRT_Buffer_Delete, args);
}

Said Conformance::Compile(const PJRT_Program& program, std::string_view options,
                          Loaded& loaded) const {
  auto compile = Make<PJRT_Client_Compile_Args>();
  compile.client = client();
  compile.program = &program;
  compile.compile_options = options.data();
  compile.compile_options_size = options.size();
  Said said = Ask(Api().PJRT_Client_Compile, compile);
  if (said.ok()) loaded.reset(compile.executable);
  return said;
}

Loaded Conformance::Compile(std::string_view code, const Options& options) const {
  Loaded loaded;
  const Said said = Compile(ProgramOf(code), Serialized(options), loaded);
  EXPECT_TRUE(said.ok()) << said.message;
  return loaded;
}

Executable Conformance::ExecutableOf(const Loaded& loaded) const {
  auto args = Make<PJRT_LoadedExecutable_GetExecutable_Args>();
  args.loaded_executable = loaded.get();
  Do(Api().PJRT_LoadedExecutable_GetExecutable, args);
  return Executable(args.executable);
}

Called Conformance::Call(const Loaded& loaded,
                         const std::vector<std::vector<PJRT_Buffer*>>& arguments,
                         const CallOptions& options) const {
  auto outputs = Make<PJRT_Executable_NumOutputs_Args>();
  const Executable executable = ExecutableOf(loaded);
  outputs.executable = executable.get();
  Do(Api().PJRT_Executable_NumOutputs, outputs);
  const size_t count = arguments.size();
  std::vector<PJRT_Buffer* const*> argument_lists;
  for (const auto& list : arguments) argument_lists.push_back(list.data());
  std::vector<std::vector<PJRT_Buffer*>> results(count,
                                                 std::vector<PJRT_Buffer*>(outputs.num_outputs));
  std::vector<PJRT_Buffer**> result_lists;
  for (auto& list : results) result_lists.push_back(list.data());
  std::vector<PJRT_Event*> ended(count);
  auto details = Make<PJRT_ExecuteOptions>();
  details.launch_id = options.launch_id;
  details.non_donatable_input_indices = options.not_donated.data();
  details.num_non_donatable_input_indices = options.not_donated.size();
  details.context = options.context;
  auto execute = Make<PJRT_LoadedExecutable_Execute_Args>();
  execute.executable = loaded.get();
  execute.options = &details;
  execute.argument_lists = argument_lists.data();
  execute.num_devices = count;
  execute.num_args = arguments.empty() ? 0 : arguments[0].size();
  execute.output_lists = result_lists.data();
  execute.device_complete_events = options.wants_events ? ended.data() : nullptr;
  execute.execute_device = options.device;
  Called called{
      .said = Ask(Api().PJRT_LoadedExecutable_Execute, execute), .results = {}, .ended = {}};
  if (!called.said.ok()) return called;
  for (const auto& list : results) called.results.emplace_back(list.begin(), list.end());
  if (options.wants_events) called.ended = {ended.begin(), ended.end()};
  return called;
}

}  // namespace conformance
