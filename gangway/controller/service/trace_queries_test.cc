// Questions for flight recorders: who is asked, who is told what, and who is named as missing.
#include "gangway/controller/service/trace_queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "gangway/base/trace.h"
#include "gangway/controller/service/links_test_util.h"
#include "gangway/wire/trace.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;

constexpr SessionId kOne(1), kTwo(2);

void AddRecord(TraceKind kind, uint64_t session, uint64_t gang, uint64_t value,
               wire::TraceReply& reply) {
  for (const uint64_t word :
       {uint64_t{1}, uint64_t{static_cast<uint8_t>(kind)} << 32, session, gang, value})
    reply.add_words(word);
}

class TraceQueriesTest : public LinksTest {
 protected:
  void Make(std::chrono::milliseconds limit) {
    queries_ = std::make_unique<TraceQueries>(
        &loop_, 5,
        TraceQueries::Events{.ask =
                                 [this](const wire::Frame& question) {
                                   asked_.push_back(question);
                                   return std::set<std::string>{"compiler", "island0/worker0"};
                                 },
                             .to_client =
                                 [this](SessionId session, wire::Frame frame) {
                                   EXPECT_EQ(session, kOne);
                                   told_.push_back(std::move(*frame.mutable_trace_reply()));
                                 }},
        limit);
  }
  void Reply(const std::string& process, wire::TraceReply reply = {}) {
    wire::Frame frame;
    reply.set_probe(asked_.back().trace_request().probe());
    reply.set_process(process);
    reply.set_last(true);
    *frame.mutable_trace_reply() = std::move(reply);
    queries_->OnReply(std::move(frame));
  }

  std::unique_ptr<TraceQueries> queries_;
  std::vector<wire::Frame> asked_;
  std::vector<wire::TraceReply> told_;  // the client
};

TEST_F(TraceQueriesTest, EachReplyGoesOnAtOnceAndTheEndFollowsTheLast) {
  OnLoop([this] {
    Make(std::chrono::minutes(1));
    queries_->OnRequest(link_);
    ASSERT_EQ(asked_.size(), 1u);
    EXPECT_EQ(asked_[0].epoch(), 5u);
    const size_t own = link_->sent.size();  // frames of this process's ring
    ASSERT_GE(own, 1u);
    Reply("island0/worker0");
    ASSERT_EQ(link_->sent.size(), own + 1);
    EXPECT_EQ(link_->sent.back().trace_reply().process(), "island0/worker0");
    EXPECT_GE(link_->sent.back().trace_reply().answered_ns(),
              link_->sent.back().trace_reply().asked_ns());
    Reply("compiler");
    ASSERT_EQ(link_->sent.size(), own + 3);
    EXPECT_TRUE(link_->sent.back().trace_reply().end());
    EXPECT_EQ(link_->sent.back().trace_reply().missing_size(), 0);
    Reply("compiler");
    EXPECT_EQ(link_->sent.size(), own + 3) << "it is over";
  });
}

TEST_F(TraceQueriesTest, ProcessesThatDoNotReplyInTimeAreNamed_TM1) {
  auto ended = std::make_shared<Answer<bool>>();
  OnLoop([&] {
    Make(std::chrono::milliseconds(20));
    link_->on_sent = [this, ended] {
      if (link_->sent.back().trace_reply().end()) ended->Set(true);
    };
    queries_->OnRequest(link_);
    Reply("compiler");
  });
  ASSERT_TRUE(ended->WaitFor(kLimit));
  OnLoop([this] {
    EXPECT_THAT(link_->sent.back().trace_reply().missing(), ElementsAre("island0/worker0"));
  });
}

TEST_F(TraceQueriesTest, AClientIsToldOfItsOwnSessionOnly_OB3) {
  OnLoop([this] {
    Make(std::chrono::minutes(1));
    wire::TraceRequest request;
    request.set_probe(77);
    request.set_session(kTwo.number());  // not its own
    queries_->OnClientRequest(kOne, request);
    queries_->OnClientRequest(kOne, request);
    EXPECT_EQ(asked_.size(), 1u) << "one at a time";
    told_.clear();
    wire::TraceReply reply;
    AddRecord(TraceKind::kPrepare, kOne.number(), 10, 3, reply);
    AddRecord(TraceKind::kPrepare, kTwo.number(), 11, 4, reply);
    AddRecord(TraceKind::kExecuteBegin, 0, 10, 0, reply);
    AddRecord(TraceKind::kExecuteBegin, 0, 11, 0, reply);
    for (const uint64_t executable : {3, 4}) {
      wire::TraceReply::Name& name = *reply.add_names();
      name.set_what(static_cast<uint32_t>(TraceNameOf::kExecutable));
      name.set_id(executable);
      name.set_name(executable == 3 ? "mine" : "secret");
    }
    Reply("island0/worker0", reply);
    ASSERT_EQ(told_.size(), 1u);
    EXPECT_EQ(told_[0].probe(), 77u);
    EXPECT_EQ(told_[0].names_size(), 0);
    ASSERT_EQ(wire::TraceRecordCount(told_[0]), 2);
    EXPECT_EQ(wire::TraceRecordAt(told_[0], 0).gang, 10u);
    EXPECT_EQ(wire::TraceRecordAt(told_[0], 1).gang, 10u);
    Reply("compiler");
    ASSERT_EQ(told_.size(), 3u);
    EXPECT_TRUE(told_[2].end());
    ASSERT_EQ(told_[2].names_size(), 1);
    EXPECT_EQ(told_[2].names(0).name(), "mine");
  });
}

}  // namespace
}  // namespace gangway::controller
