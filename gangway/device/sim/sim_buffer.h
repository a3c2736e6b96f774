// Buffers and placeholders of the simulated device. Internal to device/sim. Thread-safe.
#ifndef GANGWAY_DEVICE_SIM_SIM_BUFFER_H_
#define GANGWAY_DEVICE_SIM_SIM_BUFFER_H_

#include <atomic>
#include <memory>
#include <string>

#include "gangway/device/device.h"
#include "gangway/device/sim/sim_storage.h"
#include "gangway/device/sim/sim_timer.h"

namespace gangway::device {

inline constexpr std::string_view kSimMemoryKind = "device";

// INVALID_ARGUMENT: unknown element type, bad dimensions, or `bytes` is not the size of the array
// in host memory.
absl::Status CheckSimSize(const ArraySpec& spec, size_t bytes);
// INVALID_ARGUMENT: no such device, or no such memory kind.
absl::Status CheckSimPlace(int device, int device_count, std::string_view memory_kind);

class SimBuffer final : public Buffer {
 public:
  SimBuffer(int device, int device_count, ArraySpec spec, std::shared_ptr<SimStorage> storage)
      : device_(device),
        device_count_(device_count),
        spec_(std::move(spec)),
        storage_(std::move(storage)) {}

  int device() const override { return device_; }
  const ArraySpec& spec() const override { return spec_; }
  std::string memory_kind() const override { return std::string(kSimMemoryKind); }
  absl::StatusOr<size_t> OnDeviceBytes() const override;
  void OnReady(StatusCallback callback) override;
  void CopyToHost(void* dst, size_t dst_bytes, StatusCallback on_done) override;
  absl::StatusOr<std::unique_ptr<Buffer>> CopyToDevice(int device,
                                                       std::string_view memory_kind) override;
  void Delete() override { (void)Take(); }
  bool IsDeleted() const override;

  // The storage, or null once deleted. Take also deletes the buffer.
  std::shared_ptr<SimStorage> storage() const;
  std::shared_ptr<SimStorage> Take();

 private:
  const int device_;
  const int device_count_;
  const ArraySpec spec_;
  mutable Mutex mutex_;
  std::shared_ptr<SimStorage> storage_ GANGWAY_GUARDED_BY(mutex_);
};

class SimFiller final : public Filler {
 public:
  SimFiller(ArraySpec spec, std::shared_ptr<SimStorage> storage, std::shared_ptr<SimTimer> timer)
      : spec_(std::move(spec)), storage_(std::move(storage)), timer_(std::move(timer)) {}
  ~SimFiller() override;

  absl::Status Fill(std::span<const std::byte> bytes, StatusCallback on_done) override;
  absl::Status Fail(absl::Status error) override;

 private:
  const ArraySpec spec_;
  const std::shared_ptr<SimStorage> storage_;
  const std::shared_ptr<SimTimer> timer_;
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_SIM_SIM_BUFFER_H_
