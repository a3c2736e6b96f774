// Tests of launches.h, through a whole controller.
#include "gangway/controller/core/launches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

#include "gangway/controller/core/controller_test_util.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTwice[] =
    "program twice\n"
    "%0 = argument\n"
    "%1 = call 5(%0) from \"train.py:1\"\n"
    "%2 = call 5(%1) from \"train.py:2\"\n"
    "result %2\n";

class LaunchesTest : public ControllerTest {
 protected:
  void SetUp() override {
    Make(Reach::kIsland);
    HaveProgram(5, {0, 1});
    HaveProgram(6, {2, 3});
    HaveProgram(7, {4, 5});
    Have(10, {0, 1});
  }

  // "ISLAND: launch 5(1) -> 2 3", "0: copy 1 -> 2", "0: free 2 3", of the last step.
  std::vector<std::string> Sent() const {
    std::vector<std::string> sent;
    for (const auto& [island, item] : actions_.to_islands) {
      std::string text = absl::StrCat(island, ": ");
      const wire::Node& node = item.node();
      if (node.has_launch()) {
        absl::StrAppend(&text, node.ordinal(), " launch(");
        for (const wire::ArrayRef& ref : node.launch().arguments())
          absl::StrAppend(&text, " ", ref.runs(0).storage());
        absl::StrAppend(&text, " ) -> ", absl::StrJoin(node.launch().results(), " "));
      } else if (node.has_copy()) {
        absl::StrAppend(&text, node.ordinal(), " copy");
        for (const wire::CopiedArray& array : node.copy().arrays())
          absl::StrAppend(&text, " ", array.source().runs(0).storage(), "->", array.storage());
      } else if (item.has_free()) {
        absl::StrAppend(&text, "free ", absl::StrJoin(item.free().storages(), " "));
      }
      sent.push_back(text);
    }
    return sent;
  }
};

TEST_F(LaunchesTest, ALaunchIsItsNodesInARow_DF1) {
  ASSERT_EQ(Register(1, kTwice).code(), 0);
  Launch(1, {10}, {20});
  // Storage 1 is the argument's. The intermediate is freed behind its last use.
  EXPECT_THAT(Sent(), ElementsAre("0: 2 launch( 1 ) -> 2", "0: 3 launch( 2 ) -> 3", "0: free 2"));
  EXPECT_EQ(Await({20}), std::nullopt);
  Done(0, 2);
  EXPECT_EQ(Awaited(await_), std::nullopt);
  Done(0, 3);
  EXPECT_EQ(Awaited(await_)->code(), 0);
  Drop({10, 20});
  EXPECT_EQ(controller_->storage_count(), 0u);
  EXPECT_EQ(controller_->node_count(), 0u);
}

TEST_F(LaunchesTest, MessagesDoNotDependOnTheNumberOfShards_DF1) {
  HaveProgram(8, {0});
  ASSERT_EQ(Register(1, kTwice).code(), 0);
  ASSERT_EQ(Register(2, "%0 = argument\n%1 = call 8(%0)\n%2 = call 8(%1)\nresult %2\n").code(), 0);
  Have(11, {0});
  Launch(1, {10}, {20});
  const size_t of_two = actions_.to_islands.size();
  Launch(2, {11}, {21});
  EXPECT_EQ(actions_.to_islands.size(), of_two);
}

TEST_F(LaunchesTest, InputsMoveToTheDevicesOfTheirCalls) {
  ASSERT_EQ(Register(1, "%0 = argument\n%1 = call 5(%0)\n%2 = call 6(%1)\nresult %2").code(), 0);
  Launch(1, {10}, {20});
  EXPECT_THAT(Sent(), ElementsAre("0: 2 launch( 1 ) -> 2", "0: 3 copy 2->3", "0: free 2",
                                  "0: 4 launch( 3 ) -> 4", "0: free 3"));
}

// The client does not know of the transfer, and numbers its next node without it.
TEST_F(LaunchesTest, ClientsCountTheNodesThatTheyKnow_TM2) {
  Step(SessionOpened{SessionId(3), "three", /*wants_ends=*/true});
  for (uint64_t executable : {5, 6}) {
    HaveProgram(executable, executable == 5 ? Devices{0, 1} : Devices{2, 3}, false, 3);
  }
  const uint64_t upload = Upload(10, {0, 1}, 3);
  Done(0, upload);
  ASSERT_EQ(Register(1, "%0 = argument\n%1 = call 5(%0)\n%2 = call 6(%1)\nresult %2", {}, 3).code(),
            0);
  events_.clear();
  Launch(1, {10}, {20}, 3);
  for (uint64_t ordinal = upload + 1; ordinal <= upload + 3; ++ordinal) Done(0, ordinal);
  EXPECT_THAT(Ends(3), ElementsAre("2+1", "3+1"));
  wire::StatusReply status;
  controller_->FillStatus(now_, status);
  EXPECT_EQ(status.sessions(2).pending_nodes(), 0u);
}

TEST_F(LaunchesTest, ANodeThatFailsIsNamedAndOthersGoOn_ER1_ER2) {
  ASSERT_EQ(Register(1,
                     "program train\n%0 = argument\n%1 = argument\n"
                     "%2 = call 5(%0) from \"train.py:7\"\n%3 = call 5(%2)\n%4 = call 5(%1)\n"
                     "result %3\nresult %4\n")
                .code(),
            0);
  Have(11, {0, 1});
  Launch(1, {10, 11}, {20, 21});
  wire::Report report;
  report.mutable_done()->set_ordinal(3);
  wire::Failure& failure = *report.mutable_done()->mutable_failure();
  failure = wire::MakeFailure(StatusCode::kInternal, "it broke");
  failure.set_gang(3);
  Report(0, report);
  report.mutable_done()->set_ordinal(4);  // it fails with the record of its input
  Report(0, report);
  Done(0, 5);
  const wire::Failure told = *Await({20});
  EXPECT_EQ(told.launched_program(), "train") << "though its own scheduler does not know";
  EXPECT_EQ(told.node(), 2u);
  EXPECT_EQ(told.source(), "train.py:7");
  EXPECT_EQ(told.message(), "it broke");
  EXPECT_EQ(Await({21})->code(), 0);
}

TEST_F(LaunchesTest, WaitsAreNamedByClientProgramAndNode) {
  ASSERT_EQ(Register(1, kTwice).code(), 0);
  Launch(1, {10}, {20});
  wire::WhyReply reply;
  wire::Wait& of_node = *reply.add_waits();
  of_node.set_session(1);
  of_node.set_gang(3);
  reply.add_waits()->set_session(2);
  reply.add_waits();  // a worker's, without a session
  controller_->NameWaits(reply);
  EXPECT_EQ(reply.waits(0).client(), "one");
  EXPECT_EQ(reply.waits(0).launched_program(), "twice");
  EXPECT_EQ(reply.waits(0).node(), 2u);
  EXPECT_EQ(reply.waits(0).source(), "train.py:2");
  EXPECT_EQ(reply.waits(1).client(), "two");
  EXPECT_FALSE(reply.waits(1).has_node());
  EXPECT_EQ(reply.waits(2).client(), "");
}

TEST_F(LaunchesTest, ASpoiledArgumentSpoilsWhatReadsIt_ER2) {
  ASSERT_EQ(Register(1,
                     "%0 = argument\n%1 = argument\n%2 = call 5(%0)\n%3 = call 5(%1)\n"
                     "result %2\nresult %3\n")
                .code(),
            0);
  wire::Op poison;
  poison.mutable_poison()->add_arrays(11);
  *poison.mutable_poison()->mutable_failure() =
      wire::MakeFailure(StatusCode::kDataLoss, "the root cause");
  Do(poison);
  Launch(1, {11, 10}, {20, 21});
  Done(0, last_ordinal());
  EXPECT_EQ(Await({20})->message(), "the root cause");
  EXPECT_FALSE(Await({20})->has_node()) << "it did not begin there";
  EXPECT_EQ(Await({21})->code(), 0);
  Launch(1, {999, 10}, {22, 23});
  Done(0, last_ordinal());
  EXPECT_THAT(Await({22})->message(), HasSubstr("array handle 999 is not known"));
  EXPECT_EQ(Await({23})->code(), 0);
}

TEST_F(LaunchesTest, WhatIsRefusedRunsNothingAndIsCounted) {
  ASSERT_EQ(Register(1, kTwice).code(), 0);
  Register(2, "program bad\n%0 = argument\n%1 = call 99(%0)\nresult %1");
  Have(11, {2, 3});
  Have(12, {0});
  struct Case {
    uint64_t program;
    Handles arguments;
    std::string why;
  };
  uint64_t result = 100;
  for (const Case& each :
       {Case{9, {10}, "program handle 9 is not known"}, Case{2, {10}, "executable handle 99"},
        Case{1, {}, "takes 1 arguments, gives 1 results and has 2 nodes"},
        Case{1, {10, 10}, "the launch has 2, 1 and 2"}, Case{1, {12}, "node 1"}}) {
    Launch(each.program, each.arguments, {++result});
    EXPECT_THAT(Sent(), IsEmpty());
    EXPECT_THAT(Await({result})->message(), HasSubstr(each.why));
  }
  wire::Op op = LaunchOf(1, {10}, {200});
  op.mutable_launch()->set_nodes(UINT32_MAX);
  Do(op);
  EXPECT_THAT(Await({200})->message(),
              HasSubstr("has 2 nodes, the launch has 1, 1 and 4294967295"));
  Launch(1, {11}, {201});  // elsewhere: it is moved
  EXPECT_EQ(Sent().size(), 5u);
}

TEST_F(LaunchesTest, AnExecutableThatWasDroppedRefusesTheLaunch) {
  ASSERT_EQ(Register(1, kTwice).code(), 0);
  wire::Op drop;
  drop.mutable_drop_executables()->add_handles(5);
  Do(drop);
  Launch(1, {10}, {20});
  EXPECT_THAT(Sent(), IsEmpty());
  EXPECT_THAT(Await({20})->message(),
              HasSubstr("executable handle 5, which the program calls, was dropped"));
  HaveProgram(5, {0, 1});  // another one, by the same handle
  Launch(1, {10}, {21});
  EXPECT_THAT(Sent(), IsEmpty());
}

TEST_F(LaunchesTest, AnArgumentOfAnotherTypeLowersTheProgramAgain) {
  const std::string text = "%0 = argument\n%1 = transfer %0 @2,3\n%2 = call 6(%1)\nresult %2";
  ASSERT_EQ(Register(1, text, {10}).code(), 0);
  Launch(1, {10}, {20});
  EXPECT_EQ(Sent().size(), 3u);
  Have(11, {4, 5});
  Launch(1, {11}, {21});
  EXPECT_EQ(Sent().size(), 4u) << "a copy between islands, sent to both";
  Have(12, {4});
  Launch(1, {12}, {22});
  EXPECT_THAT(Sent(), IsEmpty());
  EXPECT_THAT(Await({22})->message(), HasSubstr("node 1"));
  Launch(1, {10}, {23});
  EXPECT_EQ(Sent().size(), 3u);
}

TEST_F(LaunchesTest, DonatedArgumentsAreConsumed_OB1) {
  HaveProgram(8, {0, 1}, /*donates=*/true);
  ASSERT_EQ(Register(1, "%0 = argument\n%1 = call 8(%0)\n%2 = call 8(%1)\nresult %2").code(), 0);
  ASSERT_EQ(Register(2, "%0 = argument\n%1 = call 8(keep %0)\nresult %1\nresult %0").code(), 0);
  Launch(2, {10}, {20, 21});
  EXPECT_EQ(Await({10})->code(), 0);
  Launch(1, {10}, {22});
  EXPECT_NE(Await({10})->code(), 0) << "it was donated";
  EXPECT_THAT(Await({21})->message(), HasSubstr("deleted or donated")) << "it shares the shards";
  Launch(1, {10}, {23});
  EXPECT_THAT(Await({23})->message(), HasSubstr("deleted or donated"));
  const wire::Failure twice =
      Register(3, "%0 = argument\n%1 = call 8(%0)\n%2 = call 8(%0)\nresult %2");
  EXPECT_EQ(twice.code(), static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_THAT(twice.message(), HasSubstr("node 2"));
}

// Two arguments that are one array: the verifier cannot know.
TEST_F(LaunchesTest, ADonatedArrayThatIsTwoArgumentsIsRefusedWhereItIsUsedAgain_OB1) {
  HaveProgram(8, {0, 1}, /*donates=*/true);
  ASSERT_EQ(Register(1,
                     "program p\n%0 = argument\n%1 = argument\n%2 = call 8(%0)\n"
                     "%3 = call 5(%1)\nresult %2\nresult %3")
                .code(),
            0);
  Launch(1, {10, 10}, {20, 21});
  Done(0, 2);  // the call of the donated one
  EXPECT_EQ(Await({20})->code(), 0);
  EXPECT_THAT(Await({21})->message(), HasSubstr("deleted or donated"));
}

TEST_F(LaunchesTest, ArgumentsMayBeListsOfShards) {
  ASSERT_EQ(Register(1, kTwice).code(), 0);
  Have(11, {1, 0});
  wire::Op op = LaunchOf(1, {0}, {20});
  wire::GatheredArgument* list = op.mutable_launch()->add_gathered();
  for (const uint64_t array : {10, 11}) {
    list->add_arrays(array);
    list->add_shards(0);
  }
  Do(op);
  EXPECT_EQ(Sent().size(), 3u);
  op.mutable_launch()->mutable_gathered(0)->set_argument(1);
  op.mutable_launch()->set_results(0, 21);
  Do(op);
  EXPECT_THAT(Sent(), IsEmpty());
  EXPECT_THAT(Await({21})->message(), HasSubstr("argument 1 is listed by shards"));
}

TEST_F(LaunchesTest, ViewsShareShards_OB1) {
  ASSERT_EQ(Register(1, "%0 = argument\n%1 = call 5(%0)\n%2 = view %1[0]\nresult %2").code(), 0);
  Launch(1, {10}, {20});
  EXPECT_THAT(FreedShards(), ElementsAre("2:1+1")) << "the shard that nothing holds";
  Drop({20});
  EXPECT_THAT(Freed(0), ElementsAre(2u));
}

TEST_F(LaunchesTest, NodesAreDispatchedAsTheirProgramSays) {
  const auto dispatches = [this] {
    std::vector<wire::Dispatch> dispatches;
    for (const auto& [island, item] : actions_.to_islands)
      if (item.has_node()) dispatches.push_back(item.node().dispatch());
    return dispatches;
  };
  const std::string text = "%0 = argument\n%1 = call 5(%0)\n%2 = call 6(%1)\nresult %2";
  ASSERT_EQ(Register(1, text).code(), 0);
  ASSERT_EQ(Register(2, text, {}, 1, /*sequential=*/true).code(), 0);
  ASSERT_EQ(Register(3,
                     "%0 = argument\n%1 = call 5(%0) irregular\n%2 = view %1[0], %1[1]\n"
                     "%3 = call 5(%2)\n%4 = call 5(%3)\nresult %4")
                .code(),
            0);
  Launch(1, {10}, {20});
  EXPECT_THAT(dispatches(), ElementsAre(wire::DISPATCH_PARALLEL, wire::DISPATCH_PARALLEL,
                                        wire::DISPATCH_PARALLEL));
  Launch(2, {10}, {21});
  EXPECT_THAT(dispatches(), ElementsAre(wire::DISPATCH_AFTER_RELEASE, wire::DISPATCH_AFTER_RELEASE,
                                        wire::DISPATCH_AFTER_RELEASE));
  Launch(3, {10}, {22});
  EXPECT_THAT(dispatches(), ElementsAre(wire::DISPATCH_PARALLEL, wire::DISPATCH_AFTER_END,
                                        wire::DISPATCH_PARALLEL))
      << "what reads a view of an irregular output waits, and no other";
}

TEST_F(LaunchesTest, ALaunchThatWouldPassTheLimitOfNodesIsRefused_TM2) {
  ControllerConfig config;
  config.pending_nodes_max = 3;
  for (uint32_t i = 0; i < 2; ++i) {
    wire::Worker worker;
    worker.set_index(i);
    worker.add_devices(2 * i);
    worker.add_devices(2 * i + 1);
    config.workers.push_back(worker);
  }
  Make(config);
  HaveProgram(5, {0, 1});
  const uint64_t upload = Upload(10, {0, 1});
  Done(0, upload);
  ASSERT_EQ(Register(1, kTwice).code(), 0);
  for (uint64_t result : {20, 21, 22}) Launch(1, {10}, {result});
  Done(0, upload + 1);  // there is room for one node, and a launch has two
  Launch(1, {10}, {23});
  EXPECT_THAT(Sent(), IsEmpty());
  EXPECT_EQ(Await({23})->code(), static_cast<int>(StatusCode::kResourceExhausted));
}

// Nodes whose input is spoiled end at once, so the limit of pending nodes does not bound them.
TEST_F(LaunchesTest, WhatOneMessageLaunchesIsBounded_TM2) {
  constexpr uint64_t kCalls = 8000;
  std::string text = "program long\n%0 = argument\n";
  for (uint64_t i = 1; i <= kCalls; ++i)
    absl::StrAppend(&text, "%", i, " = call 5(%", i - 1, ")\n");
  absl::StrAppend(&text, "result %", kCalls);
  ASSERT_EQ(Register(1, text, {10}).code(), 0);
  wire::Op poison;
  poison.mutable_poison()->add_arrays(11);
  *poison.mutable_poison()->mutable_failure() =
      wire::MakeFailure(StatusCode::kDataLoss, "the root cause");
  Do(poison);
  const uint64_t fit = Launches::kBatchSizeMax / (2 * kCalls + 3);
  FromClient event{SessionId(1), {}};
  for (uint64_t i = 0; i <= fit; ++i) *event.batch.add_ops() = LaunchOf(1, {11}, {1000 + i});
  Step(event);
  EXPECT_EQ(Await({1000 + fit - 1})->message(), "the root cause");
  EXPECT_EQ(Await({1000 + fit})->code(), static_cast<int>(StatusCode::kResourceExhausted));
  EXPECT_THAT(Await({1000 + fit})->message(), HasSubstr("the launches of one message"));
  Launch(1, {11}, {2000});
  EXPECT_EQ(Await({2000})->message(), "the root cause") << "the next message has its own";
}

TEST_F(LaunchesTest, IntermediatesOfASessionThatEndsAreFreed_OB2) {
  ASSERT_EQ(Register(1, kTwice).code(), 0);
  Launch(1, {10}, {20});
  Step(SessionLost{SessionId(1)});
  for (uint64_t ordinal : {2, 3}) Done(0, ordinal);
  EXPECT_EQ(controller_->storage_count(), 0u);
  EXPECT_EQ(controller_->node_count(), 0u);
}

}  // namespace
}  // namespace gangway::controller
