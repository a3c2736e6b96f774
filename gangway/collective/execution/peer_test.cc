// What members of two workers see of each other: when a slot is written again, what is told of reads and of gangs that
// were left, and what is refused of another worker's messages and of its heap.
#include "gangway/collective/execution/peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gangway/collective/execution/member_test_util.h"

namespace gangway::collective {
namespace {

using ::testing::HasSubstr;
using xla::Collective;

// Position 0 sends `count` messages to position 1.
xla::CollectiveTable Chain(size_t count) {
  xla::CollectiveTable table = Table(2, {{0, 1}});
  for (size_t i = 0; i < count; ++i) {
    Collective& permute = Add(table, Collective::PERMUTE, {{1, 4}});
    permute.add_sources(0);
    permute.add_targets(1);
  }
  return table;
}

// A sender is ahead of its reader by as many messages as there are slots, and then waits for it.
TEST(MemberSlots, AreWrittenAgainOnlyWhenTheyAreReadOrTheReaderIsGone) {
  Host host(2, 1);
  auto plan = *Plan::Make(Chain(kSlots + 1));
  auto send = [&](Member& member, uint32_t position) -> absl::Status {
    if (position == 1) return absl::OkStatus();  // it leaves without reading
    for (size_t i = 0; i < plan->size(); ++i) {
      Arrays results = Empty(plan->at(i));
      const absl::Status status =
          RunOnce(member, static_cast<int64_t>(i), Inputs(plan->at(i), position), results);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  };
  for (const absl::Status& status : host.Run(host.Begin(plan), send))
    EXPECT_TRUE(status.ok()) << status;

  auto launches = host.Begin(plan, std::chrono::milliseconds(100));
  Member sender(launches[0], std::make_shared<LocalDevice>(*Arena::Create(1), 7, 0, nullptr), 0);
  EXPECT_EQ(send(sender, 0).code(), absl::StatusCode::kDeadlineExceeded);
  host.peer(0, 1).SetGone();
  Member again(launches[0], std::make_shared<LocalDevice>(*Arena::Create(1), 7, 0, nullptr), 0);
  EXPECT_EQ(send(again, 0), absl::OkStatus());
}

// What a device has read of an earlier process says nothing of the messages of the next one.
TEST(MemberSlots, AreNotWrittenAgainForWhatAnEarlierProcessSent) {
  Host host(2, 1);
  ExpectDescribed(host, Chain(50), 1);
  host.Restart(0);
  auto plan = *Plan::Make(Chain(kSlots + 2));
  std::atomic<size_t> sent = 0;
  const auto statuses =
      host.Run(host.Begin(plan), [&](Member& member, uint32_t position) -> absl::Status {
        while (position == 1 && sent < kSlots) YieldCore();  // it is late
        for (size_t i = 0; i < plan->size(); ++i) {
          Arrays results = Empty(plan->at(i));
          const Arrays inputs = Inputs(plan->at(i), position);
          const absl::Status status = RunOnce(member, static_cast<int64_t>(i), inputs, results);
          if (!status.ok()) return status;
          if (position == 0) ++sent;
          if (results != Expected(plan->at(i), position)) return absl::DataLossError("wrong");
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// The runtime says that a program has ended when the device's next one may have begun. The couriers take no word of
// reads that goes back.
TEST(MemberReads, DoNotGoBackWhenAMemberEndsAfterTheNextOneHasRead) {
  Host host(2, 1, Sight::kMirrored);
  auto plan = *Plan::Make(Chain(1));
  const auto run = [&](Member& member, uint32_t position) {
    Arrays results = Empty(plan->at(0));
    return RunOnce(member, 0, Inputs(plan->at(0), position), results);
  };
  Mutex mutex;
  std::vector<std::unique_ptr<Member>> ended;
  const auto first = host.Begin(plan), second = host.Begin(plan);
  for (const auto& launches : {first, second}) {
    std::vector<std::unique_ptr<Member>> members;
    const auto statuses = host.Run(launches, [&](Member&, uint32_t position) {
      auto member = std::make_unique<Member>(launches[position], host.shared(position), position);
      const absl::Status status = run(*member, position);
      MutexLock lock(mutex);
      members.push_back(std::move(member));
      return status;
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    for (auto& member : members) ended.push_back(std::move(member));
  }
  while (!ended.empty()) ended.pop_back();  // the second launch's before the first's
}

// One launch in which each position runs the collectives in an order of its own, up to the first that fails.
std::vector<absl::Status> RunInOrders(Host& host, const std::shared_ptr<const Plan>& plan,
                                      const std::vector<std::vector<int64_t>>& orders) {
  const auto launches = host.Begin(plan, std::chrono::milliseconds(5000));
  return host.Run(launches, [&](Member& member, uint32_t position) {
    absl::Status status;
    for (const int64_t number : orders[position]) {
      Arrays results = Empty(plan->at(number));
      const Arrays inputs = Inputs(plan->at(number), position);
      if (status.ok()) status = RunOnce(member, number, inputs, results);
    }
    return status;
  });
}

// As in a branch that positions take differently. Other gangs of the two workers go on.
TEST(MemberReads, OfAGangThatRunsItsCollectivesInTwoOrdersEndItByName) {
  for (const Sight sight : {Sight::kMapped, Sight::kMirrored}) {
    Host host(2, 1, sight);
    const auto plan = *Plan::Make(Chain(3));
    const auto statuses = RunInOrders(host, plan, {{0, 1, 2}, {1, 2, 0}});
    EXPECT_TRUE(statuses[0].ok()) << statuses[0];
    EXPECT_TRUE(absl::IsInvalidArgument(statuses[1])) << statuses[1];
    EXPECT_THAT(std::string(statuses[1].message()),
                HasSubstr("position 0 ran it before another one that position 1"));
    ExpectDescribed(host, Chain(3), 1);
  }
}

// A mirror keeps what its source has written over with messages to others.
TEST(MemberReads, OfMessagesThatTheirSourceHasWrittenOverAreNone) {
  Host host(3, 1, Sight::kMirrored);
  xla::CollectiveTable table = Table(3, {{0, 1, 2}});
  for (const uint32_t reader : {1u, 1u, 2u, 2u, 2u, 1u}) {
    Collective& permute = Add(table, Collective::PERMUTE, {{1, 4}});
    permute.add_sources(0);
    permute.add_targets(reader);
  }
  const auto plan = *Plan::Make(table);
  const auto statuses = RunInOrders(host, plan, {{0, 1, 2, 3, 4, 5}, {1, 5, 0}, {2, 3, 4}});
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_FALSE(statuses[1].ok());
  ExpectDescribed(host, table, 1);  // the couriers refuse no word of it
}

TEST(MemberReads, AreToldBeforeTheMemberWaits) {
  Host host(3, 1, Sight::kMirrored);
  xla::CollectiveTable table = Table(3, {{0, 1, 2}});
  for (const uint32_t source : {0u, 2u}) {
    Collective& permute = Add(table, Collective::PERMUTE, {{1, 4}});
    permute.add_sources(source);
    permute.add_targets(1);
  }
  const auto plan = *Plan::Make(table);
  const auto& told = host.peer(0, 1).arena().region(0).consumed[PeerNumber(0, 0)];
  constexpr std::chrono::milliseconds kMax{10'000};
  const auto statuses = host.Run(host.Begin(plan, kMax), [&](Member& member, uint32_t position) {
    absl::Status status;
    for (int64_t number = 0; number < 2 && status.ok(); ++number) {
      const auto deadline = Clock::now() + kMax;
      while (position == 2 && number == 1 && told == 0) {  // it comes once the first has been told
        if (Clock::now() > deadline) return absl::DeadlineExceededError("nothing was told");
        YieldCore();
      }
      Arrays results = Empty(plan->at(number));
      status = RunOnce(member, number, Inputs(plan->at(number), position), results);
    }
    return status;
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST(SkipTest, OtherWorkersHearItOnceForAllDevices) {
  using Lefts = std::vector<std::tuple<uint32_t, uint64_t, uint64_t>>;
  class Listener final : public Courier {
   public:
    absl::Status Send(const Published*, std::span<const ReadUpTo>) override {
      return absl::OkStatus();
    }
    void SendLeft(std::span<const LeftUpTo> lefts) override {
      heard.emplace_back();
      for (const LeftUpTo& left : lefts)
        heard.back().emplace_back(left.device, left.order, left.failed);
    }
    void Begin() override {}

    std::vector<Lefts> heard;
  };
  const auto listener = std::make_shared<Listener>();
  const auto couriers = std::make_shared<Couriers>();
  couriers->Set(1, listener);
  const auto arena = *Arena::Create(3);
  const auto first = std::make_shared<LocalDevice>(arena, 0, 0, couriers);
  const auto last = std::make_shared<LocalDevice>(arena, 0, 2, couriers);
  last->Enter(5);  // and is still in it
  LocalDevice::Skip(std::vector<std::shared_ptr<LocalDevice>>{first, nullptr, last}, 7);
  LocalDevice::Skip({}, 8);
  last->Leave(5, LocalDevice::Ending::kComplete);  // and now it has left 7, too
  last->Enter(9);
  last->Leave(9, LocalDevice::Ending::kComplete);  // which is known by what it has read
  EXPECT_EQ(listener->heard, (std::vector<Lefts>{{{0, 7, 7}, {2, 4, 7}}, {{2, 7, 7}}}));
  EXPECT_EQ(arena->region(0).left.load(), 7u);
}

// A gang that a worker never had: its device neither entered nor left it, and is in a later one.
TEST(MemberSlots, DoNotWaitForAReaderThatNeverHadTheGang) {
  Host host(2, 1);
  auto plan = *Plan::Make(Chain(kSlots));
  auto launches = host.Begin(plan);
  host.local(1).Leave(launches[0]->gang().order, LocalDevice::Ending::kEarly);
  {
    Member sender(launches[0], host.shared(0), 0);
    for (size_t i = 0; i < kSlots; ++i) {
      Arrays results = Empty(plan->at(i));
      EXPECT_TRUE(RunOnce(sender, static_cast<int64_t>(i), Inputs(plan->at(i), 0), results).ok());
    }
  }
  host.local(0).Leave(launches[0]->gang().order, LocalDevice::Ending::kComplete);
  ExpectDescribed(host, Chain(kSlots), 1);
}

// A reader that comes later than that waits for the reason, although the sender itself has ended well.
TEST(MemberSlots, OfAnAbortedLaunchAreWrittenOver) {
  const auto plan = *Plan::Make(Chain(kSlots));
  for (const Sight sight : {Sight::kMapped, Sight::kMirrored}) {
    Host host(2, 1, sight);
    const auto send = [&](const std::shared_ptr<Launch>& launch, size_t count) {
      Member member(launch, host.shared(0), 0);
      for (size_t i = 0; i < count; ++i) {
        Arrays results = Empty(plan->at(i));
        EXPECT_TRUE(RunOnce(member, static_cast<int64_t>(i), Inputs(plan->at(i), 0), results).ok());
      }
    };
    const auto first = host.Begin(plan, std::chrono::milliseconds(300));
    send(first[0], 1);
    host.local(0).Leave(first[0]->gang().order, LocalDevice::Ending::kUnread);
    first[0]->Abort(absl::CancelledError("another device of the worker has failed"));
    send(host.Begin(plan)[0], kSlots);
    Member late(first[1], host.shared(1), 1);
    Arrays results = Empty(plan->at(0));
    const absl::Status status = RunOnce(late, 0, Inputs(plan->at(0), 1), results);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  }
}

TEST(MemberSlots, BoundWhatAnAbortedLaunchSends) {
  Host host(2, 1, Sight::kMirrored);
  xla::CollectiveTable table = Table(2, {{0, 1}});
  Collective& permute = Add(table, Collective::PERMUTE, {{1, 40 * kMessageBytes / sizeof(float)}});
  permute.add_sources(0);
  permute.add_targets(1);
  const auto plan = *Plan::Make(table);
  const auto launches = host.Begin(plan);
  absl::Status sent;
  Thread sender("sender", [&] {
    Member member(launches[0], host.shared(0), 0);
    Arrays results = Empty(plan->at(0));
    sent = RunOnce(member, 0, Inputs(plan->at(0), 0), results);
  });
  const auto deadline = Clock::now() + kWaitMax;
  while (!host.local(0).waiting() && Clock::now() < deadline) YieldCore();
  launches[0]->Abort(absl::CancelledError("its session has ended"));
  sender.Join();
  EXPECT_EQ(sent.message(), "its session has ended");
  EXPECT_LE(host.carried_bytes(), kSlots * kMessageBytes);
}

TEST(MemberSlots, AreFreeAtOnceWhenTheirReaderLeaves) {
  constexpr int kRounds = 8;
  constexpr uint32_t kOversleptMax = 2;  // a busy machine may delay a wake
  Host host(2, 1);
  auto plan = *Plan::Make(Chain(kSlots + 1));
  for (int round = 0; round < kRounds; ++round) {
    auto launches = host.Begin(plan);
    const uint64_t order = launches[0]->gang().order;
    Thread sender("sender", [&] {
      Member member(launches[0], host.shared(0), 0);
      for (size_t i = 0; i < plan->size(); ++i) {
        Arrays results = Empty(plan->at(i));
        EXPECT_TRUE(RunOnce(member, static_cast<int64_t>(i), Inputs(plan->at(i), 0), results).ok());
      }
    });
    const auto& awaited = host.arena(0).region(0).awaited;
    const auto deadline = Clock::now() + kWaitMax;
    while (awaited == 0 && Clock::now() < deadline) YieldCore();
    EXPECT_NE(awaited, 0u) << "it does not wait for its reader";
    host.local(1).Leave(order, LocalDevice::Ending::kComplete);
    sender.Join();
    host.local(0).Leave(order, LocalDevice::Ending::kComplete);
  }
  EXPECT_LE(host.local(0).overslept(), kOversleptMax);
}

TEST(Mirror, RefusesWhatNoWorkerSays) {
  const auto own = *Arena::Create(2);
  Mirror mirror = *Mirror::Create(3, 2);
  const Bytes data(64);
  const auto take = [&](uint32_t device, std::vector<ByteRange> ranges, size_t bytes) {
    return mirror.Take(Published{.device = device, .sequence = 5, .ranges = std::move(ranges)},
                       std::span(data).first(bytes), *own);
  };
  EXPECT_TRUE(take(1, {{0, 16}, {64, 16}}, 32).ok());
  EXPECT_TRUE(take(1, {{kMessageBytes - 16, 16}}, 16).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(take(2, {{0, 16}}, 16)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{0, 16}}, 15)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{64, 16}, {0, 16}}, 32)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{0, 16}, {8, 16}}, 32)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{kMessageBytes - 8, 16}}, 16)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{SIZE_MAX - 7, 16}}, 16)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{16, SIZE_MAX - 7}}, 16)));
  EXPECT_TRUE(mirror.Take(ReadUpTo{1, 1, 5}, *own, 0).ok());
  EXPECT_TRUE(mirror.Take(ReadUpTo{1, 1, 5}, *own, 0).ok()) << "again";
  EXPECT_TRUE(absl::IsInvalidArgument(mirror.Take(ReadUpTo{1, 1, 4}, *own, 0)));
  EXPECT_EQ(mirror.arena()->region(1).consumed[PeerNumber(0, 1)].load(), 5u);
  EXPECT_TRUE(absl::IsInvalidArgument(mirror.Take(ReadUpTo{2, 0, 5}, *own, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(mirror.Take(ReadUpTo{0, 2, 5}, *own, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(mirror.Take(LeftUpTo{2, 5}, *own)));
  EXPECT_TRUE(mirror.Take(LeftUpTo{0, 7, 6}, *own).ok());
  EXPECT_TRUE(mirror.Take(LeftUpTo{0, 4, 3}, *own).ok()) << "said before 7, and came after it";
  EXPECT_EQ(mirror.arena()->region(0).left.load(), 7u);
  EXPECT_EQ(mirror.arena()->region(0).failed.load(), 6u);
}

TEST(Peer, IsBusyOnlyWhileALaunchIsUnderWay) {
  Host host(2, 1, Sight::kMirrored);
  const auto plan = *Plan::Make(Chain(2));
  {
    const auto launches = host.Begin(plan);
    EXPECT_TRUE(host.peer(0, 1).is_busy());
    host.Run(launches, [&](Member& member, uint32_t position) {
      Arrays results = Empty(plan->at(0));
      return RunOnce(member, 0, Inputs(plan->at(0), position), results);
    });
  }
  EXPECT_FALSE(host.peer(0, 1).is_busy()) << "what was sent is still in its slot";
  EXPECT_FALSE(host.peer(1, 0).is_busy());
}

TEST(Peer, FailsTheLaunchesThatHaveMembersThere) {
  Host host(2, 1, Sight::kMirrored);
  xla::CollectiveTable table = Table(2, {{0, 1}});
  Add(table, Collective::ALL_REDUCE, {{1, 4}});
  auto plan = *Plan::Make(table);
  const auto before = host.Begin(plan);
  host.peer(0, 1).Fail(absl::DataLossError("its way is broken"));
  EXPECT_EQ(before[0]->reason().message(), "its way is broken");
  EXPECT_TRUE(before[1]->reason().ok());
  const auto after = host.Begin(plan);
  EXPECT_EQ(after[0]->reason().message(), "its way is broken");
}

TEST(Launch, ThatHasEndedWellIsAbortedNoMore) {
  Host host(2, 1);
  const auto launches = host.Begin(*Plan::Make(Chain(2)));
  EXPECT_TRUE(launches[0]->End().ok());
  launches[0]->Abort(absl::CancelledError("too late"));
  EXPECT_FALSE(launches[0]->is_aborted());
  launches[1]->Abort(absl::CancelledError("before"));
  EXPECT_EQ(launches[1]->End().message(), "before");
}

// Messages to the peer may be lost, and the abort comes only later.
TEST(Launch, DoesNotEndWellIfAPeerIsGone) {
  Host host(2, 1, Sight::kMirrored);
  const auto launches = host.Begin(*Plan::Make(Chain(2)));
  host.peer(0, 1).SetGone();
  EXPECT_TRUE(absl::IsDataLoss(launches[0]->End()));
  EXPECT_TRUE(launches[1]->End().ok());
}

// Position 0 of two workers sends 280 kB to position 1, which is late.
class HeapTest : public ::testing::Test {
 protected:
  HeapTest() {
    xla::CollectiveTable table = Table(2, {{0, 1}});
    Collective& permute = Add(table, Collective::PERMUTE, {{1, 70'000}});
    permute.add_sources(0);
    permute.add_targets(1);
    plan_ = *Plan::Make(table);
  }

  // The status of both members. The sender's memory changes before the reader looks. `wait_max` limits the reader.
  std::array<absl::Status, 2> SendThenReceive(
      std::chrono::milliseconds wait_max = std::chrono::milliseconds(100)) {
    auto launches = host_.Begin(plan_, wait_max);
    launches[0] = Launch::Begin(plan_, launches[0]->devices(), launches[0]->gang(),
                                std::chrono::milliseconds(100));
    std::array<absl::Status, 2> ends;
    std::array<Arrays, 2> inputs, results;
    for (uint32_t position : {0u, 1u}) {
      inputs[position] = Inputs(plan_->at(0), position);
      results[position] = Empty(plan_->at(0));
      {
        Member member(launches[position], host_.shared(position), position);
        ends[position] = RunOnce(member, 0, inputs[position], results[position]);
      }
      for (Bytes& bytes : inputs[position]) std::ranges::fill(bytes, std::byte{0xff});
      host_.local(position).Leave(launches[position]->gang().order, LocalDevice::Ending::kEarly);
    }
    return ends;
  }

  Host host_{2, 1, Sight::kHeaps};
  std::shared_ptr<const Plan> plan_;
};

TEST_F(HeapTest, WhatAMemberShowedIsNoResultOnceItHasFailed) {
  const auto ends = SendThenReceive();
  EXPECT_TRUE(absl::IsDeadlineExceeded(ends[0])) << "it keeps what it shows: " << ends[0];
  EXPECT_TRUE(absl::IsUnavailable(ends[1])) << ends[1];
  EXPECT_THAT(ends[1].message(), HasSubstr("worker0, local device 0, has left the gang"));
  const Region& region = host_.arena(0).region(0);
  EXPECT_TRUE(
      std::ranges::any_of(region.headers, [](const auto& each) { return each.shows == 1; }));
}

// The root cause may come long after the sender's memory has changed, because its worker is busy. From a worker that is
// gone, none comes.
TEST_F(HeapTest, TheReasonIsWaitedForWhileItMayCome) {
  for (const bool is_gone : {false, true}) {
    if (is_gone) {
      host_.SeeHeap(1, 0, 0);
      host_.peer(1, 0).SetGone();
    }
    const std::chrono::milliseconds wait_max(is_gone ? 20'000 : 3'000);
    const Clock::time_point began = Clock::now();
    std::array<absl::Status, 2> ends;
    std::atomic<bool> is_over = false;
    Thread thread("members", [&] {
      ends = SendThenReceive(wait_max);
      is_over = true;
    });
    bool was_waiting = false;
    while (!was_waiting && !is_over) {
      YieldCore();
      was_waiting = host_.local(1).waiting().has_value();
    }
    EXPECT_TRUE(was_waiting);
    thread.Join();
    EXPECT_TRUE(absl::IsUnavailable(ends[1])) << ends[1];
    EXPECT_EQ(Clock::now() - began < wait_max, is_gone);
  }
}

TEST_F(HeapTest, AMemberThatShowsMemoryOutsideOfItsHeapIsNamed) {
  for (uint64_t bytes : {uint64_t{0}, uint64_t{4096}}) {
    host_.SeeHeap(1, 0, bytes);
    const auto ends = SendThenReceive();
    EXPECT_TRUE(absl::IsInternal(ends[1])) << ends[1];
    EXPECT_THAT(ends[1].message(),
                HasSubstr("worker0, local device 0, shows memory that is not in"));
  }
}

// The worker moves such operands to the heap (worker/service/memory/borrowed_memory.h).
TEST_F(HeapTest, AnOperandOutsideOfItIsToldToTheLaunch) {
  for (const bool is_outside : {false, true}) {
    if (is_outside) host_.SetHeap(0, 1);
    const auto launches = host_.Begin(plan_);
    std::array<Arrays, 2> inputs, results;
    const auto ends = host_.Run(launches, [&](Member& member, uint32_t position) {
      inputs[position] = Inputs(plan_->at(0), position);
      results[position] = Empty(plan_->at(0));
      absl::Status status = RunOnce(member, 0, inputs[position], results[position]);
      return status.ok() ? RunOnce(member, 0, inputs[position], results[position]) : status;
    });
    for (const absl::Status& end : ends) EXPECT_TRUE(end.ok()) << end;
    EXPECT_EQ(results[1], Expected(plan_->at(0), 1));
    std::vector<const std::byte*> outside;
    if (is_outside) outside.push_back(inputs[0][0].data());
    EXPECT_EQ(launches[0]->outside_heap(), outside);
    EXPECT_TRUE(launches[1]->outside_heap().empty()) << "no other worker reads its operand";
  }
}

// A heap takes memory for as long as it is mapped, and a device keeps its last launches, which know their members.
TEST_F(HeapTest, OfAWorkerThatIsGoneIsDropped) {
  host_.SeeHeap(1, 0, 4096);
  const std::weak_ptr<const ReadableHeap> heap = host_.peer(1, 0).arena().heap();
  const auto launches = host_.Begin(plan_);
  ASSERT_FALSE(heap.expired());
  host_.peer(1, 0).SetGone();
  EXPECT_TRUE(heap.expired());
}

TEST_F(HeapTest, OfAWorkerThatIsGoneIsNotLookedFor) {
  host_.SeeHeap(1, 0, 0);
  host_.peer(1, 0).SetGone();
  const auto ends = SendThenReceive();
  EXPECT_TRUE(absl::IsUnavailable(ends[1])) << ends[1];
  EXPECT_THAT(ends[1].message(), HasSubstr("worker0, local device 0, has left the gang"));
}

}  // namespace
}  // namespace gangway::collective
