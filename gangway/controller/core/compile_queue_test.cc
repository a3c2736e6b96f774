// Whose compile runs, and what a dead compiler process means for each.
#include "gangway/controller/core/compile_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace gangway::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CompileQueueTest : public ::testing::Test {
 protected:
  void SetUp() override { Up(); }

  // The number of the new compile.
  uint64_t Add(const std::string& program, uint64_t session = 1) {
    PendingCompile compile;
    compile.session = SessionId(session);
    compile.handle = ++last_;
    compile.request.set_request(last_);
    compile.request.set_program(program);
    compile.request.set_device_count(1);
    queue_.Add(std::move(compile), now_, actions_);
    Take();
    return last_;
  }
  // What the queue answers through: the number of the answered compile, or 0.
  uint64_t Result(uint64_t request, bool not_cached = false) {
    wire::CompileResult result;
    result.set_request(request);
    result.set_not_cached(not_cached);
    auto answered = queue_.OnResult(result, now_, actions_);
    Take();
    return answered ? answered->request.request() : 0;
  }
  void Up() {
    queue_.OnCompilerUp(now_, actions_);
    Take();
  }
  void Down() {
    queue_.OnCompilerDown(now_, actions_);
    Take();
  }
  void Crash() {
    Down();
    Up();
  }
  void Later(milliseconds time) {
    now_ += time;
    queue_.OnTime(now_, actions_);
    Take();
  }
  void Take() {
    for (const wire::CompileRequest& request : actions_.to_compiler)
      (request.lookup_only() ? lookups_ : compiles_).push_back(request.request());
    for (const auto& [compile, failure] : actions_.failed)
      failed_[compile.request.request()] = failure;
    ended_ += actions_.end_compiler.has_value();
    actions_ = {};
  }

  CompileLimits limits_{.compiles_max = 8,
                        .program_bytes_max = 1000,
                        .session_bytes_max = 500,
                        .lookup_bytes_max = 100,
                        .suspects_max = 3};
  CompileQueue queue_{limits_};
  Time now_{seconds(1000)};
  uint64_t last_ = 0;
  CompileActions actions_;
  std::vector<uint64_t> compiles_, lookups_;  // sent
  std::map<uint64_t, wire::Failure> failed_;
  int ended_ = 0;
};

TEST_F(CompileQueueTest, OneCompileRunsAtATime) {
  const uint64_t a = Add("a"), b = Add("b");
  EXPECT_THAT(compiles_, ElementsAre(a));
  EXPECT_EQ(Result(b, /*not_cached=*/true), 0u);
  EXPECT_THAT(compiles_, ElementsAre(a));
  EXPECT_EQ(Result(a), a);
  EXPECT_THAT(compiles_, ElementsAre(a, b));
  EXPECT_EQ(Result(b), b);
  EXPECT_EQ(queue_.size(), 0u);
}

TEST_F(CompileQueueTest, ACachedProgramDoesNotWaitForACompile) {
  Add("long");
  const uint64_t cached = Add("cached", 2);
  EXPECT_THAT(lookups_, ElementsAre(cached));
  EXPECT_EQ(Result(cached), cached);
  EXPECT_EQ(queue_.size(), 1u);
}

TEST_F(CompileQueueTest, LookupsHaveABoundInBytes) {
  Add("running");
  const uint64_t large = Add(std::string(300, 'l')), small = Add("small");
  EXPECT_THAT(lookups_, ElementsAre(large)) << "one may exceed the bound, alone";
  Result(large, true);
  EXPECT_THAT(lookups_, ElementsAre(large, small));
}

TEST_F(CompileQueueTest, SessionsTakeTurns) {
  std::vector<uint64_t> all;
  for (const auto& [program, session] : std::vector<std::pair<std::string, uint64_t>>{
           {"a1", 1}, {"a2", 1}, {"a3", 1}, {"b1", 2}, {"b2", 2}, {"c1", 3}}) {
    all.push_back(Add(program, session));
    if (all.size() > 1) Result(all.back(), true);
  }
  for (int i = 0; i < 6; ++i) Result(compiles_.back());
  EXPECT_THAT(compiles_, ElementsAre(all[0], all[3], all[5], all[1], all[4], all[2]));
}

TEST_F(CompileQueueTest, ACompilerKilledOnceCostsNobodyAnything) {
  const uint64_t a = Add("a"), b = Add("b", 2);
  Crash();
  EXPECT_THAT(failed_, IsEmpty());
  EXPECT_THAT(compiles_, ::testing::SizeIs(2));
  Result(compiles_.back());
  Result(compiles_.back());
  EXPECT_EQ(queue_.size(), 0u);
  EXPECT_THAT(failed_, IsEmpty());
  EXPECT_THAT(compiles_, ::testing::IsSupersetOf({a, b}));
}

TEST_F(CompileQueueTest, AProgramThatEndsTheCompilerIsQuarantinedByItsHash) {
  const uint64_t killer = Add("killer");
  const uint64_t other = Add("other", 2);
  Crash();
  EXPECT_THAT(failed_, IsEmpty()) << "the end may have had another cause";
  for (int i = 0; i < 3 && !failed_.contains(killer); ++i) {
    if (compiles_.back() == killer) {
      Crash();
    } else {
      Result(compiles_.back());
    }
  }
  ASSERT_TRUE(failed_.contains(killer));
  EXPECT_FALSE(failed_.contains(other));
  wire::CompileRequest request;
  request.set_program("killer");
  request.set_device_count(1);
  EXPECT_THAT(failed_[killer].message(), HasSubstr(ProgramHash(request).substr(0, 16)));
  EXPECT_THAT(failed_[killer].advice(), HasSubstr("Change the program"));
  // At once, and without the compiler, for other sessions, too.
  const size_t sent = compiles_.size() + lookups_.size();
  const uint64_t again = Add("killer", 3);
  EXPECT_TRUE(failed_.contains(again));
  EXPECT_EQ(compiles_.size() + lookups_.size() - sent, queue_.size() > 1 ? 1u : 0u);
  // Another program of the same size is not.
  EXPECT_FALSE(failed_.contains(Add("kilLer", 3)));
}

TEST_F(CompileQueueTest, AQuarantineEnds) {
  const uint64_t killer = Add("killer");
  Crash();
  Crash();
  ASSERT_TRUE(failed_.contains(killer));
  Later(minutes(10) - milliseconds(1));
  EXPECT_TRUE(failed_.contains(Add("killer")));
  Later(milliseconds(1));
  EXPECT_FALSE(failed_.contains(Add("killer")));
}

TEST_F(CompileQueueTest, OneThatWaitsWhenItsLikeIsQuarantinedIsRefusedAtItsTurn) {
  Add("killer");
  const uint64_t same = Add("killer", 2);
  for (int i = 0; i < 2; ++i) Crash();
  EXPECT_TRUE(failed_.contains(same));
  EXPECT_EQ(queue_.size(), 0u);
}

TEST_F(CompileQueueTest, ACompileThatSucceedsClearsItsName) {
  for (int i = 0; i < 5; ++i) {
    const uint64_t a = Add("a");
    Crash();
    EXPECT_EQ(Result(a), a);
  }
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_F(CompileQueueTest, TheListOfSuspectsIsBounded) {
  Add("killer");
  Crash();
  Crash();
  for (int i = 0; i < 3; ++i) {
    now_ += seconds(1);
    const uint64_t next = Add(absl::StrCat("kille", i));
    Crash();
    Crash();
    EXPECT_TRUE(failed_.contains(next));
  }
  EXPECT_FALSE(failed_.contains(Add("killer"))) << "the oldest is forgotten";
}

TEST_F(CompileQueueTest, ALookupThatEndsTheCompilerIsFoundAlone) {
  const uint64_t running = Add("running");
  const uint64_t killer = Add("killer", 2);
  EXPECT_THAT(lookups_, ElementsAre(killer));
  Crash();
  EXPECT_THAT(lookups_, ElementsAre(killer)) << "not looked up again";
  while (!failed_.contains(killer)) {
    ASSERT_LT(compiles_.size(), 10u);
    if (compiles_.back() == killer) {
      Crash();
    } else {
      EXPECT_EQ(Result(compiles_.back()), running);
    }
  }
}

TEST_F(CompileQueueTest, ADeadSessionsCompilesAreDropped) {
  const uint64_t a = Add("a"), b = Add("b", 2);
  Add("c");
  queue_.ForgetSession(SessionId(1), now_, actions_);
  Take();
  EXPECT_EQ(Result(b, true), 0u);
  EXPECT_EQ(Result(a), 0u) << "no session waits for it";
  EXPECT_THAT(compiles_, ElementsAre(a, b));
  EXPECT_EQ(ended_, 0);
}

TEST_F(CompileQueueTest, ARunningCompileThatNobodyWaitsForIsEndedAndNobodyIsBlamed) {
  const uint64_t a = Add("a"), b = Add("b", 2);
  Result(b, true);
  queue_.ForgetSession(SessionId(1), now_, actions_);
  Take();
  ASSERT_TRUE(queue_.next_deadline().has_value());
  Later(milliseconds(9999));
  EXPECT_EQ(ended_, 0);
  Later(milliseconds(1));
  EXPECT_EQ(ended_, 1);
  EXPECT_FALSE(queue_.next_deadline().has_value());
  Crash();
  EXPECT_THAT(compiles_, ElementsAre(a, b));
  EXPECT_EQ(Result(b), b);
  // The same program twice more: a single death that counts does not quarantine it.
  const uint64_t again = Add("a");
  Crash();
  EXPECT_EQ(Result(again), again);
}

TEST_F(CompileQueueTest, AKillerIsBlamedEvenWhenItsSessionIsDead) {
  for (int i = 0; i < 2; ++i) {
    Add("killer");
    queue_.ForgetSession(SessionId(1), now_, actions_);
    Crash();
  }
  EXPECT_TRUE(failed_.contains(Add("killer")));
}

TEST_F(CompileQueueTest, ARequestThatTheLinkRefusedIsAnswered) {
  const uint64_t a = Add("a"), b = Add("b");
  wire::Failure failure;
  failure.set_message("too large");
  for (uint64_t request : {b, a}) {  // of a lookup, of a compile
    queue_.OnNotSent(request, failure, /*again=*/false, now_, actions_);
    Take();
    EXPECT_EQ(failed_[request].message(), "too large");
  }
  const uint64_t c = Add("c");
  EXPECT_THAT(compiles_, ElementsAre(a, c)) << "the next one runs";
}

TEST_F(CompileQueueTest, ARequestThatAClosingLinkRefusedIsSentToTheNextAndNotBlamed) {
  const uint64_t a = Add("a");
  for (int i = 0; i < 5; ++i) {
    queue_.OnNotSent(a, {}, /*again=*/true, now_, actions_);
    Crash();
  }
  EXPECT_THAT(failed_, IsEmpty());
  EXPECT_EQ(Result(a), a);
}

TEST_F(CompileQueueTest, WhatIsQueuedIsBounded) {
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(failed_.contains(Add("p", 1 + i)));
  EXPECT_THAT(failed_[Add("p", 9)].message(), HasSubstr("8 compiles are queued"));
}

TEST_F(CompileQueueTest, TheBytesThatAreQueuedAreBoundedBySessionAndInAll) {
  Add(std::string(400, 'a'), 1);
  EXPECT_THAT(failed_[Add(std::string(200, 'a'), 1)].message(), HasSubstr("of this session"));
  EXPECT_FALSE(failed_.contains(Add(std::string(400, 'b'), 2)));
  EXPECT_THAT(failed_[Add(std::string(400, 'c'), 3)].message(), HasSubstr("limit of 1000"));
  for (uint64_t session : {1, 2}) queue_.ForgetSession(SessionId(session), now_, actions_);
  Result(1);
  EXPECT_FALSE(failed_.contains(Add(std::string(400, 'c'), 3)));
}

TEST_F(CompileQueueTest, AnAbsentCompilerFailsWhatWaitsForIt) {
  Down();
  const uint64_t a = Add("a");
  Later(milliseconds(29999));
  EXPECT_THAT(failed_, IsEmpty());
  Later(milliseconds(1));
  EXPECT_THAT(failed_[a].message(), HasSubstr("no compiler process"));
}

}  // namespace
}  // namespace gangway::controller
