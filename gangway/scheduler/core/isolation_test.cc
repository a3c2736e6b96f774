// A worker that is replaced between the sessions of two owners, and the sessions whose data streams a worker takes.
#include <gmock/gmock.h>

#include "gangway/scheduler/core/island_test_util.h"

namespace gangway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kOther = 8;

class IsolatedIslandTest : public IslandTest {
 protected:
  static void Admit(wire::IslandBatch& batch, uint32_t worker, uint64_t session) {
    wire::AdmitSession& admit = *batch.add_items()->mutable_admit_session();
    admit.set_index(worker);
    admit.set_session(session);
  }
  static void Replace(wire::IslandBatch& batch, uint32_t worker) {
    wire::ReplaceWorker& replace = *batch.add_items()->mutable_replace_worker();
    replace.set_index(worker);
    *replace.mutable_why() =
        wire::MakeFailure(absl::StatusCode::kUnavailable, "its owner has left");
  }
  static void EndSession(wire::IslandBatch& batch, uint64_t session) {
    batch.add_items()->mutable_end_session()->set_session(session);
  }
  void Send(wire::IslandBatch batch) { Step(FromController{std::move(batch)}); }
  std::vector<uint64_t> AdmittedOn(uint32_t worker) const {
    std::vector<uint64_t> sessions;
    for (const auto& [to, item] : ByWorker(actions_)) {
      if (to == worker && item.has_admit_session())
        sessions.push_back(item.admit_session().session());
    }
    return sessions;
  }
};

TEST_F(IsolatedIslandTest, WhatFollowsAReplacementReachesTheNextProcessOnly) {
  Load(1, {0});
  Have(50, {0});
  Launch(1, 1, 50, 1, 60);
  wire::IslandBatch batch;
  EndSession(batch, kSession);
  batch.add_items()->mutable_unload()->add_executables(1);
  Replace(batch, 0);
  Admit(batch, 0, kOther);
  wire::IslandItem upload = NodeItem(2, kOther);
  upload.mutable_node()->mutable_upload()->set_storage(70);
  *upload.mutable_node()->mutable_upload()->mutable_spec() = Spec({0});
  *batch.add_items() = upload;
  Send(std::move(batch));
  ASSERT_EQ(actions_.replaced.size(), 1u);
  EXPECT_EQ(actions_.replaced[0].worker, 0u);
  EXPECT_EQ(actions_.replaced[0].incarnation, Incarnation(11));
  EXPECT_THAT(AdmittedOn(0), IsEmpty());
  EXPECT_EQ(SentNodes(0), 0);
  EXPECT_THAT(done_.at(1).message(), HasSubstr("its owner has left"));
  Up(0, 12);
  EXPECT_THAT(AdmittedOn(0), ElementsAre(kOther));
  EXPECT_EQ(SentNodes(0), 1);
  EXPECT_EQ(Sent(0, [](const auto& item) { return item.has_load(); }), 0) << "it was unloaded";
}

TEST_F(IsolatedIslandTest, AReplacementOfAWorkerThatIsDownDoesNothing) {
  Down(0);
  wire::IslandBatch batch;
  Replace(batch, 0);
  Replace(batch, 99);
  Send(std::move(batch));
  EXPECT_TRUE(actions_.replaced.empty());
  Up(0, 12);
  EXPECT_EQ(actions_.to_controller.size(), 1u);
}

TEST_F(IsolatedIslandTest, EachProcessOfAWorkerLearnsWhichSessionsItTakes) {
  wire::IslandBatch batch;
  Admit(batch, 0, kSession);
  Admit(batch, 0, kOther);
  Admit(batch, 99, kOther);
  Send(std::move(batch));
  EXPECT_THAT(AdmittedOn(0), ElementsAre(kSession, kOther));
  EXPECT_THAT(AdmittedOn(1), IsEmpty());
  wire::IslandBatch end;
  EndSession(end, kSession);
  Send(std::move(end));
  Down(0);
  Up(0, 12);
  EXPECT_THAT(AdmittedOn(0), ElementsAre(kOther));
  Down(1);
  Up(1, 22);
  EXPECT_THAT(AdmittedOn(1), IsEmpty());
}

}  // namespace
}  // namespace gangway::scheduler
