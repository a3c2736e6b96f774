// A client whose controller is stopped or cut off without a reset: every question is answered within the 12 s that
// docs/reference/failures.md promises, and one that stands still for less loses nothing.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"

#include "gangway/base/answer.h"
#include "gangway/base/thread.h"
#include "gangway/simulation/processes.h"
#include "gangway/simulation/random.h"

namespace gangway::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int32_t kF32 = 11;  // xla::PrimitiveType
constexpr char kProgram[] = "sim 1\nname step\ncost_us 300\ninput 11 4\noutput 11 4\n";

enum class Break { kStop, kStandStill, kSilence, kSilentReplies, kHalf };

struct Outcome {
  std::chrono::nanoseconds longest{0};
  int answered = 0, failed = 0;
};

// One kind of question after the other, until the session is lost, or `rounds` are done.
class User {
 public:
  User(Client* client, Outcome* outcome) : client_(client), outcome_(outcome) {}

  void Run(int rounds, Random& random) {
    for (int round = 0; round < rounds && !lost_; ++round) {
      const uint64_t kind = random.Below(3);
      if (kind == 0) Compile();
      if (kind == 1) Await();
      if (kind == 2) Fetch();
      Answer<bool>().WaitFor(milliseconds(random.Below(300)));
    }
  }

 private:
  using Question = std::function<void(std::shared_ptr<Answer<absl::Status>>)>;
  void Ask(const Question& question) {
    auto answer = std::make_shared<Answer<absl::Status>>();
    const auto began = Clock::now();
    question(answer);
    const auto status = answer->WaitFor(seconds(100));
    outcome_->longest = std::max<std::chrono::nanoseconds>(outcome_->longest, Clock::now() - began);
    ASSERT_TRUE(status.has_value()) << "no answer";
    ++(status->ok() ? outcome_->answered : outcome_->failed);
    lost_ = absl::IsUnavailable(*status);
    // Of a head that stands still, its workers leave before the client does.
    const bool worker = absl::StrContains(status->message(), "island0/worker0");
    EXPECT_TRUE(status->ok() || (worker && !lost_) ||
                absl::StrContains(status->message(), "the session with the controller") ||
                absl::StrContains(status->message(), "the controller lost its client"))
        << *status;
  }
  void Compile() {
    Ask([this](auto answer) {
      client_->Compile(kProgram, "sim", "", {0},
                       [answer](const auto& info) { answer->Set(info.status()); });
    });
  }
  ArrayHandle Put() {
    const ArrayHandle array = client_->NewArrayHandle();
    auto data = std::make_shared<std::string>(16, 'd');
    client_->Push(
        client_->Upload(
            array, {.element_type = kF32, .shard_dims = {4}, .devices = {0}, .shard_bytes = 16}),
        0, *data, [data] {});
    return array;
  }
  void Await() {
    const ArrayHandle array = Put();
    Ask([&](auto answer) {
      client_->Await({{array}}, [answer](absl::Status status) { answer->Set(std::move(status)); });
    });
    client_->Drop({{array}});
  }
  void Fetch() {
    const ArrayHandle array = Put();
    Ask([&](auto answer) {
      client_->Fetch(
          array, {0},
          {.on_data = [](size_t, uint64_t, std::string_view) {},
           .on_done = [answer](absl::Status status) { answer->Set(std::move(status)); }});
    });
    client_->Drop({{array}});
  }

  Client* const client_;
  Outcome* const outcome_;
  bool lost_ = false;
};

void Apply(Processes& processes, Break how, Random& random) {
  if (how == Break::kStop || how == Break::kStandStill) processes.Stop("head");
  if (how == Break::kStandStill) {
    Answer<bool>().WaitFor(milliseconds(random.Below(9'000)));
    processes.Continue("head");
  }
  for (const auto& link : processes.network().Links()) {
    if (!absl::StartsWith(link.client, "client") || !absl::StartsWith(link.server, "head"))
      continue;
    if (how == Break::kSilence) processes.network().Silence(link.id, true, true);
    if (how == Break::kSilentReplies) processes.network().Silence(link.id, false, true);
    if (how == Break::kHalf) processes.network().ResetOneEnd(link.id, /*client=*/false);
  }
}

Outcome Run(uint64_t seed, Break how) {
  Outcome outcome;
  FiberWorld world(seed);
  const absl::Status ended = world.Run(
      [&] {
        // No help from the network: only the client's own questions tell that the link is silent.
        ProcessesOptions options{.islands = {{1}}};
        options.network.silence_max = std::chrono::minutes(2);
        Processes processes(&world, options);
        ASSERT_TRUE(processes.Start().ok());
        auto client = processes.Connect("client");
        ASSERT_TRUE(client.ok()) << client.status();
        std::vector<Thread> users;
        for (int i = 0; i < 3; ++i) {
          users.emplace_back(
              "user", [&] { User(client->get(), &outcome).Run(/*rounds=*/40, world.random()); });
        }
        Answer<bool>().WaitFor(milliseconds(world.random().Below(3'000)));
        Apply(processes, how, world.random());
        for (Thread& user : users) user.Join();
        if (how == Break::kStop) processes.Continue("head");
        client->reset();
      },
      std::chrono::hours(1));
  EXPECT_TRUE(ended.ok()) << "seed " << seed << ": " << ended;
  return outcome;
}

void RunAll(Break how, bool loses, const char* what) {
  spdlog::set_level(spdlog::level::critical);
  const char* text = std::getenv("GANGWAY_SEEDS");
  const int seeds = text == nullptr ? 40 : std::atoi(text);
  std::chrono::nanoseconds longest{0};
  for (int seed = 1; seed <= seeds; ++seed) {
    const Outcome outcome = Run(static_cast<uint64_t>(seed), how);
    EXPECT_LT(outcome.longest, seconds(12)) << what << ", seed " << seed;
    EXPECT_GT(outcome.answered, 0) << what << ", seed " << seed;
    EXPECT_EQ(outcome.failed > 0, loses) << what << ", seed " << seed;
    longest = std::max(longest, outcome.longest);
  }
  printf("%s: at most %.2f s\n", what, static_cast<double>(longest.count()) * 1e-9);
}

TEST(SilentControllerTest, TM1_EveryQuestionIsAnsweredWithinTwelveSeconds) {
  RunAll(Break::kStop, /*loses=*/true, "stopped");
  RunAll(Break::kSilence, /*loses=*/true, "silent");
  RunAll(Break::kSilentReplies, /*loses=*/true, "silent to the client");
  RunAll(Break::kHalf, /*loses=*/true, "reset at the controller's end only");
}

TEST(SilentControllerTest, TM1_AControllerThatStandsStillForLessLosesNothing) {
  RunAll(Break::kStandStill, /*loses=*/false, "still for less than 9 s");
}

}  // namespace
}  // namespace gangway::simulation
