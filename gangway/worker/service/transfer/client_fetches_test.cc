// In which order fetched shards go to their clients, what becomes of those that do not arrive, and what their readers
// hold (client_fetches.h).
#include "gangway/worker/service/transfer/client_fetches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/transport/bulk/lending_pool.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/transfer/client_stream_test_util.h"

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SessionId kSession(7);
constexpr FetchId kFetch(3);
constexpr std::chrono::seconds kPatience{30};
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSharedBytes = 64 * kMiB;

// The shards of which the link has taken pieces, in order.
std::vector<uint32_t> ShardsOn(const RecordingLink& link) {
  std::vector<uint32_t> shards;
  for (const wire::Frame& frame : link.frames) shards.push_back(frame.bulk().name().shard());
  return shards;
}

// All that the parts do runs on the loop.
class ClientFetchesTest : public testing::Test {
 protected:
  explicit ClientFetchesTest(milliseconds stream_wait_max = kStreamWaitMax)
      : fetches_({.loop = &loop_,
                  .staging = memory_,
                  .pool = pool_.shared(),
                  .shared_bytes_max = kSharedBytes,
                  .stream_wait_max = stream_wait_max}) {}
  ~ClientFetchesTest() override {
    Do([this] { fetches_.Clear(); });
    memory_->Close();
    loop_.Stop();
  }

  void Do(const std::function<void()>& task) { RunOn(loop_, task); }
  // In shared memory if the session may have that.
  std::shared_ptr<FetchedShard> Made(size_t size) {
    auto made = FetchedShard::Make(fetches_.MemoryFor(kSession), {}, size, /*shared_min=*/0);
    std::memset(made->data(), 'x', size);
    return made;
  }
  void Send(uint32_t shard, std::shared_ptr<FetchedShard> bytes) {
    fetches_.Send(kSession, kFetch, shard, std::move(bytes),
                  [this, shard](const absl::Status& status) {
                    ends_.push_back(shard);
                    statuses_.push_back(status);
                    end_.Set(status);
                  });
  }
  void Send(uint32_t shard, size_t size) { Send(shard, Made(size)); }
  void Reply(TestStream& test, uint32_t shard, bool received) {
    wire::Bulk bulk;
    bulk.mutable_name()->set_fetch(kFetch.number());
    bulk.mutable_name()->set_shard(shard);
    if (received) {
      bulk.mutable_received();
    } else {
      bulk.mutable_resend();
    }
    fetches_.OnBulk(test.stream, bulk);
  }

  EventLoop loop_{"test"};
  std::shared_ptr<StagingMemory> memory_ =
      StagingMemory::Make({.bytes_max = 64 * kMiB, .loop = &loop_});
  transport::LendingPool pool_{{.bytes_max = kSharedBytes, .writable = true, .drop_later = [] {}}};
  std::unique_ptr<transport::DescriptorListener> listener_ = *transport::DescriptorListener::Open();
  TestStream far_{kSession};
  TestStream near_{kSession, listener_.get()};  // of a client on this host
  std::vector<uint32_t> ends_;                  // shards, in the order of their ends
  std::vector<absl::Status> statuses_;
  Answer<absl::Status> end_;  // the first
  ClientFetches fetches_;
};

TEST_F(ClientFetchesTest, ShardsWaitForTheirSessionsStream) {
  Do([this] {
    Send(1, 100);
    Send(2, 200);
    EXPECT_THAT(ends_, IsEmpty());
    fetches_.Attach(far_.stream);
    EXPECT_THAT(ShardsOn(*far_.link), ElementsAre(1, 2));
    EXPECT_THAT(ends_, ElementsAre(1, 2));
    EXPECT_THAT(statuses_, Each(absl::OkStatus()));
    EXPECT_EQ(fetches_.sent_bytes(), 300u);
    const wire::Bulk& bulk = far_.link->frames[1].bulk();
    EXPECT_EQ(bulk.name().session(), kSession.number());
    EXPECT_EQ(bulk.name().fetch(), kFetch.number());
    EXPECT_EQ(bulk.bytes().data(), std::string(200, 'x'));
  });
}

TEST_F(ClientFetchesTest, ASmallShardPassesThePiecesOfALargeOne) {
  Do([this] {
    fetches_.Attach(far_.stream);
    far_.link->room = 1;
    Send(1, 3 * kMiB);
    Send(2, 100);
    EXPECT_THAT(ShardsOn(*far_.link), ElementsAre(1));
    far_.link->room = 8;
    fetches_.Pump(kSession);
    EXPECT_THAT(ShardsOn(*far_.link), ElementsAre(1, 1, 2, 1));
    EXPECT_THAT(ends_, ElementsAre(2, 1));
    EXPECT_EQ(fetches_.sent_bytes(), 3 * kMiB + 100);
  });
}

TEST_F(ClientFetchesTest, TheLoopDoesOtherWorkBetweenTheTurnsOfALargeShard) {
  Do([this] {
    fetches_.Attach(far_.stream);
    Send(1, 9 * kMiB);
    EXPECT_THAT(ends_, IsEmpty());
    EXPECT_LT(far_.link->frames.size(), 9u);
  });
  ASSERT_TRUE(end_.WaitFor(kPatience).has_value());
  Do([this] { EXPECT_EQ(far_.link->frames.size(), 9u); });
}

TEST_F(ClientFetchesTest, WhatAStreamHasNotTakenFailsWithIt) {
  Do([this] {
    fetches_.Attach(far_.stream);
    far_.link->room = 2;
    Send(1, 100);
    Send(2, 3 * kMiB);
    Send(3, 100);
    fetches_.Detach(kSession);
    fetches_.Fail(kSession, absl::UnavailableError("closed"));
    EXPECT_THAT(ends_, ElementsAre(1, 3, 2));
    EXPECT_THAT(statuses_, ElementsAre(absl::OkStatus(), absl::UnavailableError("closed"),
                                       absl::UnavailableError("closed")));
    TestStream next(kSession);
    fetches_.Attach(next.stream);
    EXPECT_THAT(next.link->frames, IsEmpty());
    fetches_.Detach(kSession);
  });
}

TEST_F(ClientFetchesTest, AShardMayBeSentAgainByTheEndOfTheFirst) {
  Do([this] {
    fetches_.Send(kSession, kFetch, 1, Made(100), [this](const absl::Status& status) {
      EXPECT_FALSE(status.ok());
      Send(2, 100);
    });
    fetches_.Fail(kSession, absl::UnavailableError("closed"));
    EXPECT_THAT(ends_, IsEmpty());
    fetches_.Attach(far_.stream);
    EXPECT_THAT(ShardsOn(*far_.link), ElementsAre(2));
  });
}

TEST_F(ClientFetchesTest, AFailureIsSentInPlaceOfEachShard) {
  Do([this] {
    fetches_.Attach(far_.stream);
    fetches_.SendFailures({.session = kSession,
                           .fetch = kFetch,
                           .shards = {4, 6},
                           .failure = wire::MakeFailure(absl::StatusCode::kDataLoss, "gone")});
    EXPECT_THAT(ShardsOn(*far_.link), ElementsAre(4, 6));
    EXPECT_EQ(far_.link->frames[1].bulk().failed().message(), "gone");
    EXPECT_EQ(fetches_.sent_bytes(), 0u);
  });
}

TEST_F(ClientFetchesTest, OnlyAClientThatMapsSharedMemoryReadsThere) {
  Do([this] {
    EXPECT_EQ(fetches_.MemoryFor(kSession).pool, nullptr) << "there is no stream";
    fetches_.Attach(far_.stream);
    EXPECT_EQ(fetches_.MemoryFor(kSession).pool, nullptr);
    fetches_.Detach(kSession);
    fetches_.Attach(near_.stream);
    EXPECT_EQ(fetches_.MemoryFor(kSession).pool, pool_.shared());
    EXPECT_EQ(fetches_.MemoryFor(SessionId(8)).pool, nullptr);
  });
}

TEST_F(ClientFetchesTest, AShardThatWasReadGivesItsMemoryBack) {
  Do([this] {
    fetches_.Attach(near_.stream);
    Send(1, 5000);
    const auto share = fetches_.MemoryFor(kSession).share;
    ASSERT_EQ(near_.link->frames.size(), 1u);
    const wire::SharedBlock& lent = near_.link->frames[0].bulk().lent();
    const auto seen = near_.client.Find(lent);
    ASSERT_NE(seen, nullptr);
    EXPECT_EQ(seen.get()[4999], std::byte{'x'});
    EXPECT_EQ(fetches_.sent_shared_bytes(), 5000u);
    EXPECT_GE(share->used(), 5000u) << "it may still be read";
    Reply(near_, 1, /*received=*/true);
    EXPECT_EQ(share->used(), 0u);
    Send(2, 5000);
    const wire::SharedBlock& next = near_.link->frames[1].bulk().lent();
    EXPECT_EQ(next.segment(), lent.segment());
    EXPECT_EQ(next.offset(), lent.offset());
  });
}

TEST_F(ClientFetchesTest, AShardThatTheClientCannotMapGoesOnTheStream) {
  Do([this] {
    fetches_.Attach(near_.stream);
    Send(1, 5000);
    Reply(near_, 1, /*received=*/false);
    ASSERT_EQ(near_.link->frames.size(), 2u);
    EXPECT_EQ(near_.link->frames[1].bulk().bytes().data(), std::string(5000, 'x'));
    EXPECT_EQ(fetches_.sent_bytes(), 5000u);
    EXPECT_EQ(fetches_.sent_shared_bytes(), 0u);
    Reply(near_, 1, /*received=*/false);
    EXPECT_EQ(near_.link->frames.size(), 2u) << "it is lent no more";
    EXPECT_THAT(ends_, ElementsAre(1));
  });
}

TEST_F(ClientFetchesTest, OB3_MemoryThatMayStillBeReadIsNotUsedAgain) {
  Do([this] {
    fetches_.Attach(near_.stream);
    Send(1, 5000);
    const uint64_t segment = near_.link->frames[0].bulk().lent().segment();
    fetches_.Detach(kSession);
    TestStream next(kSession, listener_.get());
    fetches_.Attach(next.stream);
    Send(2, 5000);
    ASSERT_EQ(next.link->frames.size(), 1u);
    ASSERT_TRUE(next.link->frames[0].bulk().has_lent());
    EXPECT_NE(next.link->frames[0].bulk().lent().segment(), segment);
    fetches_.Detach(kSession);
  });
}

TEST_F(ClientFetchesTest, TM2_ASessionsReadersHoldAPartOfTheStagingMemory) {
  Do([this] {
    fetches_.Attach(near_.stream);
    for (uint32_t shard = 0; shard < 5; ++shard) Send(shard, 4 * kMiB);
    EXPECT_EQ(fetches_.sent_shared_bytes(), 16 * kMiB) << "a quarter of it";
    EXPECT_EQ(fetches_.sent_bytes(), 20 * kMiB);
  });
}

TEST_F(ClientFetchesTest, ASessionsEndFailsWhatWaits) {
  Do([this] {
    Send(1, 100);
    fetches_.EndSession(kSession, absl::CancelledError("The session ended."));
    EXPECT_THAT(ends_, ElementsAre(1));
    EXPECT_EQ(statuses_[0].code(), absl::StatusCode::kCancelled);
  });
}

class ImpatientFetchesTest : public ClientFetchesTest {
 protected:
  ImpatientFetchesTest() : ClientFetchesTest(milliseconds(100)) {}
};

TEST_F(ImpatientFetchesTest, TM1_AShardFailsWithoutAStream) {
  Do([this] { Send(1, 100); });
  const auto why = end_.WaitFor(kPatience);
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(why->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why->message()), HasSubstr("no data stream to this worker"));
}

TEST_F(ImpatientFetchesTest, TheWaitOfAnEarlierShardEndsNoLaterOne) {
  Clock::time_point second;
  Do([&] {
    fetches_.Send(kSession, kFetch, 1, Made(100), [](const absl::Status&) {});
    fetches_.Attach(far_.stream);
    fetches_.Detach(kSession);
    loop_.PostAt(Clock::now() + milliseconds(50), [&] {
      second = Clock::now();
      Send(2, 100);
    });
  });
  ASSERT_TRUE(end_.WaitFor(kPatience).has_value());
  EXPECT_GE(Clock::now() - second, milliseconds(100));
}

}  // namespace
}  // namespace gangway::worker
