// What compiles without an answer may take, in which order they are taken, and what is looked up.
#include "gangway/controller/core/compile_backlog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Entry = CompileBacklog::Entry;
using State = CompileBacklog::State;

class CompileBacklogTest : public ::testing::Test {
 protected:
  PendingCompile Compile(const std::string& program, uint64_t session = 1) {
    PendingCompile compile;
    compile.session = SessionId(session);
    compile.handle = ExecutableHandle(100 + last_ + 1);
    compile.request.set_request(++last_);
    compile.request.set_program(program);
    return compile;
  }
  uint64_t Add(const std::string& program, uint64_t session = 1) {
    backlog_.Add(Compile(program, session));
    return last_;
  }
  // The next of those that may run, with all ranks equal.
  uint64_t Next(uint64_t may_not_run = 0) {
    const auto next = backlog_.TakeTurn(
        [](const Entry&) { return 0; },
        [&](const Entry& entry) { return entry.compile.request.request() != may_not_run; });
    if (next) backlog_.BeginRun(backlog_.Find(*next), 0);
    return next.value_or(0);
  }

  CompileLimits limits_{.compiles_max = 4,
                        .program_bytes_max = 100,
                        .session_bytes_max = 60,
                        .lookup_bytes_max = 20,
                        .large_bytes_min = 10};
  CompileBacklog backlog_{limits_};
  uint64_t last_ = 0;
};

TEST_F(CompileBacklogTest, WhatDoesNotFitIsRefusedWithTheSizes_TM2) {
  const std::string program(50, 'p');
  EXPECT_FALSE(backlog_.CheckRoom(Compile(std::string(1000, 'p'))).has_value())
      << "alone, any size";
  const uint64_t first = Add(program);
  auto refused = backlog_.CheckRoom(Compile(program));
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(refused->message(), HasSubstr("programs of 50 bytes of this session"));
  EXPECT_FALSE(backlog_.CheckRoom(Compile(program, 2)).has_value()) << "another session's share";
  Add(program, 2);
  refused = backlog_.CheckRoom(Compile("p", 3));
  ASSERT_TRUE(refused.has_value());
  EXPECT_THAT(refused->message(), HasSubstr("programs of 100 bytes are queued"));
  backlog_.Remove(backlog_.Find(first));
  EXPECT_FALSE(backlog_.CheckRoom(Compile(program)).has_value()) << "its bytes came back";
  for (int i = 0; i < 3; ++i) Add("", 3);
  refused = backlog_.CheckRoom(Compile("", 4));
  ASSERT_TRUE(refused.has_value());
  EXPECT_THAT(refused->message(), HasSubstr("4 compiles are queued already"));
}

TEST_F(CompileBacklogTest, SessionsTakeTurnsAndOneThatMayNotRunIsPassed) {
  const uint64_t a = Add("a", 1), b = Add("b", 1), c = Add("c", 2);
  EXPECT_EQ(Next(), a);
  EXPECT_EQ(Next(c), b) << "session 2 has its turn, but may not run";
  EXPECT_EQ(Next(), c);
  EXPECT_EQ(Next(), 0u);
  EXPECT_THAT(backlog_.waiting(), IsEmpty());
}

TEST_F(CompileBacklogTest, TheLowestRankGoesFirst) {
  Add(std::string(12, 'l'));
  const uint64_t small = Add("s");
  const auto next =
      backlog_.TakeTurn([&](const Entry& entry) { return backlog_.IsLarge(entry) ? 1 : 0; },
                        [](const Entry&) { return true; });
  EXPECT_EQ(next, small);
}

TEST_F(CompileBacklogTest, ACompileThatIsQueuedAgainIsTheFirstOfItsSession) {
  const uint64_t first = Add("a");
  Add("b");
  ASSERT_EQ(Next(), first);
  backlog_.Requeue(backlog_.Find(first));
  EXPECT_EQ(Next(), first);
}

TEST_F(CompileBacklogTest, LookupsAreBoundedAndAreNotRepeated_TM2) {
  const uint64_t first = Add(std::string(15, 'a')), second = Add(std::string(15, 'b'));
  EXPECT_EQ(backlog_.BeginLookup(3)->first, first);
  EXPECT_EQ(backlog_.At(first).compiler, 3u);
  EXPECT_EQ(backlog_.BeginLookup(3), backlog_.all().end()) << "30 bytes exceed the limit";
  EXPECT_EQ(Next(), second) << "the answer for the first is near";
  backlog_.EndLookup(backlog_.Find(first));
  EXPECT_EQ(backlog_.At(first).state, State::kMissed);
  EXPECT_EQ(backlog_.BeginLookup(3), backlog_.all().end()) << "the second runs";
  const uint64_t third = Add(std::string(15, 'c'));
  EXPECT_EQ(backlog_.BeginLookup(3)->first, third) << "the bytes of the first came back";
  backlog_.Requeue(backlog_.Find(third));  // its process is gone
  EXPECT_EQ(backlog_.BeginLookup(3), backlog_.all().end());
}

TEST_F(CompileBacklogTest, OneThatOnlyAwaitsItsLookupDoesNotWaitForAProcess) {
  const uint64_t request = Add("a");
  EXPECT_TRUE(backlog_.AnyWaits());
  ASSERT_EQ(backlog_.BeginLookup(0)->first, request);
  EXPECT_FALSE(backlog_.AnyWaits());
  backlog_.EndLookup(backlog_.Find(request));
  EXPECT_TRUE(backlog_.AnyWaits());
}

TEST_F(CompileBacklogTest, TheAnswerNamesTheCompileWithoutItsProgram) {
  const uint64_t request = Add("program", 7);
  const PendingCompile answered = backlog_.At(request).Answered();
  EXPECT_EQ(answered.session, SessionId(7));
  EXPECT_EQ(answered.handle, ExecutableHandle(101));
  EXPECT_EQ(answered.request.request(), request);
  EXPECT_TRUE(answered.request.program().empty());
  EXPECT_THAT(backlog_.OfSession(SessionId(7)), ElementsAre(request));
  EXPECT_THAT(backlog_.OfSession(SessionId(8)), IsEmpty());
}

}  // namespace
}  // namespace gangway::controller
