// Implementation of faults.h.
#include "gangway/simulation/faults.h"

#include <algorithm>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"

namespace gangway::simulation {
namespace {

using std::chrono::milliseconds;

void Sleep(milliseconds time) { Answer<bool>().WaitFor(time); }

}  // namespace

void Faults::Note(const std::string& what) {
  const auto at = std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch());
  log_.push_back(absl::StrCat(at.count() % 10'000'000, " ms: ", what));
}

void Faults::Run() {
  std::vector<milliseconds> times;
  for (int i = 0; i < plan_.count; ++i) {
    times.emplace_back(random_.Below(static_cast<uint64_t>(plan_.within.count()) / 1000 + 1));
  }
  std::sort(times.begin(), times.end());
  milliseconds passed{0};
  std::vector<std::function<void()>> kinds;
  if (plan_.links) kinds.emplace_back([this] { BreakLink(); });
  if (plan_.kills) kinds.emplace_back([this] { KillOne(); });
  if (plan_.stops) kinds.emplace_back([this] { StopOne(); });
  for (milliseconds time : times) {
    Sleep(time - passed);
    passed = time;
    if (!kinds.empty()) random_.Pick(kinds)();
  }
}

void Faults::BreakLink() {
  transport::SimNetwork& network = processes_->network();
  auto links = network.Links();
  if (links.empty()) return;
  const auto& link = random_.Pick(links);
  const std::string name = absl::StrCat(link.client, " to ", link.address);
  switch (random_.Below(5)) {
    case 0:
      Note("reset " + name);
      return network.Reset(link.id);
    case 1: {
      const bool client = random_.Percent(50);
      Note(absl::StrCat("reset at one end ", name));
      return network.ResetOneEnd(link.id, client);
    }
    case 2: {
      const bool to_server = random_.Percent(70), to_client = !to_server || random_.Percent(70);
      Note(absl::StrCat("silence ", name, to_server ? "" : ", one way"));
      return network.Silence(link.id, to_server, to_client);
    }
    case 3: {
      const milliseconds time(random_.Between(10, 4000));
      Note(absl::StrCat("silence for ", time.count(), " ms ", name));
      network.Silence(link.id, true, true);
      Sleep(time);
      return network.Restore(link.id);
    }
    default: {
      const milliseconds more(random_.Between(1, 200));
      Note(absl::StrCat("delay by ", more.count(), " ms ", name));
      return network.Delay(link.id, more);
    }
  }
}

std::string Faults::PickProcess() {
  std::vector<std::string> names = processes_->Names();
  if (plan_.only_workers)
    std::erase_if(names, [](const std::string& name) { return !absl::StartsWith(name, "worker"); });
  return random_.Pick(names);
}

std::vector<Clock::time_point> Faults::KillsOf(const std::string& process) const {
  auto found = kills_.find(process);
  return found == kills_.end() ? std::vector<Clock::time_point>() : found->second;
}

std::chrono::nanoseconds Faults::StoppedFor(const std::string& process) const {
  auto found = stopped_.find(process);
  return found == stopped_.end() ? std::chrono::nanoseconds(0) : found->second;
}

void Faults::KillOne() {
  const std::string name = PickProcess();
  const auto now = Clock::now();
  if (!processes_->Kill(name)) return;
  Note("kill " + name);
  kills_[name].push_back(now);
}

void Faults::StopOne() {
  const std::string name = PickProcess();
  const milliseconds time(random_.Percent(50) ? random_.Between(10, 4000)
                                              : random_.Between(4000, 20000));
  Note(absl::StrCat("stop for ", time.count(), " ms ", name));
  processes_->Stop(name);
  Sleep(time);
  stopped_[name] += time;
  processes_->Continue(name);
}

}  // namespace gangway::simulation
