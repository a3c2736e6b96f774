// NodeEnds: what runs at which end of a session's nodes.
#include "gangway/client/node_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gangway::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class NodeEndsTest : public ::testing::Test {
 protected:
  StatusCallback Note(const std::string& name) {
    return [this, name](const absl::Status& status) {
      heard_.push_back(name + (status.ok() ? "" : " " + std::string(status.message())));
    };
  }
  void End(uint64_t first, uint64_t count, const absl::Status& status = absl::OkStatus()) {
    std::vector<StatusCallback> ended;
    ends_.End(first, count, ended);
    for (const StatusCallback& each : ended) each(status);
  }

  NodeEnds ends_;
  std::vector<std::string> heard_;
};

TEST_F(NodeEndsTest, NodesEndInAnyOrderAndOnce) {
  for (const char* name : {"a", "b", "c"}) ends_.Submit(1, Note(name));
  End(3, 1);
  EXPECT_FALSE(ends_.IsPending(3));
  End(1, 3);
  End(1, 3);
  EXPECT_THAT(heard_, ElementsAre("c", "a", "b"));
}

TEST_F(NodeEndsTest, TheLastOfSeveralNodesTellsOfTheirFirstFailure) {
  ends_.Submit(1, nullptr);
  ends_.Submit(3, Note("three"));
  End(3, 1, absl::DataLossError("lost"));
  End(1, 2, absl::AbortedError("late"));
  EXPECT_THAT(heard_, IsEmpty());
  EXPECT_TRUE(ends_.IsPending(4));
  End(4, 1);
  EXPECT_THAT(heard_, ElementsAre("three lost"));
}

TEST_F(NodeEndsTest, NodesThatWereNeverSubmittedDoNotEnd) {
  ends_.Submit(2, Note("two"));
  EXPECT_FALSE(ends_.IsPending(0));
  EXPECT_FALSE(ends_.IsPending(3));
  End(0, 2);
  End(3, UINT64_MAX);
  EXPECT_THAT(heard_, IsEmpty());
  End(1, UINT64_MAX);
  EXPECT_THAT(heard_, ElementsAre("two"));
}

TEST_F(NodeEndsTest, AllThatAreLeftEnd) {
  ends_.Submit(1, Note("a"));
  ends_.Submit(2, Note("b"));
  End(1, 1);
  std::vector<StatusCallback> ended;
  ends_.EndAll(ended);
  for (const StatusCallback& each : ended) each(absl::CancelledError("over"));
  EXPECT_THAT(heard_, ElementsAre("a", "b over"));
  EXPECT_FALSE(ends_.IsPending(3));
}

}  // namespace
}  // namespace gangway::client
