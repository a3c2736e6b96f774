// Unit tests of executables.h: what a session has of its compiles. Placement and the queue's answers through a whole
// controller are in compile_test.cc.
#include "gangway/controller/core/executables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gangway/controller/core/room_test_util.h"

namespace gangway::controller {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ExecutablesTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const uint64_t session : {1, 2})
      executables_.Open({SessionId(session), "client", Owner("", SessionId(session))});
    executables_.OnCompilerUp({.process_id = 1}, now_);
  }
  void Compile(uint64_t handle, const Devices& devices, SessionId session = SessionId(1)) {
    wire::CompileOp op;
    op.set_executable(handle);
    op.mutable_devices()->Add(devices.begin(), devices.end());
    executables_.OnCompile(session, op, now_);
  }
  void Answer(uint64_t request) {
    FromCompiler event;
    event.result.set_request(request);
    event.result.mutable_info()->set_name("step");
    event.result.mutable_info()->add_results()->set_shard_bytes(8);
    executables_.OnResult(event, now_);
  }
  void Drop(uint64_t handle, SessionId session = SessionId(1)) {
    wire::DropOp op;
    op.add_handles(handle);
    executables_.OnDrop(session, op, now_);
  }
  // The messages of all Compiled events since the last time, "" for those that have none.
  std::vector<std::string> Compiled() {
    std::vector<std::string> compiled;
    for (const auto& [session, event] : outbox_.Take().to_clients)
      compiled.push_back(event.compiled().failure().message());
    return compiled;
  }
  // Whom Loads and Unloads go to, since the last time.
  std::vector<uint32_t> Islands() {
    std::vector<uint32_t> islands;
    for (const auto& [island, item] : outbox_.Take().to_islands)
      if (item.has_load() || item.has_unload()) islands.push_back(island);
    return islands;
  }

  Time now_ = Time() + std::chrono::hours(1);
  Fleet fleet_{FourWorkers()};
  Outbox outbox_{2, {}, std::chrono::milliseconds(1000)};
  Isolation isolation_{false, fleet_, outbox_};
  Executables executables_{{.reach = Reach::kCluster}, fleet_, isolation_, outbox_};
};

TEST_F(ExecutablesTest, AnExecutableIsLoadedWhereItRunsAndUnloadedThere) {
  Compile(5, {4, 0});
  EXPECT_FALSE(executables_.Find(SessionId(1), ExecutableHandle(5))->ready);
  EXPECT_THAT(Islands(), IsEmpty());
  Answer(1);
  const Executable& executable = *executables_.Find(SessionId(1), ExecutableHandle(5));
  EXPECT_TRUE(executable.ready);
  EXPECT_EQ(executable.devices, fleet_.ListOf(Devices{4, 0}));
  EXPECT_EQ(executable.results.at(0)->shard_bytes, 8u);
  EXPECT_THAT(Islands(), testing::UnorderedElementsAre(0, 1));
  Drop(5);
  EXPECT_THAT(Islands(), testing::UnorderedElementsAre(0, 1));
  EXPECT_EQ(executables_.Find(SessionId(1), ExecutableHandle(5)), nullptr);
}

TEST_F(ExecutablesTest, AHandleMeansNothingInAnotherSession_OB3) {
  Compile(5, {0});
  EXPECT_EQ(executables_.Find(SessionId(2), ExecutableHandle(5)), nullptr);
  Drop(5, SessionId(2));
  EXPECT_NE(executables_.Find(SessionId(1), ExecutableHandle(5)), nullptr);
}

TEST_F(ExecutablesTest, EachCompileIsAnsweredOnce) {
  Compile(5, {0});
  Compile(5, {0});
  EXPECT_THAT(Compiled(), ElementsAre(HasSubstr("executable handle 5 is 0 or in use already")));
  Drop(5);
  EXPECT_THAT(Compiled(), ElementsAre(HasSubstr("dropped while it was being compiled")));
  Answer(1);
  EXPECT_THAT(Compiled(), IsEmpty());
  Compile(6, {0, 0});
  EXPECT_THAT(Compiled(), ElementsAre(HasSubstr("device 0 twice")));
  EXPECT_EQ(executables_.CountOf(SessionId(1)), 0u);
}

TEST_F(ExecutablesTest, AClosedSessionsExecutablesAreUnloadedAndItIsNotAnswered_OB2) {
  Compile(5, {0});
  Answer(1);
  Compile(6, {4});
  Islands();
  executables_.Close(SessionId(1), now_);
  const Actions actions = outbox_.Take();
  EXPECT_THAT(actions.to_clients, IsEmpty());
  ASSERT_EQ(actions.to_islands.size(), 1u);
  EXPECT_EQ(actions.to_islands[0].first, 0u);
  Answer(2);
  EXPECT_THAT(Compiled(), IsEmpty());
}

}  // namespace
}  // namespace gangway::controller
