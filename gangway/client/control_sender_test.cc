// ControlSender: what the frames of a control link carry.
#include "gangway/client/control_sender.h"

#include <gtest/gtest.h>

#include <memory>

#include "gangway/transport/recording_link_test_util.h"

namespace gangway::client {
namespace {

TEST(ControlSenderTest, FramesAreNumberedFromTheFirstOneAndCarryTheEpoch) {
  const auto link = std::make_shared<transport::RecordingLink>();
  ControlSender sender;
  sender.Open(link);
  EXPECT_TRUE(sender.Send({}).ok());
  sender.SetSession(7, SessionId(42));
  EXPECT_EQ(sender.epoch(), 7u);
  EXPECT_TRUE(sender.Send({}).ok());
  ASSERT_EQ(link->frames.size(), 2u);
  EXPECT_EQ(link->frames[0].sequence(), 1u);
  EXPECT_EQ(link->frames[0].epoch(), 0u);
  EXPECT_EQ(link->frames[1].sequence(), 2u);
  EXPECT_EQ(link->frames[1].epoch(), 7u);
}

TEST(ControlSenderTest, WithoutALinkFramesAreDroppedAndALinkThatRefusesOneSaysSo) {
  const auto link = std::make_shared<transport::RecordingLink>();
  ControlSender sender;
  EXPECT_TRUE(sender.Send({}).ok());
  EXPECT_TRUE(sender.OnWritable().ok());
  sender.Open(link);
  link->room = 0;
  EXPECT_TRUE(absl::IsResourceExhausted(sender.Send({})));
  link->room = 1;
  sender.Close();
  EXPECT_TRUE(sender.Send({}).ok());
  EXPECT_TRUE(link->frames.empty());
}

}  // namespace
}  // namespace gangway::client
