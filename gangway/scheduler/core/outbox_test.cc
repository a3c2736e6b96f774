// Which items an outbox sends, and which releases share one.
#include "gangway/scheduler/core/outbox.h"

#include <gtest/gtest.h>

#include "gangway/scheduler/core/core_test_util.h"

namespace gangway::scheduler {
namespace {

bool IsRelease(const wire::IslandItem& item) { return item.has_release(); }

wire::IslandItem Probe(uint64_t number) {
  wire::IslandItem item;
  item.set_probe(number);
  return item;
}

TEST(OutboxTest, ConsecutiveReleasesForTheSameWorkersShareAnItem) {
  TwoWorkerFleet two;
  const std::vector<uint32_t> both = {0, 1}, one = {0};
  two.outbox.SendRelease(both, Ordinal(5), OrderPosition(1));
  two.outbox.SendRelease(both, Ordinal(6), OrderPosition(2));
  two.outbox.SendRelease(one, Ordinal(7), OrderPosition(3));
  two.outbox.SendRelease(one, Ordinal(8), OrderPosition(4));
  two.outbox.SendRelease(both, Ordinal(9), OrderPosition(5));
  two.outbox.Send(1, Probe(1));
  two.outbox.SendRelease(both, Ordinal(10), OrderPosition(6));
  const Actions actions = two.Take();
  const auto ordinals = [](const wire::IslandItem& item) {
    return std::vector<uint64_t>(item.release().ordinals().begin(),
                                 item.release().ordinals().end());
  };
  const auto first = ItemsFor(0, actions, IsRelease), second = ItemsFor(1, actions, IsRelease);
  ASSERT_EQ(first.size(), 4u);
  EXPECT_EQ(ordinals(first[0]), (std::vector<uint64_t>{5, 6}));
  EXPECT_EQ(first[0].release().order_positions(1), 2u);
  EXPECT_EQ(ordinals(first[1]), (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(ordinals(first[2]), (std::vector<uint64_t>{9}));
  EXPECT_EQ(ordinals(first[3]), (std::vector<uint64_t>{10}));
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(ordinals(second[0]), (std::vector<uint64_t>{5, 6}));
  EXPECT_EQ(actions.to_workers.size(), 5u) << "an item for both is there once";
}

TEST(OutboxTest, AReleaseOfTheNextStepHasItsOwnItem) {
  TwoWorkerFleet two;
  Actions actions;
  two.outbox.SendRelease({0}, Ordinal(5), OrderPosition(1));
  two.outbox.TakeInto(actions);
  two.outbox.SendRelease({0}, Ordinal(6), OrderPosition(2));
  two.outbox.TakeInto(actions);  // behind what is there
  ASSERT_EQ(actions.to_workers.size(), 2u);
  EXPECT_EQ(actions.to_workers[0].item.release().ordinals_size(), 1);
  EXPECT_EQ(actions.to_workers[1].item.release().ordinals(0), 6u);
}

TEST(OutboxTest, ConsecutiveFreesForTheSameWorkersShareAnItem) {
  TwoWorkerFleet two;
  two.outbox.SendFree({0}, StorageId(1));
  two.outbox.SendFree({0}, StorageId(2));
  two.outbox.SendFree({0}, ShardRange{StorageId(3), 4, 5});
  two.outbox.SendFree({0}, StorageId(3));  // after its shards
  two.outbox.Send(0, Probe(1));
  two.outbox.SendFree({0, 1}, StorageId(4));
  const Actions actions = two.Take();
  const auto items = ItemsFor(0, actions, [](const auto& item) { return item.has_free(); });
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].free().storages_size(), 2);
  ASSERT_EQ(items[0].free().shards_size(), 1);
  EXPECT_EQ(items[0].free().shards(0).first(), 4u);
  EXPECT_EQ(items[1].free().storages(0), 3u);
  EXPECT_EQ(items[2].free().storages(0), 4u);
  EXPECT_EQ(ItemsFor(1, actions, [](const auto& item) { return item.has_free(); }).size(), 1u);
}

TEST(OutboxTest, AWorkerThatIsDownGetsNothing) {
  TwoWorkerFleet two;
  two.fleet.Stop(1);
  two.outbox.Send(std::vector<uint32_t>{0, 1}, Probe(3));
  two.outbox.Send(1, Probe(4));
  two.outbox.SendToAll(Probe(5));
  two.outbox.SendFree({1}, StorageId(1));
  const Actions actions = two.Take();
  ASSERT_EQ(actions.to_workers.size(), 2u);
  EXPECT_EQ(actions.to_workers[0].workers, (std::vector<uint32_t>{0}));
  EXPECT_EQ(actions.to_workers[0].item.probe(), 3u);
  EXPECT_EQ(actions.to_workers[1].item.probe(), 5u);
}

}  // namespace
}  // namespace gangway::scheduler
