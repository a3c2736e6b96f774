// Whose compile runs, and what a dead compiler process means for each.
#include "gangway/controller/core/compile_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

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

  // From here on, with that many processes, of which the first is up.
  void Make(uint32_t compilers) {
    limits_.compilers = compilers;
    queue_ = std::make_unique<CompileQueue>(limits_);
    Up();
  }

  // The number of the new compile.
  uint64_t Add(const std::string& program, uint64_t session = 1) {
    PendingCompile compile;
    compile.session = SessionId(session);
    compile.owner = Owner("", compile.session);
    compile.handle = ExecutableHandle(++last_);
    compile.request.set_request(last_);
    compile.request.set_program(program);
    compile.request.set_device_count(1);
    queue_->Add(std::move(compile), now_, actions_);
    Take();
    return last_;
  }
  // What the queue answers through: the number of the answered compile, or 0.
  uint64_t Result(uint64_t request, bool not_cached = false) {
    wire::CompileResult result;
    result.set_request(request);
    result.set_not_cached(not_cached);
    const auto& on = ran_on_.contains(request) ? ran_on_ : looked_up_on_;
    return Result(result, on.contains(request) ? on.at(request) : 0);
  }
  uint64_t Result(const wire::CompileResult& result, uint32_t compiler = 0) {
    auto answered = queue_->OnResult(compiler, result, now_, actions_);
    Take();
    return answered ? answered->request.request() : 0;
  }
  // Adds it, and says that it is not cached, where that is asked.
  uint64_t AddNew(const std::string& program, uint64_t session) {
    const size_t asked = lookups_.size();
    const uint64_t request = Add(program, session);
    if (lookups_.size() > asked) Result(request, true);
    return request;
  }
  void Up(uint32_t compiler = 0) {
    queue_->OnCompilerUp(compiler, now_, actions_);
    Take();
  }
  void Down(uint32_t compiler = 0) {
    queue_->OnCompilerDown(compiler, now_, actions_);
    Take();
  }
  // So long after the last one that both count.
  void Crash(uint32_t compiler = 0) {
    now_ += kOneCause;
    Down(compiler);
    Up(compiler);
  }
  void Later(milliseconds time) {
    now_ += time;
    queue_->OnTime(now_, actions_);
    Take();
  }
  void Take() {
    for (const auto& [compiler, request] : actions_.to_compilers) {
      (request.lookup_only() ? lookups_ : compiles_).push_back(request.request());
      (request.lookup_only() ? looked_up_on_ : ran_on_)[request.request()] = compiler;
    }
    for (const auto& [compile, failure] : actions_.failed)
      failed_[compile.request.request()] = failure;
    for (const CompilerEnd& end : actions_.end_compilers) ends_.push_back(end);
    for (const uint32_t spare : actions_.start_compilers) started_.push_back(spare);
    actions_ = {};
  }

  CompileLimits limits_{.compiles_max = 8,
                        .program_bytes_max = 1000,
                        .session_bytes_max = 500,
                        .lookup_bytes_max = 100,
                        .large_bytes_min = 200,
                        .suspects_max = 3};
  std::unique_ptr<CompileQueue> queue_ = std::make_unique<CompileQueue>(limits_);
  Time now_{seconds(1000)};
  uint64_t last_ = 0;
  CompileActions actions_;
  std::vector<uint64_t> compiles_, lookups_;  // sent
  std::map<uint64_t, wire::Failure> failed_;
  std::map<uint64_t, uint32_t> ran_on_, looked_up_on_;  // the last compiler
  std::vector<CompilerEnd> ends_;
  std::vector<uint32_t> started_;
};

TEST_F(CompileQueueTest, OneCompileRunsAtATime) {
  const uint64_t a = Add("a"), b = Add("b");
  EXPECT_THAT(compiles_, ElementsAre(a));
  EXPECT_EQ(Result(b, /*not_cached=*/true), 0u);
  EXPECT_THAT(compiles_, ElementsAre(a));
  EXPECT_EQ(Result(a), a);
  EXPECT_THAT(compiles_, ElementsAre(a, b));
  EXPECT_EQ(Result(b), b);
  EXPECT_EQ(queue_->size(), 0u);
}

TEST_F(CompileQueueTest, ACachedProgramDoesNotWaitForACompile) {
  Add("long");
  const uint64_t cached = Add("cached", 2);
  EXPECT_THAT(lookups_, ElementsAre(cached));
  EXPECT_EQ(Result(cached), cached);
  EXPECT_EQ(queue_->size(), 1u);
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
  EXPECT_EQ(queue_->size(), 0u);
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
  PendingCompile compile;
  compile.request.set_program("killer");
  compile.request.set_device_count(1);
  EXPECT_THAT(failed_[killer].message(), HasSubstr(ProgramHash(compile).substr(0, 16)));
  EXPECT_THAT(failed_[killer].advice(), HasSubstr("Change the program"));
  // At once, and without the compiler, for other sessions, too.
  const size_t sent = compiles_.size() + lookups_.size();
  const uint64_t again = Add("killer", 3);
  EXPECT_TRUE(failed_.contains(again));
  EXPECT_EQ(compiles_.size() + lookups_.size() - sent, queue_->size() > 1 ? 1u : 0u);
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
  EXPECT_EQ(queue_->size(), 0u);
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
    const uint64_t next = Add(absl::StrCat("kille", i), 2 + i);
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
  queue_->ForgetSession(SessionId(1), now_, actions_);
  Take();
  EXPECT_EQ(Result(b, true), 0u);
  EXPECT_EQ(Result(a), 0u) << "no session waits for it";
  EXPECT_THAT(compiles_, ElementsAre(a, b));
  EXPECT_EQ(ends_.size(), 0u);
}

TEST_F(CompileQueueTest, ARunningCompileThatNobodyWaitsForIsEndedAndNobodyIsBlamed) {
  const uint64_t a = Add("a");
  queue_->ForgetSession(SessionId(1), now_, actions_);
  Take();
  ASSERT_TRUE(queue_->next_deadline().has_value());
  Later(milliseconds(9999));
  EXPECT_EQ(ends_.size(), 0u);
  Later(milliseconds(1));
  EXPECT_EQ(ends_.size(), 1u);
  EXPECT_FALSE(queue_->next_deadline().has_value());
  const uint64_t b = Add("b", 2);
  Crash();
  EXPECT_THAT(compiles_, ElementsAre(a, b));
  EXPECT_EQ(Result(b), b);
  // The same program once more: a single death that counts does not quarantine it.
  const uint64_t again = Add("a");
  Crash();
  EXPECT_EQ(Result(again), again);
}

TEST_F(CompileQueueTest, WhatNobodyWaitsForIsEndedSoonerIfItIsInTheWay) {
  Make(2);
  Up(1);
  for (uint64_t session : {1, 2}) AddNew("left behind", session);
  for (uint64_t session : {1, 2}) queue_->ForgetSession(SessionId(session), now_, actions_);
  Take();
  Later(milliseconds(600));
  EXPECT_THAT(ends_, IsEmpty());
  AddNew("waits", 3);
  Later(milliseconds(0));
  EXPECT_EQ(ends_.size(), 2u);
  EXPECT_THAT(ends_[0].why, HasSubstr("no session waits for any more for 600 ms"));
}

// To end a process and to start it again takes longer.
TEST_F(CompileQueueTest, WhatNobodyWaitsForIsNotInTheWayWhileASpareStarts) {
  Make(2);
  AddNew("left behind", 1);
  queue_->ForgetSession(SessionId(1), now_, actions_);
  const uint64_t waits = AddNew("waits", 2);
  EXPECT_THAT(started_, ElementsAre(1));
  Later(milliseconds(600));
  EXPECT_THAT(ends_, IsEmpty());
  Up(1);
  EXPECT_EQ(ran_on_[waits], 1u);
  EXPECT_THAT(ends_, IsEmpty());
}

TEST_F(CompileQueueTest, AKillerIsBlamedEvenWhenItsSessionIsDead) {
  for (int i = 0; i < 2; ++i) {
    Add("killer");
    queue_->ForgetSession(SessionId(1), now_, actions_);
    Crash();
  }
  EXPECT_TRUE(failed_.contains(Add("killer")));
}

TEST_F(CompileQueueTest, ARequestThatTheLinkRefusedIsAnswered) {
  const uint64_t a = Add("a"), b = Add("b");
  wire::Failure failure;
  failure.set_message("too large");
  for (uint64_t request : {b, a}) {  // of a lookup, of a compile
    queue_->OnNotSent(request, failure, /*again=*/false, now_, actions_);
    Take();
    EXPECT_EQ(failed_[request].message(), "too large");
  }
  const uint64_t c = Add("c");
  EXPECT_THAT(compiles_, ElementsAre(a, c)) << "the next one runs";
}

TEST_F(CompileQueueTest, ARequestThatAClosingLinkRefusedIsSentToTheNextAndNotBlamed) {
  const uint64_t a = Add("a");
  for (int i = 0; i < 5; ++i) {
    queue_->OnNotSent(a, {}, /*again=*/true, now_, actions_);
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
  for (uint64_t session : {1, 2}) queue_->ForgetSession(SessionId(session), now_, actions_);
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

// --- Several processes ---

TEST_F(CompileQueueTest, ASpareIsAskedForWhenACompileWaitsForAProcess) {
  Make(2);
  const uint64_t a = AddNew("a", 1);
  EXPECT_THAT(started_, IsEmpty());
  const uint64_t b = AddNew("b", 2);
  EXPECT_THAT(started_, ElementsAre(1));
  AddNew("c", 3);
  EXPECT_THAT(started_, ElementsAre(1)) << "once";
  Up(1);
  EXPECT_THAT(compiles_, ElementsAre(a, b));
  EXPECT_EQ(ran_on_[b], 1u);
}

TEST_F(CompileQueueTest, ASpareIsAskedForWhenACompileIsLongOrLarge) {
  Make(2);
  Add("a");
  EXPECT_EQ(queue_->next_deadline(), now_ + milliseconds(1000));
  Later(milliseconds(999));
  EXPECT_THAT(started_, IsEmpty());
  Later(milliseconds(1));
  EXPECT_THAT(started_, ElementsAre(1));
  Make(2);
  Add(std::string(200, 'l'));
  EXPECT_THAT(started_, ElementsAre(1, 1));
}

TEST_F(CompileQueueTest, ASpareWithoutWorkEndsByItself) {
  Make(2);
  AddNew("a", 1);
  const uint64_t b = AddNew("b", 2);
  Up(1);
  Result(b);
  Later(seconds(70));
  EXPECT_THAT(ends_, IsEmpty()) << "the first is still at work";
  AddNew("b", 2);
  Result(1);
  Result(last_);
  Later(seconds(60) - milliseconds(1));
  EXPECT_THAT(ends_, IsEmpty());
  Later(milliseconds(1));
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].compiler, 1u);
  EXPECT_TRUE(ends_[0].idle);
  started_.clear();
  Down(1);
  EXPECT_THAT(started_, IsEmpty());
  AddNew("c", 3);
  AddNew("d", 4);
  EXPECT_THAT(started_, ElementsAre(1)) << "it comes back";
}

TEST_F(CompileQueueTest, OneSessionNeverHoldsAllCompilers) {
  Make(2);
  Up(1);
  Add("a1");
  AddNew("a2", 1);
  const uint64_t b = AddNew("b", 2);
  EXPECT_THAT(compiles_, ElementsAre(1, b));
  AddNew("b2", 2);
  const uint64_t c = AddNew("c", 3);
  Result(b);
  EXPECT_EQ(compiles_.back(), c) << "a2 and b2 wait for their turn";
}

TEST_F(CompileQueueTest, LargeProgramsNeverHoldAllCompilers) {
  Make(2);
  Up(1);
  const uint64_t large = Add(std::string(200, 'a'), 1);
  AddNew(std::string(201, 'b'), 2);
  const uint64_t small = AddNew("small", 3);
  EXPECT_THAT(compiles_, ElementsAre(large, small));
}

TEST_F(CompileQueueTest, SmallProgramsGoFirstAndLargeOnesGetOld) {
  Add("running", 1);
  const uint64_t large = AddNew(std::string(200, 'l'), 2);
  const uint64_t small = AddNew("small", 3);
  Result(1);
  EXPECT_EQ(compiles_.back(), small);
  Later(seconds(10));
  AddNew("another", 1);
  Result(small);
  EXPECT_NE(compiles_.back(), small);
  Result(compiles_.back());
  EXPECT_THAT(compiles_, ::testing::Contains(large)) << "an old one takes its turn";
}

TEST_F(CompileQueueTest, ASessionWhoseProgramsEndCompilersKeepsOffTheFirst) {
  Make(2);
  Up(1);
  const uint64_t killer = Add("killer");
  Down();
  EXPECT_EQ(ran_on_[killer], 1u) << "compiled once more, by the spare";
  Up();
  Later(kOneCause);
  Down(1);
  EXPECT_TRUE(failed_.contains(killer));
  const uint64_t next = AddNew("next", 1);
  EXPECT_FALSE(ran_on_.contains(next)) << "the first process is for others";
  EXPECT_EQ(started_.back(), 1u);
  const uint64_t other = AddNew("other", 2);
  EXPECT_EQ(ran_on_[other], 0u);
  Up(1);
  EXPECT_EQ(ran_on_[next], 1u);
}

TEST_F(CompileQueueTest, ASpareThatDoesNotStartIsNotWaitedFor) {
  Make(2);
  const uint64_t killer = Add("killer");
  Crash();
  EXPECT_THAT(compiles_, ElementsAre(killer));
  EXPECT_THAT(started_, ElementsAre(1));
  Later(seconds(10) - milliseconds(1));
  EXPECT_THAT(compiles_, ElementsAre(killer));
  Later(milliseconds(1));
  EXPECT_THAT(compiles_, ElementsAre(killer, killer));
  EXPECT_EQ(ran_on_[killer], 0u);
}

TEST_F(CompileQueueTest, AfterThreeDeathsASessionIsServedLastAndAfterFiveRefused) {
  Add("killer");
  Crash();
  Crash();
  Add("another killer");
  Crash();
  const uint64_t late = AddNew("late", 1);
  const uint64_t other = AddNew("other", 2);
  Crash();
  EXPECT_EQ(compiles_.back(), other) << "ahead of one that has waited longer";
  EXPECT_EQ(Result(other), other);
  EXPECT_EQ(compiles_.back(), late);
  const uint64_t waits = AddNew("waits", 1);
  Crash();
  for (const uint64_t refused : {late, waits, Add("next", 1)})
    EXPECT_THAT(failed_[refused].message(), HasSubstr("may compile nothing")) << refused;
  EXPECT_FALSE(failed_.contains(Add("next", 2)));
}

TEST_F(CompileQueueTest, ALimitOnTheTimeOfACompileEndsItsProcessAndNamesIt) {
  const uint64_t a = Add("a");
  Later(seconds(600) - milliseconds(1));
  EXPECT_THAT(ends_, IsEmpty());
  Later(milliseconds(1));
  EXPECT_THAT(failed_[a].message(), HasSubstr("not compiled within 600 s"));
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_THAT(ends_[0].why, HasSubstr("session 1"));
  EXPECT_FALSE(ends_[0].idle);
  Crash();
  EXPECT_EQ(queue_->size(), 0u);
}

TEST_F(CompileQueueTest, AProcessThatAsksToBeReplacedGetsNoMoreWork) {
  const uint64_t a = Add("a"), b = AddNew("b", 1);
  EXPECT_EQ(Result(a), a);
  wire::CompileResult keeps;
  keeps.set_wants_replacement(true);
  EXPECT_EQ(Result(keeps), 0u);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_THAT(ends_[0].why, HasSubstr("kept more memory"));
  Add("c");
  EXPECT_THAT(compiles_, ElementsAre(a, b));
  for (int i = 0; i < 3; ++i) {  // no end of this kind counts against a program
    Crash();
    EXPECT_EQ(compiles_.back(), b);
    Result(keeps);
  }
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_F(CompileQueueTest, ACompileThatIsCutOffIsAnsweredAndEndsItsProcess) {
  const uint64_t a = Add("a");
  wire::CompileResult cut;
  cut.set_request(a);
  cut.mutable_failure()->set_message("too much");
  cut.set_wants_replacement(true);
  EXPECT_EQ(Result(cut), a);
  ASSERT_EQ(ends_.size(), 1u);
  const uint64_t b = Add("b");
  EXPECT_THAT(compiles_, ElementsAre(a));
  Crash();
  EXPECT_THAT(compiles_, ElementsAre(a, b));
  for (int i = 0; i < 4; ++i) {
    cut.set_request(compiles_.back());
    Result(cut);
    Crash();
    Add("next");
  }
  EXPECT_THAT(failed_[last_].message(), HasSubstr("may compile nothing"));
}

TEST_F(CompileQueueTest, ALookupGoesToAProcessWithoutWork) {
  Make(2);
  Up(1);
  Add("a", 1);
  EXPECT_EQ(looked_up_on_[Add("a2", 1)], 1u);
  Down(1);
  EXPECT_EQ(looked_up_on_[Add("a3", 1)], 0u);
}

}  // namespace
}  // namespace gangway::controller
