// Which workers are told of one another, so that they can run collectives of one gang.
#include <gmock/gmock.h>

#include "gangway/scheduler/core/island_test_util.h"

namespace gangway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MembersTest : public IslandTest {
 protected:
  void LoadFor(uint64_t id, const Devices& devices, bool positions, bool collectives) {
    wire::IslandItem item;
    wire::Load* load = item.mutable_load();
    load->set_executable(id);
    load->set_name("step");
    load->set_has_collectives(collectives);
    if (positions) load->mutable_positions()->set_partitions(4);
    load->mutable_devices()->Add(devices.begin(), devices.end());
    Item(item);
  }
  // The incarnations of members that the last step told a worker of, ahead of a load; 0: one is down.
  Ordinals Told(uint32_t worker) const {
    Ordinals incarnations;
    bool loads = false;
    for (const auto& [to, item] : ByWorker(actions_)) {
      if (to != worker) continue;
      EXPECT_FALSE(item.has_peers() && loads);
      for (const wire::Worker& member : item.peers().workers())
        incarnations.push_back(member.incarnation());
      loads |= item.has_load();
    }
    return incarnations;
  }
};

TEST_F(MembersTest, TheWorkersOfAProgramWithOwnCollectivesAreIntroducedOnce) {
  LoadFor(1, {0, 1}, false, true);
  EXPECT_THAT(Told(0), IsEmpty()) << "its devices communicate by the runtime";
  LoadFor(2, {0, 1, 2, 3}, true, false);
  EXPECT_THAT(Told(0), IsEmpty()) << "they do not communicate";
  LoadFor(3, {2, 3}, true, true);
  EXPECT_THAT(Told(0), IsEmpty());
  EXPECT_THAT(Told(1), ElementsAre(21));
  LoadFor(4, {0, 1, 2, 3}, true, true);
  EXPECT_THAT(Told(0), ElementsAre(11, 21));
  EXPECT_THAT(Told(1), ElementsAre(11)) << "it knows itself";
  const auto items = ItemsFor(0, actions_, [](const auto& item) { return item.has_peers(); });
  ASSERT_EQ(items.size(), 1u);
  const wire::Worker& member = items[0].peers().workers(1);
  EXPECT_EQ(member.index(), 1u);
  EXPECT_EQ(member.host(), "host1");
  EXPECT_EQ(member.collectives().name(), "socket21");
  EXPECT_EQ(member.data_address(), "address1");
  EXPECT_THAT(member.devices(), ElementsAre(2, 3));
  LoadFor(5, {3, 2, 1, 0}, true, true);
  EXPECT_THAT(Told(0), IsEmpty());
  EXPECT_THAT(Told(1), IsEmpty());
}

TEST_F(MembersTest, AWorkerThatEndsOrStartsIsToldToThoseWhoNeedIt) {
  Down(1);
  EXPECT_THAT(Told(0), IsEmpty());
  Up(1, 22);
  EXPECT_THAT(Told(0), IsEmpty());
  LoadFor(1, {0, 1, 2, 3}, true, true);
  Down(1);
  EXPECT_THAT(Told(0), ElementsAre(0));
  Up(1, 23);
  EXPECT_THAT(Told(0), ElementsAre(23));
  EXPECT_THAT(Told(1), ElementsAre(11, 23)) << "its process is new";
  Unload(1);
  Down(1);
  EXPECT_THAT(Told(0), ElementsAre(0)) << "its devices may wait for what that one has not read";
  Up(1, 24);
  EXPECT_THAT(Told(0), IsEmpty());
}

// Gangs of others on the same devices wait behind it.
TEST_F(MembersTest, ASessionsEndEndsTheWaitsOfItsGangs_OB2) {
  Load(1, {0, 1, 2, 3});
  Have(50, {0, 1, 2, 3});
  Launch(1, 1, 50, 4, 51);
  Done(1, 1);
  wire::IslandItem end;
  end.mutable_end_session()->set_session(kSession);
  Item(end);
  EXPECT_EQ(SentCancels(0), 1);
  EXPECT_EQ(SentCancels(1), 0) << "it has ended there";
  for (const auto& [worker, item] : ByWorker(actions_)) {
    if (!item.has_cancel()) continue;
    EXPECT_THAT(item.cancel().ordinals(), ElementsAre(1));
    EXPECT_EQ(item.cancel().failure().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  }
  Done(0, 1);
  EXPECT_EQ(done_[1].code(), static_cast<int>(absl::StatusCode::kUnavailable));
}

// A worker can tell a gang that was sent before a member ended from one that was sent after its successor came.
TEST_F(MembersTest, TheEpochGrowsWithEachStartAndEndAndGangsNameTheirs) {
  LoadFor(1, {0, 1, 2, 3}, true, true);
  std::vector<uint64_t> loads, launches, members, opens;
  auto note = [&] {
    for (const auto& [to, item] : ByWorker(actions_)) {
      if (to != 0) continue;
      if (item.has_load()) loads.push_back(item.load().island_epoch());
      if (item.has_node()) launches.push_back(item.node().launch().island_epoch());
      for (const wire::Worker& member : item.peers().workers())
        members.push_back(member.island_epoch());
      if (item.has_open_devices()) opens.push_back(item.open_devices().island_epoch());
    }
  };
  note();
  Have(5, {0, 1, 2, 3});
  Launch(10, 1, 5, 4, 6);
  note();
  Down(1);
  note();
  Up(1, 22);
  note();
  Have(7, {0, 1, 2, 3});
  Launch(11, 1, 7, 4, 8);
  note();
  Up(0, 12);
  note();
  EXPECT_THAT(launches, ElementsAre(2, 4)) << "two workers had started, one ended and started";
  EXPECT_THAT(members, ElementsAre(2, 2, 3, 4, 6, 6)) << "with the loads, those of both";
  EXPECT_THAT(opens, ElementsAre(6)) << "its predecessor was replaced: an end and a start";
  EXPECT_THAT(loads, ElementsAre(2, 6));
}

// What is told to clients and to senders of copies has no secrets.
TEST_F(MembersTest, SocketsAreNamedToMembersOnly) {
  Up(1, 24);
  for (const wire::Report& report : actions_.to_controller) {
    ASSERT_TRUE(report.has_worker_state());
    EXPECT_FALSE(report.worker_state().worker().has_collectives());
  }
}

}  // namespace
}  // namespace gangway::scheduler
