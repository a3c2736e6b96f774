// Implementation of host_buffers.h.
#include "gangway/frontdoor/ifrt/host_buffers.h"

#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/status.h"

namespace gangway::ifrt {

absl::Status HostBudget::Acquire(uint64_t bytes, Clock::time_point deadline) {
  {
    MutexLock lock(mutex_);
    const auto fits = [&]() GANGWAY_NO_ANALYSIS {
      return bytes <= bytes_max_ && used_ <= bytes_max_ - bytes;
    };
    // A size that can never fit is rejected at once.
    if (bytes > bytes_max_ || !(fits() || released_.WaitUntil(mutex_, deadline, fits))) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a host buffer of ", bytes, " bytes does not fit: the front door holds ",
                       used_, " bytes of host buffers of ", name_, ", the limit is ", bytes_max_,
                       "; transfer less at once, or smaller shards"));
    }
    used_ += bytes;
  }
  if (all_ == nullptr) return absl::OkStatus();
  absl::Status status = all_->Acquire(MemoryBudget::Kind::kHostBuffers, bytes, deadline);
  if (!status.ok()) ReleaseOwn(bytes);
  return status;
}

void HostBudget::ReleaseOwn(uint64_t bytes) {
  MutexLock lock(mutex_);
  used_ -= bytes;
  released_.NotifyAll();
}

void HostBudget::Release(uint64_t bytes) {
  ReleaseOwn(bytes);
  if (all_ != nullptr) all_->Release(MemoryBudget::Kind::kHostBuffers, bytes);
}

uint64_t HostBudget::used() const {
  MutexLock lock(mutex_);
  return used_;
}

namespace {

absl::Status Missing(uint64_t handle) {
  return absl::NotFoundError(absl::StrCat("host buffer ", handle, " does not exist"));
}

}  // namespace

HostBuffers::HostBuffers(uint64_t bytes_max, std::chrono::milliseconds take_limit,
                         std::shared_ptr<MemoryBudget> all)
    : budget_(std::make_shared<HostBudget>("this session", bytes_max, std::move(all))),
      take_limit_(take_limit) {}

absl::StatusOr<std::shared_ptr<HostBytes>> HostBuffers::Allocate(uint64_t size) {
  GANGWAY_RETURN_IF_ERROR(budget_->Acquire(size, Clock::now() + take_limit_));
  return std::make_shared<HostBytes>(size, budget_);
}

absl::StatusOr<std::shared_ptr<HostBytes>> HostBuffers::TryAllocate(uint64_t size) {
  GANGWAY_RETURN_IF_ERROR(budget_->Acquire(size, Clock::time_point()));
  return std::make_shared<HostBytes>(size, budget_);
}

absl::Status HostBuffers::Put(uint64_t handle, absl::StatusOr<HostBytesRef> bytes) {
  Waiting taker;
  {
    MutexLock lock(mutex_);
    if (closed_) return absl::CancelledError("the session has ended");
    auto waiting = waiting_.find(handle);
    if (waiting == waiting_.end()) {
      if (there_.try_emplace(handle, std::move(bytes)).second) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("host buffer ", handle, " was stored twice"));
    }
    taker = std::move(waiting->second);
    waiting_.erase(waiting);
    ++callbacks_running_;
  }
  absl::Status status;
  if (taker.writing != nullptr && bytes.ok() && (*bytes)->view().data() != taker.writing) {
    bytes = status = absl::InvalidArgumentError(
        absl::StrCat("host buffer ", handle, " was stored twice at the same time"));
  }
  Call(std::move(taker), std::move(bytes));
  return status;
}

void HostBuffers::Take(uint64_t handle, Ready ready, Executor* executor) {
  Waiting taker{std::move(ready), executor};
  absl::StatusOr<HostBytesRef> bytes = absl::InternalError("unset");
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    auto there = there_.find(handle);
    if (there == there_.end()) {
      if (waiting_.try_emplace(handle, std::move(taker)).second) {
        deadlines_.emplace_back(Clock::now() + take_limit_, handle);
        return;
      }
      bytes = absl::InvalidArgumentError(
          absl::StrCat("host buffer ", handle, " is used by two arrays"));
    } else {
      bytes = std::move(there->second);
      there_.erase(there);
    }
    ++callbacks_running_;
  }
  Call(std::move(taker), std::move(bytes));
}

void HostBuffers::Place(uint64_t handle, HostPlace place) {
  MutexLock lock(mutex_);
  auto waiting = waiting_.find(handle);
  if (waiting != waiting_.end()) waiting->second.place = std::move(place);
}

HostBuffers::HostPlace HostBuffers::TakePlace(uint64_t handle) {
  MutexLock lock(mutex_);
  auto waiting = waiting_.find(handle);
  if (waiting == waiting_.end() || waiting->second.place.memory == nullptr) return {};
  waiting->second.writing = waiting->second.place.memory.get();
  return std::exchange(waiting->second.place, {});
}

bool HostBuffers::Announce(uint64_t handle) {
  MutexLock lock(mutex_);
  if (closed_ || announced_.size() >= kAnnouncedMax || there_.contains(handle)) return false;
  return announced_.try_emplace(handle).second;
}

void HostBuffers::Fulfil(uint64_t handle, absl::StatusOr<HostBytesRef> bytes) {
  Ready ready;
  {
    MutexLock lock(mutex_);
    auto announced = announced_.extract(handle);
    if (announced.empty()) return;
    there_.try_emplace(handle, bytes);
    ready = std::move(announced.mapped());
    if (ready == nullptr) return;
    ++callbacks_running_;
  }
  Run(std::move(ready), std::move(bytes));
}

void HostBuffers::Lookup(uint64_t handle, Ready ready) {
  absl::StatusOr<HostBytesRef> bytes = Missing(handle);
  {
    MutexLock lock(mutex_);
    auto announced = announced_.find(handle);
    if (announced != announced_.end() && announced->second == nullptr) {
      announced->second = std::move(ready);
      return;
    }
    if (auto there = there_.find(handle); there != there_.end()) bytes = there->second;
    ++callbacks_running_;
  }
  Run(std::move(ready), std::move(bytes));
}

void HostBuffers::Erase(uint64_t handle) {
  absl::StatusOr<HostBytesRef> dropped = absl::InternalError("unset");  // freed without the lock
  Ready ready;
  {
    MutexLock lock(mutex_);
    if (auto there = there_.find(handle); there != there_.end()) {
      dropped = std::move(there->second);
      there_.erase(there);
    }
    if (auto announced = announced_.extract(handle); !announced.empty())
      ready = std::move(announced.mapped());
    if (ready == nullptr) return;
    ++callbacks_running_;
  }
  Run(std::move(ready), Missing(handle));
}

void HostBuffers::Expire(Clock::time_point now) {
  std::vector<std::pair<uint64_t, Waiting>> late;
  {
    MutexLock lock(mutex_);
    for (; !deadlines_.empty() && deadlines_.front().first <= now; deadlines_.pop_front()) {
      auto waiting = waiting_.find(deadlines_.front().second);
      if (waiting == waiting_.end()) continue;  // the bytes arrived
      late.emplace_back(waiting->first, std::move(waiting->second));
      waiting_.erase(waiting);
      ++callbacks_running_;
    }
  }
  for (auto& [handle, taker] : late) {
    Call(std::move(taker), absl::DeadlineExceededError(
                               absl::StrCat("the client did not send the bytes of host buffer ",
                                            handle, " within ", take_limit_.count(), " ms")));
  }
}

void HostBuffers::Call(Waiting waiting, absl::StatusOr<HostBytesRef> bytes) {
  if (waiting.executor == nullptr) return Run(std::move(waiting.ready), std::move(bytes));
  waiting.executor->Post(
      [this, ready = std::move(waiting.ready), bytes = std::move(bytes)]() mutable {
        Run(std::move(ready), std::move(bytes));
      });
}

void HostBuffers::Run(Ready ready, absl::StatusOr<HostBytesRef> bytes) {
  ready(std::move(bytes));
  ready = nullptr;  // destroys its captures before Close() may return
  MutexLock lock(mutex_);
  if (--callbacks_running_ == 0) idle_.NotifyAll();
}

void HostBuffers::Close() {
  decltype(there_) there;
  decltype(waiting_) waiting;
  decltype(announced_) announced;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    there.swap(there_);
    waiting.swap(waiting_);
    announced.swap(announced_);
  }
  for (auto& [handle, ready] : announced) {
    if (ready != nullptr) ready(absl::CancelledError("the session has ended"));
  }
  MutexLock lock(mutex_);
  // Callbacks do not block, so this ends; the limit of one wait only helps to debug a stuck one.
  while (!idle_.WaitFor(mutex_, std::chrono::seconds(5),
                        [this]() GANGWAY_NO_ANALYSIS { return callbacks_running_ == 0; })) {
  }
}

}  // namespace gangway::ifrt
