// Programs and executables far larger than a frame of the network, and more of them than one frame could hold: they are
// compiled and loaded, and a worker that comes back gets all of them. The real roles in a FiberWorld.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/executor.h"
#include "gangway/simulation/processes.h"
#include "gangway/wire/version.h"

namespace gangway::simulation {
namespace {

using std::chrono::seconds;

constexpr int32_t kF32 = 11;  // xla::PrimitiveType
constexpr size_t kFrameMax = size_t{64} << 10;

// `number` gives every program a text and an executable of its own.
std::string ProgramOf(int number, size_t program_bytes, size_t code_bytes) {
  return absl::StrCat("sim 1\nname step", number, "\ncode_bytes ", code_bytes,
                      "\ninput 11 4\noutput 11 4\n# ", std::string(program_bytes, 'p'));
}

ProcessesOptions Options() {
  ProcessesOptions options{.islands = {{1}}};
  options.network.message_bytes_max = kFrameMax;
  return options;
}

absl::StatusOr<ExecutableHandle> Compile(Client& client, const std::string& program) {
  auto compiled = std::make_shared<Answer<absl::Status>>();
  const ExecutableHandle handle = client.Compile(
      program, "sim", "", {0}, [compiled](const auto& info) { compiled->Set(info.status()); });
  absl::Status status =
      compiled->WaitFor(seconds(100)).value_or(absl::DeadlineExceededError("no answer"));
  if (!status.ok()) return status;
  return handle;
}

// Uploads, calls and fetches.
absl::Status CallOnce(Client& client, ExecutableHandle step) {
  const ArrayHandle in = client.NewArrayHandle(), out = client.NewArrayHandle();
  const OperationId upload = client.Upload(
      in, {.element_type = kF32, .shard_dims = {4}, .devices = {0}, .shard_bytes = 16});
  auto data = std::make_shared<std::string>(16, 'a');
  client.Push(upload, 0, *data, [data] {});
  client.Call(step, {&in, 1}, {&out, 1});
  auto done = std::make_shared<Answer<absl::Status>>();
  client.Fetch(out, {0},
               {.on_data = [](size_t, uint64_t, std::string_view) {},
                .on_done = [done](absl::Status ended) { done->Set(std::move(ended)); }});
  absl::Status status =
      done->WaitFor(seconds(100)).value_or(absl::DeadlineExceededError("no answer"));
  client.Drop({{in, out}});
  return status;
}

void Wait(std::chrono::milliseconds time) { (void)Answer<bool>().WaitFor(time); }

// Runs `test` in a cluster with one client.
void InWorld(uint64_t seed, const std::function<void(Processes&, Client&)>& test,
             const ProcessesOptions& options) {
  FiberWorld world(seed);
  const absl::Status ended = world.Run(
      [&] {
        Processes processes(&world, options);
        ASSERT_TRUE(processes.Start().ok());
        auto client = processes.Connect("client");
        ASSERT_TRUE(client.ok()) << client.status();
        test(processes, **client);
        client->reset();
      },
      std::chrono::hours(1));
  EXPECT_TRUE(ended.ok()) << "seed " << seed << ": " << ended;
}

// All programs run again soon after `names` have been killed, in this order, and a second time.
void ExpectAllProgramsAgain(uint64_t seed, const ProcessesOptions& options,
                            const std::vector<std::string>& names) {
  InWorld(
      seed,
      [&](Processes& processes, Client& client) {
        std::vector<ExecutableHandle> steps;
        for (int number = 0; number < 24; ++number) {
          // From a few bytes to 20 frames, and 14 MiB in all.
          const size_t bytes = number % 3 == 0 ? 10 : static_cast<size_t>(number) * 50000;
          auto step = Compile(client, ProgramOf(number, bytes, bytes));
          ASSERT_TRUE(step.ok()) << step.status();
          steps.push_back(*step);
        }
        for (ExecutableHandle step : steps)
          ASSERT_TRUE(CallOnce(client, step).ok()) << "seed " << seed;
        for (const std::string& name : names) {
          processes.Kill(name);
          // A call that meets the dead process loses its input. The loads are ahead of all later ones.
          const auto until = Clock::now() + seconds(20);
          while (!CallOnce(client, steps[0]).ok())
            ASSERT_LT(Clock::now(), until) << "seed " << seed;
          for (ExecutableHandle step : steps) {
            const absl::Status ran = CallOnce(client, step);
            EXPECT_TRUE(ran.ok()) << "seed " << seed << " after " << name << ": " << ran;
          }
        }
      },
      options);
}

TEST(LargeProgramsTest, AWorkerThatComesBackGetsAllItsPrograms) {
  const std::string worker = Processes::WorkerName({0, 0});
  for (uint64_t seed = 1; seed <= 3; ++seed)
    ExpectAllProgramsAgain(seed, Options(), {worker, worker});
}

TEST(LargeProgramsTest, ASchedulerThatComesBackGetsAllItsPrograms) {
  ProcessesOptions options = Options();
  options.separate_schedulers = {0};
  const std::string scheduler = Processes::SchedulerName(0);
  for (uint64_t seed = 1; seed <= 2; ++seed)
    ExpectAllProgramsAgain(seed, options, {scheduler, Processes::WorkerName({0, 0}), scheduler});
}

// 12 MiB take 12 s: longer than any silence is allowed to be.
ProcessesOptions SlowNetwork() {
  ProcessesOptions options = Options();
  options.network.bytes_per_second = 1 << 20;
  return options;
}
constexpr size_t kSlowBytes = size_t{12} << 20;

TEST(LargeProgramsTest, ALongLoadDoesNotMakeAWorkerSilent) {
  InWorld(
      7,
      [&](Processes&, Client& client) {
        auto step = Compile(client, ProgramOf(0, 10, kSlowBytes));
        ASSERT_TRUE(step.ok()) << step.status();
        const absl::Status ran = CallOnce(client, *step);
        EXPECT_TRUE(ran.ok()) << ran;
      },
      SlowNetwork());
}

// The pieces that the worker has are lost with it, and all of them are sent to the next one.
TEST(LargeProgramsTest, AWorkerThatDiesAmidALoadGetsAllOfItAgain) {
  InWorld(
      8,
      [&](Processes& processes, Client& client) {
        auto step = Compile(client, ProgramOf(0, 10, kSlowBytes));
        ASSERT_TRUE(step.ok()) << step.status();
        for (int i = 0; i < 2; ++i) {
          Wait(seconds(5));
          processes.KillWorker({0, 0});
        }
        const auto until = Clock::now() + seconds(40);
        absl::Status ran;
        do {
          ran = CallOnce(client, *step);
        } while (!ran.ok() && Clock::now() < until);
        EXPECT_TRUE(ran.ok()) << ran;
      },
      SlowNetwork());
}

// A compiler that dies while its answer is on the way is asked again.
TEST(LargeProgramsTest, ACompilerThatDiesAmidAnAnswerIsAskedAgain) {
  InWorld(
      9,
      [&](Processes& processes, Client& client) {
        auto compiled = std::make_shared<Answer<absl::Status>>();
        client.Compile(ProgramOf(0, 10, kSlowBytes), "sim", "", {0},
                       [compiled](const auto& info) { compiled->Set(info.status()); });
        Wait(seconds(5));
        EXPECT_TRUE(processes.Kill("compiler"));
        EXPECT_EQ(compiled->WaitFor(seconds(60)), absl::OkStatus());
      },
      SlowNetwork());
}

// A client of its own making, which sends what it likes.
class RawClient {
 public:
  explicit RawClient(Processes& processes) : loop_("raw"), network_(processes.Join("raw")) {
    auto link =
        network_->Connect(Processes::kControlAddress,
                          {.executor = &loop_,
                           .on_frame =
                               [this](const wire::Frame& frame) {
                                 if (frame.has_hello_reply()) welcome_.Set(absl::OkStatus());
                               },
                           .on_closed = [this](const absl::Status& why) { closed_.Set(why); }},
                          seconds(5));
    EXPECT_TRUE(link.ok()) << link.status();
    link_ = *link;
    wire::Frame hello;
    hello.mutable_hello()->set_protocol_version(wire::kProtocolVersion);
    hello.mutable_hello()->set_role(wire::ROLE_CLIENT);
    hello.mutable_hello()->set_name("raw");
    hello.mutable_hello()->set_token(Processes::kToken);
    EXPECT_TRUE(link_->Send(hello).ok());
    EXPECT_EQ(welcome_.WaitFor(seconds(30)), absl::OkStatus());
  }
  ~RawClient() {
    link_.reset();
    loop_.Stop();
  }

  void SendPiece(uint32_t attachment, size_t bytes) {
    wire::Frame frame;
    frame.mutable_piece()->set_attachment(attachment);
    frame.mutable_piece()->set_data(std::string(bytes, 'x'));
    EXPECT_TRUE(link_->Send(frame).ok());
  }
  void SendCompile(uint64_t announced_bytes) {
    wire::Frame frame;
    frame.mutable_session_batch()->add_ops()->mutable_compile()->set_executable(1);
    frame.add_attachments()->set_bytes(announced_bytes);
    EXPECT_TRUE(link_->Send(frame).ok());
  }
  absl::Status Closed() {
    return closed_.WaitFor(seconds(10)).value_or(absl::DeadlineExceededError("still open"));
  }

 private:
  EventLoop loop_;
  std::unique_ptr<transport::Transport> network_;
  Answer<absl::Status> welcome_, closed_;
  std::shared_ptr<transport::Link> link_;
};

// Each of these ends the session that sent it, with the reason, and no other.
TEST(LargeProgramsTest, WrongPiecesEndTheSessionOfTheirSenderOnly) {
  struct Attack {
    std::function<void(RawClient&)> send;
    std::string reason;
  };
  const std::vector<Attack> attacks = {
      {[](RawClient& raw) { raw.SendPiece(1, 10); }, "in order"},
      {[](RawClient& raw) { raw.SendCompile(10); }, "after the pieces of 0"},
      {[](RawClient& raw) {
         raw.SendPiece(0, 5);
         raw.SendCompile(10);
       },
       "5 bytes, but 10 were announced"},
      {[](RawClient& raw) {
         for (int i = 0; i < 3; ++i) raw.SendPiece(static_cast<uint32_t>(i), 1);
       },
       "in order"},
  };
  InWorld(
      1,
      [&](Processes& processes, Client& client) {
        for (const Attack& attack : attacks) {
          RawClient raw(processes);
          attack.send(raw);
          const absl::Status why = raw.Closed();
          EXPECT_NE(why.message().find(attack.reason), std::string::npos) << why;
        }
        {
          RawClient raw(processes);  // leaves after half of a program
          for (int i = 0; i < 100; ++i) raw.SendPiece(0, 1000);
        }
        auto step = Compile(client, ProgramOf(0, 10, 10));
        ASSERT_TRUE(step.ok()) << step.status();
        EXPECT_TRUE(CallOnce(client, *step).ok());
      },
      Options());
}

TEST(LargeProgramsTest, AProgramOverTheLimitIsRefusedWithItsSize) {
  InWorld(
      1,
      [&](Processes&, Client& client) {
        const auto refused = Compile(client, std::string((size_t{512} << 20) + 1, '#'));
        EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
        EXPECT_NE(refused.status().message().find("536870913 bytes"), std::string::npos)
            << refused.status();
        const auto compiled = Compile(client, ProgramOf(0, 10, (size_t{512} << 20) + 1));
        EXPECT_EQ(compiled.status().code(), absl::StatusCode::kResourceExhausted);
        EXPECT_NE(compiled.status().message().find("over the limit"), std::string::npos)
            << compiled.status();
        EXPECT_TRUE(Compile(client, ProgramOf(1, 10, 10)).ok()) << "the session lives on";
      },
      Options());
}

}  // namespace
}  // namespace gangway::simulation

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  spdlog::set_level(spdlog::level::off);
  return RUN_ALL_TESTS();
}
