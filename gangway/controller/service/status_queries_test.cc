// Questions for the status and for the memory of devices: what schedulers say reaches those that asked.
#include "gangway/controller/service/status_queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "gangway/controller/service/links_test_util.h"

namespace gangway::controller {
namespace {

class StatusQueriesTest : public LinksTest {
 protected:
  void Make(std::chrono::milliseconds limit) {
    queries_ = std::make_unique<StatusQueries>(
        &loop_,
        StatusQueries::Events{.ask =
                                  [this](uint64_t probe) {
                                    asked_.push_back(probe);
                                    return up_;
                                  },
                              .fill =
                                  [](wire::StatusReply& reply) {
                                    for (uint32_t island = 0; island < 2; ++island) {
                                      wire::Worker& worker =
                                          *reply.add_workers()->mutable_state()->mutable_worker();
                                      worker.set_island(island);
                                      worker.add_devices(island);
                                    }
                                  },
                              .to_client =
                                  [this](SessionId session, wire::UsageReply reply) {
                                    EXPECT_EQ(session, SessionId(3));
                                    told_.push_back(std::move(reply));
                                  }},
        limit);
  }
  // Of an island with one worker of one device.
  void Usage(uint32_t island, uint64_t probe) {
    wire::Usage usage;
    usage.set_probe(probe);
    usage.add_devices()->set_device(island);
    usage.mutable_devices(0)->set_bytes(100 + island);
    usage.add_workers()->set_from_clients(7);
    usage.add_worker_nodes(9);
    queries_->OnUsage(island, usage);
  }

  std::unique_ptr<StatusQueries> queries_;
  uint32_t up_ = 2;  // schedulers
  std::vector<uint64_t> asked_;
  std::vector<wire::UsageReply> told_;  // the client
};

TEST_F(StatusQueriesTest, AToolIsToldWhatAllSchedulersSay) {
  OnLoop([this] {
    Make(std::chrono::minutes(1));
    queries_->OnRequest(link_);
    ASSERT_EQ(asked_.size(), 1u);
    Usage(1, asked_[0]);
    EXPECT_TRUE(link_->sent.empty()) << "one is missing";
    Usage(0, asked_[0] + 1);  // of a question that is over
    Usage(0, asked_[0]);
    ASSERT_EQ(link_->sent.size(), 1u);
    const wire::StatusReply& reply = link_->sent[0].status_reply();
    ASSERT_EQ(reply.workers_size(), 2);
    EXPECT_EQ(reply.workers(1).devices(0).bytes(), 101u);
    EXPECT_EQ(reply.workers(1).data().from_clients(), 7u);
    EXPECT_EQ(reply.workers(1).nodes(), 9u);
  });
}

TEST_F(StatusQueriesTest, WithoutSchedulersTheAnswerIsAtOnce) {
  OnLoop([this] {
    up_ = 0;
    Make(std::chrono::minutes(1));
    queries_->OnRequest(link_);
    ASSERT_EQ(link_->sent.size(), 1u);
    EXPECT_EQ(link_->sent[0].status_reply().workers(0).devices_size(), 0);
  });
}

TEST_F(StatusQueriesTest, TM1_AfterTheLimitTheAnswerLeavesOutWhatWasNotSaid) {
  auto answered = std::make_shared<Answer<bool>>();
  OnLoop([&] {
    Make(std::chrono::milliseconds(20));
    link_->on_sent = [answered] { answered->Set(true); };
    queries_->OnRequest(link_);
    Usage(1, asked_[0]);
  });
  ASSERT_TRUE(answered->WaitFor(kLimit));
  OnLoop([this] {
    const wire::StatusReply& reply = link_->sent[0].status_reply();
    EXPECT_EQ(reply.workers(0).devices_size(), 0);
    EXPECT_EQ(reply.workers(1).devices_size(), 1);
  });
}

TEST_F(StatusQueriesTest, TM2_AClientIsToldTheDevicesMemoryAndAsksForAFewAtATime) {
  OnLoop([this] {
    Make(std::chrono::minutes(1));
    for (int i = 0; i < StatusQueries::kOfSessionMax + 3; ++i) {
      wire::UsageRequest request;
      request.set_query(50 + static_cast<uint64_t>(i));
      queries_->OnClientRequest(SessionId(3), request);
    }
    ASSERT_EQ(asked_.size(), static_cast<size_t>(StatusQueries::kOfSessionMax));
    Usage(0, asked_[1]);
    Usage(1, asked_[1]);
    ASSERT_EQ(told_.size(), 1u);
    EXPECT_EQ(told_[0].query(), 51u);
    ASSERT_EQ(told_[0].devices_size(), 2);
    EXPECT_EQ(told_[0].devices(0).bytes(), 100u);
    queries_->OnClientRequest(SessionId(3), {});
    EXPECT_EQ(asked_.size(), static_cast<size_t>(StatusQueries::kOfSessionMax) + 1);
  });
}

}  // namespace
}  // namespace gangway::controller
