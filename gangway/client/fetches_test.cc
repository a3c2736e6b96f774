// Fetches: which shards of which operation are awaited, and how they end.
#include "gangway/client/fetches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>

#include "gangway/client/array_literal.h"
#include "gangway/client/batch_pace.h"
#include "gangway/client/recorded_session.h"

namespace gangway::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr WorkerKey kFirst{0, 0}, kSecond{1, 0};

struct Fetched {
  std::map<size_t, std::string> bytes;
  std::vector<absl::Status> done;
};

class FetchesTest : public ::testing::Test {
 protected:
  FetchesTest() {
    session_.handles.NoteArray(1_array, On({0, 2}));
    session_.handles.NoteArray(2_array, On({1}));
  }
  static Devices On(std::vector<uint32_t> devices) {
    return std::make_shared<const std::vector<uint32_t>>(std::move(devices));
  }

  std::shared_ptr<Fetched> Fetch(ArrayHandle array, const std::vector<uint32_t>& shards,
                                 bool may_join = false) {
    auto fetched = std::make_shared<Fetched>();
    fetches_.Fetch(
        array, shards,
        {.on_data = [fetched](size_t index, uint64_t,
                              std::string_view data) { fetched->bytes[index] += data; },
         .on_done = [fetched](const absl::Status& status) { fetched->done.push_back(status); },
         .may_join = may_join});
    return fetched;
  }
  static wire::Bulk Bytes(uint64_t fetch, uint32_t shard, std::string data) {
    wire::Bulk bulk;
    bulk.mutable_name()->set_fetch(fetch);
    bulk.mutable_name()->set_shard(shard);
    bulk.mutable_bytes()->set_data(std::move(data));
    bulk.mutable_bytes()->set_last(true);
    return bulk;
  }
  // The fetch of the last operation.
  uint64_t Id() { return session_.Ops().back().fetch().fetch(); }

  RecordedSession session_{/*reports_ends=*/false};
  std::vector<WorkerKey> used_;
  Fetches fetches_{&session_.activity, &session_.submitter, &session_.handles,
                   [this](WorkerKey worker) { used_.push_back(worker); }};
};

TEST_F(FetchesTest, AFetchEndsWithItsLastShard) {
  const auto fetched = Fetch(1_array, {1, 0});
  const uint64_t id = Id();
  EXPECT_THAT(fetches_.Awaited(), ElementsAre(kFirst, kSecond));
  EXPECT_TRUE(session_.activity.awaits());
  fetches_.OnShard(Bytes(id, 0, "ab"));
  EXPECT_THAT(fetches_.Awaited(), ElementsAre(kFirst));
  EXPECT_THAT(fetched->done, IsEmpty());
  fetches_.OnShard(Bytes(id, 1, "cd"));
  EXPECT_THAT(fetched->done, ElementsAre(absl::OkStatus()));
  EXPECT_EQ(fetched->bytes[0], "ab");
  EXPECT_EQ(fetched->bytes[1], "cd");
  EXPECT_FALSE(session_.activity.awaits());
  fetches_.OnShard(Bytes(id, 1, "ef"));  // nothing waits for it
  EXPECT_EQ(fetched->done.size(), 1u);
}

TEST_F(FetchesTest, WhatIsFetchedUsesTheWorkersThatSendIt) {
  Fetch(1_array, {1});
  EXPECT_THAT(used_, ElementsAre(kSecond));
  Fetch(2_array, {0});
  EXPECT_THAT(used_, ElementsAre(kSecond, kFirst));
  Fetch(99_array, {0});
  EXPECT_THAT(used_, ElementsAre(kSecond, kFirst, kFirst, kSecond)) << "an array it does not know";
}

TEST_F(FetchesTest, FetchesFromOneWorkerJoinAndOthersDoNot) {
  std::shared_ptr<Fetched> first, second, other, alone;
  session_.OnLoop([&] {  // the loop sends nothing during this
    session_.link->queued = 1;
    first = Fetch(1_array, {0}, /*may_join=*/true);
    second = Fetch(2_array, {0}, /*may_join=*/true);
    other = Fetch(1_array, {1}, /*may_join=*/true);
    alone = Fetch(1_array, {1});
  });
  const std::vector<wire::Op> ops = session_.Ops();
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_THAT(ops[0].fetch().arrays(), ElementsAre(1, 2));
  const uint64_t joint = ops[0].fetch().fetch();
  fetches_.OnShard(Bytes(joint, 1, "second"));
  EXPECT_EQ(second->bytes[0], "second");
  EXPECT_EQ(second->done.size(), 1u);
  EXPECT_THAT(first->done, IsEmpty());
  fetches_.End(FetchId(joint), absl::DataLossError("gone"));
  ASSERT_EQ(first->done.size(), 1u);
  EXPECT_TRUE(absl::IsDataLoss(first->done[0]));
  EXPECT_EQ(second->done.size(), 1u) << "it had ended";
  fetches_.EndAll(absl::CancelledError("over"));
  EXPECT_EQ(other->done.size(), 1u);
  EXPECT_EQ(alone->done.size(), 1u);
}

// Its caller waits for a fetch that may not join others; one that may is held with the calls that nothing waits for.
TEST_F(FetchesTest, FarAheadOfItsCallsACallerSendsAFetchThatMayNotJoin) {
  std::promise<void> go_on;  // the loop sends nothing until then
  session_.loop.Post([gate = go_on.get_future().share()] { gate.wait(); });
  session_.submitter.EndLook();  // the caller's: it does not look for every end
  for (uint64_t i = 0; i < 2 * BatchPace::kAheadOps; ++i) {
    session_.Advance(std::chrono::microseconds(40));
    const Submitter::Sending sending(session_.submitter);
    ASSERT_TRUE(session_.submitter.Append(1, nullptr, [](wire::Op&) {}).ok());
  }
  session_.Advance(2 * BatchPace::kSendInterval);  // it earns two sends at once
  const size_t before = session_.link->frames().size();
  const auto joint = Fetch(1_array, {0}, /*may_join=*/true);
  EXPECT_EQ(session_.link->frames().size(), before);
  const auto alone = Fetch(1_array, {1});
  EXPECT_EQ(session_.link->frames().size(), before + 1);
  go_on.set_value();
  fetches_.EndAll(absl::CancelledError("over"));
}

TEST_F(FetchesTest, ALostWorkerEndsWhatIsAwaitedFromIt) {
  const auto first = Fetch(1_array, {0}), second = Fetch(1_array, {1}),
             unknown = Fetch(9_array, {0});
  session_.Ops();
  EXPECT_THAT(fetches_.Awaited(), ElementsAre(kFirst, kSecond));
  fetches_.OnWorkerLost(kSecond, absl::UnavailableError("it died"));
  EXPECT_THAT(first->done, IsEmpty());
  EXPECT_EQ(second->done.size(), 1u);
  EXPECT_EQ(unknown->done.size(), 1u) << "any worker may have been about to send it";
  fetches_.EndAll(absl::CancelledError("over"));
}

TEST_F(FetchesTest, WrongBytesFailTheFetch) {
  const auto fetched = Fetch(1_array, {0});
  wire::Bulk wrong = Bytes(Id(), 0, "ab");
  wrong.mutable_bytes()->set_offset(7);
  fetches_.OnShard(wrong);
  ASSERT_EQ(fetched->done.size(), 1u);
  EXPECT_THAT(fetched->done[0].ToString(), HasSubstr("sent shard 0 of a fetch wrongly"));
  fetches_.OnShard(Bytes(Id(), 77, "ab"));
}

TEST_F(FetchesTest, NothingIsFetchedOfALostSessionOrOfNoShards) {
  const auto empty = Fetch(1_array, {});
  session_.OnLoop([] {});
  EXPECT_THAT(empty->done, ElementsAre(absl::OkStatus()));
  session_.Lose(absl::UnavailableError("cut"));
  const auto late = Fetch(1_array, {0});
  session_.OnLoop([] {});
  ASSERT_EQ(late->done.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(late->done[0]));
  EXPECT_FALSE(session_.activity.awaits());
  EXPECT_THAT(fetches_.Awaited(), IsEmpty());
}

}  // namespace
}  // namespace gangway::client
