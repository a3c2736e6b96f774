// Programs: their operations, the nodes that they count, and where their results are.
#include "gangway/client/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "gangway/client/array_literal.h"
#include "gangway/client/client_impl.h"
#include "gangway/client/recorded_session.h"
#include "gangway/client/scripted_cluster.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

using program::Program;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WorkerKey kFirst{0, 0}, kSecond{1, 0};
constexpr ExecutableHandle kStep{9};

// Two calls of kStep, with a transfer of what the first one makes to devices 2 and 3.
Program TwoSteps() {
  Program program("two_steps");
  const program::ValueId argument = program.AddArgument();
  const program::ValueId first = program.AddCall("9", {argument}, {}, 1);
  const program::ValueId moved = program.AddTransfer(first, {2, 3});
  const program::ValueId second = program.AddCall("9", {first}, {}, 1);
  for (const program::ValueId result : {second, moved, argument}) program.AddResult(result);
  return program;
}

wire::Registered AnswerTo(ProgramHandle program, const absl::Status& status = absl::OkStatus()) {
  wire::Registered registered;
  registered.set_program(NumberOf(program));
  if (!status.ok()) *registered.mutable_failure() = wire::ToFailure(status);
  return registered;
}

class ProgramsTest : public ::testing::Test {
 protected:
  ProgramsTest() {
    handles_.NoteExecutable(
        kStep, std::make_shared<const std::vector<uint32_t>>(std::vector<uint32_t>{0, 1}));
  }
  StatusCallback Note() {
    return [this](const absl::Status& status) { heard_.push_back(status.code()); };
  }
  void End(uint64_t first, uint64_t count, const absl::Status& why = absl::OkStatus()) {
    wire::Progress progress;
    wire::NodesEnded& nodes = *progress.add_nodes();
    nodes.set_first(first);
    nodes.set_count(count);
    if (!why.ok()) *nodes.mutable_failure() = wire::ToFailure(why);
    progress.set_ended(first + count - 1);
    session_.OnLoop([&] { session_.submitter.OnProgress(progress); });
  }
  void LoseAll(const absl::Status& why) {
    session_.Lose(why);
    session_.OnLoop([&] { programs_.EndAll(why); });
  }

  RecordedSession session_;
  Handles& handles_ = session_.handles;
  Programs programs_{&session_.activity, &session_.submitter, &handles_};
  std::vector<absl::StatusCode> heard_;  // on the loop
};

TEST_F(ProgramsTest, AreRegisteredLaunchedAndDroppedInOrder) {
  const ProgramHandle program = programs_.Register(TwoSteps(), std::array{7_array}, nullptr);
  const std::array<GatheredArgument, 1> gathered{{{.index = 1, .shards = {{5_array, 1}}}}};
  programs_.Launch(program, std::array{1_array, ArrayHandle()},
                   std::array{2_array, 3_array, 4_array}, {.gathered = gathered, .ended = nullptr});
  handles_.Call(kStep, std::array{2_array}, std::array{6_array}, {});
  programs_.Drop(std::array{program});
  const std::vector<wire::Op> ops = session_.Ops();
  ASSERT_EQ(ops.size(), 4u);
  EXPECT_EQ(ops[0].register_program().program(), NumberOf(program));
  EXPECT_THAT(ops[0].register_program().like(), ElementsAre(7));
  EXPECT_EQ(ops[0].register_program().definition().name(), "two_steps");
  EXPECT_EQ(ops[0].register_program().definition().nodes_size(), 3);
  EXPECT_EQ(ops[1].launch().program(), NumberOf(program));
  EXPECT_THAT(ops[1].launch().arguments(), ElementsAre(1, 0));
  EXPECT_THAT(ops[1].launch().results(), ElementsAre(2, 3, 4));
  ASSERT_EQ(ops[1].launch().gathered_size(), 1);
  EXPECT_EQ(ops[1].launch().gathered(0).argument(), 1u);
  EXPECT_THAT(ops[1].launch().gathered(0).arrays(), ElementsAre(5));
  EXPECT_THAT(ops[1].launch().gathered(0).shards(), ElementsAre(1));
  EXPECT_EQ(ops[1].launch().nodes(), 3u);
  EXPECT_TRUE(ops[2].has_call());
  EXPECT_THAT(ops[3].drop_programs().handles(), ElementsAre(NumberOf(program)));
}

TEST_F(ProgramsTest, ARepeatedLaunchIsSmall_DF1) {
  program::Program chain("chain");
  program::ValueId x = chain.AddArgument();
  for (int i = 0; i < 128; ++i) x = chain.AddCall("2", {x}, {}, 1);
  chain.AddResult(x);
  const ProgramHandle program = programs_.Register(chain, {}, nullptr);
  const ArrayHandle last{UINT64_MAX};  // no handle takes more bytes
  programs_.Launch(program, std::array{last}, std::array{last});
  EXPECT_LE(session_.Ops().back().ByteSizeLong(), 64u);
}

TEST_F(ProgramsTest, MayBeSequential) {
  programs_.Register(TwoSteps(), {}, nullptr);
  programs_.Register(TwoSteps(), {}, nullptr, /*sequential=*/true);
  const std::vector<wire::Op> ops = session_.Ops();
  EXPECT_FALSE(ops[0].register_program().sequential());
  EXPECT_TRUE(ops[1].register_program().sequential());
}

TEST_F(ProgramsTest, ALaunchCountsItsNodesAndEndsWithTheLastOfThem) {
  const ProgramHandle program = programs_.Register(TwoSteps(), {}, nullptr);
  const OperationId call = handles_.Call(kStep, {}, std::array{1_array}, {});
  const OperationId launch =
      programs_.Launch(program, std::array{1_array}, std::array{2_array, 3_array, 4_array},
                       {.gathered = {}, .ended = Note()});
  const OperationId after = handles_.Call(kStep, {}, std::array{5_array}, {});
  EXPECT_EQ(NumberOf(call), 1u);
  EXPECT_EQ(NumberOf(launch), 4u);
  EXPECT_EQ(NumberOf(after), 5u);
  EXPECT_EQ(session_.submitter.pending(), 5u);
  End(1, 2);
  End(4, 1, absl::DataLossError("lost"));
  EXPECT_THAT(heard_, IsEmpty());
  End(3, 1, absl::InternalError("later"));
  EXPECT_THAT(heard_, ElementsAre(absl::StatusCode::kDataLoss)) << "the first failure";
}

TEST_F(ProgramsTest, ResultsAreWhereTheProgramPutsThem) {
  handles_.NoteArray(7_array,
                     std::make_shared<const std::vector<uint32_t>>(std::vector<uint32_t>{3, 1}));
  Program program = TwoSteps();
  program.AddResult(program.AddView({0, 2}, {0, 0}));  // of the argument and of the moved array
  program.AddResult(program.AddView({0}, {}));         // any replica
  const ProgramHandle handle = programs_.Register(program, std::array{7_array}, nullptr);
  programs_.Launch(handle, std::array{1_array},
                   std::array{2_array, 3_array, 4_array, 5_array, 6_array});
  EXPECT_EQ(handles_.WorkerOf({2_array, 1}), kFirst);
  EXPECT_EQ(handles_.WorkerOf({3_array, 1}), kSecond);
  EXPECT_EQ(handles_.WorkerOf({4_array, 0}), kSecond) << "as the array that it is like";
  EXPECT_EQ(handles_.WorkerOf({5_array, 0}), kSecond);
  EXPECT_EQ(handles_.WorkerOf({5_array, 1}), kSecond);
  EXPECT_EQ(handles_.WorkerOf({6_array, 0}), std::nullopt);
}

TEST_F(ProgramsTest, WhatIsNotKnownOfTheArgumentsIsNotKnownOfTheResults) {
  Program program = TwoSteps();
  program.AddResult(program.AddView({0}, {5}));
  const ProgramHandle handle = programs_.Register(program, {}, nullptr);
  programs_.Launch(handle, std::array{1_array}, std::array{2_array, 3_array, 4_array, 5_array});
  EXPECT_EQ(handles_.WorkerOf({2_array, 0}), kFirst);
  EXPECT_EQ(handles_.WorkerOf({4_array, 0}), std::nullopt);
  EXPECT_EQ(handles_.WorkerOf({5_array, 0}), std::nullopt);
}

// The controller says why: nothing is decided here.
TEST_F(ProgramsTest, AnUnknownProgramCountsAsOneNode) {
  const ProgramHandle program = programs_.Register(TwoSteps(), {}, nullptr);
  programs_.Drop(std::array{program});
  const OperationId launch =
      programs_.Launch(program, {}, std::array{2_array}, {.gathered = {}, .ended = Note()});
  EXPECT_EQ(NumberOf(launch), 1u);
  EXPECT_EQ(handles_.WorkerOf({2_array, 0}), std::nullopt);
  const std::vector<wire::Op> ops = session_.Ops();
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[2].launch().nodes(), 1u);
  End(1, 1, absl::InvalidArgumentError("no such program"));
  EXPECT_THAT(heard_, ElementsAre(absl::StatusCode::kInvalidArgument));
}

TEST_F(ProgramsTest, AViewAloneCountsNoNode) {
  Program program;
  program.AddResult(program.AddView({program.AddArgument()}, {0}));
  const ProgramHandle handle = programs_.Register(program, {}, nullptr);
  EXPECT_EQ(programs_.Launch(handle, std::array{1_array}, std::array{2_array}), OperationId());
  EXPECT_EQ(session_.submitter.pending(), 0u);
}

TEST_F(ProgramsTest, ARegistrationIsAnsweredOnceAlsoWhenItWasDropped) {
  const ProgramHandle first = programs_.Register(TwoSteps(), {}, Note());
  const ProgramHandle second = programs_.Register(TwoSteps(), {}, Note());
  EXPECT_TRUE(session_.activity.awaits());
  programs_.Drop(std::array{second});
  session_.OnLoop([&] {
    programs_.OnRegistered(AnswerTo(second, absl::InvalidArgumentError("no such executable")));
    programs_.OnRegistered(AnswerTo(first));
    programs_.OnRegistered(AnswerTo(first));
    programs_.OnRegistered(AnswerTo(ProgramHandle(4711)));
  });
  EXPECT_THAT(heard_, ElementsAre(absl::StatusCode::kInvalidArgument, absl::StatusCode::kOk));
  EXPECT_FALSE(session_.activity.awaits());
}

TEST_F(ProgramsTest, TheEndOfTheSessionAnswersAll) {
  const ProgramHandle program = programs_.Register(TwoSteps(), {}, Note());
  programs_.Register(TwoSteps(), {}, nullptr);
  programs_.Launch(program, {}, std::array{1_array}, {.gathered = {}, .ended = Note()});
  LoseAll(absl::UnavailableError("cut"));
  EXPECT_THAT(heard_, ElementsAre(absl::StatusCode::kUnavailable, absl::StatusCode::kUnavailable));
  EXPECT_FALSE(session_.activity.awaits());
  const size_t sent = session_.link->frames().size();
  programs_.Register(TwoSteps(), {}, Note());
  programs_.Launch(program, {}, std::array{2_array}, {.gathered = {}, .ended = Note()});
  programs_.Drop(std::array{program});
  session_.OnLoop([] {});
  EXPECT_EQ(heard_.size(), 4u);
  EXPECT_THAT(heard_, testing::Each(absl::StatusCode::kUnavailable));
  EXPECT_EQ(session_.link->frames().size(), sent);
  EXPECT_FALSE(session_.activity.awaits());
}

// Of a session with a scripted controller.
class ClientProgramsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(client_.Open().ok()); }

  ScriptedCluster cluster_;
  ClientImpl client_{cluster_.Options()};
};

TEST_F(ClientProgramsTest, TheControllersAnswerArrives) {
  Arrival<absl::Status> done;
  const ProgramHandle program =
      client_.RegisterProgram(TwoSteps(), {}, [&](const Status& status) { done.Set(status); });
  client_.Launch(program, std::array{1_array}, std::array{2_array, 3_array, 4_array});
  client_.DropPrograms(std::array{program});
  client_.SendNow();
  const std::vector<wire::Op> ops = cluster_.controller().Ops(3);
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[0].register_program().program(), NumberOf(program));
  wire::SessionEvent event;
  *event.mutable_registered() = AnswerTo(program, absl::InvalidArgumentError("node 1"));
  cluster_.controller().SendEvent(std::move(event));
  EXPECT_TRUE(absl::IsInvalidArgument(done.Get()));
}

TEST_F(ClientProgramsTest, TheControllersLossAnswersToo) {
  Arrival<absl::Status> done;
  client_.RegisterProgram(TwoSteps(), {}, [&](const Status& status) { done.Set(status); });
  client_.SendNow();
  cluster_.controller().Ops(1);
  cluster_.controller().Cut();
  EXPECT_TRUE(absl::IsUnavailable(done.Get()));
}

TEST_F(ClientProgramsTest, TheEndOfAClientSendsWhatABlockHolds) {
  {
    ClientImpl client(cluster_.Options());
    ASSERT_TRUE(client.Open().ok());
    client.BeginProgram();
    client.Delete(std::array{1_array});
    client.Call(kStep, std::array{1_array}, std::array{2_array}, {});
  }
  const std::vector<wire::Op> ops = cluster_.controller().Ops(2);
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_TRUE(ops[1].has_call());
}

TEST_F(ClientProgramsTest, AForkedChildHasNoPrograms) {
  const ProgramHandle program = client_.RegisterProgram(TwoSteps(), {}, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    int refused = 0;
    const auto note = [&](const absl::Status& status) { refused += absl::IsUnavailable(status); };
    const bool none =
        client_.RegisterProgram(TwoSteps(), {}, note) == ProgramHandle() &&
        client_.Launch(program, {}, {}, {.gathered = {}, .ended = note}) == OperationId();
    client_.DropPrograms(std::array{program});
    client_.BeginProgram();
    const ProgramCapture capture = client_.EndProgram();
    _exit(none && refused == 2 && capture.operations_sent_as_they_came == 0 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace gangway::client
