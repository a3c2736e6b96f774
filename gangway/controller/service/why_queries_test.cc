// Questions what work waits for: whose answers are awaited, and who is named as missing.
#include "gangway/controller/service/why_queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "gangway/controller/service/links_test_util.h"

namespace gangway::controller {
namespace {

class WhyQueriesTest : public LinksTest {
 protected:
  void Make(std::chrono::milliseconds limit, bool asks_schedulers = true) {
    queries_ = std::make_unique<WhyQueries>(
        &loop_, WhyQueries::Options{.epoch = 5, .islands = 2, .limit = limit},
        WhyQueries::Events{.explain =
                               [asks_schedulers](wire::WhyRequest& request, wire::WhyReply& reply) {
                                 request.set_gang(42);
                                 reply.add_waits()->set_gang(1);
                                 return asks_schedulers;
                               },
                           .ask =
                               [this](uint32_t island, const wire::Frame& question) {
                                 EXPECT_EQ(island, asked_.size());
                                 asked_.push_back(question);
                               },
                           .complete = [](wire::WhyReply& reply) { reply.set_left_out(7); }});
  }
  void Reply(uint32_t island) {
    wire::WhyReply reply;
    reply.set_probe(asked_[island].why_request().probe());
    reply.add_waits()->set_gang(100 + island);
    queries_->OnReply(island, reply);
  }

  std::unique_ptr<WhyQueries> queries_;
  std::vector<wire::Frame> asked_;  // by island
};

TEST_F(WhyQueriesTest, TheAnswerHasTheWaitsOfAllSchedulers) {
  OnLoop([this] {
    Make(std::chrono::minutes(1));
    queries_->OnRequest(link_, {});
    ASSERT_EQ(asked_.size(), 2u);
    EXPECT_EQ(asked_[0].why_request().gang(), 42u) << "rewritten for the schedulers";
    Reply(1);
    Reply(1);
    EXPECT_TRUE(link_->sent.empty()) << "one is missing";
    Reply(0);
    ASSERT_EQ(link_->sent.size(), 1u);
    EXPECT_EQ(link_->sent[0].why_reply().waits_size(), 4);
    EXPECT_EQ(link_->sent[0].why_reply().left_out(), 7u) << "completed";
    EXPECT_EQ(link_->sent[0].why_reply().missing_islands_size(), 0);
    Reply(0);
    EXPECT_EQ(link_->sent.size(), 1u) << "it is over";
  });
}

TEST_F(WhyQueriesTest, WhatIsKnownHereIsAnsweredAtOnce) {
  OnLoop([this] {
    Make(std::chrono::minutes(1), /*asks_schedulers=*/false);
    queries_->OnRequest(link_, {});
    EXPECT_TRUE(asked_.empty());
    ASSERT_EQ(link_->sent.size(), 1u);
    EXPECT_EQ(link_->sent[0].why_reply().waits_size(), 1);
  });
}

TEST_F(WhyQueriesTest, SchedulersThatDoNotReplyInTimeAreNamed_TM1) {
  auto answered = std::make_shared<Answer<bool>>();
  OnLoop([&] {
    Make(std::chrono::milliseconds(20));
    link_->on_sent = [answered] { answered->Set(true); };
    queries_->OnRequest(link_, {});
    Reply(0);
  });
  ASSERT_TRUE(answered->WaitFor(kLimit));
  OnLoop([this] {
    EXPECT_THAT(link_->sent[0].why_reply().missing_islands(), testing::ElementsAre(1));
  });
}

}  // namespace
}  // namespace gangway::controller
