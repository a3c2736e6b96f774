// Sessions of different owners share no worker process and no compiler process, if the cluster is so configured.
//
// An operation that gives a worker work claims it for the session's owner (claims.h), before anything of the operation
// reaches the worker. When the owner's last session ends, ReplaceWorker follows all that was sent for it: the scheduler
// is done with the process at that message, so whatever comes after it reaches the next process only. The claim is
// therefore free at once, and the next owner's work waits as for a worker that is down.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/base/shown_name.h"
#include "gangway/controller/core/controller.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

std::string NameOf(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

}  // namespace

std::string Controller::ClaimText(const Claims::Claim& claim) {
  return absl::StrCat("session ", claim.first, " (", ShownName(claim.client), ")");
}

// UNAVAILABLE, as for a worker that is drained: the same call may succeed later or elsewhere.
wire::FailureRef Controller::ForeignClaim(const Owner& owner, DeviceId device, Time now) const {
  auto it = devices_.find(device);
  if (it == devices_.end()) return nullptr;
  const Claims::Claim* claim = claims_.Foreign(it->second.owner, owner);
  if (claim == nullptr) return nullptr;
  const wire::Worker& worker = workers_[it->second.owner].declared;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - claim->since).count();
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kUnavailable,
      absl::StrCat(NameOf(worker), " has been claimed by ", ClaimText(*claim), " for ", seconds,
                   " s: this cluster isolates its sessions, and those of different owners share no "
                   "worker, so nothing can be created on device ",
                   device),
      "Start the script again: a session that starts now sees the workers that are free. A claim "
      "ends with the last session of its owner; `gangway status` shows all claims.");
  failure.set_worker(NameOf(worker));
  failure.set_incarnation(worker.incarnation());
  failure.set_device(static_cast<int32_t>(device.number()) + 1);
  return wire::Share(std::move(failure));
}

// All of the devices' workers, or none of them.
template <typename Devices>
wire::FailureRef Controller::Claim(SessionId id, const Session& session, const Devices& devices,
                                   Time now, Actions& actions) {
  if (!claims_.isolates()) return nullptr;
  for (const auto device : devices) {
    if (auto failure = ForeignClaim(session.owner, DeviceId(device), now)) return failure;
  }
  for (const auto device : devices) {
    auto it = devices_.find(DeviceId(device));
    if (it == devices_.end() ||
        !claims_.Use(it->second.owner, id, session.owner, session.name, now))
      continue;
    wire::IslandItem item;
    item.mutable_admit_session()->set_index(it->second.worker);
    item.mutable_admit_session()->set_session(id.number());
    actions.to_islands.emplace_back(it->second.island, std::move(item));
    wire::SessionEvent event;
    event.mutable_admitted()->set_island(it->second.island);
    event.mutable_admitted()->set_index(it->second.worker);
    actions.to_clients.emplace_back(id, std::move(event));
  }
  return nullptr;
}

template wire::FailureRef Controller::Claim(SessionId, const Session&,
                                            const google::protobuf::RepeatedField<uint32_t>&, Time,
                                            Actions&);
template wire::FailureRef Controller::Claim(SessionId, const Session&, const std::vector<DeviceId>&,
                                            Time, Actions&);

// After all that ends the session has been sent.
void Controller::EndClaims(SessionId id, const Owner& owner, Time now, Actions& actions) {
  const auto ended = claims_.Close(id, owner);
  if (!ended) return;
  for (size_t worker : *ended) ReplaceWorker(worker, owner, now, actions);
  CompileActions compiles;
  compiles_.EndOwner(owner, now, compiles);
  Take(compiles, actions);
}

// Sessions that see the worker know at once that it is down, since they would send their bytes to its process.
void Controller::ReplaceWorker(size_t index, const Owner& owner, Time now, Actions& actions) {
  WorkerInfo& worker = workers_[index];
  wire::IslandItem item;
  wire::ReplaceWorker& replace = *item.mutable_replace_worker();
  replace.set_index(worker.declared.index());
  *replace.mutable_why() =
      wire::MakeFailure(absl::StatusCode::kUnavailable,
                        absl::StrCat("it is replaced, because the last session of its owner, ",
                                     owner.Text(), ", has ended"));
  const wire::Failure why = replace.why();
  actions.to_islands.emplace_back(worker.declared.island(), std::move(item));
  if (!worker.up) return;
  wire::WorkerState state;
  *state.mutable_worker() = worker.declared;
  *state.mutable_failure() = why;
  state.mutable_failure()->set_worker(NameOf(worker.declared));
  state.mutable_failure()->set_incarnation(worker.declared.incarnation());
  OnWorkerState(state, now, actions);
  worker.replaced = worker.declared.incarnation();  // its own reports come too late from here on
  worker.replaced_at = now;
}

// The next scheduler of the island knows of no session.
void Controller::AdmitAgain(uint32_t island) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Claims::Claim* claim = claims_.Of(i);
    if (claim == nullptr || workers_[i].declared.island() != island) continue;
    for (SessionId session : claim->sessions) {
      wire::AdmitSession& admit = *islands_[island].held.emplace_back().mutable_admit_session();
      admit.set_index(workers_[i].declared.index());
      admit.set_session(session.number());
    }
  }
}

bool Controller::AwaitsReplacement(const Owner& owner, Time since) const {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const WorkerInfo& worker = workers_[i];
    const bool comes = worker.absent() && worker.replaced && worker.replaced_at >= since;
    if (comes && claims_.Foreign(i, owner) == nullptr) return true;
  }
  return false;
}

std::string Controller::ClaimedByOthers(const Owner& owner) const {
  std::string claimed;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Claims::Claim* claim = claims_.Foreign(i, owner);
    if (claim == nullptr || workers_[i].drained) continue;
    absl::StrAppend(&claimed, claimed.empty() ? "" : ", ", NameOf(workers_[i].declared), " by ",
                    ClaimText(*claim));
  }
  return claimed;
}

void Controller::FillClaim(size_t worker, Time now, wire::WorkerState& state) const {
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
