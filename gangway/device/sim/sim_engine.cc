// Implementation of sim_engine.h.
#include "gangway/device/sim/sim_engine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/base/random.h"
#include "gangway/base/status.h"
#include "gangway/device/sim/sim_collectives.h"

namespace gangway::device {

absl::Status SimEngine::Enqueue(const std::shared_ptr<SimRun>& run, uint64_t executable,
                                int32_t launch_id) {
  {
    MutexLock lock(mutex_);
    Device& device = devices_[run->device];
    if (closed_) return absl::CancelledError("the simulated devices were closed");
    if (static_cast<int>(device.queue.size()) >= inflight_max_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("simulated device ", run->device, " already has ", inflight_max_,
                       " executes in flight; wait for one to complete first (a real device would "
                       "block this thread)"));
    }
    if (run->program->collective && run->program->partitions > 1) {
      GANGWAY_RETURN_IF_ERROR(JoinGang(run, executable, launch_id));
    }
    run->unsettled_inputs = run->inputs.size() + 1;  // one more for this function
    run->contents.resize(run->inputs.size());
    ApplyFaults(run.get());
    device.queue.push_back(run);
  }
  for (size_t i = 0; i < run->inputs.size(); ++i) {
    run->inputs[i]->OnSettled(
        [engine = weak_from_this(), run, i](const absl::Status& status,
                                            const SimStorage::Contents& contents, int64_t at_us) {
          auto alive = engine.lock();
          if (alive) alive->Schedule(alive->InputSettled(run, i, status, contents, at_us));
        });
  }
  run->inputs.clear();  // the callbacks deliver the contents
  const int64_t now_us = timer_->NowMicros();
  RunInline(InputSettled(run, run->contents.size(), absl::OkStatus(), nullptr, now_us), now_us);
  return absl::OkStatus();
}

absl::Status SimEngine::JoinGang(const std::shared_ptr<SimRun>& run, uint64_t executable,
                                 int32_t launch_id) {
  const bool by_launch = launch_id != 0;
  const int64_t number = by_launch ? launch_id : devices_[run->device].launches[executable]++;
  const GangKey key(executable, {by_launch, number});
  std::shared_ptr<SimGang>& gang = gangs_[key];
  if (!gang) {
    gang = std::make_shared<SimGang>();
    gang->members.resize(run->program->partitions);
  }
  std::shared_ptr<SimRun>& member = gang->members[run->position];
  if (member) {
    return absl::InvalidArgumentError(
        absl::StrCat("launch ", launch_id, " of '", run->program->name, "' was enqueued on device ",
                     run->device, " before; every launch needs a unique id"));
  }
  member = run;
  run->gang = gang;
  const bool whole = std::all_of(gang->members.begin(), gang->members.end(),
                                 [](const auto& one) { return one != nullptr; });
  if (whole) gangs_.erase(key);
  return absl::OkStatus();
}

void SimEngine::ApplyFaults(SimRun* run) {
  for (auto fault = faults_.begin(); fault != faults_.end();) {
    if ((fault->device != -1 && fault->device != run->device) || --fault->nth > 0) {
      ++fault;
      continue;
    }
    if (fault->kind == SimFault::Kind::kHang)
      run->hung = true;
    else
      run->error = fault->error;
    fault = faults_.erase(fault);
  }
}

SimEngine::Starts SimEngine::InputSettled(const std::shared_ptr<SimRun>& run, size_t index,
                                          const absl::Status& status,
                                          const SimStorage::Contents& contents, int64_t at_us) {
  {
    MutexLock lock(mutex_);
    if (run->error.ok()) run->error = status;
    if (index < run->contents.size()) run->contents[index] = contents;
    run->ready_us = std::max(run->ready_us, at_us);
    if (--run->unsettled_inputs > 0) return {};
  }
  // No other thread touches the run between its last input and `ready`, so the digest needs no
  // lock.
  std::vector<std::span<const std::byte>> bytes;
  for (const auto& one : run->contents)
    bytes.push_back(one ? std::span<const std::byte>(*one) : std::span<const std::byte>());
  if (run->program->collectives.empty()) {
    run->digest = DigestInputs(*run->program, bytes);
  } else {
    for (const auto& each : bytes) run->values.emplace_back(each.begin(), each.end());
  }
  run->contents.clear();
  Starts starts;
  {
    MutexLock lock(mutex_);
    run->ready = true;
    TryStart(run->device, &starts);
  }
  return starts;
}

void SimEngine::TryStart(int device, Starts* starts) {
  Device& state = devices_[device];
  if (closed_ || state.queue.empty()) return;
  const std::shared_ptr<SimRun>& run = state.queue.front();
  if (!run->ready || run->hung || run->started) return;
  run->started = true;
  if (run->gang) {
    if (++run->gang->waiting == run->program->partitions) StartGang(run->gang.get(), starts);
    return;
  }
  int64_t cost = run->error.ok() ? run->program->cost_us : 0;
  if (run->error.ok() && first_device_ + run->device == run->program->slow_device)
    cost += run->program->slow_us;
  state.busy_us += cost;
  starts->push_back({run, std::max(run->ready_us, state.free_us) + cost});
}

void SimEngine::StartGang(SimGang* gang, Starts* starts) {
  std::vector<uint64_t> digests;
  int64_t start_us = 0;
  absl::Status error;
  for (const auto& member : gang->members) {
    digests.push_back(member->digest);
    start_us = std::max({start_us, member->ready_us, devices_[member->device].free_us});
    if (error.ok()) error = member->error;
  }
  const uint64_t combined = CombineDigests(digests);
  for (const auto& member : gang->members) {
    member->digest = combined;
    member->error = error;
    const int64_t cost = error.ok() ? member->program->cost_us : 0;
    devices_[member->device].busy_us += cost;
    starts->push_back({member, start_us + cost});
  }
  gang->members.clear();  // breaks the reference cycle of gang and members
}

void SimEngine::Schedule(const Starts& starts) {
  for (const Start& start : starts) {
    timer_->At(start.end_us, [engine = weak_from_this(), run = start.run, end_us = start.end_us] {
      if (auto alive = engine.lock()) alive->Finish(run, end_us);
    });
  }
}

// These are the run that the caller enqueues, or all members of its gang, whose program has no collectives of its own.
// So a run that blocks in a collective blocks its own device's thread only.
void SimEngine::RunInline(const Starts& starts, int64_t now_us) {
  Starts later;
  for (const Start& start : starts) {
    if (start.end_us > now_us) {
      later.push_back(start);
    } else if (Communicates(*start.run)) {
      Communicate(start.run);
    } else {
      Finish(start.run, start.end_us);
    }
  }
  Schedule(later);
}

bool SimEngine::Communicates(const SimRun& run) {
  return !run.program->collectives.empty() && run.error.ok();
}

void SimEngine::Finish(const std::shared_ptr<SimRun>& run, int64_t end_us) {
  if (!Communicates(*run)) return End(run, end_us);
  MutexLock lock(mutex_);
  if (closed_) return;
  auto& members = devices_[run->device].members;
  if (members == nullptr) members = std::make_unique<EventLoop>("sim-members");
  members->Post([engine = weak_from_this(), run] {
    if (auto alive = engine.lock()) alive->Communicate(run);
  });
}

void SimEngine::Communicate(const std::shared_ptr<SimRun>& run) {
  absl::Status status = RunCollectives(*run->program, first_device_ + run->device, *timer_,
                                       run->collective, run->values);
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    run->error = std::move(status);
  }
  End(run, timer_->NowMicros());
}

void SimEngine::End(const std::shared_ptr<SimRun>& run, int64_t end_us) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;  // Close has ended the run
    Device& device = devices_[run->device];
    device.queue.pop_front();  // only the head ever starts
    device.free_us = end_us;
  }
  SettleOutputs(run.get(), run->error, end_us);  // the error of a started run no longer changes
  // The outputs settle first, so a successor on this device that reads them starts at `end_us`.
  Starts starts;
  bool is_late = completion_delay_us_ > 0;
  {
    MutexLock lock(mutex_);
    TryStart(run->device, &starts);
    is_late &= !closed_;
    if (is_late) ending_.push_back(run);
  }
  Schedule(starts);
  if (!is_late) return Complete(run.get());
  const auto delay = static_cast<int64_t>(RandomBits() % (completion_delay_us_ + 1));
  timer_->At(end_us + delay, [engine = weak_from_this(), run] {
    if (auto alive = engine.lock()) alive->CompleteLate(run);
  });
}

void SimEngine::SettleOutputs(SimRun* run, const absl::Status& status, int64_t end_us) {
  for (size_t i = 0; i < run->outputs.size(); ++i) {
    SimStorage::Contents contents;
    if (status.ok() && !run->program->collectives.empty()) {
      contents = std::make_shared<const std::vector<std::byte>>(std::move(run->values[i]));
    } else if (status.ok()) {
      contents = std::make_shared<const std::vector<std::byte>>(
          SimOutput(*run->program, static_cast<int>(i), run->position, run->digest));
    }
    run->outputs[i]->Settle(status, std::move(contents), end_us);
  }
}

void SimEngine::Complete(SimRun* run) {
  if (run->on_complete) run->on_complete(run->error);
  run->collective = nullptr;
}

void SimEngine::CompleteLate(const std::shared_ptr<SimRun>& run) {
  {
    MutexLock lock(mutex_);
    if (std::erase(ending_, run) == 0) return;
  }
  Complete(run.get());
}

void SimEngine::Inject(SimFault fault) {
  MutexLock lock(mutex_);
  faults_.push_back(std::move(fault));
}

void SimEngine::ReleaseHung() {
  Starts starts;
  {
    MutexLock lock(mutex_);
    for (size_t device = 0; device < devices_.size(); ++device) {
      for (const auto& run : devices_[device].queue) {
        if (!std::exchange(run->hung, false)) continue;
        run->ready_us = std::max(run->ready_us, timer_->NowMicros());
      }
      TryStart(static_cast<int>(device), &starts);
    }
  }
  Schedule(starts);
}

int64_t SimEngine::BusyMicros(int device) const {
  MutexLock lock(mutex_);
  return devices_[device].busy_us;
}

void SimEngine::Close() {
  std::vector<std::shared_ptr<SimRun>> open, ending;
  std::vector<std::unique_ptr<EventLoop>> members;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    ending.swap(ending_);
    for (Device& device : devices_) {
      open.insert(open.end(), device.queue.begin(), device.queue.end());
      device.queue.clear();
      members.push_back(std::move(device.members));
    }
    for (const auto& run : open) run->gang.reset();
    gangs_.clear();
  }
  for (const auto& run : ending) Complete(run.get());
  const absl::Status closed = absl::CancelledError("the simulated devices were closed");
  for (const auto& run : open) {
    SettleOutputs(run.get(), closed, timer_->NowMicros());
    if (run->on_complete) run->on_complete(closed);
  }
  members.clear();  // ends their threads
  for (const auto& run : open) run->collective = nullptr;
}

}  // namespace gangway::device
