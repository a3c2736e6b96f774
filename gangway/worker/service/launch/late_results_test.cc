// Tests of late_results.h.
#include "gangway/worker/service/launch/late_results.h"

#include <gtest/gtest.h>

namespace gangway::worker {
namespace {

TEST(LateResultsTest, OutputsAreSettledOnceTheyAreKnownAndTheProgramHasEnded) {
  LateResults late(2);
  LateResults::Buffers three(3), four(4);
  EXPECT_FALSE(late.NoteOutputs(0, std::move(three)).has_value());
  EXPECT_FALSE(late.NoteEnded(1).has_value());
  const auto second = late.NoteOutputs(1, std::move(four));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->size(), 4u);
  const auto first = late.NoteEnded(0);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->size(), 3u);
}

TEST(LateResultsTest, AProgramThatMadeNothingEndsAlone) {
  LateResults late(1);
  EXPECT_FALSE(late.NoteEnded(0).has_value());
}

}  // namespace
}  // namespace gangway::worker
