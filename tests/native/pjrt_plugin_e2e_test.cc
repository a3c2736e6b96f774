// A C client of libgangway_pjrt.so that makes many calls. tests/test_pjrt_process.py starts the cluster, then this
// program; GANGWAY_TEST_PLUGIN is the library, the environment names the cluster. What each function does:
// conformance/.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <semaphore>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "pjrt_c_api.h"

namespace {

struct Said {
  PJRT_Error_Code code = PJRT_Error_Code_OK;
  std::string message;
};

class PjrtPluginE2eTest : public testing::Test {
 protected:
  void SetUp() override {
    void* const library = dlopen(std::getenv("GANGWAY_TEST_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    api_ = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
    auto create = Make<PJRT_Client_Create_Args>();
    Do(api_->PJRT_Client_Create, create);
    client_ = create.client;
    auto devices = Make<PJRT_Client_AddressableDevices_Args>();
    devices.client = client_;
    Do(api_->PJRT_Client_AddressableDevices, devices);
    ASSERT_GE(devices.num_addressable_devices, 2u);
    device_ = devices.addressable_devices[1];
  }

  void TearDown() override {
    auto destroy = Make<PJRT_Client_Destroy_Args>();
    destroy.client = client_;
    Do(api_->PJRT_Client_Destroy, destroy);
  }

  template <typename Args>
  static Args Make() {
    Args args{};
    args.struct_size = sizeof(Args);
    return args;
  }

  Said Take(PJRT_Error* error) {
    if (error == nullptr) return {};
    auto code = Make<PJRT_Error_GetCode_Args>();
    code.error = error;
    EXPECT_EQ(api_->PJRT_Error_GetCode(&code), nullptr);
    auto message = Make<PJRT_Error_Message_Args>();
    message.error = error;
    api_->PJRT_Error_Message(&message);
    Said said{code.code, {message.message, message.message_size}};
    auto destroy = Make<PJRT_Error_Destroy_Args>();
    destroy.error = error;
    api_->PJRT_Error_Destroy(&destroy);
    return said;
  }

  template <typename Args>
  Said Ask(PJRT_Error* (*function)(Args*), Args& args) {
    return Take(function(&args));
  }
  template <typename Args>
  void Do(PJRT_Error* (*function)(Args*), Args& args) {
    const Said said = Ask(function, args);
    ASSERT_EQ(said.code, PJRT_Error_Code_OK) << said.message;
  }

  Said Await(PJRT_Event* event) {
    auto await = Make<PJRT_Event_Await_Args>();
    await.event = event;
    Said said = Ask(api_->PJRT_Event_Await, await);
    auto destroy = Make<PJRT_Event_Destroy_Args>();
    destroy.event = event;
    Do(api_->PJRT_Event_Destroy, destroy);
    return said;
  }

  const PJRT_Api* api_ = nullptr;
  PJRT_Client* client_ = nullptr;
  PJRT_Device* device_ = nullptr;
};

struct Footprint {
  int64_t resident_bytes = 0, threads = 0, descriptors = 0;
};

// Without the descriptor of the latency request, which comes and goes.
int64_t CountIn(const char* folder) {
  int64_t count = 0;
  std::error_code none;  // it is not a link, or was closed since
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    count += std::filesystem::read_symlink(entry, none) == "/dev/cpu_dma_latency" ? 0 : 1;
  return count;
}

Footprint FootprintOfThisProcess() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return {resident * 4096, CountIn("/proc/self/task"), CountIn("/proc/self/fd")};
}

// As jaxlib calls: a subscription to each completion, no wait but now and then.
class PjrtCallsE2eTest : public PjrtPluginE2eTest {
 protected:
  static constexpr char kProgram[] =
      "module @soak { func.func public @main(%x: tensor<512xf32>) -> tensor<512xf32> {\n"
      "  %y = stablehlo.add %x, %x : tensor<512xf32>\n  return %y : tensor<512xf32> } }\n";
  // executable_build_options {num_replicas: 1 num_partitions: 1}
  static constexpr char kOptions[] = "\x1a\x04\x20\x01\x28\x01";

  void SetUp() override {
    PjrtPluginE2eTest::SetUp();
    auto devices = Make<PJRT_Client_AddressableDevices_Args>();
    devices.client = client_;
    Do(api_->PJRT_Client_AddressableDevices, devices);
    device_ = devices.addressable_devices[0];  // where a program runs by default
    auto program = Make<PJRT_Program>();
    program.code = const_cast<char*>(kProgram);
    program.code_size = std::strlen(kProgram);
    program.format = "mlir";
    program.format_size = 4;
    auto compile = Make<PJRT_Client_Compile_Args>();
    compile.client = client_;
    compile.program = &program;
    compile.compile_options = kOptions;
    compile.compile_options_size = sizeof(kOptions) - 1;
    Do(api_->PJRT_Client_Compile, compile);
    executable_ = compile.executable;
  }

  void TearDown() override {
    auto destroy = Make<PJRT_LoadedExecutable_Destroy_Args>();
    destroy.executable = executable_;
    Do(api_->PJRT_LoadedExecutable_Destroy, destroy);
    PjrtPluginE2eTest::TearDown();
  }

  PJRT_Buffer* Upload() {
    static const std::vector<float> values(512, 0.0f);
    const int64_t dims[] = {512};
    auto upload = Make<PJRT_Client_BufferFromHostBuffer_Args>();
    upload.client = client_;
    upload.data = values.data();
    upload.type = PJRT_Buffer_Type_F32;
    upload.dims = dims;
    upload.num_dims = 1;
    upload.device = device_;
    upload.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    Do(api_->PJRT_Client_BufferFromHostBuffer, upload);
    auto done = Make<PJRT_Event_Destroy_Args>();
    done.event = upload.done_with_host_buffer;
    Do(api_->PJRT_Event_Destroy, done);
    return upload.buffer;
  }

  void Destroy(PJRT_Buffer* buffer) {
    auto destroy = Make<PJRT_Buffer_Destroy_Args>();
    destroy.buffer = buffer;
    Do(api_->PJRT_Buffer_Destroy, destroy);
  }

  PJRT_Error* Execute(PJRT_Buffer* argument, PJRT_Buffer*& result, PJRT_Event*& over) {
    auto options = Make<PJRT_ExecuteOptions>();
    PJRT_Buffer* const arguments[] = {argument};
    PJRT_Buffer* const* const argument_lists[] = {arguments};
    PJRT_Buffer** const result_lists[] = {&result};
    auto execute = Make<PJRT_LoadedExecutable_Execute_Args>();
    execute.executable = executable_;
    execute.options = &options;
    execute.argument_lists = argument_lists;
    execute.num_devices = 1;
    execute.num_args = 1;
    execute.output_lists = result_lists;
    execute.device_complete_events = &over;
    return api_->PJRT_LoadedExecutable_Execute(&execute);
  }

  PJRT_Buffer* Call(PJRT_Buffer* argument) {
    PJRT_Buffer* result = nullptr;
    PJRT_Event* over = nullptr;
    const Said said = Take(Execute(argument, result, over));
    EXPECT_EQ(said.code, PJRT_Error_Code_OK) << said.message;
    if (said.code != PJRT_Error_Code_OK) return nullptr;
    auto on_ready = Make<PJRT_Event_OnReady_Args>();
    on_ready.event = over;
    on_ready.user_arg = this;
    on_ready.callback = [](PJRT_Error* error, void* test) {
      auto* const self = static_cast<PjrtCallsE2eTest*>(test);
      (error == nullptr ? self->completed_ : self->failed_).fetch_add(1);
      if (error != nullptr) (void)self->Take(error);
      self->Finish();
    };
    outstanding_.fetch_add(1);
    Do(api_->PJRT_Event_OnReady, on_ready);
    auto destroy = Make<PJRT_Event_Destroy_Args>();
    destroy.event = over;
    Do(api_->PJRT_Event_Destroy, destroy);
    return result;
  }

  void Finish() {
    if (outstanding_.fetch_sub(1) == 1) over_.release();
  }

  // Returns when each call of `calls` is over and its callback has run.
  void Run(const std::function<void()>& calls) {
    outstanding_ = 1;
    calls();
    Finish();
    ASSERT_TRUE(over_.try_acquire_for(std::chrono::seconds(20)))
        << outstanding_ << " calls are not over";
  }

  PJRT_LoadedExecutable* executable_ = nullptr;
  std::atomic<int64_t> completed_{0}, failed_{0}, outstanding_{0};
  std::binary_semaphore over_{0};
};

class PjrtSoakE2eTest : public PjrtCallsE2eTest {
 protected:
  void Chain(int64_t calls) {
    PJRT_Buffer* value = Upload();
    for (int64_t i = 0; i < calls && !HasFailure(); ++i) {
      PJRT_Buffer* const next = Call(value);
      Destroy(std::exchange(value, next));
      if (i % 10 == 0) Destroy(Upload());
    }
    auto ready = Make<PJRT_Buffer_ReadyEvent_Args>();
    ready.buffer = value;
    Do(api_->PJRT_Buffer_ReadyEvent, ready);
    EXPECT_EQ(Await(ready.event).code, PJRT_Error_Code_OK);
    Destroy(value);
  }
};

TEST_F(PjrtSoakE2eTest, CallsAndUploadsLeaveNothingBehind) {
  const char* const text = std::getenv("GANGWAY_SOAK_CALLS");
  const int64_t calls = text == nullptr ? 200'000 : std::atoll(text);
  Run([&] { Chain(calls / 10); });  // caches and pools fill
  const Footprint before = FootprintOfThisProcess();
  Run([&] { Chain(calls - calls / 10); });
  const Footprint after = FootprintOfThisProcess();
  EXPECT_LT(after.resident_bytes - before.resident_bytes, int64_t{24} << 20);
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_EQ(completed_, calls);
  EXPECT_EQ(failed_, 0);
}

class PjrtForkE2eTest : public PjrtCallsE2eTest {
 protected:
  // The exit status of the child: 0 if all that it asks fails, and for the right reason.
  int InChild(PJRT_Buffer* argument) {
    PJRT_Buffer* result = nullptr;
    PJRT_Event* over = nullptr;
    Said said = Take(Execute(argument, result, over));
    if (said.code == PJRT_Error_Code_OK) said = Await(over);
    auto destroy = Make<PJRT_Buffer_Destroy_Args>();
    destroy.buffer = argument;
    (void)Ask(api_->PJRT_Buffer_Destroy, destroy);  // a destructor must not wait for a lock either
    return said.message.find("was forked") == std::string::npos ? 1 : 0;
  }
};

// A lock that another thread held at the fork stays locked in the child for ever. So the child uses what is its own, or
// the session's; a buffer that another thread uses at that moment may stay locked.
TEST_F(PjrtForkE2eTest, AChildOfABusyProcessGetsErrorsAndNeverWaits) {
  PJRT_Buffer* const argument = Upload();
  PJRT_Buffer* const argument_of_child = Upload();
  Run([&] {
    std::atomic<bool> busy{true};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        while (busy && !HasFailure()) Destroy(Call(argument));
      });
    }
    for (int i = 0; i < 100 && !HasFailure(); ++i) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        alarm(20);
        _exit(InChild(argument_of_child));
      }
      int status = -1;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0) << "child " << i;
    }
    busy = false;
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(failed_, 0);
  Destroy(argument);
  Destroy(argument_of_child);
}

}  // namespace
