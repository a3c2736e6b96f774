// Unit tests of outbox.h.
#include "gangway/controller/core/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gangway::controller {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

wire::IslandItem Launch(uint64_t ordinal, uint64_t result, uint64_t argument = 0) {
  wire::IslandItem item;
  item.mutable_node()->set_ordinal(ordinal);
  wire::Launch* launch = item.mutable_node()->mutable_launch();
  launch->add_results(result);
  if (argument != 0) launch->add_arguments()->add_runs()->set_storage(argument);
  return item;
}

wire::IslandItem Load(uint64_t executable) {
  wire::IslandItem item;
  item.mutable_load()->set_executable(executable);
  return item;
}

wire::IslandItem Unload(uint64_t executable) {
  wire::IslandItem item;
  item.mutable_unload()->add_executables(executable);
  return item;
}

// Island 0 has a scheduler in this process, island 1 one of its own.
class OutboxTest : public testing::Test {
 protected:
  // "ISLAND:ITEM" of all that goes out now.
  std::vector<std::string> Sent() {
    std::vector<std::string> sent;
    for (const auto& [island, item] : outbox_.Take().to_islands) {
      const std::string what = item.has_load()     ? absl::StrCat("load", item.load().executable())
                               : item.has_unload() ? "unload"
                               : item.has_free()   ? "free"
                                                   : absl::StrCat("node", item.node().ordinal());
      sent.push_back(absl::StrCat(island, ":", what));
    }
    return sent;
  }
  void Later(milliseconds by) { outbox_.Begin(now_ += by); }

  Time now_ = Time() + std::chrono::hours(1);
  Outbox outbox_{2, {1}, milliseconds(1000)};
};

TEST_F(OutboxTest, ItemsWaitForTheirScheduler) {
  outbox_.ToIslands({0, 1}, Launch(1, 1));
  EXPECT_THAT(Sent(), ElementsAre("0:node1"));
  EXPECT_EQ(outbox_.AbsentSchedulers(), "island1/scheduler");
  EXPECT_TRUE(outbox_.OnSchedulerUp(1, 7));
  EXPECT_THAT(Sent(), ElementsAre("1:node1"));
  outbox_.ToIsland(1, Launch(2, 2));
  EXPECT_THAT(Sent(), ElementsAre("1:node2"));
  EXPECT_EQ(outbox_.AbsentSchedulers(), "");
}

TEST_F(OutboxTest, OnlyASchedulerOfItsOwnComesAndGoes) {
  EXPECT_FALSE(outbox_.OnSchedulerUp(0, 7));
  EXPECT_FALSE(outbox_.OnSchedulerDown(0));
  EXPECT_FALSE(outbox_.OnSchedulerUp(2, 7));
  EXPECT_FALSE(outbox_.OnSchedulerDown(1)) << "it was not up";
}

TEST_F(OutboxTest, TheNextSchedulerGetsTheLoadsThatItNeedsFirst) {
  outbox_.OnSchedulerUp(1, 7);
  for (const uint64_t executable : {1, 2, 3}) outbox_.ToIsland(1, Load(executable));
  outbox_.ToIsland(1, Unload(2));
  Sent();
  EXPECT_TRUE(outbox_.OnSchedulerDown(1));
  outbox_.ToIsland(1, Launch(1, 1));
  EXPECT_THAT(Sent(), IsEmpty());
  outbox_.OnSchedulerUp(1, 8);
  EXPECT_THAT(Sent(), ElementsAre("1:load1", "1:load3", "1:node1"));
}

TEST_F(OutboxTest, ANodeThatWaitsTooLongFailsAndWhatReadsItsResultToo_TM1) {
  Later(milliseconds(0));
  outbox_.ToIsland(1, Launch(1, /*result=*/11));
  Later(milliseconds(600));
  outbox_.ToIsland(1, Launch(2, /*result=*/12, /*argument=*/11));
  outbox_.ToIsland(1, Launch(3, /*result=*/13, /*argument=*/99));
  EXPECT_THAT(outbox_.TakeExpired(), IsEmpty());
  EXPECT_EQ(outbox_.next_deadline(), now_ + milliseconds(400));
  Later(milliseconds(400));
  const std::vector<Outbox::Expired> expired = outbox_.TakeExpired();
  ASSERT_EQ(expired.size(), 2u);
  EXPECT_EQ(expired[0].ordinal, Ordinal(1));
  EXPECT_THAT(expired[0].why->message(), HasSubstr("island1/scheduler"));
  EXPECT_EQ(expired[1].ordinal, Ordinal(2));
  EXPECT_EQ(expired[1].why, expired[0].why) << "one record of it";
  EXPECT_EQ(outbox_.next_deadline(), now_ + milliseconds(600));
  outbox_.OnSchedulerUp(1, 7);
  EXPECT_THAT(Sent(), ElementsAre("1:node3"));
  EXPECT_EQ(outbox_.next_deadline(), std::nullopt);
}

TEST_F(OutboxTest, FreesFollowWhatWasSentBefore) {
  outbox_.FreesOf(0).add_storages(1);
  outbox_.FreesOf(0).add_storages(2);
  outbox_.ToIsland(0, Launch(1, 1));
  outbox_.FreesOf(0).add_storages(3);
  EXPECT_THAT(Sent(), ElementsAre("0:free", "0:node1", "0:free"));
  outbox_.FreesOf(1).add_storages(1);
  outbox_.ToIsland(1, Launch(2, 2));
  outbox_.FreesOf(1).add_storages(2);
  outbox_.OnSchedulerUp(1, 7);
  EXPECT_THAT(Sent(), ElementsAre("1:free", "1:node2", "1:free"));
}

TEST_F(OutboxTest, AnItemHasFewFreesHoweverLongTheyAreHeld_TM2) {
  for (uint64_t storage = 0; storage < 10000; ++storage) {
    outbox_.FreesOf(1).add_storages(storage);
    outbox_.Take();  // a step each
  }
  outbox_.OnSchedulerUp(1, 7);
  EXPECT_EQ(outbox_.Take().to_islands.size(), 3u);
}

}  // namespace
}  // namespace gangway::controller
