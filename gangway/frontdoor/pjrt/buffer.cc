// Buffers: what they are, whether they are ready, and their end (buffer.h).
#include "gangway/frontdoor/pjrt/buffer.h"

#include <utility>

#include "gangway/base/status.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/layout.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/pjrt_type.h"

namespace gangway::pjrt {
namespace {

constexpr char kBuffer[] = "the buffer";

}  // namespace

absl::Status Deleted() {
  return absl::InvalidArgumentError(
      "the buffer was deleted or donated, and its bytes are gone: keep a copy (x.copy()), or do "
      "not "
      "donate it");
}

absl::StatusOr<std::shared_ptr<Shard>> ShardIn(const PJRT_Buffer* buffer) {
  GANGWAY_RETURN_IF_ERROR(Need(buffer, kBuffer));
  std::shared_ptr<Shard> shard = buffer->Find();
  if (shard == nullptr) return Deleted();
  return shard;
}

absl::StatusOr<std::vector<int64_t>> DimsOf(const int64_t* dims, size_t rank) {
  if (rank == 0) return std::vector<int64_t>();
  GANGWAY_RETURN_IF_ERROR(Need(dims, "the list of dimensions"));
  GANGWAY_RETURN_IF_ERROR(xla::ElementCount({dims, rank}).status());
  return std::vector<int64_t>(dims, dims + rank);
}

absl::StatusOr<std::shared_ptr<const Shape>> MakeShape(int32_t element_type,
                                                       std::vector<int64_t> dims) {
  auto shape = std::make_shared<Shape>();
  shape->element_type = element_type;
  GANGWAY_ASSIGN_OR_RETURN(shape->type, xla::ToPjrtType(element_type));
  GANGWAY_ASSIGN_OR_RETURN(const int64_t bytes, xla::DenseBytes(element_type, dims));
  shape->bytes = static_cast<uint64_t>(bytes);
  shape->minor_to_major = RowMajorOrder(dims.size());
  shape->dims = std::move(dims);
  return shape;
}

PJRT_Buffer* NewBuffer(PJRT_Memory* memory, std::shared_ptr<const Shape> shape,
                       std::shared_ptr<Array> array, uint32_t shard) {
  auto buffer = std::make_unique<PJRT_Buffer>();
  buffer->memory = memory;
  buffer->shape = std::move(shape);
  MutexLock lock(buffer->mutex);
  buffer->shard = std::make_shared<Shard>(std::move(array), shard);
  return buffer.release();
}

absl::Status BufferDestroy(PJRT_Buffer_Destroy_Args& args) {
  delete args.buffer;
  return absl::OkStatus();
}

absl::Status BufferElementType(PJRT_Buffer_ElementType_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, kBuffer));
  args.type = args.buffer->shape->type;
  return absl::OkStatus();
}

absl::Status BufferDimensions(PJRT_Buffer_Dimensions_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, kBuffer));
  args.dims = args.buffer->shape->dims.data();
  args.num_dims = args.buffer->shape->dims.size();
  return absl::OkStatus();
}

absl::Status BufferUnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, kBuffer));
  args.unpadded_dims = args.buffer->shape->dims.data();
  args.num_dims = args.buffer->shape->dims.size();
  return absl::OkStatus();
}

absl::Status BufferDynamicDimensions(PJRT_Buffer_DynamicDimensionIndices_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, kBuffer));
  args.dynamic_dim_indices = nullptr;
  args.num_dynamic_dims = 0;
  return absl::OkStatus();
}

absl::Status BufferLayout(PJRT_Buffer_GetMemoryLayout_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, kBuffer));
  args.layout = {};
  args.layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  args.layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args.layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  args.layout.tiled.minor_to_major = args.buffer->shape->minor_to_major.data();
  args.layout.tiled.minor_to_major_size = args.buffer->shape->minor_to_major.size();
  return absl::OkStatus();
}

absl::Status BufferSize(PJRT_Buffer_OnDeviceSizeInBytes_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, kBuffer));
  args.on_device_size_in_bytes = args.buffer->shape->bytes;
  return absl::OkStatus();
}

absl::Status BufferIsDeleted(PJRT_Buffer_IsDeleted_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, kBuffer));
  args.is_deleted = args.buffer->Find() == nullptr;
  return absl::OkStatus();
}

absl::Status BufferDevice(PJRT_Buffer_Device_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, kBuffer));
  args.device = args.buffer->memory->device;
  return absl::OkStatus();
}

absl::Status BufferMemory(PJRT_Buffer_Memory_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, kBuffer));
  args.memory = args.buffer->memory;
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
