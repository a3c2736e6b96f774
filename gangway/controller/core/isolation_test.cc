// Sessions of different owners share no worker: who claims which, what a foreign session is told, what ends a claim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/controller/core/controller_test_util.h"

namespace gangway::controller {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Sessions 1 and 2 have no certificates; 3 and 4 have the same one.
class IsolationTest : public ControllerTest {
 protected:
  void SetUp() override { MakeIsolated({}); }

  void MakeIsolated(std::set<uint32_t> remote_islands) {
    ControllerConfig config;
    config.isolates = true;
    config.compiles.isolates = true;
    config.compiles.compilers = 2;
    config.program_reach = Reach::kCluster;
    config.remote_islands = std::move(remote_islands);
    for (uint32_t i = 0; i < 4; ++i) {
      wire::Worker& worker = config.workers.emplace_back();
      worker.set_island(i / 2);
      worker.set_index(i % 2);
      worker.add_devices(2 * i);
      worker.add_devices(2 * i + 1);
    }
    Make(std::move(config));
    for (uint32_t i = 0; i < 4; ++i) BringUp(i / 2, i % 2, 100 + i);
    for (uint64_t session : {3, 4}) {
      Step(SessionOpened{
          .session = SessionId(session), .name = "of alice", .certificate = "client/alice"});
    }
    Forget();
  }
  void Forget() {
    items_.clear();
    events_.clear();
    requests_.clear();
  }
  void End(uint64_t session) { Step(SessionLost{SessionId(session)}); }
  // Devices that a session of this owner would see if it started now.
  std::vector<uint32_t> Seen(const Owner& owner) const {
    wire::Topology topology;
    controller_->FillTopology(topology, owner);
    std::vector<uint32_t> devices;
    for (const wire::Worker& worker : topology.workers())
      devices.insert(devices.end(), worker.devices().begin(), worker.devices().end());
    return devices;
  }
  std::string Absent(const Owner& owner) const {
    wire::Topology topology;
    controller_->FillTopology(topology, owner);
    std::string text;
    for (const std::string& each : topology.absent()) absl::StrAppend(&text, each, "; ");
    return text;
  }
  // "ISLAND/INDEX SESSION" of all admissions, in order.
  std::vector<std::string> Admissions() const {
    std::vector<std::string> found;
    for (const auto& [island, item] : items_) {
      if (item.has_admit_session())
        found.push_back(absl::StrCat(island, "/", item.admit_session().index(), " ",
                                     item.admit_session().session()));
    }
    return found;
  }
  // "ISLAND/INDEX" of all replacements.
  std::vector<std::string> Replaced() const {
    std::vector<std::string> found;
    for (const auto& [island, item] : items_) {
      if (item.has_replace_worker())
        found.push_back(absl::StrCat(island, "/", item.replace_worker().index()));
    }
    return found;
  }
  std::string RefusedUpload(uint64_t session, const Devices& devices) {
    const uint64_t handle = ++handle_;
    EXPECT_EQ(Upload(handle, devices, session), 0u) << "it was taken";
    const auto failure = Await({handle}, session);
    EXPECT_EQ(failure->code(), static_cast<int>(StatusCode::kUnavailable));
    return failure->message();
  }

  uint64_t handle_ = 500;
  const Owner alice_{"client/alice", SessionId(3)};
};

TEST_F(IsolationTest, TheFirstThatUsesAWorkerClaimsItAndOthersAreRefusedByName) {
  EXPECT_NE(Upload(10, {0}), 0u);
  EXPECT_THAT(Admissions(), ElementsAre("0/0 1"));
  EXPECT_TRUE(items_[0].second.has_admit_session()) << "before its work";
  ASSERT_TRUE(events_[0].second.has_admitted());
  EXPECT_EQ(events_[0].first, 1u);
  now_ += std::chrono::seconds(7);
  items_.clear();
  EXPECT_THAT(RefusedUpload(2, {1}),
              AllOf(HasSubstr("island0/worker0"), HasSubstr("session 1 (one)"), HasSubstr("7 s")));
  EXPECT_THAT(items_, IsEmpty()) << "nothing of it reached the worker";
  EXPECT_NE(Upload(11, {2}, 2), 0u) << "the other worker is free";
  EXPECT_THAT(RefusedUpload(1, {3}), HasSubstr("session 2 (two)"));
}

TEST_F(IsolationTest, ARefusedOperationClaimsNothing) {
  EXPECT_NE(Upload(10, {2}), 0u);
  EXPECT_THAT(RefusedUpload(2, {0, 2}), HasSubstr("island0/worker1"));
  EXPECT_NE(Upload(11, {0}), 0u) << "worker 0 is still free";
  EXPECT_EQ(Upload(10, {4}, 1), 0u) << "the handle is in use";
  EXPECT_NE(Upload(12, {4}, 2), 0u);
}

TEST_F(IsolationTest, APutClaimsItsWorkersForTheFirstArrayThatIsGood) {
  wire::Op op;
  op.mutable_put()->add_devices(0);
  for (const uint64_t handle : {0, 10}) {
    wire::PutArray& array = *op.mutable_put()->add_arrays();
    array.set_array(handle);
    array.mutable_tensor()->set_element_type(2);
    array.add_shards();
    array.mutable_tensor()->add_shard_dims(0);
  }
  wire::Op wrong = op;
  wrong.mutable_put()->mutable_arrays()->RemoveLast();
  Do(wrong);
  EXPECT_THAT(Admissions(), IsEmpty()) << "0 is no handle";
  EXPECT_NE(OrdinalOf(op, 2), 0u);
  EXPECT_THAT(Admissions(), ElementsAre("0/0 2"));
  Do(op);
  EXPECT_THAT(Await({10})->message(), HasSubstr("session 2 (two)"));
}

TEST_F(IsolationTest, CompilesCallsAndCopiesClaimToo) {
  Compile(5, {0});
  EXPECT_THAT(Admissions(), ElementsAre("0/0 1"));
  Compile(6, {1}, 2);
  ASSERT_EQ(CompiledEvents(6).size(), 1u);
  EXPECT_THAT(CompiledEvents(6)[0].failure().message(), HasSubstr("session 1 (one)"));
  Have(10, {0});
  EXPECT_NE(Upload(11, {2}, 2), 0u);
  EXPECT_EQ(Copy(10, 20, {2}), 0u);
  EXPECT_THAT(Await({20})->message(), HasSubstr("session 2 (two)"));
  items_.clear();
  EXPECT_NE(Copy(10, 21, {4}), 0u);
  EXPECT_THAT(Admissions(), ElementsAre("1/0 1"));
}

TEST_F(IsolationTest, SessionsOfOneCertificateShareAndOthersSeeTheRest) {
  EXPECT_NE(Upload(10, {0}, 3), 0u);
  EXPECT_NE(Upload(11, {1}, 4), 0u);
  EXPECT_THAT(Admissions(), ElementsAre("0/0 3", "0/0 4"));
  EXPECT_THAT(Seen(alice_), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  const Owner other("", SessionId(9));
  EXPECT_THAT(Seen(other), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_THAT(Absent(other),
              HasSubstr("island0/worker0 (devices 0, 1), claimed by session 3 (of alice)"));
  EXPECT_THAT(controller_->AbsentWorkers(other), IsEmpty()) << "nobody waits for it";
  EXPECT_THAT(controller_->ClaimedByOthers(other), HasSubstr("island0/worker0"));
  EXPECT_THAT(controller_->ClaimedByOthers(alice_), IsEmpty());
  wire::StatusReply status;
  controller_->FillStatus(now_, status);
  EXPECT_EQ(status.workers(0).state().claim().owner(), "the certificate client/alice");
  EXPECT_FALSE(status.workers(1).state().has_claim());
}

TEST_F(IsolationTest, TheLastSessionOfAnOwnerEndsItsClaimsAndTheWorkersProcess) {
  HaveProgram(5, {0}, false, 3);
  Have(10, {0}, 3);
  EXPECT_NE(Upload(11, {2}, 4), 0u);
  Forget();
  End(3);
  EXPECT_THAT(Replaced(), IsEmpty()) << "session 4 has the same owner";
  EXPECT_THAT(RefusedUpload(1, {0}), HasSubstr("island0/worker0"));
  End(4);
  EXPECT_THAT(Replaced(), ElementsAre("0/0", "0/1"));
  // All that ends the sessions comes before: nothing of them reaches the next process.
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!items_[i].second.has_replace_worker()) continue;
    for (size_t later = i + 1; later < items_.size(); ++later) {
      EXPECT_TRUE(items_[later].second.has_replace_worker()) << items_[later].second.DebugString();
    }
  }
  Forget();
  EXPECT_NE(Upload(20, {0}), 0u) << "it is free at once";
  EXPECT_THAT(Admissions(), ElementsAre("0/0 1"));
}

TEST_F(IsolationTest, AWorkerThatIsReplacedIsDownUntilTheNextProcess) {
  EXPECT_NE(Upload(10, {0}), 0u);
  Forget();
  End(1);
  const Owner other("", SessionId(9));
  EXPECT_THAT(Seen(other), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(controller_->AwaitsReplacement(other, now_));
  EXPECT_THAT(controller_->AbsentWorkers(other), HasSubstr("island0/worker0"));
  bool told = false;
  for (const auto& [session, event] : events_) {
    told |= session == 2 && event.has_worker_state() && !event.worker_state().up() &&
            event.worker_state().worker().incarnation() == 100;
  }
  EXPECT_TRUE(told) << "or session 2 would send its bytes to the old process";
  events_.clear();
  BringUp(0, 0, 100);  // a report that was under way
  LoseWorker(0, 0, 100);
  EXPECT_TRUE(controller_->AwaitsReplacement(other, now_));
  EXPECT_THAT(events_, IsEmpty()) << "they know it";
  BringUp(0, 0, 200);
  EXPECT_FALSE(controller_->AwaitsReplacement(other, now_));
  EXPECT_THAT(Seen(other), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_NE(Upload(11, {0}, 2), 0u);
}

TEST_F(IsolationTest, AClaimOutlivesTheWorkersProcess) {
  EXPECT_NE(Upload(10, {0}), 0u);
  LoseWorker(0, 0);
  EXPECT_THAT(RefusedUpload(2, {0}), HasSubstr("session 1 (one)"));
  BringUp(0, 0, 200);
  EXPECT_THAT(RefusedUpload(2, {0}), HasSubstr("session 1 (one)"));
  LoseWorker(0, 0);
  Forget();
  End(1);
  EXPECT_THAT(Replaced(), ElementsAre("0/0"))
      << "its scheduler may know of another process already";
}

TEST_F(IsolationTest, ANextSchedulerLearnsWhichSessionsItsWorkersTake) {
  MakeIsolated({0});
  Step(SchedulerUp{0, 101});
  BringUp(0, 0, 100);
  EXPECT_NE(Upload(10, {0}), 0u);
  Step(SchedulerDown{0, "it was killed"});
  Forget();
  Step(SchedulerUp{0, 102});
  EXPECT_THAT(Admissions(), ElementsAre("0/0 1"));
  EXPECT_THAT(RefusedUpload(2, {0}), HasSubstr("session 1 (one)"));
}

TEST_F(IsolationTest, NamesOfSessionsAreEscaped) {
  Step(SessionOpened{.session = SessionId(5), .name = "evil\n\x1b[2J"});
  EXPECT_NE(Upload(10, {0}, 5), 0u);
  EXPECT_THAT(RefusedUpload(2, {0}), HasSubstr("evil\\n\\x1b[2J"));
}

TEST_F(IsolationTest, TenThousandSessionsLeaveNoClaim) {
  for (uint64_t session = 10; session < 10'010; ++session) {
    Step(SessionOpened{SessionId(session), "many"});
    ASSERT_NE(Upload(10, {0}, session), 0u) << session;
    End(session);
    BringUp(0, 0, 1000 + session);
  }
  EXPECT_EQ(Replaced().size(), 10'000u);
  EXPECT_THAT(controller_->ClaimedByOthers(Owner()), IsEmpty());
}

TEST_F(IsolationTest, WithoutIsolationNothingIsClaimed) {
  ControllerTest::Make(Reach::kWorker);
  Forget();
  EXPECT_NE(Upload(10, {0}), 0u);
  EXPECT_NE(Upload(10, {0}, 2), 0u);
  End(1);
  EXPECT_THAT(Admissions(), IsEmpty());
  EXPECT_THAT(Replaced(), IsEmpty());
  for (const auto& [session, event] : events_) EXPECT_FALSE(event.has_admitted());
}

}  // namespace
}  // namespace gangway::controller
