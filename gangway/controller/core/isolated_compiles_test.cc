// Where owners are isolated, no compiler process compiles for two of them, and none waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gangway/controller/core/compile_queue.h"

namespace gangway::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class IsolatedCompilesTest : public ::testing::Test {
 protected:
  void SetUp() override { Make(1); }
  void Make(uint32_t compilers) {
    CompileLimits limits;
    limits.compilers = compilers;
    limits.isolates = true;
    queue_ = std::make_unique<CompileQueue>(limits);
    Up(0);
  }
  uint64_t Add(uint64_t session, const std::string& certificate = "") {
    PendingCompile compile;
    compile.session = SessionId(session);
    compile.handle = ExecutableHandle(++last_);
    compile.owner = Owner(certificate, SessionId(session));
    owners_[last_] = compile.owner;
    compile.request.set_request(last_);
    compile.request.set_program("p");
    queue_->Add(std::move(compile), now_, actions_);
    Take();
    return last_;
  }
  void Result(uint64_t request) {
    wire::CompileResult result;
    result.set_request(request);
    for (uint32_t other : {0, 1}) {
      if (other == ran_on_.at(request)) continue;
      EXPECT_FALSE(queue_->OnResult(other, result, now_, actions_)) << "a forged answer";
    }
    EXPECT_TRUE(queue_->OnResult(ran_on_.at(request), result, now_, actions_));
    Take();
  }
  void Up(uint32_t compiler) {
    queue_->OnCompilerUp(compiler, now_, actions_);
    Take();
  }
  // The process ends and, if it is the first or was asked for, the next one comes.
  void Replace(uint32_t compiler) {
    served_.erase(compiler);
    queue_->OnCompilerDown(compiler, now_, actions_);
    Take();
    Up(compiler);
  }
  void Later(milliseconds time) {
    now_ += time;
    queue_->OnTime(now_, actions_);
    Take();
  }
  void EndOwner(uint64_t session, const std::string& certificate = "") {
    queue_->ForgetSession(SessionId(session), now_, actions_);
    queue_->EndOwner(Owner(certificate, SessionId(session)), now_, actions_);
    Take();
  }
  void Take() {
    for (const auto& [compiler, request] : actions_.to_compilers) {
      EXPECT_FALSE(request.lookup_only());
      ran_on_[request.request()] = compiler;
      const auto& [entry, is_new] = served_.try_emplace(compiler, owners_.at(request.request()));
      EXPECT_EQ(entry->second, owners_.at(request.request())) << "one process for two owners";
    }
    for (const CompilerEnd& end : actions_.end_compilers) ends_.push_back(end.compiler);
    for (const uint32_t spare : actions_.start_compilers) started_.push_back(spare);
    actions_ = {};
  }
  std::vector<uint32_t> Ends() { return std::exchange(ends_, {}); }

  std::unique_ptr<CompileQueue> queue_;
  Time now_{seconds(1000)};
  uint64_t last_ = 0;
  CompileActions actions_;
  std::map<uint64_t, Owner> owners_;
  std::map<uint64_t, uint32_t> ran_on_;
  std::map<uint32_t, Owner> served_;  // by each process that lives
  std::vector<uint32_t> ends_, started_;
};

TEST_F(IsolatedCompilesTest, AProcessWithoutWorkMakesRoomForAnotherOwner) {
  Result(Add(1));
  Result(Add(1));
  EXPECT_THAT(Ends(), IsEmpty()) << "the same owner";
  const uint64_t other = Add(2);
  EXPECT_FALSE(ran_on_.contains(other));
  EXPECT_THAT(Ends(), ElementsAre(0));
  Replace(0);
  EXPECT_TRUE(ran_on_.contains(other));
}

TEST_F(IsolatedCompilesTest, SessionsOfOneCertificateShareAProcess) {
  Result(Add(1, "client/alice"));
  const uint64_t other = Add(2, "client/alice");
  EXPECT_TRUE(ran_on_.contains(other));
  EXPECT_THAT(Ends(), IsEmpty());
}

TEST_F(IsolatedCompilesTest, ASpareIsStartedBeforeAProcessIsTaken) {
  Make(2);
  Result(Add(1));
  const uint64_t other = Add(2);
  EXPECT_THAT(started_, ElementsAre(1));
  EXPECT_THAT(Ends(), IsEmpty());
  Up(1);
  EXPECT_EQ(ran_on_.at(other), 1u);
  Result(other);
  const uint64_t third = Add(3);
  EXPECT_THAT(Ends(), ElementsAre(0)) << "it has had no work for longest";
  Replace(0);
  EXPECT_EQ(ran_on_.at(third), 0u);
}

TEST_F(IsolatedCompilesTest, TheEndOfAnOwnerEndsItsProcessesAlsoWhileTheyCompile) {
  Make(2);
  Result(Add(1));
  const uint64_t running = Add(2);
  Up(1);
  EXPECT_EQ(ran_on_.at(running), 1u);
  EndOwner(2);
  EXPECT_THAT(Ends(), ElementsAre(1));
  EndOwner(1);
  EXPECT_THAT(Ends(), ElementsAre(0));
  Replace(0);
  EXPECT_TRUE(ran_on_.contains(Add(3)));
}

TEST_F(IsolatedCompilesTest, AnOwnerWithEndlessWorkKeepsAProcessForItsTurnOnly) {
  std::vector<uint64_t> own;
  for (int i = 0; i < 100; ++i) own.push_back(Add(1));
  const uint64_t other = Add(2);
  size_t done = 0;
  for (; done < own.size() && !ran_on_.contains(other); ++done) {
    now_ += milliseconds(100);
    Result(own[done]);
    if (!Ends().empty()) Replace(0);
  }
  EXPECT_EQ(done, 20u) << "2 s of 100 ms each";
  Result(other);
  EXPECT_THAT(Ends(), ElementsAre(0)) << "the first owner's work is waiting";
  Replace(0);
  EXPECT_TRUE(ran_on_.contains(own[done]));
}

TEST_F(IsolatedCompilesTest, ManyOwnersAllGetTheirTurn) {
  Make(2);
  std::vector<uint64_t> requests;
  for (uint64_t session = 1; session <= 50; ++session) requests.push_back(Add(session));
  for (int round = 0; round < 200; ++round) {
    for (uint32_t spare : std::exchange(started_, {})) Up(spare);
    for (uint32_t end : Ends()) {
      served_.erase(end);
      queue_->OnCompilerDown(end, now_, actions_);
      Take();
      if (end == 0) Up(0);
    }
    for (uint64_t request : requests) {
      if (ran_on_.contains(request) && owners_.erase(request) != 0) Result(request);
    }
    Later(milliseconds(10));
  }
  EXPECT_THAT(owners_, IsEmpty()) << "not all were compiled";
}

}  // namespace
}  // namespace gangway::controller
