// What the scheduler sends its workers, and when.
#include "gangway/scheduler/service/scheduler_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/answer.h"
#include "gangway/base/executor.h"

namespace gangway::scheduler {
namespace {

using testing::ElementsAre;

constexpr uint64_t kIncarnation = 11;

// Keeps what its worker is sent, a line for each message. On the loop.
class WorkersLink final : public transport::Link {
 public:
  absl::Status Send(wire::Frame frame) override {
    if (!frame.has_island_batch()) return absl::OkStatus();
    std::vector<std::string> items;
    for (const wire::IslandItem& item : frame.island_batch().items()) {
      items.emplace_back(item.has_free()      ? "free"
                         : item.has_node()    ? "node"
                         : item.has_release() ? "release"
                                              : "other");
      for (const uint64_t storage : item.free().storages()) absl::StrAppend(&items.back(), storage);
    }
    messages.push_back(absl::StrJoin(items, " "));
    if (next != nullptr) next->Set(Clock::now());
    return absl::OkStatus();
  }
  size_t queued_bytes() const override { return 0; }
  size_t writable_bytes() const override { return 1; }
  size_t frame_bytes_max() const override { return SIZE_MAX; }
  void Close(const absl::Status&) override {}
  const transport::Peer& peer() const override { return peer_; }

  std::vector<std::string> messages;
  std::shared_ptr<Answer<Clock::time_point>> next;  // told when there is another one

 private:
  const transport::Peer peer_;
};

// One island of one worker with one device.
class SchedulerServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    OnLoop([this] {
      wire::HelloReply terms;
      terms.mutable_island()->add_workers()->add_devices(0);
      scheduler_ = SchedulerService::Host(&loop_, {}, terms);
      wire::Hello hello;
      hello.set_role(wire::ROLE_WORKER);
      hello.mutable_worker()->set_device_count(1);
      hello.mutable_worker()->set_incarnation(kIncarnation);
      auto welcomed = scheduler_->Welcome(link_, hello);
      ASSERT_TRUE(welcomed.ok()) << welcomed.status();
      endpoint_ = *std::move(welcomed);
    });
    Sent();
  }
  ~SchedulerServiceTest() override {
    OnLoop([this] { scheduler_.reset(); });
    loop_.Stop();
  }
  void OnLoop(const std::function<void()>& task) {
    Answer<bool> done;
    loop_.Post([&] {
      task();
      done.Set(true);
    });
    ASSERT_TRUE(done.WaitFor(std::chrono::seconds(30)));
  }
  // What the worker was sent since the last call, in rounds that have ended.
  std::vector<std::string> Sent() {
    std::vector<std::string> sent;
    OnLoop([] {});
    OnLoop([&] { sent = std::exchange(link_->messages, {}); });
    return sent;
  }
  void Take(const wire::IslandItem& item) {
    wire::Frame frame;
    *frame.mutable_island_batch()->add_items() = item;
    OnLoop([&] { scheduler_->Take(std::move(frame)); });
  }
  // An upload to the storage of the same number.
  void Upload(uint64_t ordinal) {
    wire::IslandItem item;
    item.mutable_node()->set_ordinal(ordinal);
    item.mutable_node()->set_session(7);
    wire::Upload& upload = *item.mutable_node()->mutable_upload();
    upload.set_storage(ordinal);
    upload.mutable_spec()->set_shard_bytes(16);
    upload.mutable_spec()->add_devices(0);
    wire::Destination& to = *upload.add_destinations();
    to.set_incarnation(kIncarnation);
    Take(item);
  }
  void Hold(uint64_t storage) {
    Upload(storage);
    wire::Frame ended;
    ended.set_incarnation(kIncarnation);
    ended.mutable_report_batch()->add_reports()->mutable_done()->set_ordinal(storage);
    OnLoop([&] { endpoint_->OnFrame(std::move(ended)); });
  }
  // All in one round, each in a step of its own.
  void Free(uint64_t first, uint64_t last) {
    OnLoop([&] {
      for (uint64_t storage = first; storage <= last; ++storage) {
        wire::Frame frame;
        frame.mutable_island_batch()->add_items()->mutable_free()->add_storages(storage);
        scheduler_->Take(std::move(frame));
      }
      loop_.Post([this] { at_next_round_ = link_->messages.size(); });
    });
    OnLoop([] {});
  }

  EventLoop loop_{"scheduler"};
  const std::shared_ptr<WorkersLink> link_ = std::make_shared<WorkersLink>();
  std::unique_ptr<SchedulerService> scheduler_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  size_t at_next_round_ = 0;  // after Free: messages so far
};

TEST_F(SchedulerServiceTest, WhatOnlyFreesGoesWithWhatIsSentNext) {
  std::vector<std::string> sent;
  for (uint64_t i = 1; i <= 60 && sent.size() != 1;
       i += 3) {  // a slow host takes longer than 10 ms
    Hold(i);
    Hold(i + 1);
    Sent();
    Free(i, i + 1);
    Upload(i + 2);
    sent = Sent();
    if (sent.size() != 1) continue;
    EXPECT_EQ(sent[0], absl::StrCat("free", i, " free", i + 1, " node release"));
  }
  EXPECT_EQ(sent.size(), 1u);
}

TEST_F(SchedulerServiceTest, WhatOnlyFreesGoesInItsTimeThoughNothingFollows) {
  for (uint64_t storage = 1; storage <= 3; ++storage) {
    Hold(storage);
    Sent();
    const auto next = std::make_shared<Answer<Clock::time_point>>();
    OnLoop([&] { link_->next = next; });
    const Clock::time_point freed = Clock::now();
    Free(storage, storage);
    const auto told = next->WaitFor(std::chrono::seconds(30));
    ASSERT_TRUE(told);
    EXPECT_GE(*told - freed, std::chrono::milliseconds(10));
    EXPECT_THAT(Sent(), ElementsAre(absl::StrCat("free", storage)));
  }
}

// The timer of frees that went with something else is no reason to send those that came since.
TEST_F(SchedulerServiceTest, WhatOnlyFreesHasItsWholeTime) {
  Hold(1);
  Hold(2);
  Sent();
  Free(1, 1);
  Upload(3);
  Sent();
  const auto next = std::make_shared<Answer<Clock::time_point>>();
  OnLoop([&] { link_->next = next; });
  const Clock::time_point freed = Clock::now();
  Free(2, 2);
  const auto told = next->WaitFor(std::chrono::seconds(30));
  ASSERT_TRUE(told);
  EXPECT_GE(*told - freed, std::chrono::milliseconds(10));
  EXPECT_THAT(Sent(), ElementsAre("free2"));
}

TEST_F(SchedulerServiceTest, NoMoreThanSoManyMessagesThatOnlyFreeAreHeld) {
  for (uint64_t storage = 1; storage <= 64; ++storage) Hold(storage);
  Sent();
  Free(1, 64);
  EXPECT_EQ(at_next_round_, 1u);
}

TEST_F(SchedulerServiceTest, WhatDoesMoreThanFreeGoesAtOnce) {
  Upload(1);
  EXPECT_THAT(Sent(), ElementsAre("node release"));
}

}  // namespace
}  // namespace gangway::scheduler
