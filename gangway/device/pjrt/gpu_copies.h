// Copies between the memory of this process and that of a GPU, for handlers of custom calls: their operands and results
// are addresses on the device, and XLA's FFI copies nothing. By NVIDIA's driver library, which is opened when it is
// first needed: a machine without it has no GPU that could ask.
//
// Threading: every method is for any thread. A call blocks until the work before it in its stream, and its copies, are
// done.
#ifndef GANGWAY_DEVICE_PJRT_GPU_COPIES_H_
#define GANGWAY_DEVICE_PJRT_GPU_COPIES_H_

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gangway::device {

class GpuCopies {
 public:
  // NOT_FOUND: the driver's library is absent, or lacks a function.
  static absl::StatusOr<const GpuCopies*> Load();

  // Each pair is an address of this process and the device memory to copy from, or to. `stream`: a CUstream. INTERNAL:
  // the driver's words.
  absl::Status ToHost(void* stream,
                      std::span<const std::pair<std::span<std::byte>, const void*>> copies) const;
  absl::Status ToDevice(void* stream,
                        std::span<const std::pair<std::span<const std::byte>, void*>> copies) const;

 private:
  // As the driver declares them: a CUresult, 0 for success; a CUdeviceptr has 64 bits.
  using Result = int;
  using DevicePointer = unsigned long long;  // NOLINT(google-runtime-int): the driver's type

  Result (*copy_to_host_)(void* to, DevicePointer from, size_t bytes, void* stream) = nullptr;
  Result (*copy_to_device_)(DevicePointer to, const void* from, size_t bytes,
                            void* stream) = nullptr;
  Result (*synchronize_)(void* stream) = nullptr;
  Result (*context_of_)(void* stream, void** context) = nullptr;
  Result (*push_context_)(void* context) = nullptr;
  Result (*pop_context_)(void** context) = nullptr;
  Result (*error_string_)(Result result, const char** text) = nullptr;

  absl::Status ToStatus(Result result) const;
  // Runs `copy`, which enqueues copies, in the context of `stream`, and waits for them.
  template <typename Copy>
  absl::Status InContext(void* stream, Copy copy) const;
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_GPU_COPIES_H_
