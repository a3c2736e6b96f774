// Implementation of launches.h.
#include "gangway/scheduler/core/launches.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::scheduler {
namespace {

constexpr size_t kNamedMax = 3;  // programs in one text

}  // namespace

std::vector<const NodeState*> LaunchesOn(const Nodes& nodes, uint32_t worker) {
  std::vector<const NodeState*> launches;
  for (const auto& [ordinal, node] : nodes.all()) {
    if (node.is_launch() && node.released() && node.is_open_on(worker)) launches.push_back(&node);
  }
  std::ranges::sort(launches, {}, &NodeState::position);
  return launches;
}

std::vector<const NodeState*> LaunchesAhead(const Nodes& nodes, const NodeState& node) {
  std::vector<const NodeState*> ahead;
  for (const auto& [ordinal, other] : nodes.all()) {
    if (other.is_launch() && other.released() && other.position < node.position)
      ahead.push_back(&other);
  }
  std::ranges::sort(ahead, {}, &NodeState::position);
  return ahead;
}

std::vector<const NodeState*> FirstLaunches(const IslandState& island) {
  std::vector<const NodeState*> first(island.fleet.device_count());
  for (const auto& [ordinal, node] : island.nodes.all()) {
    if (!node.is_launch() || !node.released()) continue;
    for (IslandDevice device : node.devices()) {
      const NodeState*& known = first[device.number()];
      if ((known == nullptr || node.position < known->position) &&
          island.members.IsOpenOn(node, device))
        known = &node;
    }
  }
  return first;
}

// Transfers pass the device's thread, too.
bool OthersWait(const IslandState& island, const NodeState& node, IslandDevice device) {
  return std::ranges::any_of(island.nodes.all(), [&](const auto& entry) {
    const NodeState& other = entry.second;
    if (other.session == node.session) return false;
    if (!other.released()) return other.has_device(device) && other.blockers == 0;
    if (other.is_launch())
      return other.position > node.position && island.members.IsOpenOn(other, device);
    return other.is_open_on(island.fleet.WorkerOf(device));
  });
}

std::string OwnerText(const NodeState& launch) {
  const auto& client = launch.launch()->client;
  return absl::StrCat(launch.program == nullptr ? "a program" : "program ",
                      launch.program == nullptr ? "" : wire::ToText(*launch.program),
                      " of session ", launch.session,
                      client == nullptr || client->empty() ? "" : absl::StrCat(" (", *client, ")"));
}

std::string LaunchesText(const std::vector<const NodeState*>& launches) {
  std::vector<std::string> named;
  for (const NodeState* launch : launches) {
    std::string text = OwnerText(*launch);
    if (std::ranges::find(named, text) == named.end()) named.push_back(std::move(text));
  }
  std::string text;
  for (size_t i = 0; i < std::min(named.size(), kNamedMax); ++i)
    absl::StrAppend(&text, i == 0 ? ", while its devices had " : ", ", named[i]);
  if (named.size() > kNamedMax) absl::StrAppend(&text, " and ", named.size() - kNamedMax, " more");
  return text;
}

}  // namespace gangway::scheduler
