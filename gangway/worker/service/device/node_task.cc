// Implementation of node_task.h.
#include "gangway/worker/service/device/node_task.h"

#include <utility>

#include "gangway/wire/failure.h"

namespace gangway::worker {

NodeTask::NodeTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
                   wire::ProgramLabelRef program, size_t parts)
    : environment_(std::move(environment)),
      ordinal_(ordinal),
      program_(std::move(program)),
      parts_left_(parts) {}

void FailSlot(const TaskEnvironment& environment, store::Slot& slot, const wire::Failure& why) {
  slot.Fail(why);
  environment.devices[slot.name().device]->Recheck();
}

wire::Failure NodeTask::Describe(const absl::Status& error, int device) const {
  wire::Failure failure = wire::ToFailure(error);
  if (!failure.worker().empty()) return failure;
  wire::SetProgram(program_, failure);
  failure.set_gang(ordinal_.number());
  failure.set_worker(environment_->identity.name);
  failure.set_incarnation(environment_->identity.incarnation.number());
  if (static_cast<size_t>(device) < environment_->device_ids.size()) {
    failure.set_device(environment_->device_ids[device].number());
  }
  return failure;
}

void NodeTask::Note(const absl::Status& error, int device) {
  wire::Failure failure = Describe(error, device);
  MutexLock lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
}

std::optional<wire::Failure> NodeTask::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

absl::Status NodeTask::Unwanted() const {
  const std::optional<wire::Failure> failed = failure();
  return failed ? wire::ToStatus(*failed) : absl::OkStatus();
}

void NodeTask::NoteUnsent(uint32_t shard) {
  MutexLock lock(mutex_);
  unsent_.push_back(shard);
}

void NodeTask::Deliver(store::Slot& slot, store::Content content) {
  {
    MutexLock lock(mutex_);
    ++parts_left_;
  }
  // OnReady comes before others see the buffer: a waiting launch may donate it at once, and a
  // donated buffer no longer reports readiness.
  content.buffer->OnReady(Owed([this, device = slot.name().device](absl::Status status) {
    if (!status.ok()) Note(status, device);
    EndPart();
  }));
  slot.Fill(std::move(content.buffer), content.sharing, content.borrowed);
  environment_->devices[slot.name().device]->Recheck();
  EndPart();
}

bool NodeTask::BorrowDevices(const std::vector<int>& devices) const {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (environment_->devices[devices[i]]->Borrow()) continue;
    while (i-- > 0) environment_->devices[devices[i]]->GiveBack();
    return false;
  }
  return true;
}

void NodeTask::EndPart() {
  NodeEnded ended{.ordinal = ordinal_};
  {
    MutexLock lock(mutex_);
    if (--parts_left_ != 0) return;
    ended.failure = failure_;
    ended.unsent_shards = unsent_;
  }
  OnEnded();
  const bool hurries = ended.failure || !HasWorkBehind();
  environment_->ended(std::move(ended), hurries);
}

}  // namespace gangway::worker
