// Which uploads are in doubt when a link is lost (confirming_sender.h).
#include "gangway/client/confirming_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/transport/recording_link_test_util.h"

namespace gangway::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr UploadId kOne{1}, kTwo{2};
constexpr std::chrono::seconds kLimit{5};

class ConfirmingSenderTest : public testing::Test {
 protected:
  ConfirmingSenderTest() { link_.Answer(); }

  absl::Status Send(UploadId upload) {
    wire::Frame frame;
    frame.mutable_bulk()->mutable_name()->set_upload(NumberOf(upload));
    frame.mutable_bulk()->mutable_bytes()->set_last(true);
    return sender_.Send(std::move(frame));
  }
  // The number of the last question on the link.
  uint64_t Question() const { return recording_->frames.back().heartbeat().time_ns(); }
  void Ask() { sender_.Ask(link_, now_); }
  bool AwaitsReply() { return link_.IsSilent(now_ + 2 * kLimit, kLimit); }

  const Clock::time_point now_ = Clock::now();
  const std::shared_ptr<transport::RecordingLink> recording_ =
      std::make_shared<transport::RecordingLink>();
  transport::BulkLink link_{recording_, {}};
  ConfirmingSender sender_{link_.sender(), Incarnation(5)};
};

TEST_F(ConfirmingSenderTest, BytesThatTheLinkTookAreInDoubtUntilAReplyProvesThem) {
  EXPECT_FALSE(sender_.IsBusy());
  EXPECT_TRUE(Send(kTwo).ok());
  EXPECT_TRUE(Send(kOne).ok());
  EXPECT_TRUE(Send(kTwo).ok());
  EXPECT_THAT(sender_.Unproven(), ElementsAre(kOne, kTwo));
  EXPECT_TRUE(sender_.IsBusy());
  Ask();
  EXPECT_THAT(sender_.Unproven(), ElementsAre(kOne, kTwo)) << "a question proves nothing";
  sender_.OnReply(link_, Question());
  EXPECT_THAT(sender_.Unproven(), IsEmpty());
  EXPECT_FALSE(sender_.IsBusy());
}

TEST_F(ConfirmingSenderTest, BytesThatFollowAQuestionAreNotProvenByIt) {
  EXPECT_TRUE(Send(kOne).ok());
  Ask();
  const uint64_t question = Question();
  EXPECT_TRUE(Send(kTwo).ok());
  Ask();
  EXPECT_EQ(recording_->frames.back().bulk().name().upload(), 2u) << "the reply is still awaited";
  sender_.OnReply(link_, question);
  EXPECT_THAT(sender_.Unproven(), ElementsAre(kTwo));
}

TEST_F(ConfirmingSenderTest, AReplyToAnotherQuestionProvesNothing) {
  EXPECT_TRUE(Send(kOne).ok());
  sender_.OnReply(link_, 1);
  Ask();
  sender_.OnReply(link_, Question() + 1);
  EXPECT_THAT(sender_.Unproven(), ElementsAre(kOne));
  EXPECT_TRUE(AwaitsReply());
}

TEST_F(ConfirmingSenderTest, TM1_TheReplyIsAwaitedUntilItComes) {
  EXPECT_FALSE(AwaitsReply());
  Ask();
  EXPECT_TRUE(AwaitsReply());
  EXPECT_TRUE(sender_.IsBusy());
  sender_.OnReply(link_, Question());
  EXPECT_FALSE(AwaitsReply());
  EXPECT_FALSE(sender_.IsBusy());
}

TEST_F(ConfirmingSenderTest, AQuestionThatTheLinkDoesNotTakeIsAskedAgain) {
  EXPECT_TRUE(Send(kOne).ok());
  recording_->room = 0;
  Ask();
  EXPECT_THAT(sender_.Unproven(), ElementsAre(kOne));
  EXPECT_TRUE(AwaitsReply()) << "a link that takes nothing may be silent, too";
  recording_->room = SIZE_MAX;
  Ask();
  sender_.OnReply(link_, Question());
  EXPECT_THAT(sender_.Unproven(), IsEmpty());
}

TEST_F(ConfirmingSenderTest, OnlyBytesThatWereTakenNeedProof) {
  recording_->room = 0;
  EXPECT_FALSE(Send(kOne).ok());
  recording_->room = SIZE_MAX;
  wire::Frame request;
  request.mutable_bulk()->mutable_name()->set_upload(2);
  request.mutable_bulk()->mutable_place_request()->set_size(1);
  EXPECT_TRUE(sender_.Send(std::move(request)).ok());
  EXPECT_FALSE(sender_.IsBusy());
  wire::Frame placed;
  placed.mutable_bulk()->mutable_name()->set_upload(2);
  placed.mutable_bulk()->mutable_placed();
  EXPECT_TRUE(sender_.Send(std::move(placed)).ok());
  EXPECT_THAT(sender_.Unproven(), ElementsAre(kTwo));
}

}  // namespace
}  // namespace gangway::client
