// Questions: each is answered once, by its answer or by the end of the session.
#include "gangway/client/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "gangway/client/array_literal.h"
#include "gangway/client/recorded_session.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

using ::testing::ElementsAre;

class QuestionsTest : public ::testing::Test {
 protected:
  StatusCallback Note() {
    return [this](const absl::Status& status) { heard_.push_back(status.code()); };
  }
  CompileCallback NoteCompiled() {
    return [this](const auto& info) {
      const absl::Status status = info.status();
      heard_.push_back(status.code());
    };
  }

  RecordedSession session_{/*reports_ends=*/false};
  Questions questions_{&session_.loop, &session_.activity, &session_.submitter};
  std::vector<absl::StatusCode> heard_;  // on the loop
};

TEST_F(QuestionsTest, AnAwaitIsSentAtOnceAndAnsweredOnce) {
  questions_.Await(std::array{3_array, 4_array}, Note());
  ASSERT_EQ(session_.link->frames().size(), 2u);
  const wire::Op op = session_.link->frames()[1].session_batch().ops(0);
  EXPECT_THAT(op.await().arrays(), ElementsAre(3, 4));
  EXPECT_TRUE(session_.activity.awaits());
  wire::AwaitDone done;
  done.set_await(op.await().await());
  *done.mutable_failure() = wire::ToFailure(absl::DataLossError("lost"));
  questions_.OnAwaitDone(done);
  questions_.OnAwaitDone(done);
  EXPECT_THAT(heard_, ElementsAre(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(session_.activity.awaits());
}

TEST_F(QuestionsTest, ACompileWithoutOptionsAsksForAReplicaOnEachDevice) {
  questions_.Compile(ExecutableHandle(9), "program", "mlir", "", std::array<uint32_t, 3>{0, 1, 2},
                     NoteCompiled());
  const std::vector<wire::Op> ops = session_.Ops();
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(ops[0].compile().executable(), 9u);
  EXPECT_EQ(ops[0].compile().options(), "\x1a\x02\x20\x03");  // build options: 3 replicas
  wire::Compiled compiled;
  compiled.set_executable(9);
  *compiled.mutable_failure() = wire::ToFailure(absl::InvalidArgumentError("no such op"));
  questions_.OnCompiled(compiled);
  EXPECT_THAT(heard_, ElementsAre(absl::StatusCode::kInvalidArgument));
}

TEST_F(QuestionsTest, TheEndOfTheSessionAnswersAll) {
  questions_.Await(std::array{1_array}, Note());
  questions_.Compile(ExecutableHandle(9), "program", "mlir", "", std::array<uint32_t, 1>{0},
                     NoteCompiled());
  for (int i = 0; i < 2; ++i) {
    questions_.Usage([this](const auto& usage) { Note()(usage.status()); });
    questions_.Profile(42, [this](const auto& profile) { Note()(profile.status()); });
  }
  session_.OnLoop([] {});
  EXPECT_THAT(heard_, ElementsAre(absl::StatusCode::kResourceExhausted)) << "the second profile";
  heard_.clear();
  session_.OnLoop([&] {
    session_.submitter.Lose(absl::UnavailableError("cut"));
    questions_.EndAll(absl::UnavailableError("cut"));
    EXPECT_EQ(heard_.size(), 5u);
  });
  EXPECT_FALSE(session_.activity.awaits());
  questions_.Await(std::array{1_array}, Note());
  questions_.Usage([this](const auto& usage) { Note()(usage.status()); });
  questions_.Profile(42, [this](const auto& profile) { Note()(profile.status()); });
  session_.OnLoop([] {});
  EXPECT_EQ(heard_.size(), 8u);
  EXPECT_THAT(heard_, testing::Each(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace gangway::client
