// Tests of gang_collectives.h, for a gang of two members on the devices of one worker.
#include "gangway/worker/service/launch/gang_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "gangway/base/thread.h"
#include "gangway/collective/execution/member_test_util.h"

namespace gangway::worker {
namespace {

using FfiHandlers = device::Capabilities::FfiHandlers;

absl::Status Wanted() { return absl::OkStatus(); }

class GangCollectivesTest : public testing::Test {
 protected:
  GangCollectivesTest() {
    auto table = collective::Table(2, {{0, 1}});
    collective::Add(table, xla::Collective::ALL_REDUCE, {{1, 1}});
    executable_.emplace(
        ExecutableSlot::Traits{.name = "it", .plan = *collective::Plan::Make(table)});
    const std::array<PendingPeers::WorkerDevice, 2> devices = {{{0, 0}, {0, 1}}};
    std::shared_ptr<collective::Arena> arena = *collective::Arena::Anonymous(2);
    GangCollectives::Parts parts;
    parts.peers = std::make_shared<PendingPeers>(devices, [&arena](uint32_t worker) {
      auto pending = std::make_shared<PendingPeer>("worker0");
      pending->Set(std::make_shared<collective::Peer>("worker0", worker, arena));
      return pending;
    });
    for (uint32_t device = 0; device < 2; ++device) {
      parts.devices.push_back(std::make_shared<collective::LocalDevice>(
          arena, 0, device, std::make_shared<collective::Couriers>()));
    }
    devices_ = parts.devices;
    gang_.emplace(std::move(parts), *executable_,
                  GangCollectives::Gang{
                      .ordinal = Ordinal(7), .launch_id = 7, .wait_limit = collective::kWaitMax});
    gang_->SetOrderPosition(OrderPosition(3));
    gang_->Enter();
  }
  ~GangCollectivesTest() override {
    for (uint32_t i = 0; i < 2; ++i)
      gang_->Leave(i, static_cast<int>(i), absl::CancelledError("the test has ended"));
  }
  // Of a runtime without handlers.
  absl::StatusOr<device::CollectiveCall> Join(uint32_t member,
                                              absl::FunctionRef<absl::Status()> unwanted = Wanted) {
    return gang_->Join(member, {member, static_cast<int>(member), DeviceId(member)},
                       FfiHandlers::kNone, Clock::now() + collective::kWaitMax, unwanted);
  }
  static absl::Status Reduce(const device::CollectiveCall& call, float operand, float& result) {
    const auto from = std::as_bytes(std::span(&operand, 1));
    const auto to = std::as_writable_bytes(std::span(&result, 1));
    return call(0, {&from, 1}, {&to, 1});
  }

  std::vector<std::shared_ptr<collective::LocalDevice>> devices_;
  std::optional<ExecutableSlot> executable_;
  std::optional<GangCollectives> gang_;
};

TEST_F(GangCollectivesTest, MembersMeetInOneLaunchAndEndWell) {
  std::array<float, 2> results{};
  std::vector<Thread> threads;
  for (uint32_t i = 0; i < 2; ++i) {
    threads.emplace_back("member", [this, i, &results] {
      const auto call = Join(i);
      ASSERT_TRUE(call.ok()) << call.status();
      EXPECT_EQ(Reduce(*call, static_cast<float>(i + 1), results[i]), absl::OkStatus());
      EXPECT_EQ(gang_->EndOf(absl::OkStatus()), absl::OkStatus());
    });
  }
  for (Thread& thread : threads) thread.Join();
  EXPECT_THAT(results, testing::ElementsAre(3, 3));
  gang_->Abort(absl::InternalError("too late"));
  EXPECT_EQ(gang_->EndOf(absl::OkStatus()), absl::OkStatus());
}

TEST_F(GangCollectivesTest, AnAbortEndsTheWaitOfAMemberAndIsTheReasonOfAllEnds_ER2) {
  const auto call = Join(0);
  ASSERT_TRUE(call.ok()) << call.status();
  Thread aborts("aborts", [this] {
    while (!devices_[0]->waiting()) std::this_thread::yield();
    gang_->Abort(absl::DataLossError("a member is gone"));
  });
  float result = 0;  // the other member never comes
  const absl::Status reduced = Reduce(*call, 1, result);
  EXPECT_EQ(reduced.code(), absl::StatusCode::kDataLoss) << reduced;
  EXPECT_EQ(reduced.message(), "a member is gone");
  aborts.Join();
  EXPECT_EQ(gang_->EndOf(absl::InternalError("a handler failed")),
            absl::DataLossError("a member is gone"));
  EXPECT_EQ(gang_->EndOf(absl::OkStatus()), absl::DataLossError("a member is gone"));
}

TEST_F(GangCollectivesTest, AFailureThatCameBeforeTheLaunchAbortsIt) {
  int looks = 0;
  const auto call = Join(0, [&looks]() {  // it fails once the workers are known
    return ++looks == 1 ? absl::OkStatus() : absl::DataLossError("a member is gone");
  });
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(gang_->EndOf(absl::OkStatus()), absl::DataLossError("a member is gone"));
}

TEST_F(GangCollectivesTest, WithoutALaunchAMemberEndsAsItsRunDid) {
  gang_->Abort(absl::DataLossError("no launch to abort"));
  EXPECT_EQ(gang_->EndOf(absl::InternalError("it did not fit")),
            absl::InternalError("it did not fit"));
  EXPECT_TRUE(gang_->OutsideHeap().empty());
}

TEST_F(GangCollectivesTest, TheSchedulerIsToldOnceAndNotOfWhatItKnows) {
  EXPECT_TRUE(gang_->TakeReport());
  EXPECT_FALSE(gang_->TakeReport());
  GangCollectives cancelled({}, *executable_, {});
  cancelled.NoteReported();
  EXPECT_FALSE(cancelled.TakeReport());
}

}  // namespace
}  // namespace gangway::worker
