// The plugin's table without a cluster, so that the sanitizers see what becomes of mistakes: null handles and wrong
// options. What each function does and which mistakes it names: tests/native/conformance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gangway/frontdoor/pjrt/event.h"

extern "C" const PJRT_Api* GetPjrtApi();

namespace gangway::pjrt {
namespace {

using testing::HasSubstr;

struct Said {
  PJRT_Error_Code code = PJRT_Error_Code_OK;
  std::string message;
};

Said Take(PJRT_Error* error) {
  if (error == nullptr) return {};
  PJRT_Error_GetCode_Args code{PJRT_Error_GetCode_Args_STRUCT_SIZE, nullptr, error};
  EXPECT_EQ(GetPjrtApi()->PJRT_Error_GetCode(&code), nullptr);
  PJRT_Error_Message_Args message{PJRT_Error_Message_Args_STRUCT_SIZE, nullptr, error};
  GetPjrtApi()->PJRT_Error_Message(&message);
  Said said{code.code, std::string(message.message, message.message_size)};
  PJRT_Error_Destroy_Args destroy{PJRT_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
  GetPjrtApi()->PJRT_Error_Destroy(&destroy);
  return said;
}

// The functions of the table, which all take one pointer; but not the two that return nothing.
std::vector<void*> Functions() {
  const PJRT_Api& api = *GetPjrtApi();
  const auto* first = reinterpret_cast<const char*>(&api.PJRT_Error_GetCode);
  const auto* end = reinterpret_cast<const char*>(&api) + api.struct_size;
  std::vector<void*> functions((end - first) / sizeof(void*));
  std::memcpy(static_cast<void*>(functions.data()), first, functions.size() * sizeof(void*));
  return functions;
}

// Calls any of them with arguments of another type than its own.
#ifdef __clang__
__attribute__((no_sanitize("function")))
#endif
Said Call(void* function, void* arguments) {
  return Take(reinterpret_cast<PJRT_Error* (*)(void*)>(function)(arguments));
}

template <typename Function>
bool Is(void* function, Function* other) {
  return function == reinterpret_cast<void*>(other);
}

TEST(PluginTest, NullHandlesAreErrorsOrNothing) {
  for (void* const function : Functions()) {
    size_t arguments[64] = {sizeof(arguments)};  // as a newer caller's: larger, all else null
    if (Is(function, GetPjrtApi()->PJRT_Client_Create)) continue;  // would look for a cluster
    Call(function, arguments);
    if (function ==
        reinterpret_cast<PJRT_Error* (*)(void*)>(GetPjrtApi()->PJRT_ExecuteContext_Create)) {
      PJRT_ExecuteContext_Destroy_Args destroy{
          PJRT_ExecuteContext_Destroy_Args_STRUCT_SIZE, nullptr,
          reinterpret_cast<PJRT_ExecuteContext_Create_Args*>(arguments)->context};
      EXPECT_EQ(GetPjrtApi()->PJRT_ExecuteContext_Destroy(&destroy), nullptr);
    }
  }
}

PJRT_NamedValue Text(const char* name, const char* value) {
  PJRT_NamedValue named{PJRT_NamedValue_STRUCT_SIZE, nullptr, name, std::strlen(name)};
  named.type = PJRT_NamedValue_kString;
  named.string_value = value;
  named.value_size = std::strlen(value);
  return named;
}

Said CreateWith(std::vector<PJRT_NamedValue> options) {
  PJRT_Client_Create_Args create{PJRT_Client_Create_Args_STRUCT_SIZE, nullptr, options.data(),
                                 options.size()};
  return Take(GetPjrtApi()->PJRT_Client_Create(&create));
}

PJRT_NamedValue Number(const char* name, int64_t value) {
  PJRT_NamedValue named{PJRT_NamedValue_STRUCT_SIZE, nullptr, name, std::strlen(name)};
  named.type = PJRT_NamedValue_kInt64;
  named.int64_value = value;
  named.value_size = 1;
  return named;
}

TEST(PluginTest, OneProcessOfJaxDistributedIsServedAndMoreAreRefused) {
  const auto named = Text("state_dir", "/nowhere");
  EXPECT_EQ(CreateWith({named, Number("node_id", 0), Number("num_nodes", 1)}).code,
            PJRT_Error_Code_NOT_FOUND)
      << "it looks for a cluster";
  const Said more = CreateWith({named, Number("node_id", 1), Number("num_nodes", 4)});
  EXPECT_EQ(more.code, PJRT_Error_Code_FAILED_PRECONDITION);
  EXPECT_THAT(more.message, HasSubstr("number 1 of 4 of jax.distributed"));
  EXPECT_THAT(more.message, HasSubstr("num_processes=1"));
}

TEST(PluginTest, WrongOptionsAreNamed) {
  EXPECT_THAT(CreateWith({Text("adress", "unix:/x")}).message, HasSubstr("'adress' is unknown"));
  PJRT_NamedValue flag = Text("port", "");
  flag.type = PJRT_NamedValue_kBool;
  EXPECT_THAT(CreateWith({flag}).message, HasSubstr("option 'port'"));
  const Said none = CreateWith({Text("state_dir", "/nowhere")});
  EXPECT_EQ(none.code, PJRT_Error_Code_NOT_FOUND);
  EXPECT_THAT(none.message, HasSubstr("gangway up"));
  EXPECT_EQ(CreateWith({Text("address", "ftp://x")}).code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_EQ(CreateWith({Text("address", "unix:/nowhere/control")}).code,
            PJRT_Error_Code_UNAVAILABLE);
}

TEST(PluginTest, AnEventIsReadOnlyWhenItIsReady) {
  auto outcome = std::make_shared<Outcome>();
  PJRT_Event* const event = NewEvent(outcome);
  PJRT_Event_Error_Args error{PJRT_Event_Error_Args_STRUCT_SIZE, nullptr, event};
  EXPECT_EQ(Take(GetPjrtApi()->PJRT_Event_Error(&error)).code, PJRT_Error_Code_FAILED_PRECONDITION);

  std::vector<std::string> heard;
  PJRT_Event_OnReady_Args subscribe{PJRT_Event_OnReady_Args_STRUCT_SIZE, nullptr, event};
  subscribe.user_arg = &heard;
  subscribe.callback = [](PJRT_Error* failed, void* to) {
    static_cast<std::vector<std::string>*>(to)->push_back(Take(failed).message);
  };
  EXPECT_EQ(GetPjrtApi()->PJRT_Event_OnReady(&subscribe), nullptr);
  EXPECT_TRUE(heard.empty());
  outcome->Set(absl::DataLossError("the worker is gone"));
  EXPECT_EQ(GetPjrtApi()->PJRT_Event_OnReady(&subscribe), nullptr);  // at once
  EXPECT_THAT(heard, testing::ElementsAre("the worker is gone", "the worker is gone"));
  PJRT_Event_Await_Args await{PJRT_Event_Await_Args_STRUCT_SIZE, nullptr, event};
  EXPECT_EQ(Take(GetPjrtApi()->PJRT_Event_Await(&await)).code, PJRT_Error_Code_DATA_LOSS);
  PJRT_Event_Destroy_Args destroy{PJRT_Event_Destroy_Args_STRUCT_SIZE, nullptr, event};
  EXPECT_EQ(GetPjrtApi()->PJRT_Event_Destroy(&destroy), nullptr);
}

}  // namespace
}  // namespace gangway::pjrt
