// Implementation of isolation.h.
#include "gangway/controller/core/isolation.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/shown_name.h"
#include "gangway/controller/core/names.h"

namespace gangway::controller {
namespace {

std::string TextOf(const Claims::Claim& claim) {
  return absl::StrCat("session ", claim.first, " (", ShownName(claim.client), ")");
}

}  // namespace

std::string Isolation::ClaimText(size_t worker) const { return TextOf(*claims_.Of(worker)); }

// Names the first of the devices whose worker another owner has claimed.
wire::FailureRef Isolation::ForeignClaim(const Owner& owner, const DeviceList& devices,
                                         Time now) const {
  for (const DeviceList::OnWorker& part : devices.workers()) {
    const Claims::Claim* claim = claims_.Foreign(part.worker_number, owner);
    if (claim == nullptr) continue;
    const DeviceId device = devices.devices()[part.ranges[0].first];
    const wire::Worker& worker = fleet_.workers()[part.worker_number].declared;
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(now - claim->since).count();
    wire::Failure failure = wire::MakeFailure(
        absl::StatusCode::kUnavailable,
        absl::StrCat(NameOf(worker), " has been claimed by ", TextOf(*claim), " for ", seconds,
                     " s: this cluster isolates its sessions, and those of different owners share "
                     "no worker, so nothing can be created on device ",
                     device),
        "Start the script again: a session that starts now sees the workers that are free. A claim "
        "ends with the last session of its owner; `gangway status` shows all claims.");
    failure.set_worker(NameOf(worker));
    failure.set_incarnation(worker.incarnation());
    failure.set_device(device.number());
    return wire::Share(std::move(failure));
  }
  return nullptr;
}

wire::FailureRef Isolation::Claim(const SessionInfo& session, const DeviceList& devices, Time now) {
  if (!claims_.isolates()) return nullptr;
  if (auto failure = ForeignClaim(session.owner, devices, now)) return failure;
  for (const DeviceList::OnWorker& part : devices.workers()) {
    if (!claims_.Use(part.worker_number, session.id, session.owner, session.name, now)) continue;
    const uint32_t index = fleet_.workers()[part.worker_number].declared.index();
    wire::IslandItem item;
    item.mutable_admit_session()->set_index(index);
    item.mutable_admit_session()->set_session(session.id.number());
    outbox_.ToIsland(part.island, std::move(item));
    wire::SessionEvent event;
    event.mutable_admitted()->set_island(part.island);
    event.mutable_admitted()->set_index(index);
    outbox_.ToClient(session.id, std::move(event));
  }
  return nullptr;
}

void Isolation::AdmitAgain(uint32_t island) {
  for (size_t i = 0; i < fleet_.workers().size(); ++i) {
    const Claims::Claim* claim = claims_.Of(i);
    const wire::Worker& worker = fleet_.workers()[i].declared;
    if (claim == nullptr || worker.island() != island) continue;
    for (const SessionId session : claim->sessions) {
      wire::IslandItem item;
      item.mutable_admit_session()->set_index(worker.index());
      item.mutable_admit_session()->set_session(session.number());
      outbox_.ToIsland(island, std::move(item));
    }
  }
}

std::string Isolation::ClaimedByOthers(const Owner& owner) const {
  std::string claimed;
  for (size_t i = 0; i < fleet_.workers().size(); ++i) {
    const Claims::Claim* claim = claims_.Foreign(i, owner);
    const Fleet::Worker& worker = fleet_.workers()[i];
    if (claim == nullptr || worker.drained) continue;
    AppendName(absl::StrCat(NameOf(worker.declared), " by ", TextOf(*claim)), claimed);
  }
  return claimed;
}

bool Isolation::AwaitsReplacement(const Owner& owner, Time since) const {
  for (size_t i = 0; i < fleet_.workers().size(); ++i) {
    const Fleet::Worker& worker = fleet_.workers()[i];
    const bool comes = worker.absent() && worker.replaced && worker.replaced_at >= since;
    if (comes && !IsForeign(i, owner)) return true;
  }
  return false;
}

void Isolation::FillClaim(size_t worker, Time now, wire::WorkerState& state) const {
  const Claims::Claim* claim = claims_.Of(worker);
  if (claim == nullptr) return;
  wire::WorkerClaim& out = *state.mutable_claim();
  out.set_owner(claim->owner.Text());
  out.set_session(claim->first.number());
  out.set_client(ShownName(claim->client));
  out.set_for_ms(static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now - claim->since).count()));
}

}  // namespace gangway::controller
