// Implementation of gang_verdict.h.
#include "gangway/worker/service/launch/gang_verdict.h"

#include <optional>
#include <utility>

#include "gangway/wire/failure.h"

namespace gangway::worker {

absl::Status GangVerdict::Take(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  if (state_ == State::kCommitted) return absl::OkStatus();
  if (std::optional<wire::Failure> known = task_.failure()) return wire::ToStatus(*known);
  if (std::exchange(state_, State::kTaken) == State::kTaken) return absl::OkStatus();
  for (const LocalPosition& position : positions_) {
    for (const auto& argument : position.arguments) {
      std::optional<wire::Failure> spoiled = argument->failure();
      if (!spoiled) continue;
      task_.Note(wire::ToStatus(*spoiled), position.device);
      return wire::ToStatus(*spoiled);
    }
  }
  return waits_in_runtime_ ? HoldArguments(deadline) : absl::OkStatus();
}

absl::Status GangVerdict::HoldArguments(Clock::time_point deadline) {
  held_.resize(positions_.size());
  for (size_t i = 0; i < positions_.size(); ++i) {
    for (const auto& argument : positions_[i].arguments) {
      absl::StatusOr<store::Content> content = argument->Wait(deadline);
      if (!content.ok()) task_.Note(content.status(), positions_[i].device);
      if (std::optional<wire::Failure> known = task_.failure()) {  // perhaps another position's
        held_.clear();
        return wire::ToStatus(*known);
      }
      held_[i].push_back(*std::move(content));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<store::Content>> GangVerdict::Arguments(size_t position,
                                                                   Clock::time_point deadline) {
  std::vector<store::Content> held;
  if (waits_in_runtime_) {
    MutexLock lock(mutex_);
    held.swap(held_[position]);
  }
  std::vector<store::Content> contents;
  contents.reserve(positions_[position].arguments.size());
  absl::Status spoiled;
  for (const auto& argument : positions_[position].arguments) {
    auto content = argument->Wait(deadline);
    if (content.ok()) {
      contents.push_back(*std::move(content));
      continue;
    }
    spoiled = content.status();
    if (held.empty()) return spoiled;
    contents.push_back(std::move(held[contents.size()]));
    contents.back().sharing = store::Sharing::kShared;
  }
  if (!waits_in_runtime_) return contents;
  MutexLock lock(mutex_);
  if (state_ == State::kCommitted) return contents;
  if (!spoiled.ok()) task_.Note(spoiled, positions_[position].device);
  if (std::optional<wire::Failure> known = task_.failure()) return wire::ToStatus(*known);
  state_ = State::kCommitted;
  return contents;
}

}  // namespace gangway::worker
