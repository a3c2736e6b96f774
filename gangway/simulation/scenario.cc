// Implementation of scenario.h.
#include "gangway/simulation/scenario.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/thread.h"
#include "gangway/cli/tool_link.h"
#include "gangway/collective/execution/arena.h"
#include "gangway/simulation/hostile_client.h"
#include "gangway/simulation/session.h"
#include "gangway/simulation/wire_tap.h"
#include "gangway/wire/put_limits.h"

namespace gangway::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Until nothing is held or pending any more, beside the time for which processes stay away.
constexpr seconds kRestMax{20};
constexpr seconds kUploadWaitMax{60};  // of an upload whose bytes do not come
// What is silent is noticed within kSilenceMax, and then waited for as what is absent.
constexpr seconds kSilenceMax{6}, kAbsentMax{30};
constexpr int kGangsWeight = 4;          // of lists of devices of several workers
constexpr int kLivesMax = 3;             // of a session whose connection is lost
constexpr seconds kFailureMax{1};        // see SessionPlan::failure_max
constexpr uint64_t kLeavesPercent = 25;  // of sessions, where failures are planted

// Each device alone, and groups of devices of one worker in both orders.
std::vector<std::vector<uint32_t>> Placements(const std::vector<std::vector<uint32_t>>& islands) {
  std::vector<std::vector<uint32_t>> placements;
  uint32_t device = 0;
  for (const auto& island : islands) {
    for (uint32_t count : island) {
      std::vector<uint32_t> all;
      for (uint32_t i = 0; i < count; ++i) {
        placements.push_back({device});
        all.push_back(device++);
      }
      if (all.size() < 2) continue;
      placements.push_back(all);
      std::reverse(all.begin(), all.end());
      placements.push_back(all);
    }
  }
  return placements;
}

// Devices of several workers of an island: all of them, and the first of each worker, from the last worker on.
std::set<std::vector<uint32_t>> Spanning(const std::vector<std::vector<uint32_t>>& islands) {
  std::set<std::vector<uint32_t>> spanning;
  uint32_t device = 0;
  for (const auto& island : islands) {
    std::vector<uint32_t> all, some;
    for (uint32_t count : island) {
      some.insert(some.begin(), device);
      for (uint32_t i = 0; i < count; ++i) all.push_back(device++);
    }
    if (island.size() < 2) continue;
    spanning.insert(all);
    spanning.insert(some);
  }
  return spanning;
}

class Run {
 public:
  explicit Run(const Scenario& scenario) : scenario_(scenario), world_(scenario.seed) {}
  Outcome Do();

 private:
  void Main();
  void RunSession(Processes& processes, const Faults& faults, int number);
  SessionPlan PlanOf(const Client& client, const Faults& faults, const std::string& name);
  void Count(const Session::Counts& counts);
  void CheckAtRest(Processes& processes);
  uint32_t DeviceCount() const {
    uint32_t count = 0;
    for (const auto& island : scenario_.cluster.islands) {
      for (uint32_t devices : island) count += devices;
    }
    return count;
  }
  std::string NotAtRest(const wire::StatusReply& status) const;
  size_t ArenaCount() const { return collective::Arena::count() - arenas_before_; }

  // Silence is noticed late, and bytes that wait for a slow network are in the way of failures.
  bool HasFailureMax() const {
    const transport::SimNetworkOptions fast;
    return (scenario_.only_plants || scenario_.trouble == Trouble::kWorkers) &&
           scenario_.cluster.network.bytes_per_second == fast.bytes_per_second;
  }

  const Scenario scenario_;
  const size_t arenas_before_ = collective::Arena::count();  // of processes that were stuck
  FiberWorld world_;
  Violations violations_;
  std::vector<std::unique_ptr<Client>> kept_;
  // See SessionPlan.
  const std::shared_ptr<std::chrono::microseconds> slow_ =
      std::make_shared<std::chrono::microseconds>();
  Outcome outcome_;
};

Outcome Run::Do() {
  const absl::Status ended = world_.Run([this] { Main(); }, std::chrono::hours(2));
  if (!ended.ok()) violations_.Add("end", std::string(ended.message()));
  if (outcome_.stuck_ends == 0 && ArenaCount() != 0)
    violations_.Add("end", absl::StrCat(ArenaCount(), " arenas are left"));
  outcome_.violations = violations_.list();
  outcome_.fingerprint = Mix(outcome_.fingerprint ^ world_.switches());
  return std::move(outcome_);
}

void Run::Main() {
  ProcessesOptions options = scenario_.cluster;
  WireTap tap(&violations_, options.islands);
  options.network.on_send = [&tap](const transport::SimNetwork::LinkState& link, bool to_server,
                                   const wire::Frame& frame) {
    tap.OnSend(link, to_server, frame);
  };
  MemoryChecker memory(&violations_, options.budget_bytes);
  options.on_use = [&memory](const std::string& worker, int device, int64_t bytes) {
    memory.OnUse(worker, device, bytes);
  };
  options.on_stuck_end = [this] { ++outcome_.stuck_ends; };
  Processes processes(&world_, options);
  if (absl::Status started = processes.Start(); !started.ok())
    return violations_.Add("start", std::string(started.message()));
  Faults faults(scenario_.faults, &processes);
  std::vector<World::ThreadId> threads;
  for (int number = 0; number < scenario_.sessions; ++number) {
    threads.push_back(world_.StartIn(world_.NewProcess(), "session",
                                     [&, number] { RunSession(processes, faults, number); }));
  }
  for (int number = 0; number < scenario_.hostile_clients; ++number) {
    threads.push_back(world_.StartIn(world_.NewProcess(), "hostile", [&, number] {
      HostileClient client(Mix(scenario_.seed + static_cast<uint64_t>(number)),
                           processes.Join(absl::StrCat("hostile", number)), DeviceCount());
      client.Run(scenario_.ops);
      outcome_.hostile_batches += static_cast<uint64_t>(client.sent());
    }));
  }
  faults.Run();
  for (World::ThreadId thread : threads) world_.Join(thread);
  outcome_.faults = faults.log();
  CheckAtRest(processes);
  kept_.clear();
  tap.Finish();
  outcome_.releases = tap.released_count();
}

void Run::RunSession(Processes& processes, const Faults& faults, int number) {
  for (int life = 0; life < kLivesMax; ++life) {
    const std::string name = absl::StrCat("session", number, ".", life);
    auto client = processes.Connect(
        name, /*reports_ends=*/(scenario_.seed + static_cast<uint64_t>(number)) % 2 == 0);
    if (!client.ok()) {
      if (scenario_.faults.count != 0) continue;
      return violations_.Add("answers", absl::StrCat(name, ": ", client.status().ToString()));
    }
    if (!(*client)->cluster().absent.empty()) continue;
    Session session(PlanOf(**client, faults, name), client->get(), &violations_);
    session.Run();
    if (!session.left()) session.Finish();
    Count(session.counts());
    if (session.left()) {
      ++outcome_.left;
      if (life % 2 == 0) processes.Kill(name);
      continue;
    }
    // Some sessions stay, without arrays, until the cluster is looked at at rest.
    if (!session.lost() && number % 2 == 1) kept_.push_back(*std::move(client));
    if (!session.lost()) return;
  }
}

SessionPlan Run::PlanOf(const Client& client, const Faults& faults, const std::string& name) {
  const ClusterInfo& cluster = client.cluster();
  SessionPlan plan{.seed = world_.random().Next(),
                   .name = name,
                   .ops = scenario_.ops,
                   .elements = scenario_.elements,
                   .placements = Placements(scenario_.cluster.islands),
                   .device_count = static_cast<uint32_t>(cluster.devices.size()),
                   .may_fail = !scenario_.is_calm(),
                   .withholds = scenario_.trouble == Trouble::kLate,
                   .plants = scenario_.plants,
                   .stopped_for = [&faults, name] { return faults.StoppedFor(name); },
                   .answer_max = scenario_.answer_max};
  plan.slow = slow_;
  if (scenario_.plants && world_.random().Percent(kLeavesPercent))
    plan.leaves_after = static_cast<int>(world_.random().Below(static_cast<uint64_t>(plan.ops)));
  if (HasFailureMax()) plan.failure_max = kFailureMax;
  if (scenario_.spans) plan.spanning = Spanning(scenario_.cluster.islands);
  for (int i = scenario_.trouble == Trouble::kGangs ? kGangsWeight : 1; i > 0; --i)
    plan.placements.insert(plan.placements.end(), plan.spanning.begin(), plan.spanning.end());
  if (scenario_.trouble != Trouble::kWorkers) return plan;
  plan.kills_of = [&faults, &cluster](uint32_t device) {
    const DeviceInfo& info = cluster.devices.at(device);
    return faults.KillsOf(Processes::WorkerName({info.island, info.worker}));
  };
  return plan;
}

void Run::Count(const Session::Counts& counts) {
  outcome_.answers += counts.answered;
  outcome_.compared += counts.compared;
  outcome_.calls += counts.calls;
  outcome_.told += counts.told;
  outcome_.launches += counts.launches;
  outcome_.launched += counts.launched;
  outcome_.copies += counts.copies;
  outcome_.gangs += counts.gangs;
  outcome_.spanning += counts.spanning;
  outcome_.planted += counts.planted;
  outcome_.blamed += counts.blamed;
  outcome_.slow += counts.slow;
  if (HasFailureMax())
    outcome_.longest_failure = std::max(outcome_.longest_failure, counts.longest_failure);
  for (auto [code, count] : counts.failed) outcome_.failed[code] += count;
  outcome_.longest = std::max(outcome_.longest, counts.longest);
  outcome_.fingerprint =
      Mix(outcome_.fingerprint ^ static_cast<uint64_t>(Clock::now().time_since_epoch().count()));
}

std::string Run::NotAtRest(const wire::StatusReply& status) const {
  for (const auto& session : status.sessions()) {
    if (session.arrays() + session.bytes() + session.executables() + session.programs() +
            session.pending_nodes() !=
        0)
      return absl::StrCat("a session: ", session.ShortDebugString());
  }
  for (const auto& worker : status.workers()) {
    if (!worker.state().up()) return "a worker is down: " + worker.state().ShortDebugString();
    if (worker.nodes() != 0) return absl::StrCat("a worker has ", worker.nodes(), " nodes");
    for (const auto& device : worker.devices()) {
      if (device.bytes() != 0)
        return absl::StrCat("device ", device.device(), " holds ", device.bytes(), " bytes");
      if (device.launches() != 0)
        return absl::StrCat("device ", device.device(), " has ", device.launches(), " launches");
    }
  }
  // Of a worker, its own and a mirror of each other one's of its island. Until a device has sent as many messages as it
  // has slots, it also knows the readers of its last ones, which may have ended.
  size_t arenas_max = 0;
  for (const auto& island : scenario_.cluster.islands) {
    const size_t devices = std::accumulate(island.begin(), island.end(), size_t{0});
    arenas_max +=
        island.size() * island.size() + devices * collective::kSlots * (island.size() - 1);
  }
  if (outcome_.stuck_ends == 0 && ArenaCount() > arenas_max)
    return absl::StrCat(ArenaCount(), " arenas, of at most ", arenas_max);
  return "";
}

// OB-1, OB-2: without arrays, nothing is held, and nothing is pending.
void Run::CheckAtRest(Processes& processes) {
  auto network = processes.Join("tool");
  // The head, then a scheduler, then its workers.
  auto deadline = Clock::now() + *slow_ + kRestMax + 3 * scenario_.cluster.restart_delay;
  // What sessions that have left had in flight ends, too.
  if (scenario_.only_plants) deadline = Clock::now() + *slow_ + kFailureMax;
  if (scenario_.trouble == Trouble::kLate) deadline += kUploadWaitMax;
  // Calls without a question wait for memory as long as those with one.
  if (scenario_.trouble == Trouble::kMemory) deadline += scenario_.answer_max;
  std::string why = "no status";
  while (!why.empty() && Clock::now() < deadline) {
    auto status =
        cli::AskStatus(*network, Processes::kControlAddress, Processes::kToken, seconds(5));
    why = status.ok() ? NotAtRest(*status) : status.status().ToString();
    if (!why.empty()) Answer<bool>().WaitFor(milliseconds(100));
  }
  if (!why.empty()) violations_.Add("OB-1", "at rest: " + why);
}

}  // namespace

Scenario Scenario::FromSeed(uint64_t seed, Trouble trouble) {
  Random random(seed ^ 0x5eed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.trouble = trouble;
  const uint64_t islands = random.Between(1, 2);
  for (uint64_t i = 0; i < islands; ++i) {
    auto& island = scenario.cluster.islands.emplace_back();
    for (uint64_t w = random.Between(trouble == Trouble::kGangs ? 2 : 1, 3); w > 0; --w)
      island.push_back(static_cast<uint32_t>(random.Between(1, 3)));
  }
  for (uint32_t island = 0; island < islands; ++island) {
    if (random.Percent(30)) scenario.cluster.separate_schedulers.insert(island);
  }
  scenario.sessions = static_cast<int>(random.Between(1, 3));
  scenario.ops = static_cast<int>(random.Between(10, 40));
  std::vector<uint64_t> sizes = {1, 2, 2, 2, 7, 1000, 1000, 40000};
  scenario.elements = random.Pick(sizes);
  if (random.Percent(20)) scenario.cluster.network.pending_bytes_max = random.Between(1, 5000);
  if (random.Percent(20)) scenario.cluster.network.bytes_per_second = 10'000'000;
  // A chunk of a shard must fit, and all arrays of a put. Batches are split, and what is larger than half of it crosses
  // in pieces.
  if (random.Percent(20)) {
    const uint64_t bytes = scenario.elements * 4;
    const bool has_large_puts = bytes > wire::kPutShardCost && bytes <= wire::kPutArrayBytesMax;
    scenario.cluster.network.message_bytes_max = std::max<uint64_t>(
        random.Between(8'000, 40'000), has_large_puts ? 2 * wire::kPutCostMax : bytes + 1000);
  }
  if (trouble == Trouble::kMemory)
    scenario.cluster.budget_bytes = random.Between(8, 24) * scenario.elements * 4;
  FaultPlan& faults = scenario.faults;
  faults.seed = random.Next();
  scenario.plants = trouble == Trouble::kGangs;
  scenario.only_plants = scenario.plants && random.Percent(30);
  const bool all = trouble == Trouble::kAll || (scenario.plants && !scenario.only_plants);
  faults.links = trouble == Trouble::kLinks || all;
  faults.only_workers = trouble == Trouble::kWorkers;
  faults.kills = faults.only_workers || trouble == Trouble::kKills || all;
  faults.stops = trouble == Trouble::kStops || all;
  if (faults.links || faults.kills || faults.stops)
    faults.count = static_cast<int>(random.Between(1, trouble == Trouble::kGangs ? 6 : 4));
  if (faults.kills && random.Percent(10)) scenario.cluster.restart_delay = seconds(25);
  if (trouble == Trouble::kHostile) {
    scenario.hostile_clients = static_cast<int>(random.Between(1, 2));
    scenario.cluster.budget_bytes = uint64_t{1} << 30;
  } else if (faults.links || faults.stops) {
    scenario.answer_max = kSilenceMax + kAbsentMax;
  } else if (!scenario.is_calm()) {
    scenario.answer_max = kAbsentMax;
  }
  // A session may take three quarters of it: one shard, or little more. Uploads that do not fit are refused.
  if (!scenario.is_calm() && random.Percent(20))
    scenario.cluster.staging_bytes = random.Between(8, 24) * scenario.elements;
  if (trouble == Trouble::kMemory) scenario.answer_max = seconds(95);
  if (trouble == Trouble::kLate) scenario.answer_max = seconds(65);
  scenario.spans = random.Percent(50) || trouble == Trouble::kGangs;
  // Of a few arrays, so that further puts are held back.
  if (random.Percent(30))
    scenario.cluster.put_cost_max =
        random.Between(1, 4) * (scenario.elements * 4 + wire::kPutShardCost);
  return scenario;
}

std::string Scenario::Text() const {
  std::vector<std::string> shape;
  for (const auto& island : cluster.islands) shape.push_back(absl::StrJoin(island, ","));
  const std::string separate = absl::StrJoin(cluster.separate_schedulers, ",");
  return absl::StrCat("islands ", absl::StrJoin(shape, " | "), ", ", sessions, " sessions of ", ops,
                      " operations, ", elements, " elements, budget ", cluster.budget_bytes,
                      ", staging ", cluster.staging_bytes, ", puts ", cluster.put_cost_max,
                      separate.empty() ? "" : ", separate schedulers of ", separate,
                      spans ? ", programs over workers" : "", plants ? ", planted failures" : "",
                      ", ", faults.count, " faults");
}

Outcome RunScenario(const Scenario& scenario) { return Run(scenario).Do(); }

}  // namespace gangway::simulation
