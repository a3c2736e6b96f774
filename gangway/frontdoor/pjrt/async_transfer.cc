// Implementation of async_transfer.h.
#include "gangway/frontdoor/pjrt/async_transfer.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/memory_kinds.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/event.h"
#include "gangway/xla/pjrt_type.h"

namespace gangway::pjrt {
namespace {

constexpr char kManager[] = "the transfer manager";

// One buffer of a transfer.
struct Incoming {
  explicit Incoming(std::shared_ptr<const Shape> of) : shape(std::move(of)), pieces(shape->bytes) {}

  const std::shared_ptr<const Shape> shape;
  Pieces pieces;
  std::unique_ptr<PJRT_Buffer> buffer;  // until it is retrieved
  OperationId upload{};
  bool has_ended = false;  // pushed, or failed
};

}  // namespace

absl::Status Pieces::Add(int64_t offset, std::span<const char> piece) {
  if (offset < 0 || static_cast<uint64_t>(offset) > size_ ||
      piece.size() > size_ - static_cast<uint64_t>(offset)) {
    return absl::OutOfRangeError(absl::StrCat("bytes ", offset, " and ", piece.size(),
                                              " more are not within the buffer's ", size_));
  }
  if (piece.empty()) return absl::OkStatus();
  if (bytes_.empty()) bytes_.resize(size_);
  std::memcpy(bytes_.data() + offset, piece.data(), piece.size());
  uint64_t begin = static_cast<uint64_t>(offset), end = begin + piece.size();
  auto it = ranges_.upper_bound(begin);
  if (it != ranges_.begin() && std::prev(it)->second >= begin) --it;
  while (it != ranges_.end() && it->first <= end) {
    begin = std::min(begin, it->first);
    end = std::max(end, it->second);
    it = ranges_.erase(it);
  }
  ranges_[begin] = end;
  return absl::OkStatus();
}

uint64_t Pieces::missing() const {
  uint64_t missing = size_;
  for (const auto& [begin, end] : ranges_) missing -= end - begin;
  return missing;
}

std::string Pieces::Take() {
  ranges_.clear();
  return std::exchange(bytes_, {});
}

}  // namespace gangway::pjrt

struct PJRT_AsyncHostToDeviceTransferManager {
  PJRT_Memory* memory = nullptr;
  gangway::Mutex mutex;
  std::deque<gangway::pjrt::Incoming> buffers GANGWAY_GUARDED_BY(mutex);

  gangway::Client* session() const { return memory->device->client->session.get(); }
};

namespace gangway::pjrt {
namespace {

using Manager = PJRT_AsyncHostToDeviceTransferManager;

absl::StatusOr<Incoming*> Find(Manager* manager, int index) GANGWAY_REQUIRES(manager->mutex) {
  if (index < 0 || static_cast<size_t>(index) >= manager->buffers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the transfer has no buffer ", index, ": it has ", manager->buffers.size()));
  }
  return &manager->buffers[static_cast<size_t>(index)];
}

// Spoils the buffer for all that uses it.
void Fail(Manager& manager, Incoming& incoming, const absl::Status& why) {
  if (std::exchange(incoming.has_ended, true)) return;
  incoming.pieces.Take();
  manager.session()->AbandonUpload(incoming.upload, why);
}

void Push(Manager& manager, Incoming& incoming) {
  incoming.has_ended = true;
  auto bytes = std::make_shared<const std::string>(incoming.pieces.Take());
  manager.session()->Push(incoming.upload, 0, *bytes, [bytes] {});
}

absl::StatusOr<std::shared_ptr<const Shape>> ShapeOf(const PJRT_ShapeSpec& spec) {
  GANGWAY_RETURN_IF_ERROR(NeedSize(spec.struct_size, PJRT_ShapeSpec_STRUCT_SIZE, "the shape"));
  GANGWAY_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(spec.dims, spec.num_dims));
  return MakeShape(xla::FromPjrtType(spec.element_type), std::move(dims));
}

void Declare(Manager& manager, Incoming& incoming) {
  Client* const client = manager.session();
  AwaitRoom(client);
  auto produced = std::make_shared<Outcome>(client);
  auto array = std::make_shared<Array>(client, manager.memory->device->client->drops,
                                       client->NewArrayHandle(), 1, produced);
  incoming.upload =
      client->Upload(array->handle(),
                     {.element_type = incoming.shape->element_type,
                      .shard_dims = incoming.shape->dims,
                      .devices = {static_cast<uint32_t>(manager.memory->device->description.id)},
                      .memory_kind = MemoryKindFromClient(kMemoryKinds[manager.memory->kind]),
                      .shard_bytes = incoming.shape->bytes},
                     [produced](const absl::Status& status) { produced->Set(status); });
  produced->SetOperation(incoming.upload);
  incoming.buffer.reset(NewBuffer(manager.memory, incoming.shape, std::move(array), 0));
}

}  // namespace

absl::Status AsyncCreate(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, "the client"));
  GANGWAY_RETURN_IF_ERROR(Need(args.memory, "the memory"));
  GANGWAY_RETURN_IF_ERROR(CheckOwner(args.client, args.memory->device));
  if (args.num_shape_specs > 0) GANGWAY_RETURN_IF_ERROR(Need(args.shape_specs, "the shapes"));
  auto manager = std::make_unique<Manager>();
  manager->memory = args.memory;
  MutexLock lock(manager->mutex);
  for (size_t i = 0; i < args.num_shape_specs; ++i) {
    GANGWAY_ASSIGN_OR_RETURN(std::shared_ptr<const Shape> shape, ShapeOf(args.shape_specs[i]),
                             "buffer ", i);
    if (args.device_layouts != nullptr && i < args.num_device_layouts)
      GANGWAY_RETURN_IF_ERROR(IsRowMajor(args.device_layouts[i], *shape));
    manager->buffers.emplace_back(std::move(shape));
  }
  for (Incoming& incoming : manager->buffers) Declare(*manager, incoming);
  args.transfer_manager = manager.release();
  return absl::OkStatus();
}

absl::Status AsyncDestroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args& args) {
  const std::unique_ptr<Manager> manager(args.transfer_manager);
  if (manager == nullptr) return absl::OkStatus();
  MutexLock lock(manager->mutex);
  for (Incoming& incoming : manager->buffers) {
    Fail(*manager, incoming,
         absl::CancelledError("the buffer's transfer was destroyed before its last bytes came"));
  }
  return absl::OkStatus();
}

absl::Status AsyncTransfer(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.transfer_manager, kManager));
  if (args.transfer_size > 0) GANGWAY_RETURN_IF_ERROR(Need(args.data, "the host memory"));
  if (args.transfer_size < 0)
    return absl::InvalidArgumentError(absl::StrCat("a size of ", args.transfer_size));
  Manager& manager = *args.transfer_manager;
  MutexLock lock(manager.mutex);
  GANGWAY_ASSIGN_OR_RETURN(Incoming* const incoming, Find(&manager, args.buffer_index));
  if (incoming->has_ended) {
    return absl::FailedPreconditionError(absl::StrCat(
        "buffer ", args.buffer_index, " takes no more bytes: it was complete, or has failed"));
  }
  GANGWAY_RETURN_IF_ERROR(incoming->pieces.Add(
      args.offset, {static_cast<const char*>(args.data), static_cast<size_t>(args.transfer_size)}));
  absl::Status status;
  if (args.is_last_transfer) {
    if (const uint64_t missing = incoming->pieces.missing(); missing > 0) {
      status = absl::InvalidArgumentError(absl::StrCat(missing, " of the ", incoming->shape->bytes,
                                                       " bytes of buffer ", args.buffer_index,
                                                       " are missing after its last transfer"));
      Fail(manager, *incoming, status);
    } else {
      Push(manager, *incoming);
    }
  }
  args.done_with_h2d_transfer = ReadyEvent(status);  // the bytes are copied
  return absl::OkStatus();
}

absl::Status AsyncBuffer(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.transfer_manager, kManager));
  Manager& manager = *args.transfer_manager;
  MutexLock lock(manager.mutex);
  GANGWAY_ASSIGN_OR_RETURN(Incoming* const incoming, Find(&manager, args.buffer_index));
  if (incoming->buffer == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("buffer ", args.buffer_index, " was retrieved already"));
  }
  args.buffer_out = incoming->buffer.release();
  return absl::OkStatus();
}

absl::Status AsyncDevice(PJRT_AsyncHostToDeviceTransferManager_Device_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.transfer_manager, kManager));
  args.device_out = args.transfer_manager->memory->device;
  return absl::OkStatus();
}

absl::Status AsyncCount(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.transfer_manager, kManager));
  MutexLock lock(args.transfer_manager->mutex);
  args.buffer_count = args.transfer_manager->buffers.size();
  return absl::OkStatus();
}

absl::Status AsyncSize(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.transfer_manager, kManager));
  MutexLock lock(args.transfer_manager->mutex);
  GANGWAY_ASSIGN_OR_RETURN(Incoming* const incoming,
                           Find(args.transfer_manager, args.buffer_index));
  args.buffer_size = incoming->shape->bytes;
  return absl::OkStatus();
}

// It says nothing that a transfer to a cluster needs. Other plugins ignore it, too.
absl::Status AsyncMetadata(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.transfer_manager, kManager));
  if (args.num_metadata == 0) return absl::OkStatus();
  return Need(args.transfer_metadata, "the metadata");
}

absl::Status AsyncError(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.transfer_manager, kManager));
  if (args.error_message_size > 0)
    GANGWAY_RETURN_IF_ERROR(Need(args.error_message, "the error's message"));
  Manager& manager = *args.transfer_manager;
  MutexLock lock(manager.mutex);
  GANGWAY_ASSIGN_OR_RETURN(Incoming* const incoming, Find(&manager, args.buffer_index));
  absl::Status why = FromCode(args.error_code, {args.error_message, args.error_message_size});
  if (why.ok()) why = absl::UnknownError("its owner gave it up");
  if (incoming->has_ended) {
    return absl::FailedPreconditionError(absl::StrCat(
        "buffer ", args.buffer_index, " is complete, or has failed: it takes no error any more"));
  }
  Fail(manager, *incoming, why);
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
