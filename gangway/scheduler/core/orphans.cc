// Work that holds devices of others for too long. A launch whose session has ended is wanted by no client, but the
// device runtime cannot end it. When such work has come first on a device for `orphan_limit`, the worker is told to end
// itself, and comes back without it. A session's host callbacks may hold a device that others wait for only for
// `callback_hold_max`: its gangs there are then aborted and, if the runtime does not end them, treated like orphans.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {
namespace {

constexpr std::chrono::milliseconds kLookInterval{250};
// Longer than between two heartbeats: the device was free in between.
constexpr std::chrono::milliseconds kHoldGapMax{1500};
constexpr size_t kNamedMax = 3;  // programs in one text

}  // namespace

std::string Island::OwnerText(const NodeState& node) {
  return absl::StrCat(
      node.program == nullptr ? "a program" : "program ",
      node.program == nullptr ? "" : wire::ToText(*node.program), " of session ", node.session,
      node.client == nullptr || node.client->empty() ? "" : absl::StrCat(" (", *node.client, ")"));
}

// The launches that the worker's devices have, in their order.
std::vector<const Island::NodeState*> Island::LaunchesOn(uint32_t worker) const {
  std::vector<const NodeState*> launches;
  for (const auto& [ordinal, node] : nodes_) {
    if (node.kind == Kind::kLaunch && node.released &&
        std::ranges::binary_search(node.open_workers, worker))
      launches.push_back(&node);
  }
  std::ranges::sort(launches, {}, &NodeState::place);
  return launches;
}

std::string Island::LaunchesText(const std::vector<const NodeState*>& launches) {
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

// --- Orphans ---

void Island::AddOrphan(Ordinal ordinal, Time now) {
  if (orphans_.empty()) {
    for (DeviceState& device : devices_) device.orphan_since.reset();
    orphans_due_ = now;
  }
  orphans_.insert(ordinal);
}

// By device: the first launch in the island's order that has not ended there; null: none.
std::vector<const Island::NodeState*> Island::FirstLaunches() const {
  std::vector<const NodeState*> first(devices_.size());
  for (const auto& [ordinal, node] : nodes_) {
    if (node.kind != Kind::kLaunch || !node.released) continue;
    for (IslandDevice device : node.devices) {
      const NodeState*& known = first[device.number()];
      if ((known == nullptr || node.place < known->place) && IsOpenOn(node, device)) known = &node;
    }
  }
  return first;
}

void Island::OnOrphans(Time now, Actions& actions) {
  if (orphans_.empty() || now < orphans_due_) return;
  orphans_due_ = now + kLookInterval;
  const std::vector<const NodeState*> first = FirstLaunches();
  for (size_t i = 0; i < devices_.size(); ++i) {
    DeviceState& device = devices_[i];
    // Behind a launch of a live session, an orphan holds nothing.
    if (first[i] == nullptr || !orphans_.contains(first[i]->ordinal)) {
      device.orphan_since.reset();
      continue;
    }
    if (!device.orphan_since) device.orphan_since = now;
    if (now - *device.orphan_since < config_.orphan_limit) continue;
    wire::Failure why = wire::MakeFailure(
        absl::StatusCode::kUnavailable,
        absl::StrCat(OwnerText(*first[i]), ", which nothing waits for any more, has held device ",
                     device.id, " for ", Ms(now - *device.orphan_since),
                     " ms, and the device runtime cannot end it"));
    EndWorker(device.worker, first[i]->ordinal, std::move(why), actions);
  }
}

// Its own message comes back as the reason of its loss.
void Island::EndWorker(uint32_t worker, Ordinal gang, wire::Failure why, Actions& actions) {
  if (workers_[worker].ends_for) return;
  workers_[worker].ends_for = gang;
  why.set_gang(gang.number());
  actions.notices.push_back(absl::StrCat(WorkerName(worker), " is told to end: ", why.message()));
  wire::IslandItem item;
  *item.mutable_end_worker() = std::move(why);
  SendToWorkers({worker}, std::move(item), actions);
}

// --- Host callbacks ---

void Island::OnHeld(const WorkerBeat& event, Time now, Actions& actions) {
  const auto& ids = config_.workers[event.worker].devices;
  for (const wire::HeldDevice& held : event.beat.held()) {
    auto found = nodes_.find(Ordinal(held.gang()));
    if (held.device() >= ids.size() || found == nodes_.end()) continue;
    const NodeState& node = found->second;
    const IslandDevice device = device_index_.at(ids[held.device()]);
    if (node.kind != Kind::kLaunch || node.failure || !IsOpenOn(node, device)) continue;
    if (!OthersWait(node, device)) continue;
    // Devices and workers tell of one session at different times, and its time counts once.
    Hold& hold = holds_.try_emplace(node.session, Hold{{}, now}).first->second;
    const Time::duration passed = now - std::exchange(hold.last, now);
    hold.held = passed <= kHoldGapMax ? hold.held + passed
                                      : std::max(hold.held - passed, Time::duration::zero());
    if (hold.held >= config_.callback_hold_max) EndHold(node, device, now, actions);
  }
}

// Whether other sessions' work waits for the device, for nothing but its turn. Transfers pass the device's thread, too.
bool Island::OthersWait(const NodeState& node, IslandDevice device) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    const NodeState& other = entry.second;
    if (other.session == node.session) return false;
    const bool is_there = std::ranges::binary_search(other.devices, device);
    if (!other.released) return is_there && other.blockers == 0;
    if (other.kind == Kind::kLaunch)
      return is_there && other.place > node.place && IsOpenOn(other, device);
    return std::ranges::binary_search(other.open_workers, StateOf(device).worker);
  });
}

// Fails what the session still has for the device and calls its client: one gang alone would only make place for the
// next.
void Island::EndHold(const NodeState& holder, IslandDevice device, Time now, Actions& actions) {
  wire::Failure failure =
      wire::MakeFailure(absl::StatusCode::kDeadlineExceeded,
                        absl::StrCat("host callbacks of ", OwnerText(holder), " have held device ",
                                     StateOf(device).id, " for ", config_.callback_hold_max.count(),
                                     " ms in which other sessions waited for it"),
                        "Return from host callbacks sooner, or raise --callback-hold.");
  wire::SetProgram(holder.program, failure);
  failure.set_gang(holder.ordinal.number());
  actions.notices.push_back(
      absl::StrCat("gang ", holder.ordinal, " is aborted: ", failure.message()));
  const wire::FailureRef shared = wire::Share(std::move(failure));
  const SessionId session = holder.session;
  std::vector<Ordinal> unreleased;
  for (auto& [ordinal, node] : nodes_) {
    if (node.session != session || !node.calls_host || node.failure) continue;
    if (!std::ranges::binary_search(node.devices, device)) continue;
    if (!node.released) {
      unreleased.push_back(ordinal);
      continue;
    }
    node.failure = shared;
    CancelOpenWorkers(node, actions);
    AddOrphan(ordinal, now);
  }
  for (Ordinal ordinal : unreleased) {
    if (nodes_.contains(ordinal)) FailUnreleased(ordinal, shared, actions);
  }
}

}  // namespace gangway::scheduler
