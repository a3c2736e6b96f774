// Isolated sessions in random turns: no process of a worker or compiler ever gets work, or a data stream, of two
// owners, also while workers, schedulers and clients are killed. Every session is an owner of its own here.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/thread.h"
#include "gangway/simulation/processes.h"
#include "gangway/simulation/random.h"

namespace gangway::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kUsers = 4;
constexpr int kTurns = 5;  // sessions of each user

// What each life of a worker or compiler was given, by session.
class Tap {
 public:
  void OnSend(const transport::SimLinkState& link, bool to_server, const wire::Frame& frame) {
    if (absl::StartsWith(link.client, "worker") && !to_server && frame.has_island_batch()) {
      for (const wire::IslandItem& item : frame.island_batch().items()) {
        Note(link.client, item.node().session());
        Note(link.client, item.load().session());
      }
    }
    // A worker takes a data stream.
    if (absl::StartsWith(link.server, "worker") && !to_server && frame.has_hello_reply())
      Note(link.server, frame.hello_reply().session());
    if (absl::StartsWith(link.client, "compiler") && !to_server && frame.has_compile_request())
      compiles_[link.client].insert(frame.compile_request().program());
  }
  void Note(const std::string& life, uint64_t session) {
    if (session != 0) sessions_[life].insert(session);
  }
  // The most sessions that one process has seen.
  size_t most() const { return Most(sessions_); }
  size_t most_compiled() const { return Most(compiles_); }
  size_t lives() const { return sessions_.size(); }

 private:
  template <typename Map>
  static size_t Most(const Map& map) {
    size_t most = 0;
    for (const auto& [life, of] : map) most = std::max(most, of.size());
    return most;
  }
  std::map<std::string, std::set<uint64_t>> sessions_;
  std::map<std::string, std::set<std::string>> compiles_;
};

struct Counts {
  int sessions = 0, refused_sessions = 0, good = 0, claimed = 0, lost = 0;
  int crossed =
      0;  // uploads that were sent before their session heard that the process is replaced
};

absl::Status Await(Client& client, ArrayHandle array) {
  auto done = std::make_shared<Answer<absl::Status>>();
  client.Await({&array, 1}, [done](absl::Status status) { done->Set(std::move(status)); });
  return done->WaitFor(seconds(100)).value_or(absl::DeadlineExceededError("no answer"));
}

// One operation on a device: an upload and, often, a call of a program of this session's own.
absl::Status UseDevice(Client& client, uint32_t device, bool calls) {
  const ArrayHandle in = client.NewArrayHandle(), out = client.NewArrayHandle();
  const OperationId upload = client.Upload(
      in, {.element_type = 11, .shard_dims = {4}, .devices = {device}, .shard_bytes = 16});
  auto data = std::make_shared<std::string>(16, 'x');
  client.Push(upload, 0, *data, [data] {});
  if (!calls) return Await(client, in);
  auto compiled = std::make_shared<Answer<absl::Status>>();
  // Each session has a program of its own.
  const std::string program = absl::StrCat("sim 1\nname step", client.cluster().session,
                                           "\ncost_us 300\ninput 11 4\noutput 11 4\n");
  const ExecutableHandle step = client.Compile(
      program, "sim", "", {device}, [compiled](const auto& info) { compiled->Set(info.status()); });
  const absl::Status status =
      compiled->WaitFor(seconds(100)).value_or(absl::DeadlineExceededError("no answer"));
  if (!status.ok()) return status;
  client.Call(step, {&in, 1}, {&out, 1});
  return Await(client, out);
}

void RunUser(Processes& processes, const std::string& name, uint64_t seed, Counts& counts) {
  Random random(seed);
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::string session = absl::StrCat(name, "-", turn);
    auto client = processes.Connect(session);
    if (!client.ok()) {
      ++counts.refused_sessions;
      EXPECT_TRUE(absl::IsUnavailable(client.status())) << client.status();
      continue;
    }
    ++counts.sessions;
    const auto& devices = (*client)->cluster().devices;
    for (int op = 0; op < 4; ++op) {
      const uint32_t device = devices[random.Below(devices.size())].id;
      const absl::Status status = UseDevice(**client, device, random.Percent(50));
      if (status.ok()) {
        ++counts.good;
      } else if (absl::StrContains(status.message(), "has been claimed by session")) {
        ++counts.claimed;
      } else if (absl::StrContains(status.message(),
                                   "were sent to a worker process that is gone")) {
        ++counts.crossed;
      } else {
        ++counts.lost;
        EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsUnavailable(status)) << status;
      }
    }
    if (random.Percent(20)) processes.Kill(session);
    client->reset();
  }
}

Counts RunIsolated(uint64_t seed, bool kills) {
  Counts counts;
  Tap tap;
  FiberWorld world(seed);
  const absl::Status ended = world.Run(
      [&] {
        ProcessesOptions options{.islands = {{1, 2}, {1}}};
        if (seed % 2 == 1) options.separate_schedulers = {0, 1};
        options.isolates = true;
        options.network.on_send = [&tap](const auto& link, bool to_server, const auto& frame) {
          tap.OnSend(link, to_server, frame);
        };
        Processes processes(&world, options);
        ASSERT_TRUE(processes.Start().ok());
        std::vector<Thread> users;
        for (int user = 0; user < kUsers; ++user) {
          users.emplace_back(absl::StrCat("user", user), [&, user] {
            RunUser(processes, absl::StrCat("client", user), Mix(seed * kUsers + user), counts);
          });
        }
        Answer<bool> over;
        Thread killer("killer", [&] {
          Random random(seed);
          const std::vector<std::string> names = {
              Processes::WorkerName({0, 0}), Processes::WorkerName({0, 1}),
              Processes::WorkerName({1, 0}), Processes::SchedulerName(0),
              Processes::SchedulerName(1)};
          while (kills && !over.WaitFor(milliseconds(random.Between(200, 4000)))) {
            const std::string& name =
                names[random.Below(options.separate_schedulers.empty() ? 3 : 5)];
            processes.Kill(name);
          }
        });
        for (Thread& user : users) user.Join();
        over.Set(true);
        killer.Join();
      },
      std::chrono::hours(1));
  EXPECT_TRUE(ended.ok()) << "seed " << seed << ": " << ended;
  EXPECT_LE(tap.most(), 1u) << "seed " << seed << ": a worker process served two owners";
  EXPECT_LE(tap.most_compiled(), 1u) << "seed " << seed << ": a compiler served two owners";
  EXPECT_GT(tap.lives(), 3u) << "seed " << seed;
  return counts;
}

TEST(IsolationTest, NoProcessServesTwoOwners) {
  Counts all;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Counts counts = RunIsolated(seed, /*kills=*/seed > 10);
    if (seed <= 10) {
      EXPECT_EQ(counts.lost, 0) << "seed " << seed << ": nothing was killed";
    }
    all.sessions += counts.sessions;
    all.refused_sessions += counts.refused_sessions;
    all.good += counts.good;
    all.claimed += counts.claimed;
    all.lost += counts.lost;
    all.crossed += counts.crossed;
  }
  RecordProperty("good", all.good);
  printf("sessions %d, refused %d; good %d, claimed %d, lost %d\n", all.sessions,
         all.refused_sessions, all.good, all.claimed, all.lost);
  EXPECT_GT(all.good, 100);
  EXPECT_GT(all.claimed, 10);
  EXPECT_LT(all.crossed, all.good / 20);
}

}  // namespace
}  // namespace gangway::simulation
