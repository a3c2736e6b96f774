// Implementation of sim_buffer.h.
#include "gangway/device/sim/sim_buffer.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/device/element_type.h"

namespace gangway::device {
namespace {

absl::Status DeletedError() {
  return absl::InvalidArgumentError(
      "this buffer was deleted or donated; it cannot be used any more");
}

}  // namespace

absl::Status CheckSimSize(const ArraySpec& spec, size_t bytes) {
  std::optional<size_t> want = HostBytes(spec);
  if (!want) {
    return absl::InvalidArgumentError(
        absl::StrCat("element type ", spec.element_type,
                     " is unknown, or a dimension is negative or too large"));
  }
  if (*want == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the array takes ", *want, " bytes in host memory, but ", bytes, " were given"));
}

absl::Status CheckSimPlace(int device, int device_count, std::string_view memory_kind) {
  if (device < 0 || device >= device_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no local device ", device, ": the simulated devices are 0 .. ", device_count - 1));
  }
  if (memory_kind.empty() || memory_kind == kSimMemoryKind) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("simulated device ", device,
                                                 " has no memory kind '", std::string(memory_kind),
                                                 "'; it has ", std::string(kSimMemoryKind)));
}

std::shared_ptr<SimStorage> SimBuffer::storage() const {
  MutexLock lock(mutex_);
  return storage_;
}

std::shared_ptr<SimStorage> SimBuffer::Take() {
  MutexLock lock(mutex_);
  return std::exchange(storage_, nullptr);
}

bool SimBuffer::IsDeleted() const { return storage() == nullptr; }

absl::StatusOr<size_t> SimBuffer::OnDeviceBytes() const {
  if (IsDeleted()) return DeletedError();
  return HostBytes(spec_).value_or(0);
}

void SimBuffer::OnReady(StatusCallback callback) {
  std::shared_ptr<SimStorage> storage = this->storage();
  if (!storage) return callback(DeletedError());
  storage->OnSettled([callback = std::move(callback)](const absl::Status& status,
                                                      const SimStorage::Contents&,
                                                      int64_t) { callback(status); });
}

void SimBuffer::CopyToHost(void* dst, size_t dst_bytes, StatusCallback on_done) {
  if (absl::Status status = CheckSimSize(spec_, dst_bytes); !status.ok())
    return on_done(std::move(status));
  std::shared_ptr<SimStorage> storage = this->storage();
  if (!storage) return on_done(DeletedError());
  storage->OnSettled([dst, on_done = std::move(on_done)](const absl::Status& status,
                                                         const SimStorage::Contents& contents,
                                                         int64_t) {
    if (status.ok() && !contents->empty()) std::memcpy(dst, contents->data(), contents->size());
    on_done(status);
  });
}

absl::StatusOr<std::unique_ptr<Buffer>> SimBuffer::CopyToDevice(int device,
                                                                std::string_view memory_kind) {
  GANGWAY_RETURN_IF_ERROR(CheckSimPlace(device, device_count_, memory_kind));
  std::shared_ptr<SimStorage> storage = this->storage();
  if (!storage) return DeletedError();
  const std::shared_ptr<SimMemory::Lease> lease = storage->lease();
  if (!lease) return DeletedError();  // another thread donated it during this call
  auto copy = std::make_shared<SimStorage>(lease->On(device));
  storage->OnSettled([copy](const absl::Status& status, const SimStorage::Contents& contents,
                            int64_t at_us) { copy->Settle(status, contents, at_us); });
  return std::make_unique<SimBuffer>(device, device_count_, spec_, std::move(copy));
}

SimFiller::~SimFiller() {
  storage_->Settle(
      absl::CancelledError(
          "the producer dropped this buffer before it filled it; look for its earlier error"),
      nullptr, timer_->NowMicros());
}

absl::Status SimFiller::Fill(std::span<const std::byte> bytes, StatusCallback on_done) {
  GANGWAY_RETURN_IF_ERROR(CheckSimSize(spec_, bytes.size()));
  auto contents = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  if (!storage_->Settle(absl::OkStatus(), std::move(contents), timer_->NowMicros())) {
    return absl::FailedPreconditionError("this placeholder was filled or failed before");
  }
  if (on_done) on_done(absl::OkStatus());
  return absl::OkStatus();
}

absl::Status SimFiller::Fail(absl::Status error) {
  if (error.ok())
    return absl::InvalidArgumentError("a buffer cannot fail with status OK; pass the error");
  if (!storage_->Settle(std::move(error), nullptr, timer_->NowMicros())) {
    return absl::FailedPreconditionError("this placeholder was filled or failed before");
  }
  return absl::OkStatus();
}

}  // namespace gangway::device
