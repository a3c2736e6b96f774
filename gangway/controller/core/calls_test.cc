// Tests of calls.h, through a whole controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/controller/core/controller_test_util.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using CallsTest = ControllerTest;

TEST_F(CallsTest, CallsThatDoNotFitSayWhy) {
  HaveProgram(5, {0});
  Have(10, {0});
  Have(11, {1});
  EXPECT_EQ(Call(5, {10, 10}, {20}), 0u);
  EXPECT_THAT(Await({20})->message(),
              HasSubstr("takes 1 arguments and gives 1 results, the call has 2 and 1"));
  EXPECT_EQ(Call(5, {11}, {21}), 0u);
  EXPECT_THAT(Await({21})->message(),
              HasSubstr("argument 0 is on devices 1, the program runs on devices 0"));
  EXPECT_EQ(Await({21})->program(), "step");
  wire::Op upload;
  upload.mutable_upload()->set_array(12);
  upload.mutable_upload()->set_upload(12);
  upload.mutable_upload()->mutable_spec()->set_element_type(4);
  upload.mutable_upload()->mutable_spec()->add_shard_dims(3);
  upload.mutable_upload()->mutable_spec()->set_shard_bytes(12);
  upload.mutable_upload()->mutable_spec()->add_devices(0);
  EXPECT_NE(OrdinalOf(std::move(upload), 1), 0u);
  EXPECT_EQ(Call(5, {12}, {25}), 0u);
  EXPECT_THAT(Await({25})->message(),
              HasSubstr("has shards of s32[3], the program was compiled for f32[2]: convert"));
  EXPECT_EQ(Copy(10, 22, {99}), 0u);
  EXPECT_THAT(Await({22})->message(), HasSubstr("device 99 is not part of this cluster"));
  EXPECT_EQ(Upload(24, {1, 1}), 0u);
  EXPECT_THAT(Await({24})->message(), HasSubstr("device 1 twice"));
  EXPECT_EQ(Copy(10, 23, {0, 1}), 0u);
  EXPECT_THAT(Await({23})->message(), HasSubstr("keeps the number of shards"));
}

TEST_F(CallsTest, UseAfterDonationIsRefused_OB1) {
  HaveProgram(5, {0}, /*donates=*/true);
  Have(10, {0});
  Regroup(11, {{10, 0}});
  EXPECT_NE(Call(5, {10}, {20}), 0u);
  EXPECT_EQ(Freed(0).size(), 1u) << "the launch frees the shards, though handles are left";
  for (uint64_t handle : {10, 11}) {
    EXPECT_EQ(Call(5, {handle}, {handle + 100}), 0u);
    EXPECT_THAT(Await({handle + 100})->message(), HasSubstr("deleted or donated"));
  }
  items_.clear();
  Drop({10, 11});
  EXPECT_THAT(Freed(0), IsEmpty()) << "once";
}

TEST_F(CallsTest, ADonatedArgumentMustNotBeUsedTwiceByItsCall) {
  HaveProgram(5, {0});
  wire::Op op;
  op.mutable_compile()->set_executable(6);
  op.mutable_compile()->add_devices(0);
  Do(op);
  FromCompiler result;
  result.result.set_request(requests_.back().request());
  for (int i = 0; i < 2; ++i) {
    wire::TensorSpec* spec = result.result.mutable_info()->add_parameters();
    spec->set_element_type(11);
    spec->add_shard_dims(2);
  }
  result.result.mutable_info()->add_donated(0);
  Step(result);
  Have(10, {0});
  Regroup(11, {{10, 0}});
  EXPECT_EQ(Call(6, {10, 11}, {}), 0u);
  EXPECT_EQ(Await({10})->code(), 0) << "nothing was consumed";
}

TEST_F(CallsTest, MessagesDoNotDependOnTheNumberOfShards_DF1) {
  for (const Devices& devices : {Devices{0}, Devices{0, 1, 2, 3}}) {
    uint64_t base = 100 * devices.size();
    items_.clear();
    Upload(base, devices);
    Copy(base, base + 1, devices);
    EXPECT_EQ(items_.size(), 2u);
  }
}

TEST_F(CallsTest, AnArgumentMayBeAListOfShards) {
  HaveProgram(50, {0, 1});
  Have(10, {0, 1});
  Have(11, {1, 0});
  const uint64_t ordinal = CallGathered(50, {{10, 0}, {11, 0}}, 20);
  ASSERT_NE(ordinal, 0u);
  const wire::Launch& launch = items_[0].second.node().launch();
  ASSERT_EQ(launch.arguments(0).runs_size(), 2);
  EXPECT_EQ(launch.arguments(0).runs(0).storage(), 1u);
  EXPECT_EQ(launch.arguments(0).runs(1).storage(), 2u);
  Done(0, ordinal);
  EXPECT_EQ(Await({20})->code(), 0);
}

TEST_F(CallsTest, AListOfShardsThatDoesNotFitIsRefused) {
  HaveProgram(50, {0, 1});
  Have(10, {0, 1});
  Have(11, {0});
  const std::vector<std::vector<std::pair<uint64_t, uint32_t>>> wrong = {{},
                                                                         {{10, 0}},
                                                                         {{10, 0}, {10, 2}},
                                                                         {{10, 1}, {10, 0}},
                                                                         {{10, 0}, {11, 0}},
                                                                         {{10, 0}, {99, 0}}};
  uint64_t result = 20;
  for (const auto& shards : wrong) {
    EXPECT_EQ(CallGathered(50, shards, ++result), 0u);
    EXPECT_EQ(Await({result})->code(), static_cast<int>(StatusCode::kInvalidArgument));
  }
  wire::Op op = GatheredCall(50, {{10, 0}, {10, 1}}, 30);
  op.mutable_call()->set_arguments(0, 10);  // an array and a list
  EXPECT_EQ(OrdinalOf(op, 1), 0u);
  op = GatheredCall(50, {{10, 0}, {10, 1}}, 31);
  op.mutable_call()->mutable_gathered(0)->set_argument(9);
  EXPECT_EQ(OrdinalOf(op, 1), 0u);
}

TEST_F(CallsTest, DonationConsumesTheNamedShardsOnly_OB1) {
  HaveProgram(50, {0, 1}, /*donates=*/true);
  Have(10, {0, 1});
  Have(11, {0, 1});
  ASSERT_NE(CallGathered(50, {{10, 0}, {11, 1}}, 20), 0u);
  EXPECT_THAT(FreedShards(), ElementsAre("1:0+1", "2:1+1"));
  for (uint64_t whole : {10, 11}) EXPECT_NE(Await({whole})->code(), 0);
  ASSERT_NE(CallGathered(50, {{11, 0}, {10, 1}}, 21), 0u);
  EXPECT_EQ(CallGathered(50, {{11, 0}, {10, 1}}, 22), 0u);  // gone
  Drop({10, 11, 20, 21, 22});
}

// The worker 0 of island 0 dies with these launches on its devices.
TEST_F(CallsTest, AProgramThatEndsWorkersRunsAloneAndIsThenRefused_ER2) {
  auto die_with = [this](const std::vector<uint64_t>& gangs) {
    wire::Report report;
    wire::WorkerState* state = report.mutable_worker_state();
    for (uint32_t device : {0, 1}) state->mutable_worker()->add_devices(device);
    state->mutable_gangs()->Add(gangs.begin(), gangs.end());
    *state->mutable_failure() = wire::MakeFailure(StatusCode::kDataLoss, "the worker is gone");
    Report(0, std::move(report));
    for (uint64_t gang : gangs) Done(0, gang, "the worker is gone");
    BringUp(0, 0, 5);
  };
  auto is_alone = [this] { return items_.back().second.node().launch().alone(); };
  Have(1, {2});
  HaveProgram(5, {2}, false, 1);
  HaveProgram(6, {2}, false, 1);
  const uint64_t bad = Call(5, {1}, {10}), good = Call(6, {1}, {11});
  EXPECT_FALSE(is_alone());
  die_with({bad, good});
  const uint64_t good_again = Call(6, {1}, {12});
  EXPECT_TRUE(is_alone());
  Done(0, good_again);
  EXPECT_NE(Call(6, {1}, {13}), 0u);
  EXPECT_FALSE(is_alone()) << "it has run well alone";
  const uint64_t bad_again = Call(5, {1}, {14});
  EXPECT_TRUE(is_alone());
  die_with({bad_again});
  EXPECT_EQ(Call(5, {1}, {15}), 0u);
  EXPECT_EQ(Await({15})->code(), static_cast<int>(StatusCode::kFailedPrecondition));
  EXPECT_THAT(Await({15})->message(), HasSubstr("quarantined"));
  EXPECT_NE(Call(6, {1}, {16}), 0u) << "another program of the same session";
  now_ += std::chrono::minutes(10);
  EXPECT_NE(Call(5, {1}, {17}), 0u) << "after the quarantine";
}

TEST_F(CallsTest, AProgramThatIsAbandonedAgainAndAgainIsRefused_ER2) {
  const auto launch = [this](uint64_t session) {
    Step(SessionOpened{SessionId(session), "script"});
    Compile(5, {0, 1}, session);
    FromCompiler compiled;
    compiled.result.set_request(requests_.back().request());
    compiled.result.mutable_info()->set_fingerprint("endless");
    compiled.result.mutable_info()->add_results()->set_shard_bytes(8);
    Step(std::move(compiled));
    return Call(5, {}, {10}, session);
  };
  const auto end_session = [this](uint64_t session) { Step(SessionLost{SessionId(session)}); };
  // Its worker is told to end, and says so.
  const auto abandon = [&, this](uint64_t session) {
    const uint64_t gang = launch(session);
    end_session(session);
    for (int again = 0; again < 2; ++again) {  // as if it had held devices of two workers
      wire::Report report;
      report.mutable_worker_state()->set_ended_for(gang);
      *report.mutable_worker_state()->mutable_failure() =
          wire::MakeFailure(StatusCode::kDataLoss, "the worker is gone");
      BringUp(0, 0, 2 * session + again);
      Report(0, std::move(report));
    }
    for (const auto& [to, event] : events_) EXPECT_FALSE(event.worker_state().has_ended_for());
    Done(0, gang, "the worker is gone");
    BringUp(0, 0, 2 * session + 2);
    return gang != 0;
  };
  EXPECT_TRUE(abandon(11));
  EXPECT_TRUE(abandon(12));
  Done(0, launch(13));  // it ends, and is cleared
  end_session(13);
  for (uint64_t session : {14, 15, 16}) EXPECT_TRUE(abandon(session)) << session;
  EXPECT_EQ(launch(17), 0u);
  EXPECT_EQ(Await({10}, 17)->code(), static_cast<int>(StatusCode::kFailedPrecondition));
  EXPECT_THAT(Await({10}, 17)->message(), HasSubstr("no session waited for it any more"));
  now_ += std::chrono::minutes(10);
  for (uint64_t session : {1, 2, 17}) end_session(session);
  for (uint64_t session = 20; session < 26; ++session)
    EXPECT_TRUE(abandon(session)) << "it is alone, and takes nothing from others";
}

// Four programs of one certificate's sessions each crash the worker 0 of island 0, and its compiler five times.
TEST_F(CallsTest, AnOwnersNextSessionDoesNotStartClean) {
  const auto open = [this](uint64_t session, const std::string& owner) {
    Step(SessionOpened{SessionId(session), "script", /*wants_ends=*/false, owner});
    wire::Op op;
    op.mutable_compile()->set_executable(5);
    op.mutable_compile()->add_devices(0);
    op.mutable_compile()->set_program(absl::StrCat("program of ", session));
    Do(std::move(op), session);
  };
  const auto run = [this](uint64_t session) {
    FromCompiler compiled;
    compiled.result.set_request(requests_.back().request());
    compiled.result.mutable_info()->set_fingerprint(absl::StrCat("program of ", session));
    compiled.result.mutable_info()->add_results()->set_shard_bytes(8);
    Step(std::move(compiled));
    return Call(5, {}, {10}, session);
  };
  for (uint64_t session = 11; session <= 14; ++session) {
    open(session, "client/a");
    wire::Report report;
    report.mutable_worker_state()->add_gangs(run(session));
    *report.mutable_worker_state()->mutable_failure() =
        wire::MakeFailure(StatusCode::kDataLoss, "the worker is gone");
    const uint64_t gang = report.worker_state().gangs(0);
    EXPECT_NE(gang, 0u) << session;
    BringUp(0, 0, 2 * session);
    Report(0, std::move(report));
    Done(0, gang, "the worker is gone");
    BringUp(0, 0, 2 * session + 1);
    Step(SessionLost{SessionId(session)});
  }
  open(20, "client/a");
  EXPECT_EQ(run(20), 0u);
  EXPECT_THAT(Await({10}, 20)->message(), HasSubstr("client/a is quarantined"));
  open(21, "client/b");
  EXPECT_NE(run(21), 0u);
  for (uint64_t session = 30; session < 35; ++session) {
    open(session, "client/a");
    Step(CompilerDown{});
    Step(SessionLost{SessionId(session)});
    Step(CompilerUp{session});
  }
  open(40, "client/a");
  ASSERT_FALSE(CompiledEvents(5).empty());
  EXPECT_THAT(CompiledEvents(5).back().failure().message(),
              HasSubstr("client/a may compile nothing"));
}

TEST_F(CallsTest, CallbacksNestToALimit) {
  Have(1, {2});
  Compile(5, {2});
  FromCompiler compiled;
  compiled.result.set_request(requests_.back().request());
  compiled.result.mutable_info()->set_name("step");
  compiled.result.mutable_info()->set_calls_host(true);
  Step(std::move(compiled));
  auto call = [this](uint32_t depth, uint64_t executable) {
    wire::Op op;
    op.mutable_call()->set_executable(executable);
    op.mutable_call()->set_callback_depth(depth);
    return OrdinalOf(std::move(op), 1);
  };
  EXPECT_NE(call(3, 5), 0u);
  EXPECT_EQ(items_.back().second.node().launch().callback_depth(), 3u);
  const uint64_t before = items_.size();
  EXPECT_EQ(call(4, 5), 0u);
  EXPECT_EQ(items_.size(), before);
  Compile(6, {2});
  FromCompiler plain;
  plain.result.set_request(requests_.back().request());
  Step(std::move(plain));
  EXPECT_NE(call(4, 6), 0u) << "a program without callbacks";
}

}  // namespace
}  // namespace gangway::controller
