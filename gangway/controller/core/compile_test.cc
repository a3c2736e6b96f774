// The controller core's compiles: where a program may run, when it is answered, and what is loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/compile_blame.h"
#include "gangway/controller/core/controller_test_util.h"
#include "gangway/wire/collective_limits.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ControllerTest, ACompileWaitsForTheCompilerButOnlySoLong) {
  Step(CompilerDown{});
  Compile(5, {0});
  EXPECT_THAT(requests_, IsEmpty());
  ASSERT_TRUE(controller_->next_deadline().has_value());
  Tick(milliseconds(999));
  EXPECT_THAT(CompiledEvents(5), IsEmpty());
  Compile(6, {0});
  Tick(milliseconds(1));
  ASSERT_EQ(CompiledEvents(5).size(), 1u);
  EXPECT_EQ(CompiledEvents(5)[0].failure().code(), static_cast<int>(StatusCode::kUnavailable));
  Step(CompilerUp{2});
  ASSERT_EQ(requests_.size(), 1u);
  FinishCompile(requests_[0].request());
  EXPECT_FALSE(CompiledEvents(6).at(0).has_failure());
  EXPECT_FALSE(controller_->next_deadline().has_value());
}

TEST_F(ControllerTest, ACompilerThatDiesIsAskedAgain) {
  Compile(5, {0});
  requests_.clear();
  Step(CompilerDown{});
  EXPECT_THAT(CompiledEvents(5), IsEmpty());
  Step(CompilerUp{2});
  ASSERT_EQ(requests_.size(), 1u);
  FinishCompile(requests_[0].request());
  EXPECT_FALSE(CompiledEvents(5).at(0).has_failure());
}

TEST_F(ControllerTest, WhatIsAskedOfAClientIsNoExecutable) {
  Compile(5, {0});
  FromCompiler asks;
  asks.result.set_request(requests_.at(0).request());
  asks.result.mutable_info()->set_asks("how?");
  Step(std::move(asks));
  ASSERT_EQ(CompiledEvents(5).size(), 1u);
  EXPECT_EQ(CompiledEvents(5)[0].info().asks(), "how?");
  EXPECT_FALSE(CompiledEvents(5)[0].has_failure());
  EXPECT_THAT(items_, IsEmpty()) << "no worker loads it";
  Compile(5, {0});  // its handle is free again
  FinishCompile(requests_.back().request());
  EXPECT_TRUE(CompiledEvents(5).back().info().asks().empty());
}

TEST_F(ControllerTest, NamesThatAProgramChoseAreEscaped) {
  Compile(5, {0});
  FromCompiler compiled;
  compiled.result.set_request(requests_.at(0).request());
  compiled.result.mutable_info()->set_name("jit_f\n\x1b[2J");
  compiled.result.mutable_info()->set_source(absl::StrCat(std::string(9999, 'y'), ".py:1"));
  Step(std::move(compiled));
  EXPECT_EQ(CompiledEvents(5).at(0).info().name(), "jit_f\\n\\x1b[2J");
  ASSERT_EQ(items_.size(), 1u);
  EXPECT_EQ(items_[0].second.load().name(), "jit_f\\n\\x1b[2J");
  EXPECT_EQ(items_[0].second.load().source().size(), wire::kNameMax);
}

TEST_F(ControllerTest, AProgramThatKillsTheCompilerIsQuarantinedForAllSessions) {
  Compile(5, {0});
  for (int i = 0; i < 2; ++i) {
    Step(CompilerDown{});
    Step(CompilerUp{2});
    Tick(controller::kOneCause);
  }
  ASSERT_EQ(CompiledEvents(5).size(), 1u);
  EXPECT_THAT(CompiledEvents(5)[0].failure().message(), HasSubstr("is quarantined"));
  requests_.clear();
  Compile(6, {2}, 2);
  EXPECT_THAT(CompiledEvents(6).at(0).failure().message(), HasSubstr("is quarantined"));
  EXPECT_THAT(requests_, IsEmpty());
}

TEST_F(ControllerTest, ARefusedCompileRequestIsAnswered) {
  Compile(5, {0});
  controller::CompileNotSent refused{.request = requests_.back().request()};
  refused.failure.set_message("too large for the link");
  Step(refused);
  EXPECT_EQ(CompiledEvents(5).at(0).failure().message(), "too large for the link");
}

TEST_F(ControllerTest, TheCompilesOfALostSessionAreDropped_OB2) {
  Compile(5, {0}, 2);
  Compile(6, {0}, 2);
  Compile(7, {0});
  Step(SessionLost{SessionId(2)});
  FinishCompile(requests_[0].request());
  FinishCompile(requests_.back().request());
  EXPECT_FALSE(CompiledEvents(7).at(0).has_failure());
  EXPECT_THAT(CompiledEvents(6), IsEmpty());
}

TEST_F(ControllerTest, ACompileThatWasDroppedIsAnswered) {
  Compile(5, {0});
  wire::Op op;
  op.mutable_drop_executables()->add_handles(5);
  Do(op);
  items_.clear();
  FinishCompile(requests_.back().request());
  ASSERT_EQ(CompiledEvents(5).size(), 1u);
  EXPECT_EQ(CompiledEvents(5)[0].failure().code(), static_cast<int>(StatusCode::kCancelled));
  EXPECT_THAT(items_, IsEmpty()) << "nothing to load";
}

TEST_F(ControllerTest, AHandleUsedTwiceDoesNotTakeTheFirstCompileDown) {
  Compile(5, {0});
  uint64_t first = requests_.back().request();
  Compile(5, {1});
  EXPECT_TRUE(CompiledEvents(5).at(0).has_failure());
  FinishCompile(first);
  EXPECT_FALSE(CompiledEvents(5).at(1).has_failure());
  Have(10, {0});
  EXPECT_NE(Call(5, {10}, {11}), 0u);
}

TEST_F(ControllerTest, DevicesOfSeveralWorkersAreRefusedByName) {
  Compile(5, {1, 2});
  EXPECT_EQ(CompiledEvents(5).at(0).failure().code(), static_cast<int>(StatusCode::kUnimplemented));
  EXPECT_THAT(CompiledEvents(5)[0].failure().message(),
              HasSubstr("island0/worker0, island0/worker1"));
  Compile(6, {0, 0});
  EXPECT_THAT(CompiledEvents(6).at(0).failure().message(), HasSubstr("twice"));
  Compile(7, {});
  EXPECT_THAT(CompiledEvents(7).at(0).failure().message(), HasSubstr("no device"));
}

TEST_F(ControllerTest, AProgramOverAnIslandIsCompiledForOnePosition) {
  Make(Reach::kIsland);
  Compile(5, {2, 1});
  ASSERT_EQ(requests_.size(), 1u);
  EXPECT_TRUE(requests_[0].spans_workers());
  EXPECT_EQ(requests_[0].device_count(), 2u);
  items_.clear();
  FromCompiler compiled;
  compiled.result.set_request(requests_[0].request());
  compiled.result.mutable_positions()->set_partitions(2);
  Step(std::move(compiled));
  ASSERT_EQ(items_.size(), 1u);
  EXPECT_EQ(items_[0].first, 0u);
  EXPECT_EQ(items_[0].second.load().positions().partitions(), 2u);
  EXPECT_THAT(items_[0].second.load().devices(), ElementsAre(2, 1));
  Compile(6, {0, 1});
  EXPECT_FALSE(requests_.back().spans_workers()) << "both are on one worker";
  Compile(7, {0, 4});
  EXPECT_THAT(CompiledEvents(7).at(0).failure().message(), HasSubstr("several islands"));
}

TEST_F(ControllerTest, WhatTheCompilerRefusesOverWorkersNamesThem) {
  Make(Reach::kIsland);
  for (const bool over_workers : {true, false}) {
    Compile(over_workers ? 5 : 6, {1, 2});
    FromCompiler refused;
    refused.result.set_request(requests_.back().request());
    refused.result.set_refused_over_workers(over_workers);
    *refused.result.mutable_failure() =
        wire::MakeFailure(StatusCode::kUnimplemented, "it communicates");
    Step(std::move(refused));
  }
  EXPECT_EQ(CompiledEvents(5).at(0).failure().message(),
            "it communicates (its devices are of island0/worker0, island0/worker1)");
  EXPECT_EQ(CompiledEvents(6).at(0).failure().message(), "it communicates");
}

// An island beyond the limits of Gangway's collectives: worker 0 has one device too many, worker 1 has two devices, the
// others have one each, and there are two workers too many.
class LargeIslandTest : public ControllerTest {
 protected:
  static constexpr uint32_t kMost = wire::kCollectiveDevicesMax;

  void SetUp() override {
    ControllerConfig config;
    config.own_collectives = true;
    uint32_t next = 0;
    for (uint32_t i = 0; i < wire::kCollectiveWorkersMax + 2; ++i) {
      wire::Worker worker;
      worker.set_index(i);
      const uint32_t count = i == 0 ? kMost + 1 : i == 1 ? 2 : 1;
      for (uint32_t k = 0; k < count; ++k) worker.add_devices(next++);
      config.workers.push_back(std::move(worker));
    }
    Make(std::move(config));
  }

  // The only device of a worker, or the first.
  static uint32_t DeviceOf(uint32_t worker) { return kMost + worker + (worker > 1 ? 1 : 0); }

  // The failure of a program for these devices; empty: it is loaded.
  std::string Compiled(uint64_t handle, const Devices& devices, bool has_collectives) {
    Compile(handle, devices);
    FromCompiler compiled;
    compiled.result.set_request(requests_.back().request());
    compiled.result.mutable_positions()->set_partitions(static_cast<uint32_t>(devices.size()));
    compiled.result.mutable_info()->set_has_collectives(has_collectives);
    items_.clear();
    Step(std::move(compiled));
    const std::string failure = CompiledEvents(handle).at(0).failure().message();
    EXPECT_EQ(items_.empty(), !failure.empty());
    return failure;
  }
};

TEST_F(LargeIslandTest, ProgramsThatCommunicateOverWorkersBeyondTheLimitsAreRefusedByName) {
  EXPECT_EQ(Compiled(5, {DeviceOf(1), DeviceOf(1023)}, true), "");
  EXPECT_THAT(Compiled(6, {DeviceOf(1), DeviceOf(1024)}, true),
              AllOf(HasSubstr("island0/worker1024"), HasSubstr("first 1024 workers")));
  EXPECT_EQ(Compiled(7, {DeviceOf(1), DeviceOf(1024)}, false), "") << "it does not communicate";
  EXPECT_THAT(Compiled(8, {0, DeviceOf(1)}, true),
              AllOf(HasSubstr("island0/worker0, which has 65 devices"),
                    HasSubstr("at most 64 devices each")));
}

TEST_F(LargeIslandTest, ProgramsInsideOfAWorkerWithTooManyDevicesUseTheRuntimesCollectives) {
  Compile(5, {DeviceOf(1), DeviceOf(1) + 1});
  EXPECT_TRUE(requests_.back().own_collectives());
  Compile(6, {0, 1});
  EXPECT_FALSE(requests_.back().own_collectives());
}

}  // namespace
}  // namespace gangway::controller
