// Events and their callbacks, and errors. The event that is not ready yet is a buffer's whose bytes have not come.
#include <atomic>
#include <future>

#include "tests/native/conformance/plugin.h"

namespace conformance {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// What a callback has heard.
struct Heard {
  std::promise<Said> promise;
  static void Callback(PJRT_Error* error, void* heard) {
    static_cast<Heard*>(heard)->promise.set_value(Take(error));
  }
};

class EventsTest : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    const int64_t dims[] = {4};
    PJRT_ShapeSpec spec{sizeof(PJRT_ShapeSpec), nullptr, dims, 1, PJRT_Buffer_Type_U8};
    auto create = Make<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
    create.client = client();
    create.memory = Memory(device());
    create.shape_specs = &spec;
    create.num_shape_specs = 1;
    Do(Api().PJRT_Client_CreateBuffersForAsyncHostToDevice, create);
    manager_.reset(create.transfer_manager);
    auto retrieve = Make<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
    retrieve.transfer_manager = manager_.get();
    Do(Api().PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, retrieve);
    buffer_.reset(retrieve.buffer_out);
  }

  void TearDown() override {
    if (manager_ != nullptr && !is_set_) Set();
    if (buffer_ != nullptr) {
      EXPECT_TRUE(has_failed_ || Ready(buffer_).ok());
    }
    buffer_.reset();
    manager_.reset();
    Conformance::TearDown();
  }

  void Set() {
    is_set_ = true;
    auto send = Make<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
    send.transfer_manager = manager_.get();
    send.data = "abcd";
    send.transfer_size = 4;
    send.is_last_transfer = true;
    Do(Api().PJRT_AsyncHostToDeviceTransferManager_TransferData, send);
    EXPECT_TRUE(Await(Event(send.done_with_h2d_transfer)).ok());
  }

  void SetError(PJRT_Error_Code code, std::string_view message) {
    is_set_ = has_failed_ = true;
    auto error = Make<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
    error.transfer_manager = manager_.get();
    error.error_code = code;
    error.error_message = message.data();
    error.error_message_size = message.size();
    Do(Api().PJRT_AsyncHostToDeviceTransferManager_SetBufferError, error);
  }

  Event NewEvent() {
    auto ready = Make<PJRT_Buffer_ReadyEvent_Args>();
    ready.buffer = buffer_.get();
    Do(Api().PJRT_Buffer_ReadyEvent, ready);
    return Event(ready.event);
  }

  static std::future<Said> Subscribe(const Event& event, Heard& heard) {
    auto subscribe = Make<PJRT_Event_OnReady_Args>();
    subscribe.event = event.get();
    subscribe.callback = Heard::Callback;
    subscribe.user_arg = &heard;
    Do(Api().PJRT_Event_OnReady, subscribe);
    return heard.promise.get_future();
  }

  static bool IsSet(const std::future<Said>& future) {
    return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  static Said ErrorOf(const Event& event) {
    auto error = Make<PJRT_Event_Error_Args>();
    error.event = event.get();
    return Ask(Api().PJRT_Event_Error, error);
  }

  Manager manager_;
  Buffer buffer_;
  bool is_set_ = false, has_failed_ = false;
};

TEST_F(EventsTest, BecomeReadyAndStayReady) {
  const Event event = NewEvent();
  EXPECT_FALSE(IsReady(event));
  Set();
  EXPECT_TRUE(Await(event).ok());
  EXPECT_TRUE(Await(event).ok());
  EXPECT_TRUE(IsReady(event));
  EXPECT_TRUE(ErrorOf(event).ok());
}

TEST_F(EventsTest, TellTheirErrorToAllWhoAsk) {
  const Event event = NewEvent();
  Heard heard;
  std::future<Said> told = Subscribe(event, heard);
  SetError(PJRT_Error_Code_ABORTED, "given up");
  for (const Said& said : {Await(event), ErrorOf(event), told.get()}) {
    EXPECT_EQ(said.code, PJRT_Error_Code_ABORTED);
    EXPECT_THAT(said.message, HasSubstr("given up"));
  }
  EXPECT_TRUE(IsReady(event));
}

TEST_F(EventsTest, CallbacksRunOnceBeforeAndAfter) {
  const Event event = NewEvent();
  Heard first, second, after;
  std::future<Said> one = Subscribe(event, first), two = Subscribe(event, second);
  EXPECT_FALSE(IsSet(one));
  Set();
  EXPECT_TRUE(one.get().ok());
  EXPECT_TRUE(two.get().ok());
  std::future<Said> three = Subscribe(event, after);
  EXPECT_TRUE(three.get().ok());
}

TEST_F(EventsTest, CallbacksOutliveTheirEvent) {
  Heard heard;
  std::future<Said> told;
  {
    const Event event = NewEvent();
    told = Subscribe(event, heard);
  }
  Set();
  EXPECT_TRUE(told.get().ok());
}

TEST_F(EventsTest, OfOneBufferAreIndependent) {
  Event one = NewEvent();
  const Event other = NewEvent();
  one.reset();
  Set();
  EXPECT_TRUE(Await(other).ok());
}

TEST_F(EventsTest, CallbacksMayCallThePlugin) {
  struct Caller {
    const PJRT_Api* api;
    PJRT_Buffer* buffer;
    std::promise<bool> promise;
  } caller{.api = &Api(), .buffer = buffer_.get(), .promise = {}};
  const Event event = NewEvent();
  auto subscribe = Make<PJRT_Event_OnReady_Args>();
  subscribe.event = event.get();
  subscribe.user_arg = &caller;
  subscribe.callback = [](PJRT_Error* error, void* argument) {
    EXPECT_TRUE(Take(error).ok());
    auto* const self = static_cast<Caller*>(argument);
    auto deleted = Make<PJRT_Buffer_IsDeleted_Args>();
    deleted.buffer = self->buffer;
    Do(self->api->PJRT_Buffer_IsDeleted, deleted);
    self->promise.set_value(deleted.is_deleted);
  };
  Do(Api().PJRT_Event_OnReady, subscribe);
  Set();
  EXPECT_FALSE(caller.promise.get_future().get());
}

TEST_F(EventsTest, CallbacksMayBeginWork) {
  struct Working {
    EventsTest* test;
    Loaded twice;
    Buffer argument;
    Called called;
    std::vector<Said> waits;
    std::promise<void> promise;
  } working{.test = this,
            .twice = Compile(kTwice),
            .argument = Upload(std::vector<float>{1, 2, 3, 4}),
            .called = {},
            .waits = {},
            .promise = {}};
  const Event event = NewEvent();
  auto subscribe = Make<PJRT_Event_OnReady_Args>();
  subscribe.event = event.get();
  subscribe.user_arg = &working;
  subscribe.callback = [](PJRT_Error* error, void* argument) {
    EXPECT_TRUE(Take(error).ok());
    auto* const self = static_cast<Working*>(argument);
    self->called = self->test->Call(self->twice, {{self->argument.get()}});
    self->waits.push_back(Await(self->called.ended[0]));
    Loaded never;
    self->waits.push_back(self->test->Compile(ProgramOf(kTwice), Serialized({}), never));
    self->promise.set_value();
  };
  Do(Api().PJRT_Event_OnReady, subscribe);
  Set();
  working.promise.get_future().get();
  ASSERT_TRUE(working.called.said.ok()) << working.called.said.message;
  EXPECT_THAT(Values<float>(working.called.results[0][0]), testing::ElementsAre(2, 4, 6, 8));
  for (const Said& wait : working.waits) {
    EXPECT_EQ(wait.code, Expected(Topic::kWaitInCallback)) << wait.message;
  }
}

// A callback runs in the call that subscribes to an event which is ready, and may wait there.
TEST_F(EventsTest, CallbacksThatRunAtOnceMayWait) {
  const Event event = NewEvent();
  Set();
  EXPECT_TRUE(Await(event).ok());
  struct Waiting {
    EventsTest* test;
    Said said;
  } waiting{.test = this, .said = {PJRT_Error_Code_UNKNOWN, "not called"}};
  auto subscribe = Make<PJRT_Event_OnReady_Args>();
  subscribe.event = event.get();
  subscribe.user_arg = &waiting;
  subscribe.callback = [](PJRT_Error* error, void* argument) {
    EXPECT_TRUE(Take(error).ok());
    auto* const self = static_cast<Waiting*>(argument);
    self->said = self->test->Ready(self->test->Upload(std::vector<float>(4)));
  };
  Do(Api().PJRT_Event_OnReady, subscribe);
  EXPECT_TRUE(waiting.said.ok()) << waiting.said.message;
}

TEST_F(EventsTest, CallbacksMayDestroyTheirEvent) {
  struct Destroying {
    Event event;
    std::promise<void> promise;
  } destroying{.event = NewEvent(), .promise = {}};
  auto subscribe = Make<PJRT_Event_OnReady_Args>();
  subscribe.event = destroying.event.get();
  subscribe.user_arg = &destroying;
  subscribe.callback = [](PJRT_Error* error, void* argument) {
    EXPECT_TRUE(Take(error).ok());
    auto* const self = static_cast<Destroying*>(argument);
    self->event.reset();
    self->promise.set_value();
  };
  Do(Api().PJRT_Event_OnReady, subscribe);
  Set();
  destroying.promise.get_future().get();
}

TEST_F(EventsTest, ErrorsAreAskedForOnlyWhenReady) {
  if (!Runs(Topic::kErrorOfPendingEvent)) GTEST_SKIP() << Reason(Topic::kErrorOfPendingEvent);
  EXPECT_EQ(ErrorOf(NewEvent()).code, PJRT_Error_Code_FAILED_PRECONDITION);
}

TEST_F(EventsTest, ErrorsHaveEveryCode) {
  for (int code = PJRT_Error_Code_CANCELLED; code <= PJRT_Error_Code_UNAUTHENTICATED; ++code) {
    const int64_t dims[] = {1};
    PJRT_ShapeSpec spec{sizeof(PJRT_ShapeSpec), nullptr, dims, 1, PJRT_Buffer_Type_U8};
    auto create = Make<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
    create.client = client();
    create.memory = Memory(device());
    create.shape_specs = &spec;
    create.num_shape_specs = 1;
    Do(Api().PJRT_Client_CreateBuffersForAsyncHostToDevice, create);
    const Manager manager(create.transfer_manager);
    auto retrieve = Make<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
    retrieve.transfer_manager = manager.get();
    Do(Api().PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, retrieve);
    const Buffer buffer(retrieve.buffer_out);
    auto error = Make<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
    error.transfer_manager = manager.get();
    error.error_code = static_cast<PJRT_Error_Code>(code);
    error.error_message = "why";
    error.error_message_size = 3;
    Do(Api().PJRT_AsyncHostToDeviceTransferManager_SetBufferError, error);
    EXPECT_EQ(Ready(buffer).code, code);
  }
}

TEST_F(EventsTest, ErrorsSayWhatIsWrong) {
  auto lookup = Make<PJRT_Client_LookupDevice_Args>();
  lookup.client = client();
  lookup.id = 12345;
  const Said said = Ask(Api().PJRT_Client_LookupDevice, lookup);
  EXPECT_THAT(said.message, HasSubstr("12345"));
  // To destroy nothing is allowed.
  auto destroy = Make<PJRT_Error_Destroy_Args>();
  Api().PJRT_Error_Destroy(&destroy);
}

}  // namespace
}  // namespace conformance
