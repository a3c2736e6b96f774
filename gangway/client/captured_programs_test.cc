// Captured programs: which runs are one, what is sent instead of them, and when.
#include "gangway/client/captured_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "gangway/client/captured_ops.h"

namespace gangway::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Register = CapturedPrograms::Register;
using Sent = CapturedPrograms::Sent;

// x = call 9(a, b); y = copy x to 2, 3; drop x; z = call 8(y, a): `first` numbers what it makes.
std::vector<wire::Op> Step(uint64_t a, uint64_t b, uint64_t first) {
  return {CallOf(9, {a, b}, {first}, {1}), CopyOf({first}, {first + 1}, {2, 3}), DropOf({first}),
          CallOf(8, {first + 1, a}, {first + 2})};
}

class CapturedProgramsTest : public ::testing::Test {
 protected:
  explicit CapturedProgramsTest(const CapturedPrograms::Limits& limits = {})
      : programs_([this] { return ++last_program_; }, limits) {}

  // What is sent for `ops`; the controller accepts the programs of which it is told, unless `answer` is none.
  std::vector<wire::Op> Send(const std::vector<wire::Op>& ops, Register when = Register::kFirstTime,
                             std::optional<bool> answer = true) {
    CapturedRun::Ops run = OpsOf(ops);
    sent_ = programs_.Replace(run, when);
    evicted_ = programs_.TakeEvicted();
    for (const wire::Op& op : run)
      if (op.has_register_program() && answer)
        programs_.OnRegistered(op.register_program().program(), *answer);
    return {run.begin(), run.end()};
  }
  // Whether it is launched.
  bool IsKnown(const std::vector<wire::Op>& ops) {
    Send(ops);
    return sent_ == Sent::kByALaunch;
  }

  uint64_t last_program_ = 100;
  CapturedPrograms programs_;
  Sent sent_ = Sent::kAsTheyCame;
  std::vector<uint64_t> evicted_;
};

TEST_F(CapturedProgramsTest, ARunThatComesAgainIsOneOperation) {
  std::vector<wire::Op> sent = Send(Step(1, 2, 10));
  ASSERT_EQ(sent.size(), 5u);
  EXPECT_TRUE(sent[0].has_call());
  const wire::Program& program = sent[4].register_program().definition();
  EXPECT_EQ(program.name(), "captured/101");
  EXPECT_EQ(program.arguments(), 2u);
  EXPECT_THAT(program.executables(), ElementsAre(9, 8));
  EXPECT_THAT(sent[4].register_program().like(), IsEmpty());
  ASSERT_EQ(program.nodes_size(), 3);
  EXPECT_THAT(program.nodes(0).call().inputs(), ElementsAre(0, 1));
  EXPECT_THAT(program.nodes(0).call().keep(), ElementsAre(1));
  EXPECT_EQ(program.nodes(0).call().outputs(), 1u);
  EXPECT_EQ(program.nodes(1).transfer().input(), 2u);
  EXPECT_THAT(program.device_lists(0).devices(), ElementsAre(2, 3));
  EXPECT_EQ(program.nodes(2).call().executable(), 1u);
  EXPECT_THAT(program.nodes(2).call().inputs(), ElementsAre(3, 0));
  EXPECT_THAT(program.results(), ElementsAre(3, 4)) << "what was not dropped";

  sent = Send(Step(5, 4, 20));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent_, Sent::kByALaunch);
  EXPECT_EQ(sent[0].launch().program(), 101u);
  EXPECT_THAT(sent[0].launch().arguments(), ElementsAre(5, 4));
  EXPECT_THAT(sent[0].launch().results(), ElementsAre(21, 22));
  EXPECT_EQ(sent[0].launch().nodes(), 3u);
}

TEST_F(CapturedProgramsTest, ARunThatWasCutIsRegisteredTheSecondTime) {
  EXPECT_EQ(Send(Step(1, 2, 10), Register::kSecondTime).size(), 4u);
  EXPECT_EQ(Send(Step(1, 2, 20), Register::kSecondTime).size(), 5u);
  EXPECT_EQ(Send(Step(1, 2, 30), Register::kSecondTime).size(), 1u);
}

TEST_F(CapturedProgramsTest, NothingIsLaunchedBeforeTheControllerAccepts) {
  Send(Step(1, 2, 10), Register::kFirstTime, std::nullopt);
  EXPECT_EQ(Send(Step(1, 2, 20)).size(), 4u);
  programs_.OnRegistered(4711, true);
  EXPECT_EQ(Send(Step(1, 2, 30)).size(), 4u);
  programs_.OnRegistered(101, true);
  EXPECT_EQ(Send(Step(1, 2, 40)).size(), 1u);
}

TEST_F(CapturedProgramsTest, AProgramThatIsRefusedIsSentAsItCame) {
  Send(Step(1, 2, 10), Register::kFirstTime, /*answer=*/false);
  for (uint64_t first = 20; first < 50; first += 10) EXPECT_EQ(Send(Step(1, 2, first)).size(), 4u);
}

TEST_F(CapturedProgramsTest, RunsThatDifferAreDifferentPrograms) {
  const auto base = [](uint64_t first) {
    return std::vector<wire::Op>{CallOf(9, {1, 2}, {first, first + 1}, {0}),
                                 CopyOf({first}, {first + 2}, {2, 3}, "device"),
                                 RegroupOf(first + 3, {{first + 1, 0}, {first + 2, 1}}),
                                 ReplicaOf(first + 4, first + 2), DropOf({first + 2})};
  };
  ASSERT_FALSE(IsKnown(base(10)));
  ASSERT_TRUE(IsKnown(base(20)));
  const std::vector<std::pair<const char*, std::function<void(std::vector<wire::Op>&)>>> changes = {
      {"executable", [](auto& run) { run[0].mutable_call()->set_executable(9ull << 32); }},
      {"one argument twice", [](auto& run) { run[0].mutable_call()->set_arguments(1, 1); }},
      {"kept", [](auto& run) { run[0].mutable_call()->set_keep(0, 1); }},
      {"not kept", [](auto& run) { run[0].mutable_call()->clear_keep(); }},
      {"results", [](auto& run) { run[0].mutable_call()->add_results(90); }},
      {"source", [](auto& run) { run[1].mutable_copy()->set_sources(0, 31); }},
      {"devices", [](auto& run) { run[1].mutable_copy()->set_devices(1, 0); }},
      {"memory", [](auto& run) { run[1].mutable_copy()->set_memory_kind("pinned_host"); }},
      {"shard",
       [](auto& run) {
         run[2].mutable_regroup()->mutable_results(0)->mutable_shards(1)->set_shard(0);
       }},
      {"replica",
       [](auto& run) { run[3].mutable_regroup()->mutable_results(0)->set_replica_of(30); }},
      {"dropped", [](auto& run) { run[4].mutable_drop()->set_handles(0, 33); }},
      {"not dropped", [](auto& run) { run.pop_back(); }},
      {"order", [](auto& run) { std::swap(run[2], run[3]); }},
      {"one more", [](auto& run) { run.push_back(CallOf(7, {34}, {91})); }},
  };
  for (const auto& [what, change] : changes) {
    std::vector<wire::Op> run = base(30);
    change(run);
    EXPECT_FALSE(IsKnown(run)) << what;
  }
  EXPECT_TRUE(IsKnown(base(40)));
}

TEST_F(CapturedProgramsTest, ShardsOfArgumentsAreViews) {
  const auto run = [](uint64_t a, uint64_t b, uint64_t first) {
    return std::vector<wire::Op>{Gathered(CallOf(9, {0, a}, {first}), 0, {{a, 1}, {b, 0}}),
                                 RegroupOf(first + 1, {{first, 1}}), ReplicaOf(first + 2, b)};
  };
  const std::vector<wire::Op> sent = Send(run(1, 2, 10));
  ASSERT_EQ(sent.size(), 4u);
  const wire::Program& program = sent[3].register_program().definition();
  EXPECT_EQ(program.arguments(), 2u);
  ASSERT_EQ(program.nodes_size(), 4);
  EXPECT_THAT(program.nodes(0).view().inputs(), ElementsAre(0, 1));
  EXPECT_THAT(program.nodes(0).view().shards(), ElementsAre(1, 0));
  EXPECT_THAT(program.nodes(1).call().inputs(), ElementsAre(2, 0));
  EXPECT_THAT(program.nodes(2).view().inputs(), ElementsAre(3));
  EXPECT_THAT(program.nodes(3).view().inputs(), ElementsAre(1));
  EXPECT_THAT(program.nodes(3).view().shards(), IsEmpty()) << "any replica";
  EXPECT_THAT(program.results(), ElementsAre(3, 4, 5));
  const std::vector<wire::Op> again = Send(run(5, 6, 20));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_THAT(again[0].launch().arguments(), ElementsAre(5, 6));
  EXPECT_EQ(again[0].launch().nodes(), 1u) << "views are no nodes of the session";
}

TEST_F(CapturedProgramsTest, WhatSaysNothingOfValuesFollowsTheLaunch) {
  const auto run = [](uint64_t a, uint64_t first) {
    std::vector<wire::Op> ops = Step(a, 2, first);
    wire::Op told, shards;
    told.mutable_tell_ends()->set_when(wire::ENDS_TOGETHER);
    for (const uint64_t array : {first, first + 2}) {
      shards.mutable_drop_shards()->add_arrays()->set_array(array);
      shards.mutable_drop_shards()->mutable_arrays()->rbegin()->add_shards(1);
    }
    ops.insert(ops.begin(), told);
    ops.insert(ops.begin() + 2, shards);
    ops.push_back(DropOf({a, a + 100, a}));
    return ops;
  };
  Send(run(1, 10));
  const std::vector<wire::Op> sent = Send(run(5, 20));
  ASSERT_EQ(sent.size(), 4u);
  EXPECT_TRUE(sent[0].has_launch());
  EXPECT_EQ(sent[1].tell_ends().when(), wire::ENDS_TOGETHER);
  ASSERT_EQ(sent[2].drop_shards().arrays_size(), 1) << "the other one is only the program's";
  EXPECT_EQ(sent[2].drop_shards().arrays(0).array(), 22u);
  EXPECT_THAT(sent[3].drop().handles(), ElementsAre(5, 105));
}

TEST_F(CapturedProgramsTest, WhatIsNoProgramIsSentAsItCame) {
  wire::Op deep = CallOf(9, {1}, {10});
  deep.mutable_call()->set_callback_depth(1);
  const std::vector<std::vector<wire::Op>> runs = {
      {DropOf({1}), CallOf(9, {1}, {10}), CallOf(9, {10}, {11})},   // used after its drop
      {CallOf(9, {1}, {10}), DropOf({10}), CallOf(9, {10}, {11})},  // likewise
      {CallOf(9, {1}, {10}), CallOf(9, {1}, {10})},                 // made twice
      {CallOf(9, {1}, {2}), CallOf(9, {2}, {1})},                   // an argument is made
      {CallOf(9, {0}, {10}), CallOf(9, {10}, {11})},                // no array
      {CallOf(9, {1}, {10}), CallOf(9, {10}, {0})},                 // a result without a handle
      {CopyOf({1, 2}, {10}, {2}), CallOf(9, {10}, {11})},           // other numbers of arrays
      {Gathered(CallOf(9, {1}, {10}), 0, {{2, 0}}), CallOf(9, {10}, {11})},
      {Gathered(CallOf(9, {0}, {10}), 1, {{2, 0}}), CallOf(9, {10}, {11})},
      {Gathered(CallOf(9, {0}, {10}), 0, {}), CallOf(9, {10}, {11})},
      {RegroupOf(10, {}), CallOf(9, {10}, {11})},
      {deep, CallOf(9, {10}, {11})},
      {CallOf(9, {1}, {10})},  // a launch would be no shorter
      {DropOf({1}), DropOf({2})},
      {},
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    for (int time = 0; time < 3; ++time) EXPECT_EQ(Send(runs[i]).size(), runs[i].size()) << i;
  }
  EXPECT_TRUE(programs_.empty());
}

TEST_F(CapturedProgramsTest, ADroppedExecutableTakesItsProgramsWithIt) {
  Send(Step(1, 2, 10));
  Send({CallOf(7, {1}, {20}), CallOf(8, {20}, {21})}, Register::kFirstTime, std::nullopt);
  Send({CallOf(7, {1}, {30}), CallOf(7, {30}, {31})});
  Send({CallOf(9, {1}, {40}), CallOf(9, {40}, {41})}, Register::kSecondTime);  // no program yet
  google::protobuf::RepeatedField<uint64_t> executables;
  executables.Add(9);
  executables.Add(8);
  EXPECT_THAT(programs_.Forget(executables), testing::UnorderedElementsAre(101, 102));
  EXPECT_THAT(programs_.Forget(executables), IsEmpty());
  programs_.OnRegistered(102, true);  // its answer comes late
  EXPECT_TRUE(IsKnown({CallOf(7, {1}, {50}), CallOf(7, {50}, {51})}));
  EXPECT_FALSE(IsKnown(Step(1, 2, 60)));
}

class LimitedProgramsTest : public CapturedProgramsTest {
 protected:
  LimitedProgramsTest()
      : CapturedProgramsTest(
            {.run = {.nodes = 4, .key_bytes = 400}, .keys = 2, .all_key_bytes = 500}) {}

  static std::vector<wire::Op> Pair(uint64_t executable, uint64_t first) {
    return {CallOf(executable, {1}, {first}), CallOf(executable, {first}, {first + 1})};
  }
  static std::vector<wire::Op> Chain(uint64_t length, uint64_t first) {
    std::vector<wire::Op> ops;
    for (uint64_t i = 0; i < length; ++i) ops.push_back(CallOf(9, {first + i}, {first + i + 1}));
    return ops;
  }
};

TEST_F(LimitedProgramsTest, TM2_TheKeyThatWasNotUsedForTheLongestTimeMakesRoom) {
  Send(Pair(5, 10));
  Send(Pair(6, 20));
  EXPECT_TRUE(IsKnown(Pair(5, 30)));
  EXPECT_THAT(evicted_, IsEmpty());
  EXPECT_EQ(Send(Pair(7, 40)).size(), 3u);
  EXPECT_THAT(evicted_, ElementsAre(102));
  EXPECT_TRUE(IsKnown(Pair(5, 50)));
  EXPECT_FALSE(IsKnown(Pair(6, 60)));
}

TEST_F(LimitedProgramsTest, TM2_TheBytesOfAllKeysAreLimited) {
  const auto wide = [](uint64_t executable, uint64_t first) {
    return std::vector<wire::Op>{CallOf(executable, Numbers(60, 1), {first}),
                                 CallOf(executable, {first}, {first + 1})};
  };
  Send(wide(5, 10));
  EXPECT_TRUE(IsKnown(wide(5, 20)));
  EXPECT_EQ(Send(wide(6, 30)).size(), 3u);
  EXPECT_THAT(evicted_, ElementsAre(101));
  EXPECT_TRUE(IsKnown(wide(6, 40)));
}

TEST_F(LimitedProgramsTest, TM2_ARunBeyondTheLimitsOfAProgramIsSentAsItCame) {
  EXPECT_EQ(Send(Chain(4, 10)).size(), 5u);
  EXPECT_EQ(Send(Chain(5, 10)).size(), 5u);
  EXPECT_EQ(Send({CallOf(9, Numbers(100, 1), {10}), CallOf(9, {10}, {11})}).size(), 2u);
}

}  // namespace
}  // namespace gangway::client
