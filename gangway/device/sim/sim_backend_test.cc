// Behaviour that only the simulated accelerator has: virtual time, faults, the program text.
#include "gangway/device/sim/sim_backend.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/device/conformance/device_test_util.h"
#include "gangway/device/sim/sim_collectives.h"
#include "gangway/device/sim/sim_program.h"
#include "gangway/xla/collectives.pb.h"

namespace gangway::device {
namespace {

class SimBackendTest : public testing::Test {
 protected:
  std::unique_ptr<Executable> Compile(const std::string& statements, std::vector<int> devices) {
    auto executable = backend_->Compile({"sim 1\n" + statements, "sim"}, "", devices);
    EXPECT_TRUE(executable.ok()) << executable.status().ToString();
    return executable.ok() ? *std::move(executable) : nullptr;
  }
  // Runs on one new argument and keeps the first output.
  Waiter Run(Executable& executable, int device, int32_t launch_id = 0) {
    Waiter complete;
    auto argument = MakeBuffer(*backend_, device, {1});
    Buffer* pointer = argument->get();
    ExecuteOptions options;
    options.launch_id = launch_id;
    auto outputs = executable.ExecuteOn(device, {&pointer, 1}, options, complete.Callback());
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    if (outputs.ok()) kept_.push_back(std::move((*outputs)[0]));
    return complete;
  }

  std::shared_ptr<VirtualSimTimer> timer_ = std::make_shared<VirtualSimTimer>();
  std::unique_ptr<SimBackend> backend_ =
      OpenSim({.device_count = 4, .inflight_max = 8, .timer = timer_});
  BufferList kept_;
};

constexpr char kStep[] = "name step\ncost_us 330\ninput 11 1\noutput 11 1\n";
constexpr char kPair[] =
    "name pair\npartitions 2\ncollective\ncost_us 100\ninput 11 1\noutput 11 1\n";

// One of two partitions: the other is somebody else's.
TEST(SimCollectives, APartOfAProgramCallsItsCollectivesInOrder) {
  auto backend = OpenSim({.device_count = 1});
  constexpr std::string_view kText =
      "sim 1\npartitions 2\nall_reduce 0\npermute 0 1\nrounds 2\ninput 11 1\noutput 11 1\n";
  const int device = 0;
  auto executable = backend->Compile({kText, "sim"}, "", {&device, 1});
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  auto argument = MakeBuffer(*backend, 0, {1});
  Buffer* pointer = argument->get();
  Waiter alone, complete, failed;
  ASSERT_TRUE((*executable)->ExecuteOn(0, {&pointer, 1}, {}, alone.Callback()).ok());
  EXPECT_EQ(alone.Wait().code(), absl::StatusCode::kFailedPrecondition);

  std::vector<int64_t> numbers;
  ExecuteOptions options;
  options.collective = [&numbers](int64_t number, auto operands, auto results) {
    numbers.push_back(number);
    EXPECT_EQ(operands[0].size(), 4u);
    results[0][0] = std::byte{7};
    return absl::OkStatus();
  };
  auto outputs = (*executable)->ExecuteOn(0, {&pointer, 1}, options, complete.Callback());
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ(complete.Wait(), absl::OkStatus());
  EXPECT_EQ(numbers, (std::vector<int64_t>{0, 1, 0, 1}));
  std::byte bytes[4];
  Waiter read;
  (*outputs)[0]->CopyToHost(bytes, sizeof(bytes), read.Callback());
  EXPECT_EQ(read.Wait(), absl::OkStatus());
  EXPECT_EQ(bytes[0], std::byte{7});

  options.collective = [](int64_t, auto, auto) { return absl::DataLossError("a member died"); };
  ASSERT_TRUE((*executable)->ExecuteOn(0, {&pointer, 1}, options, failed.Callback()).ok());
  EXPECT_EQ(failed.Wait().message(), "a member died");
}

TEST(SimCollectives, AProgramOfNoRoundsRunsWithoutItsCollectives) {
  auto backend = OpenSim({.device_count = 1});
  constexpr std::string_view kText =
      "sim 1\npartitions 2\nall_reduce 0\nrounds 0\ninput 11 1\noutput 11 1\n";
  const int device = 0;
  auto executable = backend->Compile({kText, "sim"}, "", {&device, 1});
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  auto argument = MakeBuffer(*backend, 0, {1});
  Buffer* pointer = argument->get();
  int calls = 0;
  ExecuteOptions options;
  options.collective = [&calls](int64_t, auto, auto) { return ++calls, absl::OkStatus(); };
  Waiter ended, alone;
  ASSERT_TRUE((*executable)->ExecuteOn(0, {&pointer, 1}, options, ended.Callback()).ok());
  EXPECT_EQ(ended.Wait(), absl::OkStatus());
  EXPECT_EQ(calls, 0);
  ASSERT_TRUE((*executable)->ExecuteOn(0, {&pointer, 1}, {}, alone.Callback()).ok());
  EXPECT_EQ(alone.Wait(), absl::OkStatus());

  auto lowered = LowerSim(*(*executable)->Serialize());
  ASSERT_TRUE(lowered.ok()) << lowered.status().ToString();
  xla::LoweredExecutable read;
  ASSERT_TRUE(read.ParseFromString(*lowered));
  EXPECT_EQ(read.table().collectives_size(), 0);
  EXPECT_EQ(HloOf(*ParseSimProgram(kText)).find("all-reduce"), std::string::npos);
}

TEST(SimCollectives, ARunFailsOnItsDeviceBeforeTheCollectiveOfThatNumber) {
  auto backend = OpenSim({.device_count = 2, .first_device = 6});
  for (int before = 0; before <= 5; ++before) {
    const std::string text =
        absl::StrCat("sim 1\npartitions 4\nall_reduce 0\nall_reduce 0\nrounds 2\n", "fails 7 ",
                     before, "\ninput 11 1\noutput 11 1\n");
    for (int device = 0; device < 2; ++device) {
      auto executable = backend->Compile({text, "sim"}, "", {&device, 1});
      ASSERT_TRUE(executable.ok()) << executable.status().ToString();
      auto argument = MakeBuffer(*backend, device, {1});
      Buffer* pointer = argument->get();
      int calls = 0;
      Waiter ended;
      ExecuteOptions options;
      options.collective = [&calls](int64_t, auto, auto) { return ++calls, absl::OkStatus(); };
      ASSERT_TRUE((*executable)->ExecuteOn(device, {&pointer, 1}, options, ended.Callback()).ok());
      EXPECT_EQ(ended.Wait().code(),
                device == 1 ? absl::StatusCode::kInternal : absl::StatusCode::kOk);
      EXPECT_EQ(calls, device == 1 ? std::min(before, 4) : 4);
    }
  }
}

// The virtual time stands still, so a run that needed the timer would not end.
TEST_F(SimBackendTest, ARunWithoutCostEndsInsideTheCall) {
  EXPECT_TRUE(backend_->capabilities().executes_inline);
  auto free = Compile("name free\ninput 11 1\noutput 11 1\n", {0});
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Run(*free, 0).done());  // more than the window
  auto gang = Compile("partitions 2\ncollective\ninput 11 1\noutput 11 1\n", {0, 1});
  Waiter first = Run(*gang, 0);
  EXPECT_FALSE(first.done());
  EXPECT_TRUE(Run(*gang, 1).done());
  EXPECT_TRUE(first.done());
  // It waits for its turn behind one that takes time, and the timer ends it.
  auto step = Compile(kStep, {0});
  Waiter slow = Run(*step, 0), behind = Run(*free, 0);
  EXPECT_FALSE(behind.done());
  timer_->Advance(330);
  EXPECT_TRUE(slow.done());
  timer_->Advance(0);
  EXPECT_TRUE(behind.done());
}

TEST_F(SimBackendTest, DeviceTimeIsExactAndDevicesRunAtOnce) {
  auto zero = Compile(kStep, {0});
  auto one = Compile(kStep, {1});
  std::vector<Waiter> complete;
  for (int i = 0; i < 3; ++i) complete.push_back(Run(*zero, 0));
  complete.push_back(Run(*one, 1));
  timer_->Advance(329);
  EXPECT_FALSE(complete[0].done());
  timer_->Advance(1);
  EXPECT_TRUE(complete[0].done());
  EXPECT_FALSE(complete[1].done());
  EXPECT_TRUE(complete[3].done());
  EXPECT_EQ(timer_->RunUntilIdle(1000000), 660);
  EXPECT_TRUE(complete[2].done());
  EXPECT_EQ(backend_->BusyMicros(0), 990);
  EXPECT_EQ(backend_->BusyMicros(1), 330);
}

// Runs of 330 us. That they have ended is said up to a day later, so hardly within the next run.
class LateCompletionTest : public SimBackendTest {
 protected:
  static constexpr int64_t kDelayUs = 86'400'000'000;
  LateCompletionTest() {
    backend_ = OpenSim({.device_count = 1, .completion_delay_us = kDelayUs, .timer = timer_});
  }
  // A step on `argument`. Counts what on_complete says.
  std::unique_ptr<Buffer> Step(Executable& step, Buffer* argument) {
    auto outputs = step.ExecuteOn(0, {&argument, 1}, {},
                                  [this](const absl::Status& status) { said_.push_back(status); });
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    return std::move((*outputs)[0]);
  }

  std::vector<absl::Status> said_;
};

TEST_F(LateCompletionTest, TheNextRunBeginsBeforeTheFirstIsSaidToHaveEnded) {
  auto step = Compile(kStep, {0});
  auto argument = MakeBuffer(*backend_, 0, {1});
  auto first = Step(*step, argument->get());
  auto second = Step(*step, first.get());
  Waiter ready;
  second->OnReady(ready.Callback());
  timer_->Advance(660);
  EXPECT_TRUE(ready.done());
  EXPECT_THAT(said_, testing::IsEmpty());
  timer_->Advance(kDelayUs);
  EXPECT_THAT(said_, testing::ElementsAre(absl::OkStatus(), absl::OkStatus()));
}

TEST_F(LateCompletionTest, WhatHasEndedWhenTheBackendClosesIsSaidToHaveEndedWellOnce) {
  auto step = Compile(kStep, {0});
  auto argument = MakeBuffer(*backend_, 0, {1});
  auto first = Step(*step, argument->get());
  auto second = Step(*step, first.get());
  timer_->Advance(330);
  backend_.reset();
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_EQ(said_[0], absl::OkStatus());
  EXPECT_EQ(said_[1].code(), absl::StatusCode::kCancelled);
  timer_->Advance(kDelayUs);
  EXPECT_EQ(said_.size(), 2u);
}

TEST_F(SimBackendTest, ARunStartsWhenItsInputsAreThere) {
  auto step = Compile(kStep, {0});
  auto placeholder = backend_->CreatePlaceholder(0, F32({1}));
  Buffer* argument = placeholder->buffer.get();
  Waiter complete;
  auto outputs = step->ExecuteOn(0, {&argument, 1}, {}, complete.Callback());
  ASSERT_TRUE(outputs.ok());
  timer_->Advance(10000);
  EXPECT_FALSE(complete.done());
  const std::vector<float> one = {1};
  ASSERT_TRUE(placeholder->filler->Fill(Bytes(one), nullptr).ok());
  timer_->Advance(330);
  EXPECT_TRUE(complete.done());
}

TEST_F(SimBackendTest, ACollectiveWaitsForAllItsMembers) {
  auto pair = Compile(kPair, {0, 1});
  auto step = Compile(kStep, {1});
  Waiter first = Run(*pair, 0);
  Waiter before = Run(*step, 1);  // device 1 is busy until 330
  Waiter second = Run(*pair, 1);
  timer_->Advance(429);
  EXPECT_TRUE(before.done());
  EXPECT_FALSE(first.done());
  timer_->Advance(1);
  EXPECT_TRUE(first.done());
  EXPECT_TRUE(second.done());
}

TEST_F(SimBackendTest, CollectivesInDifferentOrdersOnTwoDevicesWaitForEver) {
  auto a = Compile(kPair, {0, 1});
  auto b = Compile(kPair, {0, 1});
  std::vector<Waiter> complete = {Run(*a, 0), Run(*b, 0), Run(*b, 1), Run(*a, 1)};
  timer_->RunUntilIdle(1000000000);
  for (const Waiter& waiter : complete) EXPECT_FALSE(waiter.done());
  kept_.clear();
  backend_.reset();  // closing ends them
  for (Waiter& waiter : complete) EXPECT_EQ(waiter.Wait().code(), absl::StatusCode::kCancelled);
}

TEST_F(SimBackendTest, LaunchIdsSayWhichRunsAreOneGang) {
  auto pair = Compile(kPair, {0, 1});
  Waiter seven_on_zero = Run(*pair, 0, 7);
  Waiter eight_on_one = Run(*pair, 1, 8);
  timer_->RunUntilIdle(1000000);
  EXPECT_FALSE(seven_on_zero.done());
  auto argument = MakeBuffer(*backend_, 0, {1});
  Buffer* pointer = argument->get();
  ExecuteOptions again;
  again.launch_id = 7;
  EXPECT_EQ(pair->ExecuteOn(0, {&pointer, 1}, again, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SimBackendTest, FailsTheNthExecute) {
  auto step = Compile(kStep, {0});
  backend_->Inject({.kind = SimFault::Kind::kFail,
                    .device = 0,
                    .nth = 2,
                    .error = absl::InternalError("planted")});
  std::vector<Waiter> complete = {Run(*step, 0), Run(*step, 0), Run(*step, 0)};
  timer_->RunUntilIdle(1000000);
  EXPECT_TRUE(complete[0].Wait().ok());
  EXPECT_EQ(complete[1].Wait().message(), "planted");
  EXPECT_TRUE(complete[2].Wait().ok());
  EXPECT_EQ(ReadFloats(*kept_[1]).status().code(), absl::StatusCode::kInternal);
}

TEST_F(SimBackendTest, AFailedMemberFailsItsWholeGang) {
  auto pair = Compile(kPair, {0, 1});
  backend_->Inject(
      {.kind = SimFault::Kind::kFail, .device = 1, .error = absl::InternalError("planted")});
  Waiter first = Run(*pair, 0);
  Waiter second = Run(*pair, 1);
  timer_->RunUntilIdle(1000000);
  EXPECT_EQ(first.Wait().message(), "planted");
  EXPECT_EQ(second.Wait().message(), "planted");
}

TEST_F(SimBackendTest, AHungExecuteHoldsItsDeviceUntilReleased) {
  auto zero = Compile(kStep, {0});
  auto one = Compile(kStep, {1});
  backend_->Inject({.kind = SimFault::Kind::kHang, .device = 0});
  Waiter hung = Run(*zero, 0);
  Waiter behind = Run(*zero, 0);
  Waiter elsewhere = Run(*one, 1);
  timer_->RunUntilIdle(1000000);
  EXPECT_FALSE(hung.done());
  EXPECT_FALSE(behind.done());
  EXPECT_TRUE(elsewhere.done());
  backend_->ReleaseHung();
  timer_->RunUntilIdle(1000000);
  EXPECT_TRUE(hung.Wait().ok());
  EXPECT_TRUE(behind.Wait().ok());
}

TEST_F(SimBackendTest, AnExecuteBeyondTheWindowIsRefused) {
  auto step = Compile(kStep, {0});
  std::vector<Waiter> complete;
  for (int i = 0; i < 8; ++i) complete.push_back(Run(*step, 0));
  auto argument = MakeBuffer(*backend_, 0, {1});
  Buffer* pointer = argument->get();
  EXPECT_EQ(step->ExecuteOn(0, {&pointer, 1}, {}, nullptr).status().code(),
            absl::StatusCode::kResourceExhausted);
  timer_->Advance(330);
  EXPECT_TRUE(step->ExecuteOn(0, {&pointer, 1}, {}, nullptr).ok());
}

TEST(SimProgram, TextRoundTrips) {
  const std::string text =
      "sim 1  # a step\nname step\npartitions 4\ncollective\ncost_us 330\ntemp_bytes 9\ninput 11 "
      "128 4\n\n"
      "input 16\noutput 11 4 128 donates 0\noutput 1 0\n";
  auto program = ParseSimProgram(text);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_EQ(program->inputs[1], (ArraySpec{kBF16, {}}));
  EXPECT_EQ(program->donated_input, (std::vector<int>{0, -1}));
  auto again = ParseSimProgram(FormatSimProgram(*program));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(FormatSimProgram(*again), FormatSimProgram(*program));
}

TEST(SimProgram, TextOfCollectivesRoundTrips) {
  const auto program = ParseSimProgram(
      "sim 1\npartitions 4\nall_reduce 0\npermute 0 3\nrounds 2\nslow 1 9\nfails 3 1\ninput 8 4\n"
      "output 8 4 donates 0\n");
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_EQ(program->collectives.size(), 2u);
  EXPECT_EQ(program->collectives[1].shift, 3);
  EXPECT_EQ(program->rounds, 2);
  EXPECT_EQ(program->slow_us, 9);
  EXPECT_EQ(program->failing_device, 3);
  auto again = ParseSimProgram(FormatSimProgram(*program));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(FormatSimProgram(*again), FormatSimProgram(*program));
}

TEST(SimProgram, RefusesWhatItCannotReadAndNamesTheLine) {
  for (const char* text :
       {"",
        "sim 2\n",
        "name x\n",
        "sim 1\nspeed 9\n",
        "sim 1\npartitions 0\n",
        "sim 1\ninput 9999 4\n",
        "sim 1\ninput 11 -4\n",
        "sim 1\ncost_us many\n",
        "sim 1\ninput 11 4 donates 0\n",
        "sim 1\ninput 11 4\noutput 11 5 donates 0\n",
        "sim 1\noutput 11 4 donates 0\n",
        "sim 1\ninput 11 9999999999999 9999999999999\n",
        "sim 1\ninput 11 4\noutput 11 4 donates 0\noutput 11 4 donates 0\n",
        "sim 1\nall_reduce\ninput 8 4\noutput 8 4\n",
        "sim 1\npermute 0\ninput 8 4\noutput 8 4\n",
        "sim 1\nall_reduce 1\ninput 8 4\noutput 8 4\n",
        "sim 1\nall_reduce 0\ninput 6 3\noutput 6 3\n",
        "sim 1\nall_reduce 0\ninput 8 4\noutput 8 5\n",
        "sim 1\nrounds many\n",
        "sim 1\nfails 0 0\ninput 8 4\noutput 8 4\n",
        "sim 1\nall_reduce 0\nslow 1\ninput 8 4\noutput 8 4\n",
        "sim 1\ncollective\nall_reduce 0\ninput 8 4\noutput 8 4\n",
        "sim 1\nall_reduce 0\ninput 8 4\ninput 8 4\noutput 8 4\noutput 8 4 donates 0\n"}) {
    EXPECT_EQ(ParseSimProgram(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_NE(ParseSimProgram("sim 1\nname x\nspeed 9\n").status().message().find("line 3"),
            std::string::npos);
}

TEST(SimProgram, OutputsDependOnEverythingTheyShould) {
  const SimProgram program =
      *ParseSimProgram("sim 1\npartitions 2\ninput 12 2\noutput 12 8\noutput 12 8\n");
  const std::vector<std::byte> zeros(16), ones(16, std::byte{1});
  auto digest = [&](const std::vector<std::byte>& bytes) {
    const std::span<const std::byte> span = bytes;
    return DigestInputs(program, std::span(&span, 1));
  };
  const auto base = SimOutput(program, 0, 0, digest(zeros));
  EXPECT_EQ(base, SimOutput(program, 0, 0, digest(zeros)));
  EXPECT_NE(base, SimOutput(program, 1, 0, digest(zeros)));
  EXPECT_NE(base, SimOutput(program, 0, 1, digest(zeros)));
  EXPECT_NE(base, SimOutput(program, 0, 0, digest(ones)));
}

}  // namespace
}  // namespace gangway::device
