// A program of 10,000 nodes over the workers of two islands, and what goes wrong in the middle of its launch: a worker
// is killed, a node fails, its session ends, a scheduler is lost. What depends on that fails by name (ER-1), all else
// goes on (ER-2), another session notices nothing that it need not, and nothing is left (OB-1, OB-2), each in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/cli/tool_link.h"
#include "gangway/client/client_impl.h"
#include "gangway/simulation/user.h"
#include "gangway/wire/failure.h"

namespace gangway::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uint64_t kBytes = 64;
constexpr size_t kChains = 4;    // one on each worker, of one device each
constexpr size_t kCalls = 2499;  // of each chain; with the transfers at its end, 10,000 nodes
constexpr size_t kNodes = kChains * (kCalls + 1);
constexpr milliseconds kMiddle{250};  // after the launch: each chain takes half a second
constexpr seconds kFailureMax{1};     // from the fault to the answers that name it
constexpr seconds kRestMax{20};

std::string Text(const std::string& name, const std::string& more = "") {
  return absl::StrCat("sim 1\nname ", name, "\ncost_us 200\n", more, "input 11 16\noutput 11 16\n");
}

// A chain on each worker's device, and a copy of its end to the device of the next worker.
class Program {
 public:
  Program(Processes& processes, const std::string& name)
      : name_(name),
        user_(processes, name),
        client_(static_cast<client::ClientImpl&>(user_.client())) {}

  // In the chain of `failing`, the call in the middle fails.
  void Register(std::optional<size_t> failing = std::nullopt) {
    program::Program graph(name_);
    for (size_t i = 0; i < kChains; ++i) graph.AddArgument();
    for (uint32_t i = 0; i < kChains; ++i) {
      const ExecutableHandle step = user_.Compile(Text("step"), {i});
      program::ValueId x = i;
      for (size_t call = 0; call < kCalls; ++call) {
        const bool fails = failing == i && call == kCalls / 2;
        const ExecutableHandle called =
            fails ? user_.Compile(
                        Text("bad", absl::StrCat("partitions 1\nfails ", i, " 0\nall_reduce 0\n")),
                        {i})
                  : step;
        x = graph.AddCall(absl::StrCat(NumberOf(called)), {x}, {}, 1);
        graph.SetSource(absl::StrCat("train.cc:", call));
      }
      graph.AddResult(graph.AddTransfer(x, {(i + 1) % static_cast<uint32_t>(kChains)}));
    }
    ASSERT_EQ(graph.work_count(), kNodes);
    auto registered = std::make_shared<Answer<absl::Status>>();
    program_ = client_.RegisterProgram(
        graph, {}, [registered](const Status& status) { registered->Set(status); });
    User::Expect(registered);
  }
  void Launch() {
    std::vector<ArrayHandle> arguments;
    for (uint32_t i = 0; i < kChains; ++i) arguments.push_back(user_.Make({i}, kBytes));
    results_.clear();
    for (size_t i = 0; i < kChains; ++i) results_.push_back(client_.NewArrayHandle());
    client_.Launch(program_, arguments, results_);
    client_.Drop(arguments);
    for (const ArrayHandle result : results_) ready_.push_back(user_.WhenReady(result));
    client_.SendNow();
  }
  // Of the chain, within the limit.
  absl::Status ResultOf(size_t chain, seconds limit) {
    const auto status = ready_[chain]->WaitFor(limit);
    EXPECT_TRUE(status.has_value()) << name_ << ": chain " << chain << " was not answered in time";
    return status.value_or(absl::OkStatus());
  }
  void Drop() {
    client_.Drop(results_);
    client_.DropPrograms({&program_, 1});
  }
  User& user() { return user_; }

 private:
  const std::string name_;
  User user_;
  client::ClientImpl& client_;
  ProgramHandle program_{};
  std::vector<ArrayHandle> results_;
  std::vector<Ready> ready_;
};

class ProgramFaultsTest : public ::testing::Test {
 protected:
  // Two islands of two workers of one device.
  static ProcessesOptions Options(std::set<uint32_t> separate_schedulers = {}) {
    ProcessesOptions options;
    options.islands = {{1, 1}, {1, 1}};
    options.separate_schedulers = std::move(separate_schedulers);
    return options;
  }
  static void Run(const ProcessesOptions& options,
                  const std::function<void(Processes& processes)>& test) {
    FiberWorld world(7);
    const absl::Status ended = world.Run(
        [&] {
          Processes processes(&world, options);
          ASSERT_EQ(processes.Start(), absl::OkStatus());
          test(processes);
          ExpectRest(processes);
        },
        std::chrono::hours(1));
    EXPECT_EQ(ended, absl::OkStatus());
  }
  static std::string Held(const wire::StatusReply& status) {
    for (const auto& session : status.sessions())
      if (session.arrays() + session.programs() + session.pending_nodes() != 0)
        return session.ShortDebugString();
    for (const auto& worker : status.workers()) {
      if (worker.nodes() != 0) return worker.ShortDebugString();
      for (const auto& device : worker.devices())
        if (device.bytes() != 0) return device.ShortDebugString();
    }
    return "";
  }
  static void ExpectRest(Processes& processes) {
    const auto network = processes.Join("tool");
    const auto deadline = Clock::now() + kRestMax;
    std::string held = "no answer";
    while (!held.empty() && Clock::now() < deadline) {
      const auto status =
          cli::AskStatus(*network, Processes::kControlAddress, Processes::kToken, seconds(5));
      if (status.ok()) held = Held(*status);
      if (!held.empty()) Answer<bool>().WaitFor(milliseconds(50));
    }
    EXPECT_EQ(held, "");
  }
  static void Wait(milliseconds time) { Answer<bool>().WaitFor(time); }
};

TEST_F(ProgramFaultsTest, AKilledWorkerFailsWhatNeedsItByName_ER1_ER2) {
  Run(Options(), [](Processes& processes) {
    Program program(processes, "killed"), other(processes, "other");
    program.Register();
    other.Register();
    program.Launch();
    Wait(kMiddle);
    processes.KillWorker({0, 1});        // device 1
    for (const size_t chain : {0, 1}) {  // one computes there, the other one's copy goes there
      const absl::Status status = program.ResultOf(chain, kFailureMax);
      const wire::Failure failure = wire::ToFailure(status);
      EXPECT_THAT(failure.worker(), HasSubstr("island0/worker1")) << status;
      EXPECT_EQ(failure.launched_program(), "killed") << status;
      EXPECT_TRUE(failure.has_node());
    }
    for (const size_t chain : {2, 3})
      EXPECT_EQ(program.ResultOf(chain, seconds(5)), absl::OkStatus());
    program.Drop();
    other.Launch();  // on the worker's next process, too
    for (size_t chain = 0; chain < kChains; ++chain)
      EXPECT_EQ(other.ResultOf(chain, seconds(30)), absl::OkStatus());
    other.Drop();
  });
}

TEST_F(ProgramFaultsTest, AFailedNodeFailsItsDependentsByName_ER1_ER2) {
  Run(Options(), [](Processes& processes) {
    Program program(processes, "failing");
    program.Register(/*failing=*/2);
    program.Launch();
    const absl::Status status = program.ResultOf(2, seconds(10));
    const wire::Failure failure = wire::ToFailure(status);
    EXPECT_EQ(failure.launched_program(), "failing") << status;
    EXPECT_EQ(failure.node(), kChains + 2 * (kCalls + 1) + kCalls / 2);
    EXPECT_EQ(failure.source(), absl::StrCat("train.cc:", kCalls / 2));
    for (const size_t chain : {0, 1, 3})
      EXPECT_EQ(program.ResultOf(chain, seconds(10)), absl::OkStatus());
    program.Drop();
  });
}

TEST_F(ProgramFaultsTest, ASessionThatEndsTakesItsLaunchWithIt_OB2) {
  Run(Options(), [](Processes& processes) {
    Program other(processes, "other");
    other.Register();
    {
      Program program(processes, "leaves");
      program.Register();
      program.Launch();
      Wait(kMiddle);
      processes.Kill("leaves");
      other.Launch();
    }
    for (size_t chain = 0; chain < kChains; ++chain)
      EXPECT_EQ(other.ResultOf(chain, seconds(10)), absl::OkStatus());
    other.Drop();
  });
}

TEST_F(ProgramFaultsTest, ALostSchedulerFailsItsIslandsNodesByName_ER1_ER2) {
  Run(Options({1}), [](Processes& processes) {
    Program program(processes, "cut");
    program.Register();
    program.Launch();
    Wait(kMiddle);
    processes.Kill(Processes::SchedulerName(1));
    for (const size_t chain : {1, 2, 3}) {  // the first copies to that island, the last from it
      const absl::Status status = program.ResultOf(chain, kFailureMax);
      EXPECT_THAT(std::string(status.message()), HasSubstr("scheduler")) << chain;
    }
    EXPECT_EQ(program.ResultOf(0, seconds(5)), absl::OkStatus());
    program.Drop();
  });
}

}  // namespace
}  // namespace gangway::simulation
