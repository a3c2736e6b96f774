// The plugin under test and its client, as a program sees them that knows pjrt_c_api.h alone. GANGWAY_TEST_PLUGIN is
// the library; GANGWAY_CONFORMANCE_PLUGIN says which column of expectations.cc holds: "gangway" or "cpu". The
// environment names Gangway's cluster, of eight devices; the CPU plugin is asked for eight.
//
// Every call goes through a copy of the plugin's table that counts them. Handles are owned by pointers that destroy
// them. What the functions here cannot do is a failure of the running test.
#ifndef TESTS_NATIVE_CONFORMANCE_PLUGIN_H_
#define TESTS_NATIVE_CONFORMANCE_PLUGIN_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pjrt_c_api.h"
#include "tests/native/conformance/expectations.h"
#include "tests/native/conformance/functions.h"

namespace conformance {

constexpr size_t kDeviceCount = 8;

// The plugin's table; its functions count their calls. Loads the library at the first call.
const PJRT_Api& Api();
// The plugin's own, which does not count.
const PJRT_Api& RawApi();

// Names of the functions that no test has called.
std::vector<std::string> FunctionsNotCalled();

struct Said {
  PJRT_Error_Code code = PJRT_Error_Code_OK;
  std::string message;
  bool ok() const { return code == PJRT_Error_Code_OK; }
};
void PrintTo(const Said& said, std::ostream* to);

// Destroys the error.
Said Take(PJRT_Error* error);

template <typename Args>
Args Make() {
  Args args{};
  args.struct_size = sizeof(Args);
  return args;
}

template <typename Args>
Said Ask(PJRT_Error* (*function)(Args*), Args& args) {
  return Take(function(&args));
}

template <typename Args>
void Do(PJRT_Error* (*function)(Args*), Args& args) {
  const Said said = Ask(function, args);
  EXPECT_EQ(said.code, PJRT_Error_Code_OK) << said.message;
}

struct Destroyer {
  void operator()(PJRT_Event* event) const;
  void operator()(PJRT_Buffer* buffer) const;
  void operator()(PJRT_Executable* executable) const;
  void operator()(PJRT_LoadedExecutable* executable) const;
  void operator()(PJRT_AsyncHostToDeviceTransferManager* manager) const;
  void operator()(PJRT_ExecuteContext* context) const;
  void operator()(PJRT_Client* client) const;
};
using Event = std::unique_ptr<PJRT_Event, Destroyer>;
using Buffer = std::unique_ptr<PJRT_Buffer, Destroyer>;
using Executable = std::unique_ptr<PJRT_Executable, Destroyer>;
using Loaded = std::unique_ptr<PJRT_LoadedExecutable, Destroyer>;
using Manager = std::unique_ptr<PJRT_AsyncHostToDeviceTransferManager, Destroyer>;
using Context = std::unique_ptr<PJRT_ExecuteContext, Destroyer>;
using Client = std::unique_ptr<PJRT_Client, Destroyer>;

Said Await(const Event& event);
bool IsReady(const Event& event);

// Null, and a failure of the test, if there is no client.
Client NewClient();

// What a program's options say. Empty `devices`: the plugin chooses.
struct Options {
  int replicas = 1, partitions = 1;
  bool spmd = false, portable = false;
  std::vector<int> devices;  // by replica, then partition
};
std::string Serialized(const Options& options);  // xla.CompileOptionsProto

PJRT_Program ProgramOf(std::string_view code, std::string_view format = "mlir");

// What Execute is told beside the arguments.
struct CallOptions {
  int launch_id = 0;
  std::vector<int64_t> not_donated;
  PJRT_ExecuteContext* context = nullptr;
  PJRT_Device* device = nullptr;
  bool wants_events = true;
};

struct Called {
  Said said;
  std::vector<std::vector<Buffer>> results;  // by device, then result
  std::vector<Event> ended;                  // by device
};

// Elements of a buffer in the host's memory.
template <typename T>
PJRT_Buffer_Type TypeOf();
template <>
inline PJRT_Buffer_Type TypeOf<float>() {
  return PJRT_Buffer_Type_F32;
}
template <>
inline PJRT_Buffer_Type TypeOf<int32_t>() {
  return PJRT_Buffer_Type_S32;
}
template <>
inline PJRT_Buffer_Type TypeOf<uint8_t>() {
  return PJRT_Buffer_Type_U8;
}

class Conformance : public testing::Test {
 public:  // for callbacks, too
  void SetUp() override;

  PJRT_Client* client() const { return client_.get(); }
  PJRT_Device* device(size_t index = 0) const { return devices_[index]; }
  std::vector<PJRT_Memory*> Memories(PJRT_Device* device) const;
  PJRT_Memory* Memory(PJRT_Device* device, std::string_view kind = "device") const;

  // Arguments that upload dense bytes; the spans must outlive them.
  PJRT_Client_BufferFromHostBuffer_Args UploadOf(const void* data, PJRT_Buffer_Type type,
                                                 std::span<const int64_t> dims,
                                                 size_t device_index = 0) const;
  // Takes the buffer and the event out of the answer; awaits the event.
  Buffer Upload(PJRT_Client_BufferFromHostBuffer_Args args) const;
  template <typename T>
  Buffer Upload(const std::vector<T>& values, std::vector<int64_t> dims,
                size_t device_index = 0) const {
    return Upload(UploadOf(values.data(), TypeOf<T>(), dims, device_index));
  }
  template <typename T>
  Buffer Upload(const std::vector<T>& values, size_t device_index = 0) const {
    return Upload(values, {static_cast<int64_t>(values.size())}, device_index);
  }

  // All bytes, in the plugin's default order, which is row-major.
  Said Read(PJRT_Buffer* buffer, void* to, size_t size) const;
  template <typename T>
  std::vector<T> Values(PJRT_Buffer* buffer) const {
    auto size = Make<PJRT_Buffer_ToHostBuffer_Args>();
    size.src = buffer;
    Do(Api().PJRT_Buffer_ToHostBuffer, size);
    std::vector<T> values(size.dst_size / sizeof(T));
    const Said said = Read(buffer, values.data(), size.dst_size);
    EXPECT_TRUE(said.ok()) << said.message;
    return values;
  }
  template <typename T>
  std::vector<T> Values(const Buffer& buffer) const {
    return Values<T>(buffer.get());
  }
  Said Ready(const Buffer& buffer) const;
  bool IsDeleted(const Buffer& buffer) const;
  void Delete(const Buffer& buffer) const;

  Said Compile(const PJRT_Program& program, std::string_view options, Loaded& loaded) const;
  Loaded Compile(std::string_view code, const Options& options = {}) const;
  Executable ExecutableOf(const Loaded& loaded) const;

  // `arguments`: by device, then position.
  Called Call(const Loaded& loaded, const std::vector<std::vector<PJRT_Buffer*>>& arguments,
              const CallOptions& options = {}) const;

  Client client_;
  std::vector<PJRT_Device*> devices_;
};

// f32[4] -> f32[4], twice its argument.
inline constexpr std::string_view kTwice =
    "module @twice { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
    "  %y = stablehlo.add %x, %x : tensor<4xf32>\n  return %y : tensor<4xf32> } }\n";

// The sum of two, whose first argument is donated.
inline constexpr std::string_view kDonating =
    "module @donating { func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32},\n"
    "    %y: tensor<4xf32>) -> tensor<4xf32> {\n"
    "  %z = stablehlo.add %x, %y : tensor<4xf32>\n  return %z : tensor<4xf32> } }\n";

}  // namespace conformance

#endif  // TESTS_NATIVE_CONFORMANCE_PLUGIN_H_
