// Admission (GS-2) and release (GS-4), in the island's one order (GS-1).
#include <algorithm>
#include <optional>
#include <utility>

#include "gangway/scheduler/core/lifecycle.h"

namespace gangway::scheduler {

void Lifecycle::Schedule(Time now) {
  island_.admission.TakeWoken();  // whoever waits for slots is looked at
  do {  // others may wait for nodes that need neither memory nor slots, or fit, and were not looked at
    while (const auto light = island_.admission.NextLight())
      TryRelease(island_.nodes.At(*light), now);
    ScheduleHeavy(now);
  } while (island_.admission.NextLight() || island_.admission.may_resume());
}

void Lifecycle::ScheduleHeavy(Time now) {
  KeptDevices kept(island_.fleet.device_count());
  ScheduleTurns(now, kept);
  island_.admission.ResumeFitting();
  Ordinal next;  // not an iterator: releases make later nodes ready
  while (!kept.has_all()) {
    const std::optional<Ordinal> head = island_.admission.NextHead(next);
    if (!head) break;
    next = Ordinal(head->number() + 1);
    NodeState& node = island_.nodes.At(*head);
    if (kept.HasOneOf(node.devices())) continue;
    const Outcome outcome = TryRelease(node, now);
    if (outcome == Outcome::kReleased || outcome == Outcome::kFailed) continue;
    if (outcome == Outcome::kNoMemory) {
      island_.admission.StandAside(node);
      continue;
    }
    island_.admission.Keep(node, kept);
  }
}

void Lifecycle::ScheduleTurns(Time now, KeptDevices& kept) {
  for (Ordinal ordinal : island_.admission.Turns()) {
    NodeState& node = island_.nodes.At(ordinal);
    if (!kept.HasOneOf(node.devices())) {
      const Outcome outcome = TryRelease(node, now);
      if (outcome == Outcome::kReleased || outcome == Outcome::kFailed) continue;
    }
    island_.admission.Keep(node, kept);
  }
}

Lifecycle::Outcome Lifecycle::TryRelease(NodeState& node, Time now) {
  if (auto failure = InputFailure(node)) {
    FailUnreleased(node.ordinal, std::move(failure));
    return Outcome::kFailed;
  }
  if (!island_.admission.HasMemory(node)) {
    island_.waits.Begin(WaitFor::kMemory, node.ordinal, now);
    return Outcome::kNoMemory;
  }
  EndMemoryWait(node);
  if (!island_.admission.HasSlots(node)) return Outcome::kNoSlots;
  if (node.spans() && node.stage != NodeStage::kOnTurn) {
    Offer(node);
  } else if (node.spans()) {  // released once its parts on the other islands are admitted too
    Admit(node);
  } else {
    Take(node);
    Release(node, now);
  }
  return Outcome::kReleased;
}

void Lifecycle::EndMemoryWait(const NodeState& node) {
  island_.admission.EndStandingAside(node);
  if (island_.waits.End(WaitFor::kMemory, node.ordinal))
    island_.books.NoteFreed();  // for those that were not to overtake it
}

void Lifecycle::Take(NodeState& node) {
  island_.admission.Take(node);
  island_.admission.Remove(node);
  island_.storages.NoteCharged(node.writes);
}

// Offers a spanning gang that could be released here to the sequencer, which knows the other
// islands. Until its turn the gang claims nothing: its parts elsewhere may wait long.
void Lifecycle::Offer(NodeState& node) {
  node.stage = NodeStage::kOffered;
  island_.admission.Remove(node);
  wire::Report report;
  report.mutable_ready()->add_ordinals(node.ordinal.number());
  island_.outbox.Report(std::move(report));
}

void Lifecycle::Admit(NodeState& node) {
  Take(node);
  node.stage = NodeStage::kAdmitted;
  wire::Report report;
  report.mutable_admitted()->add_ordinals(node.ordinal.number());
  island_.outbox.Report(std::move(report));
}

void Lifecycle::Release(NodeState& node, Time now) {
  node.stage = NodeStage::kReleased;
  node.released_at = now;
  const CopyPart* copy = node.copy();
  if (copy != nullptr) IntroduceSenders(*copy);
  latest_release_ = OrderPosition(latest_release_.number() + 1);
  node.position = latest_release_;
  island_.outbox.SendRelease(node.workers, node.ordinal, node.position);
  if (copy != nullptr && copy->to_other_island) island_.outbox.ReportReleased(node.ordinal);
  EndReads(node);
  if (node.is_upload()) {  // its waiters need the bytes, not the release
    island_.waits.Begin(WaitFor::kBytes, node.ordinal, now);
    return;
  }
  for (Ordinal waiter : std::exchange(node.waiters, {})) Unblock(waiter);
}

// The node is released, or will never be: nodes that consume what it reads no longer wait for it.
void Lifecycle::EndReads(const NodeState& node) {
  for (Ordinal consumer : island_.storages.EndReads(node)) Unblock(consumer);
}

// All senders are known by now: local ones are up, since the node was sent to them; those on other
// islands were named in Released. A receiver finds the senders of its shards by their devices.
void Lifecycle::IntroduceSenders(const CopyPart& copy) {
  island_.introductions.Introduce(copy.senders, copy.receivers);
  for (const wire::Worker& sender : copy.far_senders)
    island_.introductions.IntroduceFar(sender, copy.receivers);
}

}  // namespace gangway::scheduler
