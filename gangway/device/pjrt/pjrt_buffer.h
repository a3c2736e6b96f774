// Buffers and placeholders of a PJRT plugin. Internal to device/pjrt. Thread-safe, as PJRT buffers
// are.
#ifndef GANGWAY_DEVICE_PJRT_PJRT_BUFFER_H_
#define GANGWAY_DEVICE_PJRT_PJRT_BUFFER_H_

#include <memory>
#include <string>

#include "gangway/device/device.h"
#include "gangway/device/pjrt/pjrt_client.h"

namespace gangway::device {

class PjrtBuffer final : public Buffer {
 public:
  // Takes ownership of `buffer`.
  PjrtBuffer(std::shared_ptr<const PjrtClient> client, PJRT_Buffer* buffer, int device,
             std::shared_ptr<const ArraySpec> spec);
  ~PjrtBuffer() override;

  int device() const override { return device_; }
  const ArraySpec& spec() const override { return *spec_; }
  std::string memory_kind() const override;
  absl::StatusOr<size_t> OnDeviceBytes() const override;
  void OnReady(StatusCallback callback) override;
  void CopyToHost(void* dst, size_t dst_bytes, StatusCallback on_done) override;
  bool CopyToHostNow(void* dst, size_t dst_bytes) override;
  absl::StatusOr<std::unique_ptr<Buffer>> CopyToDevice(int device,
                                                       std::string_view memory_kind) override;
  void Delete() override;
  bool IsDeleted() const override;

  PJRT_Buffer* pjrt() const { return buffer_; }

 private:
  bool IsReady() const;  // without an error

  const std::shared_ptr<const PjrtClient> client_;
  PJRT_Buffer* const buffer_;
  const int device_;
  const std::shared_ptr<const ArraySpec> spec_;
};

absl::StatusOr<std::unique_ptr<Buffer>> PjrtBufferFromHost(
    const std::shared_ptr<const PjrtClient>& client, int device, std::string_view memory_kind,
    const ArraySpec& spec, std::span<const std::byte> bytes, HostSemantics semantics,
    StatusCallback on_done);

absl::StatusOr<Placeholder> CreatePjrtPlaceholder(const std::shared_ptr<const PjrtClient>& client,
                                                  int device, const ArraySpec& spec);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_PJRT_BUFFER_H_
