// What calls on arrays send that were uploaded or copied shard by shard: their shards once, then an array.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gangway/frontdoor/pjrt/buffer.h"
#include "gangway/frontdoor/pjrt/event.h"
#include "gangway/frontdoor/pjrt/executable.h"
#include "gangway/frontdoor/pjrt/recording_client.h"

namespace gangway::pjrt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Buffers = std::vector<std::unique_ptr<PJRT_Buffer>>;  // by device

constexpr size_t kDevices = 2;

class GatheredCallsTest : public testing::Test {
 protected:
  GatheredCallsTest() {
    auto session = std::make_unique<RecordingClient>(kDevices);
    session_ = session.get();
    client_ = NewClient(std::move(session));
  }
  ~GatheredCallsTest() override { client_->drops->Close(); }

  std::shared_ptr<Array> NewArray(uint32_t shard_count) {
    return std::make_shared<Array>(session_, client_->drops, session_->NewArrayHandle(),
                                   shard_count, nullptr);
  }
  std::unique_ptr<PJRT_Buffer> Buffer(size_t device, std::shared_ptr<Array> array, uint32_t shard) {
    return std::unique_ptr<PJRT_Buffer>(NewBuffer(
        client_->devices[device]->memories[0], std::make_shared<Shape>(), std::move(array), shard));
  }
  // As JAX uploads it: an array for each shard.
  Buffers Uploaded() {
    Buffers buffers;
    for (size_t device = 0; device < kDevices; ++device)
      buffers.push_back(Buffer(device, NewArray(1), 0));
    return buffers;
  }

  // As JAX puts small arrays.
  Buffers Put() {
    constexpr float kValue = 1;
    Buffers buffers;
    for (PJRT_Device* const device : client_->devices) {
      PJRT_Client_BufferFromHostBuffer_Args args{
          .struct_size = sizeof(args),
          .client = client_.get(),
          .data = &kValue,
          .type = PJRT_Buffer_Type_F32,
          .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
          .device = device};
      EXPECT_TRUE(BufferFromHost(args).ok());
      buffers.emplace_back(args.buffer);
      delete args.done_with_host_buffer;
    }
    return buffers;
  }

  // Calls a program of these arguments, which has one result.
  Buffers Call(const std::vector<const Buffers*>& arguments,
               const std::vector<uint32_t>& donated = {}) {
    auto info = std::make_shared<ExecutableInfo>();
    info->parameters.resize(arguments.size());
    info->donated = donated;
    auto program = std::make_shared<Program>();
    program->info = std::move(info);
    program->results = {std::make_shared<Shape>()};
    program->result_kinds = {0};
    PJRT_LoadedExecutable executable{.client = client_.get(),
                                     .drops = client_->drops,
                                     .handle = ExecutableHandle(1),
                                     .program = std::move(program),
                                     .devices = client_->devices};
    std::vector<std::vector<PJRT_Buffer*>> taken(kDevices);
    PJRT_Buffer* results[kDevices] = {};
    PJRT_Buffer* const* argument_lists[kDevices] = {};
    PJRT_Buffer** output_lists[kDevices] = {};
    for (size_t device = 0; device < kDevices; ++device) {
      for (const Buffers* argument : arguments) taken[device].push_back((*argument)[device].get());
      argument_lists[device] = taken[device].data();
      output_lists[device] = &results[device];
    }
    PJRT_LoadedExecutable_Execute_Args args{.struct_size = sizeof(args),
                                            .executable = &executable,
                                            .argument_lists = argument_lists,
                                            .num_devices = kDevices,
                                            .num_args = arguments.size(),
                                            .output_lists = output_lists};
    EXPECT_TRUE(LoadedExecute(args).ok());
    Buffers owned;
    for (PJRT_Buffer* result : results) owned.emplace_back(result);
    return owned;
  }

  RecordingClient* session_ = nullptr;
  std::unique_ptr<PJRT_Client> client_;
};

TEST_F(GatheredCallsTest, TheSecondCallNamesArrays_DF_1) {
  const Buffers x = Uploaded(), y = Uploaded();
  const Buffers first = Call({&x, &y});
  EXPECT_THAT(session_->Take(), ElementsAre("call 0 0 [0:1.0,2.0] [1:3.0,4.0] -> 5"));
  const Buffers second = Call({&x, &first, &y});
  EXPECT_THAT(session_->Take(), ElementsAre("regroup 6=1.0,2.0 7=3.0,4.0", "call 6 5 7 -> 8"));
  const Buffers third = Call({&y, &second, &x});
  EXPECT_THAT(session_->Take(), ElementsAre("call 7 8 6 -> 9"));
}

TEST_F(GatheredCallsTest, ACallBehindWhatWasJustPutWaitsForNothing) {
  const Buffers x = Put();
  const Buffers result = Call({&x});
  EXPECT_THAT(session_->Take(), ElementsAre("put 1 on 0", "put 2 on 1", "call 0 [0:1.0,2.0] -> 3"));
}

TEST_F(GatheredCallsTest, AShardThatIsDestroyedTakesTheArrayWithIt_OB_1) {
  Buffers x = Uploaded();
  Buffers results;
  for (int call = 0; call < 2; ++call) Call({&x}).swap(results);
  session_->Take();
  x[1].reset();
  EXPECT_THAT(session_->Take(), ElementsAre("drop 2", "drop 4"));
  x[0].reset();
  EXPECT_THAT(session_->Take(), ElementsAre("drop 1"));
}

TEST_F(GatheredCallsTest, SoDoesADeletedOne) {
  const Buffers x = Uploaded();
  Buffers results;
  for (int call = 0; call < 2; ++call) Call({&x}).swap(results);
  session_->Take();
  PJRT_Buffer_Delete_Args args{.struct_size = sizeof(args), .buffer = x[0].get()};
  EXPECT_TRUE(BufferDelete(args).ok());
  EXPECT_THAT(session_->Take(), ElementsAre("drop 1", "drop 4"));
}

TEST_F(GatheredCallsTest, AShardOfALargerArrayIsDroppedAlone) {
  const std::shared_ptr<Array> whole = NewArray(4);
  Buffers half;
  for (uint32_t shard = 0; shard < kDevices; ++shard)
    half.push_back(Buffer(shard, whole, shard + 2));
  Buffers results;
  for (int call = 0; call < 2; ++call) Call({&half}).swap(results);
  EXPECT_THAT(session_->Take(), ElementsAre("call 0 [0:1.2,1.3] -> 2", "regroup 3=1.2,1.3",
                                            "call 3 -> 4", "drop 2.0", "drop 2.1"));
  half.clear();
  EXPECT_THAT(session_->Take(), ElementsAre("drop 1.2", "drop 3", "drop 1.3"));
}

TEST_F(GatheredCallsTest, ADonatedListIsTheArrayThatIsKnownAndEndsWithTheCall) {
  const Buffers x = Uploaded();
  Buffers results;
  for (int call = 0; call < 2; ++call) Call({&x}).swap(results);
  session_->Take();
  const Buffers last = Call({&x}, {0});
  EXPECT_THAT(session_->Take(), ElementsAre("call 4 -> 6", "drop 1", "drop 4", "drop 2"));
  EXPECT_EQ(x[0]->Find(), nullptr);
  EXPECT_EQ(client_->gathered->size(), 0);
}

TEST_F(GatheredCallsTest, ADonatedListThatIsNotKnownMakesNoArray) {
  const Buffers x = Uploaded();
  Buffers results = Call({&x});
  session_->Take();
  const Buffers last = Call({&x}, {0});
  EXPECT_THAT(session_->Take(), ElementsAre("call 0 [0:1.0,2.0] -> 4", "drop 1", "drop 2"));
}

TEST_F(GatheredCallsTest, AShardThatIsCopiedAgainIsAnArrayToo) {
  std::unique_ptr<PJRT_Buffer> shard = Buffer(0, NewArray(4), 2);
  Buffers copies;
  for (int copy = 0; copy < 3; ++copy) {
    PJRT_Buffer_CopyToDevice_Args args{
        .struct_size = sizeof(args), .buffer = shard.get(), .dst_device = client_->devices[1]};
    ASSERT_TRUE(BufferToDevice(args).ok());
    copies.emplace_back(args.dst_buffer);
  }
  EXPECT_THAT(session_->Take(),
              ElementsAre("regroup 2=1.2", "copy 2 -> 3 on 1", "drop 2", "regroup 4=1.2",
                          "copy 4 -> 5 on 1", "copy 4 -> 6 on 1"));
  shard.reset();
  EXPECT_THAT(session_->Take(), ElementsAre("drop 1.2", "drop 4"));
}

TEST_F(GatheredCallsTest, BuffersMayOutliveTheirClient) {
  Buffers x = Uploaded();
  Buffers results;
  for (int call = 0; call < 2; ++call) Call({&x}).swap(results);
  client_->drops->Close();
  session_->Take();
  x[0].reset();
  EXPECT_THAT(session_->Take(), IsEmpty());
  client_ = NewClient(std::make_unique<RecordingClient>(kDevices));
  x[1].reset();
}

}  // namespace
}  // namespace gangway::pjrt
