// Tests of node_task.h, without a worker around it.
#include "gangway/worker/service/device/node_task.h"

#include <gtest/gtest.h>

#include "gangway/base/clock.h"
#include "gangway/device/element_type.h"
#include "gangway/device/sim/sim_backend.h"

namespace gangway::worker {
namespace {

const device::ArraySpec kScalar{device::kF32, {}};

class Maker final : public NodeTask {
 public:
  Maker(std::shared_ptr<const TaskEnvironment> environment,
        std::vector<std::shared_ptr<store::Slot>> slots, device::Backend* backend)
      : NodeTask(std::move(environment), Ordinal(7), wire::LabelOf("maker"), slots.size()),
        slots_(std::move(slots)),
        backend_(backend) {}

  void Enqueue() override {
    const float one = 1;
    for (const auto& slot : slots_) {
      auto made = backend_->BufferFromHost(slot->name().device, "", kScalar,
                                           std::as_bytes(std::span(&one, 1)),
                                           device::HostSemantics::kCopyDuringCall, nullptr);
      ASSERT_TRUE(made.ok()) << made.status();
      Deliver(*slot, {*std::move(made), store::Sharing::kOwned});
    }
  }

 private:
  const std::vector<std::shared_ptr<store::Slot>> slots_;
  device::Backend* const backend_;
};

// A launch that waits for the slot takes the buffer as soon as the slot is filled.
TEST(NodeTaskTest, WhatIsDonatedAtOnceWasMadeAllTheSame) {
  auto backend = device::OpenSim({.device_count = 2});
  auto ledger = std::make_shared<store::Ledger>(2);
  std::vector<NodeEnded> ended;
  auto environment = std::make_shared<TaskEnvironment>();
  environment->ended = [&ended](NodeEnded node, bool) { ended.push_back(std::move(node)); };
  environment->callbacks = std::make_shared<InFlight>();
  std::vector<std::shared_ptr<store::Slot>> slots;
  int taken = 0;
  for (int device = 0; device < 2; ++device) {
    environment->devices.push_back(
        std::make_shared<DeviceThread>("device", 1, std::chrono::minutes(10)));
    slots.push_back(std::make_shared<store::Slot>(
        store::SlotName{
            .storage = StorageId(1), .device = device, .session = SessionId(1), .bytes = 4},
        ledger));
    slots.back()->ShareWhenSettled([&](absl::StatusOr<store::Content> content) {
      ASSERT_TRUE(content.ok()) << content.status();
      EXPECT_TRUE(ended.empty()) << "it ended before its slots were filled";
      content->buffer->Delete();
      ++taken;
    });
  }
  std::make_shared<Maker>(environment, slots, backend.get())->Enqueue();
  EXPECT_EQ(taken, 2);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].ordinal, Ordinal(7));
  EXPECT_FALSE(ended[0].failure) << ended[0].failure->DebugString();
  for (const auto& thread : environment->devices)
    EXPECT_TRUE(thread->Stop(Clock::now() + std::chrono::seconds(5)));
}

class Ender final : public NodeTask {
 public:
  Ender(std::shared_ptr<const TaskEnvironment> environment, bool has_work_behind)
      : NodeTask(std::move(environment), Ordinal(7), wire::LabelOf("ender"), 1),
        has_work_behind_(has_work_behind) {}
  void Enqueue() override { EndPart(); }
  void Fail() {
    Note(absl::InternalError("it broke"), 0);
    EndPart();
  }

 private:
  bool HasWorkBehind() const override { return has_work_behind_; }

  const bool has_work_behind_;
};

TEST(NodeTaskTest, AnEndHurriesUnlessItIsGoodAndThereIsWorkBehindIt) {
  std::vector<bool> hurried;
  auto environment = std::make_shared<TaskEnvironment>();
  environment->ended = [&hurried](const NodeEnded&, bool hurries) { hurried.push_back(hurries); };
  std::make_shared<Ender>(environment, false)->Enqueue();
  std::make_shared<Ender>(environment, true)->Enqueue();
  std::make_shared<Ender>(environment, true)->Fail();
  EXPECT_EQ(hurried, (std::vector<bool>{true, false, true}));
}

}  // namespace
}  // namespace gangway::worker
