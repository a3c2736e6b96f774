// Asynchronous transfers from host memory: pieces in any order, what becomes of buffers that do not become whole, and
// programs that wait for them.
#include "tests/native/conformance/plugin.h"

namespace conformance {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TransfersTest : public Conformance {
 protected:
  // A transfer of buffers of these many bytes.
  Manager Begin(std::vector<int64_t> sizes, PJRT_Buffer_Type type = PJRT_Buffer_Type_U8) const {
    std::vector<PJRT_ShapeSpec> specs;
    for (int64_t& size : sizes) specs.push_back({sizeof(PJRT_ShapeSpec), nullptr, &size, 1, type});
    auto create = Make<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
    create.client = client();
    create.memory = Memory(device());
    create.shape_specs = specs.data();
    create.num_shape_specs = specs.size();
    Do(Api().PJRT_Client_CreateBuffersForAsyncHostToDevice, create);
    return Manager(create.transfer_manager);
  }

  static Said Send(const Manager& manager, int index, int64_t offset, std::string_view bytes,
                   bool last) {
    auto send = Make<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
    send.transfer_manager = manager.get();
    send.buffer_index = index;
    send.data = bytes.data();
    send.offset = offset;
    send.transfer_size = static_cast<int64_t>(bytes.size());
    send.is_last_transfer = last;
    const Said said = Ask(Api().PJRT_AsyncHostToDeviceTransferManager_TransferData, send);
    return said.ok() ? Await(Event(send.done_with_h2d_transfer)) : said;
  }

  static Buffer Retrieve(const Manager& manager, int index) {
    auto retrieve = Make<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
    retrieve.transfer_manager = manager.get();
    retrieve.buffer_index = index;
    Do(Api().PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, retrieve);
    return Buffer(retrieve.buffer_out);
  }

  static Said Fail(const Manager& manager, int index, PJRT_Error_Code code, std::string_view text) {
    auto error = Make<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
    error.transfer_manager = manager.get();
    error.buffer_index = index;
    error.error_code = code;
    error.error_message = text.data();
    error.error_message_size = text.size();
    return Ask(Api().PJRT_AsyncHostToDeviceTransferManager_SetBufferError, error);
  }

  std::string Text(const Buffer& buffer) const {
    const std::vector<uint8_t> bytes = Values<uint8_t>(buffer);
    return {bytes.begin(), bytes.end()};
  }
};

TEST_F(TransfersTest, SayWhatTheyTransfer) {
  const Manager manager = Begin({6, 1, 3});
  auto count = Make<PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args>();
  count.transfer_manager = manager.get();
  Do(Api().PJRT_AsyncHostToDeviceTransferManager_BufferCount, count);
  EXPECT_EQ(count.buffer_count, 3u);
  auto size = Make<PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args>();
  size.transfer_manager = manager.get();
  size.buffer_index = 2;
  Do(Api().PJRT_AsyncHostToDeviceTransferManager_BufferSize, size);
  EXPECT_EQ(size.buffer_size, 3u);
  auto where = Make<PJRT_AsyncHostToDeviceTransferManager_Device_Args>();
  where.transfer_manager = manager.get();
  Do(Api().PJRT_AsyncHostToDeviceTransferManager_Device, where);
  EXPECT_EQ(where.device_out, device());
  // What follows only ends the transfer in order.
  for (const auto& [index, bytes] : {std::pair{0, "abcdef"}, {1, "x"}, {2, "xyz"}}) {
    const Buffer buffer = Retrieve(manager, index);
    EXPECT_TRUE(Send(manager, index, 0, bytes, true).ok());
    EXPECT_EQ(Text(buffer), bytes);
  }
}

TEST_F(TransfersTest, PiecesBecomeBuffers) {
  Manager manager = Begin({6, 3});
  const Buffer early = Retrieve(manager, 0);  // before its bytes
  EXPECT_TRUE(Send(manager, 0, 4, "ef", false).ok());
  EXPECT_TRUE(Send(manager, 0, 0, "ab", false).ok());
  EXPECT_TRUE(Send(manager, 0, 2, "cd", true).ok());
  EXPECT_TRUE(Send(manager, 1, 0, "xyz", true).ok());
  EXPECT_EQ(Text(early), "abcdef");
  const Buffer late = Retrieve(manager, 1);
  EXPECT_EQ(Text(late), "xyz");
  manager.reset();
  EXPECT_EQ(Text(late), "xyz") << "a complete transfer's buffers live on";
}

TEST_F(TransfersTest, LaterPiecesReplaceAndEmptyBuffersAreComplete) {
  Manager manager = Begin({6, 0});
  const Buffer buffer = Retrieve(manager, 0), empty = Retrieve(manager, 1);
  EXPECT_TRUE(Send(manager, 0, 0, "ab..xx", false).ok());
  EXPECT_TRUE(Send(manager, 0, 2, "cdef", true).ok());
  EXPECT_EQ(Text(buffer), "abcdef");
  EXPECT_TRUE(Send(manager, 1, 0, "", true).ok());
  EXPECT_TRUE(Ready(empty).ok());
  EXPECT_TRUE(Read(empty.get(), nullptr, 0).ok());
}

TEST_F(TransfersTest, ProgramsWaitForTheBytes) {
  const Loaded twice = Compile(kTwice);
  const Manager manager = Begin({4}, PJRT_Buffer_Type_F32);
  const Buffer argument = Retrieve(manager, 0);
  Called called = Call(twice, {{argument.get()}});
  ASSERT_TRUE(called.said.ok()) << called.said.message;
  EXPECT_FALSE(IsReady(called.ended[0]));
  Called second = Call(twice, {{called.results[0][0].get()}});
  const float values[] = {1, 2, 3, 4};
  const std::string_view bytes(reinterpret_cast<const char*>(values), sizeof(values));
  EXPECT_TRUE(Send(manager, 0, 0, bytes, true).ok());
  EXPECT_THAT(Values<float>(second.results[0][0]), ElementsAre(4, 8, 12, 16));
  EXPECT_TRUE(Await(called.ended[0]).ok());
}

TEST_F(TransfersTest, ErrorsOfABufferReachWhatUsesIt) {
  const Loaded twice = Compile(kTwice);
  const Manager manager = Begin({4}, PJRT_Buffer_Type_F32);
  const Buffer argument = Retrieve(manager, 0);
  Called called = Call(twice, {{argument.get()}});
  ASSERT_TRUE(called.said.ok());
  Called second = Call(twice, {{called.results[0][0].get()}});
  ASSERT_TRUE(Fail(manager, 0, PJRT_Error_Code_DATA_LOSS, "the file is gone").ok());
  for (const Buffer* spoiled : std::initializer_list<const Buffer*>{
           &argument, &called.results[0][0], &second.results[0][0]}) {
    const Said said = Ready(*spoiled);
    EXPECT_FALSE(said.ok());
    EXPECT_THAT(said.message, HasSubstr("the file is gone"));
  }
  EXPECT_EQ(Ready(argument).code, PJRT_Error_Code_DATA_LOSS);
  EXPECT_FALSE(Await(second.ended[0]).ok());
}

TEST_F(TransfersTest, PointersAreReadOnceTheBytesAreThere) {
  const Manager manager = Begin({4});
  const Buffer buffer = Retrieve(manager, 0);
  auto increase = Make<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
  increase.buffer = buffer.get();
  Do(Api().PJRT_Buffer_IncreaseExternalReferenceCount, increase);
  auto pointer = Make<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args>();
  pointer.buffer = buffer.get();
  Do(Api().PJRT_Buffer_OpaqueDeviceMemoryDataPointer, pointer);
  EXPECT_TRUE(Send(manager, 0, 0, "abcd", true).ok());
  EXPECT_TRUE(Ready(buffer).ok());
  EXPECT_EQ(std::string(static_cast<const char*>(pointer.device_memory_ptr), 4), "abcd");
  auto decrease = Make<PJRT_Buffer_DecreaseExternalReferenceCount_Args>();
  decrease.buffer = buffer.get();
  Do(Api().PJRT_Buffer_DecreaseExternalReferenceCount, decrease);
}

TEST_F(TransfersTest, TakeMetadata) {
  const Manager manager = Begin({1});
  auto add = Make<PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args>();
  add.transfer_manager = manager.get();
  Do(Api().PJRT_AsyncHostToDeviceTransferManager_AddMetadata, add);
  const Buffer buffer = Retrieve(manager, 0);
  EXPECT_TRUE(Send(manager, 0, 0, "a", true).ok());
}

TEST_F(TransfersTest, MistakesAreErrors) {
  if (!Runs(Topic::kTransferMistakes)) GTEST_SKIP() << Reason(Topic::kTransferMistakes);
  Manager manager = Begin({4});
  EXPECT_EQ(Send(manager, 1, 0, "a", false).code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_EQ(Send(manager, -1, 0, "a", false).code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_EQ(Send(manager, 0, 2, "abc", false).code, PJRT_Error_Code_OUT_OF_RANGE);
  EXPECT_EQ(Send(manager, 0, -1, "a", false).code, PJRT_Error_Code_OUT_OF_RANGE);
  EXPECT_TRUE(Send(manager, 0, 0, "abcd", true).ok());
  EXPECT_EQ(Send(manager, 0, 0, "a", true).code, PJRT_Error_Code_FAILED_PRECONDITION);
  EXPECT_EQ(Fail(manager, 0, PJRT_Error_Code_ABORTED, "late").code,
            PJRT_Error_Code_FAILED_PRECONDITION);
  EXPECT_EQ(Fail(manager, 7, PJRT_Error_Code_ABORTED, "none").code,
            PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_EQ(Text(Retrieve(manager, 0)), "abcd");
  auto again = Make<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
  again.transfer_manager = manager.get();
  EXPECT_EQ(Ask(Api().PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, again).code,
            PJRT_Error_Code_FAILED_PRECONDITION);
  auto size = Make<PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args>();
  size.transfer_manager = manager.get();
  size.buffer_index = 1;
  EXPECT_EQ(Ask(Api().PJRT_AsyncHostToDeviceTransferManager_BufferSize, size).code,
            PJRT_Error_Code_INVALID_ARGUMENT);
}

TEST_F(TransfersTest, BuffersThatDoNotBecomeWholeAreErrors) {
  if (!Runs(Topic::kIncompleteTransfer)) GTEST_SKIP() << Reason(Topic::kIncompleteTransfer);
  Manager manager = Begin({4, 4, 4});
  const Buffer cut = Retrieve(manager, 0), given_up = Retrieve(manager, 1),
               left = Retrieve(manager, 2);
  EXPECT_EQ(Send(manager, 0, 0, "ab", true).code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_THAT(Ready(cut).message, HasSubstr("2 of the 4 bytes"));
  EXPECT_TRUE(Fail(manager, 1, static_cast<PJRT_Error_Code>(99), "odd").ok());
  EXPECT_EQ(Ready(given_up).code, PJRT_Error_Code_UNKNOWN);
  EXPECT_EQ(Send(manager, 1, 0, "abcd", true).code, PJRT_Error_Code_FAILED_PRECONDITION);
  manager.reset();
  EXPECT_EQ(Ready(left).code, PJRT_Error_Code_CANCELLED);
}

}  // namespace
}  // namespace conformance
