// Links of compilers: who registers, who is replaced, and whose end is told.
#include "gangway/controller/service/compiler_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

#include "gangway/controller/service/links_test_util.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CompilerLinksTest : public ::testing::Test {
 protected:
  absl::Status Welcome(const std::shared_ptr<KeepingLink>& link, uint32_t compiler, uint64_t key) {
    wire::Hello hello;
    hello.set_role(wire::ROLE_COMPILER);
    hello.set_compiler(compiler);
    hello.set_process_id(1000 + key);
    hello.set_name(absl::StrCat("compiler", compiler));
    return links_.Welcome(link, hello, key);
  }
  void Send(uint32_t compiler, uint64_t number) {
    wire::CompileRequest request;
    request.set_request(number);
    links_.Send(compiler, std::move(request));
  }
  std::vector<std::string> Told() { return std::exchange(told_, {}); }

  std::vector<std::string> told_;
  CompilerLinks links_{
      {.epoch = 5, .count = 2},
      {.reply =
           [] {
             wire::Frame frame;
             frame.mutable_hello_reply()->set_epoch(5);
             return frame;
           },
       .on_up = [this](uint32_t compiler,
                       uint64_t pid) { told_.push_back(absl::StrCat("up ", compiler, " ", pid)); },
       .on_down = [this](uint32_t compiler) { told_.push_back(absl::StrCat("down ", compiler)); },
       .on_frame = [this](uint32_t compiler,
                          wire::Frame&) { told_.push_back(absl::StrCat("frame ", compiler)); },
       .on_not_sent =
           [this](const CompileNotSent& not_sent) {
             told_.push_back(
                 absl::StrCat("not sent ", not_sent.request, not_sent.link_ends ? " ends" : ""));
           },
       .on_silent = [this](uint64_t pid) { told_.push_back(absl::StrCat("silent ", pid)); },
       .say = [](const std::string&) {}}};
  std::shared_ptr<KeepingLink> first_ = std::make_shared<KeepingLink>();
  std::shared_ptr<KeepingLink> second_ = std::make_shared<KeepingLink>();
};

TEST_F(CompilerLinksTest, ARequestGoesToTheCompilerThatIsNamed) {
  ASSERT_TRUE(Welcome(first_, 0, 1).ok());
  ASSERT_TRUE(Welcome(second_, 1, 2).ok());
  EXPECT_THAT(Told(), ElementsAre("up 0 1001", "up 1 1002"));
  Send(1, 7);
  EXPECT_EQ(first_->sent.size(), 1u) << "the reply to its Hello";
  ASSERT_EQ(second_->sent.size(), 2u);
  EXPECT_EQ(second_->sent[1].compile_request().request(), 7u);
  EXPECT_EQ(second_->sent[1].epoch(), 5u);
  wire::Frame frame;
  links_.OnFrame(2, frame);
  EXPECT_THAT(Told(), ElementsAre("frame 1"));
  EXPECT_THAT(links_.Ask(frame), ElementsAre("compiler0", "compiler1"));
}

TEST_F(CompilerLinksTest, AnUndeclaredCompilerIsRejected) {
  const absl::Status rejected = Welcome(first_, 2, 1);
  EXPECT_EQ(rejected.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(rejected.message()), HasSubstr("there are 2, from 0"));
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(CompilerLinksTest, ANewerProcessReplacesItsPredecessorWhoseLinkIsIgnored) {
  ASSERT_TRUE(Welcome(first_, 0, 1).ok());
  ASSERT_TRUE(Welcome(second_, 0, 2).ok());
  EXPECT_THAT(Told(), ElementsAre("up 0 1001", "down 0", "up 0 1002"));
  EXPECT_TRUE(first_->closed.has_value());
  wire::Frame frame;
  links_.OnFrame(1, frame);
  links_.OnWritable(1);
  links_.OnClosed(1, absl::OkStatus());
  EXPECT_THAT(Told(), IsEmpty());
  links_.OnClosed(2, absl::UnavailableError("it ended"));
  EXPECT_THAT(Told(), ElementsAre("down 0"));
}

TEST_F(CompilerLinksTest, ARequestThatIsNotSentIsTold) {
  Send(0, 7);
  EXPECT_THAT(Told(), ElementsAre("not sent 7 ends")) << "there is no process";
  ASSERT_TRUE(Welcome(first_, 0, 1).ok());
  first_->refusal = absl::InvalidArgumentError("too large");
  Send(0, 8);
  EXPECT_THAT(Told(), ElementsAre("up 0 1001", "not sent 8"));
}

// TM-1. One that ends at ease ends by itself.
TEST_F(CompilerLinksTest, TM1_ASilentProcessIsEndedAndNamed) {
  ASSERT_TRUE(Welcome(first_, 0, 1).ok());
  ASSERT_TRUE(Welcome(second_, 1, 2).ok());
  Told();
  const Clock::time_point now = Clock::now();
  links_.OnPulse(now + std::chrono::seconds(60), std::chrono::seconds(60));
  EXPECT_THAT(Told(), IsEmpty()) << "this process stood still";
  links_.OnPulse(now + std::chrono::seconds(70), {});
  EXPECT_THAT(Told(), ElementsAre("down 0", "silent 1001", "down 1", "silent 1002"));
  ASSERT_TRUE(first_->closed.has_value());
  EXPECT_THAT(std::string(first_->closed->message()), HasSubstr("silent for 5000 ms"));
  ASSERT_TRUE(Welcome(first_, 0, 3).ok());
  links_.End({.compiler = 0, .why = "it had no work", .idle = true});
  links_.End({.compiler = 0, .why = "it had no work", .idle = true});
  EXPECT_THAT(Told(), ElementsAre("up 0 1003", "down 0"));
}

}  // namespace
}  // namespace gangway::controller
