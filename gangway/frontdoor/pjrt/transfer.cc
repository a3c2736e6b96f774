// Bytes of buffers: from and to host memory, and to other devices (buffer.h). Uploads and downloads are dense and
// row-major on the wire; what a caller lays out otherwise is converted here.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/status.h"
#include "gangway/frontdoor/memory_kinds.h"
#include "gangway/frontdoor/pjrt/buffer.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/event.h"
#include "gangway/frontdoor/pjrt/layout.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/pjrt_type.h"
#include "gangway/xla/strided.h"

namespace gangway::pjrt {

absl::Status IsRowMajor(const PJRT_Buffer_MemoryLayout* layout, const Shape& shape) {
  if (layout == nullptr) return absl::OkStatus();
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled && layout->tiled.minor_to_major_size > 0)
    GANGWAY_RETURN_IF_ERROR(Need(layout->tiled.minor_to_major, "the layout's list of dimensions"));
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled && layout->tiled.num_tiles == 0 &&
      layout->tiled.minor_to_major_size == shape.dims.size() &&
      IsRowMajor(std::span(layout->tiled.minor_to_major, layout->tiled.minor_to_major_size))) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError("on devices of the cluster arrays are row-major, without tiles");
}

namespace {

std::string KindOf(const PJRT_Memory& memory) {
  return MemoryKindFromClient(kMemoryKinds[memory.kind]);
}

// Byte strides of a caller's layout, by default the buffer's own; none if it is dense and row-major.
absl::StatusOr<std::vector<int64_t>> HostStrides(const PJRT_Buffer_MemoryLayout* layout,
                                                 const Shape& shape) {
  if (layout == nullptr && !IsRowMajor(shape)) return StridesOf(shape);
  if (IsRowMajor(layout, shape).ok()) return std::vector<int64_t>();
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    const auto* strides = layout->strides.byte_strides;
    if (layout->strides.num_byte_strides != shape.dims.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a host layout of ", layout->strides.num_byte_strides,
                       " byte strides for an array of ", shape.dims.size(), " dimensions"));
    }
    if (!shape.dims.empty()) GANGWAY_RETURN_IF_ERROR(Need(strides, "the host layout's strides"));
    return std::vector<int64_t>(strides, strides + shape.dims.size());
  }
  if (layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled)
    return absl::InvalidArgumentError("the host layout's type is unknown");
  const PJRT_Buffer_MemoryLayout_Tiled& tiled = layout->tiled;
  if (tiled.num_tiles != 0 || tiled.minor_to_major_size != shape.dims.size())
    return absl::UnimplementedError("a host layout with tiles is not known");
  if (!shape.dims.empty())
    GANGWAY_RETURN_IF_ERROR(Need(tiled.minor_to_major, "the layout's list of dimensions"));
  GANGWAY_ASSIGN_OR_RETURN(int64_t stride, xla::ElementBytes(shape.element_type));
  std::vector<int64_t> strides(shape.dims.size(), 0);
  for (size_t i = 0; i < tiled.minor_to_major_size; ++i) {
    const int64_t dim = tiled.minor_to_major[i];
    if (dim < 0 || static_cast<size_t>(dim) >= strides.size() || strides[dim] != 0)
      return absl::InvalidArgumentError("the host layout is not a permutation of the dimensions");
    strides[dim] = stride;
    stride *= std::max<int64_t>(shape.dims[dim], 1);
  }
  return strides;
}

// The same shape with a caller's layout for the device. UNIMPLEMENTED: it has tiles, or strides.
absl::StatusOr<std::shared_ptr<const Shape>> WithLayout(const std::shared_ptr<const Shape>& shape,
                                                        const PJRT_Buffer_MemoryLayout* layout) {
  if (IsRowMajor(layout, *shape).ok()) return shape;
  const PJRT_Buffer_MemoryLayout_Tiled& tiled = layout->tiled;
  if (layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled || tiled.num_tiles != 0) {
    return absl::UnimplementedError(
        "on devices of the cluster a layout is an order of dimensions, without tiles or strides");
  }
  if (tiled.minor_to_major_size > 0)
    GANGWAY_RETURN_IF_ERROR(Need(tiled.minor_to_major, "the layout's list of dimensions"));
  auto labelled = std::make_shared<Shape>(*shape);
  GANGWAY_ASSIGN_OR_RETURN(
      labelled->minor_to_major,
      FullOrder(Order(tiled.minor_to_major, tiled.minor_to_major + tiled.minor_to_major_size),
                shape->dims.size()));
  return labelled;
}

// --- From host memory ---

// From this size on, bytes are written straight into memory that the worker shares with this process, which costs a
// question and saves a copy.
constexpr size_t kPlacedBytesMin = size_t{512} << 10;
constexpr std::chrono::milliseconds kPlaceLimit{500};

// The memory that the worker grants for an upload; null: none, or not soon.
std::shared_ptr<char> AwaitPlace(Client& client, OperationId upload) {
  using Granted = Answer<std::shared_ptr<char>>;
  const auto granted = std::make_shared<Granted>();
  const std::shared_ptr<Wait> wait = client.NewWait();
  // The library destroys a callback that it does not call: that says no.
  std::shared_ptr<void> refused(nullptr, [granted, wait](void*) {
    granted->Set(nullptr);
    wait->End();
  });
  client.Reserve(upload, 0,
                 [granted, wait, refused = std::move(refused)](std::shared_ptr<char> place) {
                   granted->Set(std::move(place));
                   wait->End();
                 });
  wait->For(kPlaceLimit);
  return granted->WaitFor(std::chrono::milliseconds(0)).value_or(nullptr);
}

// Where the caller's bytes are, if they are not dense and row-major.
struct HostLayout {
  int64_t element = 0;
  std::span<const int64_t> strides;
  std::optional<xla::StridedRegion> region;
};

// No strides: dense and row-major.
absl::StatusOr<HostLayout> LayoutOf(std::span<const int64_t> strides, const Shape& shape) {
  HostLayout layout;
  if (strides.empty()) return layout;
  GANGWAY_ASSIGN_OR_RETURN(layout.element, xla::ElementBytes(shape.element_type));
  layout.strides = strides;
  GANGWAY_ASSIGN_OR_RETURN(const xla::StridedRegion region,
                           xla::Region(layout.element, shape.dims, layout.strides));
  if (!region.dense) layout.region = region;
  return layout;
}

// Pushes bytes of the caller, copied.
void PushCopy(Client& client, OperationId upload, std::string_view bytes) {
  if (const std::shared_ptr<char> place = AwaitPlace(client, upload)) {
    std::memcpy(place.get(), bytes.data(), bytes.size());
    return client.Push(upload, 0, {place.get(), bytes.size()}, [place] {});
  }
  auto copy = std::make_shared_for_overwrite<char[]>(bytes.size());
  std::copy_n(bytes.data(), bytes.size(), copy.get());
  client.Push(upload, 0, {copy.get(), bytes.size()}, [copy] {});
}

// A buffer with the bytes at `data`. INVALID_ARGUMENT: there are none, or the strides cannot be. They are copied:
// scripts change NumPy arrays right after they passed them on, also where the caller's semantics forbid it, and plain
// JAX on a CPU lets them.
absl::StatusOr<PJRT_Buffer*> Upload(PJRT_Memory* memory, const std::shared_ptr<const Shape>& shape,
                                    const void* data, std::span<const int64_t> strides) {
  if (shape->bytes > 0) GANGWAY_RETURN_IF_ERROR(Need(data, "the host memory"));
  GANGWAY_ASSIGN_OR_RETURN(const HostLayout layout, LayoutOf(strides, *shape));
  std::string_view bytes(static_cast<const char*>(data), shape->bytes);
  std::string dense;
  if (layout.region) {
    const std::string_view from(bytes.data() - layout.region->zero_offset,
                                static_cast<size_t>(layout.region->bytes));
    GANGWAY_ASSIGN_OR_RETURN(dense,
                             xla::ToDense(from, layout.element, shape->dims, layout.strides));
    bytes = dense;
  }
  const PJRT_Client& cluster = *memory->device->client;
  Client* const client = cluster.session.get();
  AwaitRoom(client);
  auto produced = std::make_shared<Outcome>(client);
  auto array =
      std::make_shared<Array>(client, cluster.drops, client->NewArrayHandle(), 1, produced);
  const ArraySpec spec{.element_type = shape->element_type,
                       .shard_dims = shape->dims,
                       .devices = {static_cast<uint32_t>(memory->device->description.id)},
                       .memory_kind = KindOf(*memory),
                       .shard_bytes = shape->bytes};
  auto ended = [produced](const absl::Status& status) { produced->Set(status); };
  if (bytes.size() < kPlacedBytesMin) {
    produced->SetOperation(client->Put(array->handle(), spec, {&bytes, 1}, std::move(ended)));
  } else {
    const OperationId upload = client->Upload(array->handle(), spec, std::move(ended));
    produced->SetOperation(upload);
    PushCopy(*client, upload, bytes);
  }
  return NewBuffer(memory, shape, std::move(array), 0);
}

// --- To host memory ---

struct Download {
  char* to = nullptr;
  std::string dense;  // if the caller's layout is another
  std::vector<int64_t> strides;
  std::shared_ptr<const Shape> shape;
  size_t size = 0;  // of `to`
};

absl::Status Place(Download& download) {
  if (download.strides.empty()) return absl::OkStatus();
  const Shape& shape = *download.shape;
  GANGWAY_ASSIGN_OR_RETURN(const int64_t element, xla::ElementBytes(shape.element_type));
  return xla::CopyFromDense(download.dense, element, shape.dims, download.strides,
                            std::span<char>(download.to, download.size));
}

// Puts bytes [offset, offset + size) of the shard at `to`.
std::shared_ptr<Outcome> Fetch(const Shard& shard, char* to, uint64_t offset, uint64_t size,
                               std::function<absl::Status()> then) {
  auto outcome = std::make_shared<Outcome>(&shard.array().client());
  auto take = [to, offset, size](uint64_t at, std::string_view data) {
    const uint64_t begin = std::max(at, offset);
    const uint64_t end = std::min(at + data.size(), offset + size);
    if (begin < end) std::memcpy(to + (begin - offset), data.data() + (begin - at), end - begin);
  };
  shard.array().client().Fetch(
      shard.name().array, {shard.index()},
      {.on_data = [take](size_t, uint64_t at, std::string_view data) { take(at, data); },
       .on_place = [take](size_t, const std::shared_ptr<const char>& bytes,
                          size_t count) { take(0, {bytes.get(), count}); },
       .on_done =
           [outcome, then = std::move(then)](const absl::Status& status) {
             outcome->Set(status.ok() ? then() : status);
           }});
  return outcome;
}

// The same, of the bytes in the order of their layout.
std::shared_ptr<Outcome> FetchArranged(const Shard& shard, std::shared_ptr<const Shape> shape,
                                       char* to, uint64_t offset, uint64_t size) {
  auto dense = std::make_shared<std::string>(shape->bytes, '\0');
  char* const into = dense->data();
  const uint64_t bytes = shape->bytes;
  return Fetch(shard, into, 0, bytes,
               [dense = std::move(dense), shape = std::move(shape), to, offset, size] {
                 std::string arranged(shape->bytes, '\0');
                 GANGWAY_RETURN_IF_ERROR(Arrange(*dense, *shape, arranged.data()));
                 std::memcpy(to, arranged.data() + offset, size);
                 return absl::OkStatus();
               });
}

// A shard as an array of its own: of the cache if it was copied before, or one to drop after this use.
GatheredArray ViewOf(const PJRT_Client& client, Shard& shard) {
  const ShardOf name = shard.name();
  GatheredCache::List list{.shards = {&name, 1}};
  client.gathered->Name({&list, 1});
  if (list.is_new) shard.NoteGathered();
  if (list.array != nullptr) return std::move(list.array);
  return std::move(Gather(client, {{name}})[0]);
}

absl::Status CopyTo(const PJRT_Buffer* source, PJRT_Memory* memory, PJRT_Buffer** result) {
  GANGWAY_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardIn(source));
  GANGWAY_RETURN_IF_ERROR(CheckOwner(source->memory->device->client, memory->device));
  const PJRT_Client& cluster = *source->memory->device->client;
  Client* const client = cluster.session.get();
  AwaitRoom(client);
  GatheredArray view;
  if (shard->array().shard_count() > 1) view = ViewOf(cluster, *shard);
  const ArrayHandle from = view == nullptr ? shard->array().handle() : *view;
  auto produced = std::make_shared<Outcome>(client);
  auto copied =
      std::make_shared<Array>(client, cluster.drops, client->NewArrayHandle(), 1, produced);
  produced->SetOperation(client->Copy(
      std::vector{from}, std::vector{copied->handle()},
      std::vector{static_cast<uint32_t>(memory->device->description.id)}, KindOf(*memory),
      [produced](const absl::Status& status) { produced->Set(status); }));
  *result = NewBuffer(memory, source->shape, std::move(copied), 0);
  return absl::OkStatus();
}

}  // namespace

absl::Status BufferFromHost(PJRT_Client_BufferFromHostBuffer_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, "the client"));
  GANGWAY_ASSIGN_OR_RETURN(PJRT_Memory* const memory,
                           MemoryOf(args.client, args.device, args.memory));
  GANGWAY_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(args.dims, args.num_dims));
  GANGWAY_ASSIGN_OR_RETURN(const std::shared_ptr<const Shape> shape,
                           MakeShape(xla::FromPjrtType(args.type), std::move(dims)));
  GANGWAY_ASSIGN_OR_RETURN(const std::shared_ptr<const Shape> labelled,
                           WithLayout(shape, args.device_layout));
  std::span<const int64_t> strides;
  if (args.byte_strides != nullptr) strides = {args.byte_strides, args.num_byte_strides};
  GANGWAY_ASSIGN_OR_RETURN(args.buffer, Upload(memory, labelled, args.data, strides));
  args.done_with_host_buffer = ReadyEvent(absl::OkStatus());
  return absl::OkStatus();
}

// The view is a copy, which the devices' processes need. So the caller's memory is done with at once.
absl::Status BufferViewOf(PJRT_Client_CreateViewOfDeviceBuffer_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, "the client"));
  GANGWAY_ASSIGN_OR_RETURN(PJRT_Memory* const memory,
                           MemoryOf(args.client, args.device, args.memory));
  if (const std::string& platform = args.client->topology.platform; platform != "cpu") {
    return absl::UnimplementedError(
        absl::StrCat("the memory of a ", platform,
                     " device belongs to another process, which cannot see memory of this one: "
                     "copy the array to the host and upload it (jax.device_put)"));
  }
  if (args.stream != 0) {
    return absl::UnimplementedError(
        "a device of the cluster has no stream in this process: wait until the array is ready, and "
        "pass no stream");
  }
  GANGWAY_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(args.dims, args.num_dims));
  GANGWAY_ASSIGN_OR_RETURN(const std::shared_ptr<const Shape> shape,
                           MakeShape(xla::FromPjrtType(args.element_type), std::move(dims)));
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, HostStrides(args.layout, *shape));
  GANGWAY_ASSIGN_OR_RETURN(args.buffer, Upload(memory, shape, args.device_buffer_ptr, strides));
  if (args.on_delete_callback != nullptr)
    args.on_delete_callback(args.device_buffer_ptr, args.on_delete_callback_arg);
  return absl::OkStatus();
}

absl::Status BufferToHost(PJRT_Buffer_ToHostBuffer_Args& args) {
  GANGWAY_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardIn(args.src));
  auto download = std::make_shared<Download>();
  download->shape = args.src->shape;
  const Shape& shape = *download->shape;
  GANGWAY_ASSIGN_OR_RETURN(download->strides, HostStrides(args.host_layout, shape));
  download->size = shape.bytes;
  if (!download->strides.empty()) {
    GANGWAY_ASSIGN_OR_RETURN(const int64_t element, xla::ElementBytes(shape.element_type));
    GANGWAY_ASSIGN_OR_RETURN(const xla::StridedRegion region,
                             xla::Region(element, shape.dims, download->strides));
    if (region.zero_offset != 0)
      return absl::UnimplementedError("a host layout with negative strides is not known");
    download->size = static_cast<size_t>(region.bytes);
  }
  if (args.dst == nullptr) {
    args.dst_size = download->size;
    return absl::OkStatus();
  }
  if (args.dst_size < download->size) {
    return absl::InvalidArgumentError(absl::StrCat("the host memory has ", args.dst_size,
                                                   " bytes, the buffer needs ", download->size));
  }
  download->to = static_cast<char*>(args.dst);
  char* to = download->to;
  if (!download->strides.empty()) {
    download->dense.resize(shape.bytes);
    to = download->dense.data();
  }
  args.event = NewEvent(Fetch(*shard, to, 0, shape.bytes, [download] { return Place(*download); }));
  return absl::OkStatus();
}

absl::Status BufferRawToHost(PJRT_Buffer_CopyRawToHost_Args& args) {
  GANGWAY_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardIn(args.buffer));
  const auto bytes = static_cast<int64_t>(args.buffer->shape->bytes);
  if (args.offset < 0 || args.transfer_size < 0 || args.offset > bytes ||
      args.transfer_size > bytes - args.offset) {
    return absl::InvalidArgumentError(absl::StrCat("bytes ", args.offset, " and ",
                                                   args.transfer_size,
                                                   " more are not within the buffer's ", bytes));
  }
  if (args.transfer_size > 0) GANGWAY_RETURN_IF_ERROR(Need(args.dst, "the host memory"));
  const auto offset = static_cast<uint64_t>(args.offset);
  const auto size = static_cast<uint64_t>(args.transfer_size);
  auto* const to = static_cast<char*>(args.dst);
  args.event = NewEvent(IsRowMajor(*args.buffer->shape)
                            ? Fetch(*shard, to, offset, size, [] { return absl::OkStatus(); })
                            : FetchArranged(*shard, args.buffer->shape, to, offset, size));
  return absl::OkStatus();
}

absl::Status BufferToDevice(PJRT_Buffer_CopyToDevice_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.dst_device, "the device"));
  return CopyTo(args.buffer, args.dst_device->memories[0], &args.dst_buffer);
}

absl::Status BufferToMemory(PJRT_Buffer_CopyToMemory_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.dst_memory, "the memory"));
  return CopyTo(args.buffer, args.dst_memory, &args.dst_buffer);
}

}  // namespace gangway::pjrt
