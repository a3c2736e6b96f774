// Calls of programs: results, donation, options, several devices, and mistakes.
#include <numeric>

#include "tests/native/conformance/plugin.h"

namespace conformance {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kNoArguments =
    "module @seven { func.func public @main() -> tensor<f32> {\n"
    "  %c = stablehlo.constant dense<7.0> : tensor<f32>\n  return %c : tensor<f32> } }\n";
constexpr std::string_view kNoResults =
    "module @nothing { func.func public @main(%x: tensor<4xf32>) { return } }\n";
// Each of eight partitions has two elements of %x; every one gets the sum of all.
constexpr std::string_view kSharded =
    "module @sharded attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {\n"
    "  func.func public @main(%x: tensor<16xf32> {mhlo.sharding = \"{devices=[8]<=[8]}\"})\n"
    "      -> (tensor<16xf32> {mhlo.sharding = \"{devices=[8]<=[8]}\"},\n"
    "          tensor<f32> {mhlo.sharding = \"{replicated}\"}) {\n"
    "    %z = stablehlo.constant dense<0.0> : tensor<f32>\n"
    "    %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]\n"
    "        : (tensor<16xf32>, tensor<f32>) -> tensor<f32>\n"
    "    %y = stablehlo.add %x, %x : tensor<16xf32>\n"
    "    return %y, %s : tensor<16xf32>, tensor<f32> } }\n";

class ExecuteTest : public Conformance {
 protected:
  Buffer One(size_t device_index = 0) const {
    return Upload(std::vector<float>{1, 2, 3, 4}, device_index);
  }
  static bool HasEnded(const Called& called) {
    for (const Event& ended : called.ended) {
      if (const Said said = Await(ended); !said.ok()) return false;
    }
    return true;
  }
};

TEST_F(ExecuteTest, ComputesAndKeepsItsArguments) {
  const Loaded twice = Compile(kTwice);
  const Buffer argument = One();
  const Called called = Call(twice, {{argument.get()}});
  ASSERT_TRUE(called.said.ok()) << called.said.message;
  EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(2, 4, 6, 8));
  EXPECT_TRUE(HasEnded(called));
  EXPECT_THAT(Values<float>(argument), ElementsAre(1, 2, 3, 4));
  auto where = Make<PJRT_Buffer_Memory_Args>();
  where.buffer = called.results[0][0].get();
  Do(Api().PJRT_Buffer_Memory, where);
  EXPECT_EQ(where.memory, Memory(device()));
}

TEST_F(ExecuteTest, ChainsWithoutWaiting) {
  const Loaded twice = Compile(kTwice);
  Buffer value = One();
  for (int i = 0; i < 20; ++i) {
    Called called = Call(twice, {{value.get()}}, {.wants_events = i % 2 == 0});
    ASSERT_TRUE(called.said.ok()) << called.said.message;
    value = std::move(called.results[0][0]);
  }
  EXPECT_THAT(Values<float>(value), ElementsAre(1 << 20, 2 << 20, 3 << 20, 4 << 20));
}

TEST_F(ExecuteTest, TakesNoArgumentsAndGivesNoResults) {
  const Loaded seven = Compile(kNoArguments);
  const Called called = Call(seven, {{}});
  ASSERT_TRUE(called.said.ok()) << called.said.message;
  EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(7));
  const Loaded nothing = Compile(kNoResults);
  const Buffer argument = One();
  const Called silent = Call(nothing, {{argument.get()}});
  ASSERT_TRUE(silent.said.ok()) << silent.said.message;
  EXPECT_TRUE(HasEnded(silent));
}

TEST_F(ExecuteTest, TakesOneBufferTwice) {
  const Loaded add = Compile(
      "module @add { func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf32>)\n"
      "    -> tensor<4xf32> { %z = stablehlo.multiply %x, %y : tensor<4xf32>\n"
      "  return %z : tensor<4xf32> } }\n");
  const Buffer argument = One();
  const Called called = Call(add, {{argument.get(), argument.get()}});
  ASSERT_TRUE(called.said.ok()) << called.said.message;
  EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(1, 4, 9, 16));
}

TEST_F(ExecuteTest, DonatedArgumentsAreDeleted) {
  const Loaded donating = Compile(kDonating);
  const Buffer donated = One(), kept = One();
  const Called called = Call(donating, {{donated.get(), kept.get()}});
  ASSERT_TRUE(called.said.ok()) << called.said.message;
  EXPECT_TRUE(IsDeleted(donated));
  EXPECT_FALSE(IsDeleted(kept));
  EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(2, 4, 6, 8));
  const Called again = Call(donating, {{donated.get(), kept.get()}});
  EXPECT_EQ(again.said.code, PJRT_Error_Code_INVALID_ARGUMENT) << again.said.message;
  EXPECT_THAT(again.said.message, HasSubstr("deleted or donated"));
}

TEST_F(ExecuteTest, NonDonatableInputsAreKept) {
  const Loaded donating = Compile(kDonating);
  const Buffer first = One(), second = One();
  const Called called = Call(donating, {{first.get(), second.get()}}, {.not_donated = {0}});
  ASSERT_TRUE(called.said.ok()) << called.said.message;
  EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(2, 4, 6, 8));
  EXPECT_FALSE(IsDeleted(first));
  EXPECT_THAT(Values<float>(first), ElementsAre(1, 2, 3, 4));
}

TEST_F(ExecuteTest, NonDonatableInputsThatAreNoneAreIgnored) {
  const Loaded donating = Compile(kDonating);
  const Buffer first = One(), second = One();
  const Called called = Call(donating, {{first.get(), second.get()}}, {.not_donated = {99, -1, 1}});
  ASSERT_TRUE(called.said.ok()) << called.said.message;
  EXPECT_TRUE(IsDeleted(first));
  EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(2, 4, 6, 8));
}

TEST_F(ExecuteTest, DonatingABufferThatTheCallAlsoReadsIsAnError) {
  const Loaded donating = Compile(kDonating);
  const Buffer both = One();
  const Called called = Call(donating, {{both.get(), both.get()}});
  EXPECT_EQ(called.said.code, PJRT_Error_Code_INVALID_ARGUMENT) << called.said.message;
  EXPECT_EQ(IsDeleted(both), Expected(Topic::kDonationRefused) != PJRT_Error_Code_OK);
}

TEST_F(ExecuteTest, AReferenceHoldsTheBytesOfADonatedBuffer) {
  const Loaded donating = Compile(kDonating);
  const Buffer held = One(), other = One();
  ASSERT_TRUE(Ready(held).ok());
  auto increase = Make<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
  increase.buffer = held.get();
  Do(Api().PJRT_Buffer_IncreaseExternalReferenceCount, increase);
  auto pointer = Make<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args>();
  pointer.buffer = held.get();
  Do(Api().PJRT_Buffer_OpaqueDeviceMemoryDataPointer, pointer);
  const Called called = Call(donating, {{held.get(), other.get()}});
  ASSERT_TRUE(called.said.ok()) << called.said.message;
  EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(std::span(static_cast<const float*>(pointer.device_memory_ptr), 4),
              ElementsAre(1, 2, 3, 4));
  auto decrease = Make<PJRT_Buffer_DecreaseExternalReferenceCount_Args>();
  decrease.buffer = held.get();
  Do(Api().PJRT_Buffer_DecreaseExternalReferenceCount, decrease);
}

TEST_F(ExecuteTest, ArgumentsDeletedAfterTheCallAreRead) {
  const Loaded twice = Compile(kTwice);
  Buffer argument = One();
  const Called called = Call(twice, {{argument.get()}});
  Delete(argument);
  argument.reset();
  EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(2, 4, 6, 8));
}

TEST_F(ExecuteTest, TakesLaunchIdsAndContexts) {
  const Loaded twice = Compile(kTwice);
  auto create = Make<PJRT_ExecuteContext_Create_Args>();
  Do(Api().PJRT_ExecuteContext_Create, create);
  const Context context(create.context);
  const Buffer argument = One();
  for (int launch_id : {0, 1, 1, -1, 1 << 30}) {
    const Called called =
        Call(twice, {{argument.get()}}, {.launch_id = launch_id, .context = context.get()});
    ASSERT_TRUE(called.said.ok()) << called.said.message;
    EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(2, 4, 6, 8));
  }
}

TEST_F(ExecuteTest, RunsReplicas) {
  const Loaded twice = Compile(kTwice, {.replicas = 3, .devices = {6, 2, 4}});
  std::vector<Buffer> arguments;
  std::vector<std::vector<PJRT_Buffer*>> lists;
  for (size_t index : {6, 2, 4}) {
    arguments.push_back(Upload(std::vector<float>(4, static_cast<float>(index)), index));
    lists.push_back({arguments.back().get()});
  }
  const Called called = Call(twice, lists);
  ASSERT_TRUE(called.said.ok()) << called.said.message;
  ASSERT_EQ(called.results.size(), 3u);
  EXPECT_EQ(Values<float>(called.results[0][0])[0], 12);
  EXPECT_EQ(Values<float>(called.results[1][0])[0], 4);
  EXPECT_EQ(Values<float>(called.results[2][0])[0], 8);
  EXPECT_TRUE(HasEnded(called));
}

TEST_F(ExecuteTest, RunsPartitionsThatExchange) {
  const Loaded sharded = Compile(kSharded, {.partitions = 8, .spmd = true});
  std::vector<Buffer> shards;
  std::vector<std::vector<PJRT_Buffer*>> lists;
  for (size_t i = 0; i < kDeviceCount; ++i) {
    shards.push_back(Upload(std::vector<float>{2.0f * i, 2.0f * i + 1}, i));
    lists.push_back({shards.back().get()});
  }
  const Called called = Call(sharded, lists);
  ASSERT_TRUE(called.said.ok()) << called.said.message;
  for (size_t i = 0; i < kDeviceCount; ++i) {
    EXPECT_THAT(Values<float>(called.results[i][0]), ElementsAre(4.0f * i, 4.0f * i + 2));
    EXPECT_THAT(Values<float>(called.results[i][1]), ElementsAre(120));
  }
  EXPECT_TRUE(HasEnded(called));
  // Shards are copied and deleted alone.
  auto copy = Make<PJRT_Buffer_CopyToDevice_Args>();
  copy.buffer = called.results[2][0].get();
  copy.dst_device = device(5);
  Do(Api().PJRT_Buffer_CopyToDevice, copy);
  EXPECT_THAT(Values<float>(Buffer(copy.dst_buffer)), ElementsAre(8, 10));
  Delete(called.results[3][0]);
  EXPECT_THAT(Values<float>(called.results[4][0]), ElementsAre(16, 18));
  EXPECT_TRUE(IsDeleted(called.results[3][0]));
}

TEST_F(ExecuteTest, RunsPortableProgramsOnTheDeviceOfTheCall) {
  const Loaded twice = Compile(kTwice, {.portable = true});
  for (size_t index : {0u, 3u, 7u}) {
    const Buffer argument = One(index);
    const Called called = Call(twice, {{argument.get()}}, {.device = device(index)});
    ASSERT_TRUE(called.said.ok()) << called.said.message;
    EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(2, 4, 6, 8));
  }
  auto assignment = Make<PJRT_LoadedExecutable_GetDeviceAssignment_Args>();
  assignment.executable = twice.get();
  const Said said = Ask(Api().PJRT_LoadedExecutable_GetDeviceAssignment, assignment);
  EXPECT_EQ(said.code, Expected(Topic::kPortableAssignment)) << said.message;
}

TEST_F(ExecuteTest, OnAnotherDeviceThanTheProgramsIsAnError) {
  const Loaded twice = Compile(kTwice);
  const Buffer argument = One(3);
  const Called elsewhere = Call(twice, {{argument.get()}}, {.device = device(3)});
  EXPECT_EQ(elsewhere.said.code, Expected(Topic::kExecuteDevice)) << elsewhere.said.message;
  const Called wrong = Call(twice, {{argument.get()}});
  EXPECT_EQ(wrong.said.code, PJRT_Error_Code_INVALID_ARGUMENT) << wrong.said.message;
}

TEST_F(ExecuteTest, WithDeletedArgumentsIsAnError) {
  const Loaded twice = Compile(kTwice);
  const Buffer argument = One();
  Delete(argument);
  const Called called = Call(twice, {{argument.get()}});
  EXPECT_EQ(called.said.code, PJRT_Error_Code_INVALID_ARGUMENT) << called.said.message;
}

TEST_F(ExecuteTest, WithWrongArgumentsIsAnError) {
  const Loaded twice = Compile(kTwice);
  const Buffer one = One();
  for (const auto& arguments :
       {std::vector<PJRT_Buffer*>{}, std::vector<PJRT_Buffer*>{one.get(), one.get()}}) {
    const Called called = Call(twice, {arguments});
    EXPECT_EQ(called.said.code, PJRT_Error_Code_INVALID_ARGUMENT) << called.said.message;
  }
  const Buffer other = One(1);
  EXPECT_FALSE(Call(twice, {{one.get()}, {other.get()}}).said.ok()) << "two devices";
}

// A stream comes to a program's receive callback only, so the plugins are asked with arguments that end too early.
TEST_F(ExecuteTest, StreamsOfReceivedBytes) {
  const auto answer = []<typename Args>(PJRT_Error* (*function)(Args*)) {
    Args args{};
    args.struct_size = sizeof(size_t);
    EXPECT_EQ(Ask(function, args).code, Expected(Topic::kCopyToDeviceStream));
  };
  answer(Api().PJRT_CopyToDeviceStream_Destroy);
  answer(Api().PJRT_CopyToDeviceStream_AddChunk);
  answer(Api().PJRT_CopyToDeviceStream_TotalBytes);
  answer(Api().PJRT_CopyToDeviceStream_GranuleSize);
  answer(Api().PJRT_CopyToDeviceStream_CurrentBytes);
}

// Whether Execute or its result says so is the plugin's affair.
TEST_F(ExecuteTest, WithArgumentsOfAnotherShapeFails) {
  const Loaded twice = Compile(kTwice);
  const auto answer = [&](const Buffer& wrong) {
    const Called called = Call(twice, {{wrong.get()}});
    return called.said.ok() ? Ready(called.results[0][0]).code : called.said.code;
  };
  EXPECT_EQ(answer(Upload(std::vector<float>(8))), PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_EQ(answer(Upload(std::vector<float>(2))), PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_EQ(answer(Upload(std::vector<int32_t>(4))), Expected(Topic::kWrongType));
  EXPECT_EQ(answer(Upload(std::vector<float>(4), {2, 2})), Expected(Topic::kWrongType));
}

}  // namespace
}  // namespace conformance
