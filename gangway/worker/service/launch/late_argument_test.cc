// Tests of late_argument.h.
#include "gangway/worker/service/launch/late_argument.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/base/answer.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/worker/service/device/node_task_test_util.h"

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;

class LateArgumentTest : public testing::Test {
 protected:
  LateArgumentTest() {
    environment_->callbacks = std::make_shared<InFlight>();
    environment_->spare_threads = std::make_shared<SpareThreads>();
  }
  void Add(std::vector<float> values) {
    contents_.push_back({.buffer = FloatsOn(*backend_, 0, std::move(values))});
    arguments_.push_back(contents_.back().buffer.get());
  }
  std::optional<LateArgument> Make(const std::vector<bool>& donated) {
    return LateArgument::Make(*backend_, 0, contents_, donated, arguments_);
  }

  const std::unique_ptr<device::SimBackend> backend_ = device::OpenSim({.device_count = 1});
  const std::shared_ptr<TaskEnvironment> environment_ = std::make_shared<TaskEnvironment>();
  std::vector<store::Content> contents_;
  std::vector<device::Buffer*> arguments_;
};

TEST_F(LateArgumentTest, TheSmallestArgumentThatIsNotDonatedIsFilledLate) {
  Add({1, 2, 3});
  Add({4});
  Add({5, 6});
  std::optional<LateArgument> late = Make({false, true, false});
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(arguments_[0], contents_[0].buffer.get());
  EXPECT_EQ(arguments_[1], contents_[1].buffer.get());
  ASSERT_NE(arguments_[2], contents_[2].buffer.get());
  std::vector<float> copied(2);
  Answer<absl::Status> done;
  arguments_[2]->CopyToHost(copied.data(), sizeof(float) * copied.size(),
                            [&done](absl::Status status) { done.Set(std::move(status)); });
  EXPECT_FALSE(done.WaitFor(milliseconds(0))) << "it was filled before the program was enqueued";
  std::move(*late).Fill(environment_);
  ASSERT_EQ(done.WaitFor(milliseconds(20'000)), absl::OkStatus());
  EXPECT_TRUE(environment_->callbacks->WaitIdle(Clock::now() + milliseconds(20'000)));
  EXPECT_THAT(copied, testing::ElementsAre(5, 6));
}

TEST_F(LateArgumentTest, NeitherDonatedNorLargeArgumentsAreReplaced) {
  Add({1});
  Add(std::vector<float>(LateArgument::kBytesMax / sizeof(float) + 1));
  EXPECT_FALSE(Make({true, false}).has_value());
  EXPECT_EQ(arguments_[0], contents_[0].buffer.get());
  EXPECT_EQ(arguments_[1], contents_[1].buffer.get());
}

}  // namespace
}  // namespace gangway::worker
