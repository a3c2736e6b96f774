// Handles: where arrays are, and how their shards are dropped.
#include "gangway/client/handles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "gangway/base/clock.h"
#include "gangway/client/array_literal.h"
#include "gangway/client/recorded_session.h"

namespace gangway::client {
namespace {

using ::testing::ElementsAre;
using Worker = std::optional<WorkerKey>;

constexpr WorkerKey kFirst{0, 0}, kSecond{1, 0};

Devices On(std::vector<uint32_t> devices) {
  return std::make_shared<const std::vector<uint32_t>>(std::move(devices));
}

class HandlesTest : public ::testing::Test {
 protected:
  // What the session has sent once there are `count` operations.
  std::vector<wire::Op> OpsSoon(size_t count) {
    std::vector<wire::Op> ops;
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (ops.size() < count && Clock::now() < deadline) ops = session_.Ops();
    return ops;
  }

  RecordedSession session_{/*reports_ends=*/false};
  Handles& handles_ = session_.handles;
};

TEST_F(HandlesTest, ResultsAreWhereTheirOperationPutsThem) {
  handles_.NoteExecutable(ExecutableHandle(9), On({1, 2}));
  handles_.Call(ExecutableHandle(9), {}, std::array{1_array}, {});
  handles_.Copy(std::array{1_array}, std::array{2_array}, std::array<uint32_t, 2>{3, 0}, "",
                nullptr);
  handles_.Call(ExecutableHandle(8), {}, std::array{3_array}, {});  // nothing is known of it
  EXPECT_EQ(handles_.WorkerOf({1_array, 0}), Worker(kFirst));
  EXPECT_EQ(handles_.WorkerOf({1_array, 1}), Worker(kSecond));
  EXPECT_EQ(handles_.WorkerOf({1_array, 2}), std::nullopt);
  EXPECT_EQ(handles_.WorkerOf({2_array, 0}), Worker(kSecond));
  EXPECT_EQ(handles_.WorkerOf({3_array, 0}), std::nullopt);
  handles_.DropExecutables(std::array{ExecutableHandle(9)});
  handles_.Call(ExecutableHandle(9), {}, std::array{4_array}, {});
  EXPECT_EQ(handles_.WorkerOf({4_array, 0}), std::nullopt);
  EXPECT_EQ(session_.Ops().size(), 5u);
}

TEST_F(HandlesTest, RegroupedShardsStayWhereTheyAre) {
  handles_.NoteArray(1_array, On({0, 2}));
  handles_.Regroup({{.array = 2_array, .shards = {{1_array, 1}, {1_array, 0}}},
                    {.array = 3_array, .shards = {{1_array, 1}, {7_array, 0}}},  // one is unknown
                    {.array = 4_array, .shards = {}, .replica_of = 1_array}});
  EXPECT_EQ(handles_.WorkerOf({2_array, 0}), Worker(kSecond));
  EXPECT_EQ(handles_.WorkerOf({2_array, 1}), Worker(kFirst));
  EXPECT_EQ(handles_.WorkerOf({3_array, 0}), std::nullopt);
  EXPECT_EQ(handles_.WorkerOf({4_array, 0}), std::nullopt);
}

TEST_F(HandlesTest, DropsInARowAreOneOperation) {
  handles_.NoteArray(1_array, On({0}));
  session_.OnLoop([&] {
    handles_.Drop(std::array{1_array});
    handles_.Drop(std::array{2_array, 3_array});
  });
  EXPECT_EQ(handles_.WorkerOf({1_array, 0}), std::nullopt);
  const std::vector<wire::Op> ops = session_.Ops();
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_THAT(ops[0].drop().handles(), ElementsAre(1, 2, 3));
}

TEST_F(HandlesTest, TheLastShardTakesTheHandleWithIt) {
  session_.OnLoop([&] {  // the loop's timers wait during this
    handles_.DropShard({1_array, 0}, 2);
    handles_.DropShard({1_array, 1}, 2);
    handles_.DropShard({2_array, 0}, 1);
  });
  const std::vector<wire::Op> ops = OpsSoon(1);
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_THAT(ops[0].drop().handles(), ElementsAre(1, 2));
}

TEST_F(HandlesTest, OB1_AShardThatIsDroppedAloneIsToldSoon) {
  session_.OnLoop([&] {
    handles_.DropShard({1_array, 2}, 4);
    handles_.DropShard({1_array, 0}, 4);
    handles_.DropShard({2_array, 1}, 2);
  });
  std::vector<wire::Op> ops = OpsSoon(1);
  ASSERT_EQ(ops.size(), 1u);
  ASSERT_EQ(ops[0].drop_shards().arrays_size(), 2);
  EXPECT_THAT(ops[0].drop_shards().arrays(0).shards(), ElementsAre(2, 0));
  EXPECT_THAT(ops[0].drop_shards().arrays(1).shards(), ElementsAre(1));
  handles_.DropShard({2_array, 0}, 2);
  ops = OpsSoon(2);
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_THAT(ops[1].drop().handles(), ElementsAre(2));
}

TEST_F(HandlesTest, ALostSessionKnowsNothing) {
  handles_.NoteArray(1_array, On({0}));
  session_.Lose(absl::UnavailableError("cut"));
  handles_.Clear();
  handles_.Copy(std::array{1_array}, std::array{2_array}, std::array<uint32_t, 1>{0}, "", nullptr);
  handles_.DropShard({1_array, 0}, 2);
  EXPECT_EQ(handles_.WorkerOf({1_array, 0}), std::nullopt);
  EXPECT_EQ(handles_.WorkerOf({2_array, 0}), std::nullopt);
  EXPECT_TRUE(session_.Ops().empty());
}

}  // namespace
}  // namespace gangway::client
