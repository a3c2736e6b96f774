// Buffers of the C API: each is one shard of an Array, on one device.
//
// Threading: any thread; the shard of a buffer is guarded by its lock, the rest is constant. Failure: a buffer that was
// deleted or donated answers INVALID_ARGUMENT; one whose bytes are lost answers the cluster's error.
#ifndef GANGWAY_FRONTDOOR_PJRT_BUFFER_H_
#define GANGWAY_FRONTDOOR_PJRT_BUFFER_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pjrt_c_api.h"

#include "gangway/base/mutex.h"
#include "gangway/frontdoor/pjrt/array.h"
#include "gangway/frontdoor/pjrt/cluster.h"

namespace gangway::pjrt {
class HostCopy;
}

struct PJRT_Buffer {
  using ShardRef = std::shared_ptr<gangway::pjrt::Shard>;

  PJRT_Memory* memory = nullptr;
  std::shared_ptr<const gangway::pjrt::Shape> shape;
  mutable gangway::Mutex mutex;
  ShardRef shard GANGWAY_GUARDED_BY(mutex);  // null: deleted or donated
  // host_copy.cc: a caller has asked for the event of its readiness, or for an address without a reference; external
  // references, and what they point to.
  bool was_awaited GANGWAY_GUARDED_BY(mutex) = false;
  bool is_pinned GANGWAY_GUARDED_BY(mutex) = false;
  int references GANGWAY_GUARDED_BY(mutex) = 0;
  std::shared_ptr<gangway::pjrt::HostCopy> host_copy GANGWAY_GUARDED_BY(mutex);  // null: none

  gangway::Client* session() const { return memory->device->client->session.get(); }
  // Null if it was deleted.
  ShardRef Find() const {
    gangway::MutexLock lock(mutex);
    return shard;
  }
  // As Find, and the buffer is deleted.
  ShardRef Take() {
    gangway::MutexLock lock(mutex);
    return std::exchange(shard, nullptr);
  }
  // Undoes Take.
  void PutBack(ShardRef taken) {
    gangway::MutexLock lock(mutex);
    shard = std::move(taken);
  }
  void Release() {
    ShardRef last;  // its end sends a message: outside the lock
    gangway::MutexLock lock(mutex);
    last.swap(shard);
  }
};

namespace gangway::pjrt {

// The error of a buffer without a shard.
absl::Status Deleted();

// INVALID_ARGUMENT: the buffer is null or was deleted.
absl::StatusOr<std::shared_ptr<Shard>> ShardIn(const PJRT_Buffer* buffer);

// The dimensions that a caller lists. INVALID_ARGUMENT: null, or more than an array can have.
absl::StatusOr<std::vector<int64_t>> DimsOf(const int64_t* dims, size_t rank);

// Shapes and bytes of a dense array. UNIMPLEMENTED or INVALID_ARGUMENT: no such type, or sizes that cannot be.
absl::StatusOr<std::shared_ptr<const Shape>> MakeShape(int32_t element_type,
                                                       std::vector<int64_t> dims);

// UNIMPLEMENTED: a caller asks for another layout on the device. None is row-major. INVALID_ARGUMENT: it names no
// dimensions.
absl::Status IsRowMajor(const PJRT_Buffer_MemoryLayout* layout, const Shape& shape);

PJRT_Buffer* NewBuffer(PJRT_Memory* memory, std::shared_ptr<const Shape> shape,
                       std::shared_ptr<Array> array, uint32_t shard);

// buffer.cc
absl::Status BufferDestroy(PJRT_Buffer_Destroy_Args& args);
absl::Status BufferElementType(PJRT_Buffer_ElementType_Args& args);
absl::Status BufferDimensions(PJRT_Buffer_Dimensions_Args& args);
absl::Status BufferUnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args& args);
absl::Status BufferDynamicDimensions(PJRT_Buffer_DynamicDimensionIndices_Args& args);
absl::Status BufferLayout(PJRT_Buffer_GetMemoryLayout_Args& args);
absl::Status BufferSize(PJRT_Buffer_OnDeviceSizeInBytes_Args& args);
absl::Status BufferIsDeleted(PJRT_Buffer_IsDeleted_Args& args);
absl::Status BufferDevice(PJRT_Buffer_Device_Args& args);
absl::Status BufferMemory(PJRT_Buffer_Memory_Args& args);

// transfer.cc
absl::Status BufferFromHost(PJRT_Client_BufferFromHostBuffer_Args& args);
absl::Status BufferViewOf(PJRT_Client_CreateViewOfDeviceBuffer_Args& args);
absl::Status BufferToHost(PJRT_Buffer_ToHostBuffer_Args& args);
absl::Status BufferRawToHost(PJRT_Buffer_CopyRawToHost_Args& args);
absl::Status BufferToDevice(PJRT_Buffer_CopyToDevice_Args& args);
absl::Status BufferToMemory(PJRT_Buffer_CopyToMemory_Args& args);

// host_copy.cc
absl::Status BufferDelete(PJRT_Buffer_Delete_Args& args);
absl::Status BufferIsOnCpu(PJRT_Buffer_IsOnCpu_Args& args);
absl::Status BufferReadyEvent(PJRT_Buffer_ReadyEvent_Args& args);
absl::Status BufferAddReference(PJRT_Buffer_IncreaseExternalReferenceCount_Args& args);
absl::Status BufferRemoveReference(PJRT_Buffer_DecreaseExternalReferenceCount_Args& args);
absl::Status BufferPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args& args);
absl::Status BufferUnsafePointer(PJRT_Buffer_UnsafePointer_Args& args);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_BUFFER_H_
