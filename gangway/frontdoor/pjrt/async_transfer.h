// Asynchronous transfers from host memory: buffers whose bytes come in pieces, in any order. The pieces are gathered in
// this process, and a buffer's bytes leave for the cluster when its last piece has come.
//
// Threading: any thread; a transfer's pieces are guarded by its lock. Failure: a buffer that does not become whole is
// an error for all that uses it; the transfer's other buffers are unaffected.
#ifndef GANGWAY_FRONTDOOR_PJRT_ASYNC_TRANSFER_H_
#define GANGWAY_FRONTDOOR_PJRT_ASYNC_TRANSFER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "pjrt_c_api.h"

#include "gangway/base/mutex.h"
#include "gangway/frontdoor/pjrt/array.h"
#include "gangway/frontdoor/pjrt/buffer.h"

namespace gangway::pjrt {

// The bytes [0, size) of one buffer, as far as they have come. Not thread-safe.
class Pieces {
 public:
  explicit Pieces(uint64_t size) : size_(size) {}

  // A later piece replaces what it overlaps. OUT_OF_RANGE: it is not within [0, size).
  absl::Status Add(int64_t offset, std::span<const char> piece);

  uint64_t size() const { return size_; }
  uint64_t missing() const;
  // Once; leaves nothing.
  std::string Take();

 private:
  const uint64_t size_;
  std::string bytes_;  // as long as `size_` once a piece has come
  std::map<uint64_t, uint64_t>
      ranges_;  // that have come, begin to end, neither touching nor overlapping
};

absl::Status AsyncCreate(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args& args);
absl::Status AsyncDestroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args& args);
absl::Status AsyncTransfer(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args& args);
absl::Status AsyncBuffer(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args& args);
absl::Status AsyncDevice(PJRT_AsyncHostToDeviceTransferManager_Device_Args& args);
absl::Status AsyncCount(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args& args);
absl::Status AsyncSize(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args& args);
absl::Status AsyncMetadata(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args& args);
absl::Status AsyncError(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args& args);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_ASYNC_TRANSFER_H_
