// Implementation of pjrt_buffer.h.
#include "gangway/device/pjrt/pjrt_buffer.h"

#include <atomic>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/device/element_type.h"
#include "gangway/device/packed_elements.h"
#include "gangway/xla/pjrt_type.h"

namespace gangway::device {
namespace {

absl::Status CheckSize(const ArraySpec& spec, size_t bytes) {
  std::optional<size_t> want = HostBytes(spec);
  if (!want) {
    return absl::InvalidArgumentError(
        absl::StrCat("element type ", spec.element_type,
                     " is unknown, or a dimension is negative or too large"));
  }
  if (*want != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the array takes ", *want, " bytes in host memory, but ", bytes, " were given"));
  }
  return absl::OkStatus();
}

// Uses zero copy only on platforms where it is known to mean what device.h says.
PJRT_HostBufferSemantics ToPjrt(HostSemantics semantics, const Capabilities& capabilities) {
  switch (semantics) {
    case HostSemantics::kCopyDuringCall:
      return PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    case HostSemantics::kUntilTransferDone:
      return PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
    case HostSemantics::kZeroCopy:
      return capabilities.host_zero_copy
                 ? PJRT_HostBufferSemantics_kImmutableZeroCopy
                 : PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  }
  return PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
}

// Owns a transfer manager: the plugin's side of one placeholder. It lives until the transfer is
// done, because destroying it earlier would fail the buffer.
class TransferManager {
 public:
  TransferManager(std::shared_ptr<const PjrtClient> client,
                  PJRT_AsyncHostToDeviceTransferManager* manager)
      : client_(std::move(client)), manager_(manager) {}
  ~TransferManager() {
    PJRT_AsyncHostToDeviceTransferManager_Destroy_Args destroy{};
    destroy.transfer_manager = manager_;
    (void)client_->api().Call(&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_Destroy, destroy);
  }
  TransferManager(const TransferManager&) = delete;
  TransferManager& operator=(const TransferManager&) = delete;

  const PjrtApi& api() const { return client_->api(); }
  PJRT_AsyncHostToDeviceTransferManager* get() const { return manager_; }

 private:
  const std::shared_ptr<const PjrtClient> client_;
  PJRT_AsyncHostToDeviceTransferManager* const manager_;
};

class PjrtFiller final : public Filler {
 public:
  PjrtFiller(std::shared_ptr<TransferManager> manager, ArraySpec spec)
      : manager_(std::move(manager)), spec_(std::move(spec)) {}
  ~PjrtFiller() override {
    if (!settled_.load()) {
      (void)Fail(absl::CancelledError(
          "the producer dropped this buffer before it filled it; look for its earlier error"));
    }
  }

  absl::Status Fill(std::span<const std::byte> bytes, StatusCallback on_done) override {
    GANGWAY_RETURN_IF_ERROR(CheckSize(spec_, bytes.size()));
    if (settled_.exchange(true)) return AlreadySettled();
    // The transfer is raw: unlike BufferFromHost, it does not pack sub-byte elements.
    std::shared_ptr<std::vector<std::byte>> packed;
    if (int per_byte = ElementsPerDeviceByte(spec_.element_type); per_byte > 1) {
      packed = std::make_shared<std::vector<std::byte>>(PackedBytes(bytes.size(), per_byte));
      PackElements(bytes, per_byte, *packed);
      bytes = *packed;
    }
    PJRT_AsyncHostToDeviceTransferManager_TransferData_Args transfer{};
    transfer.transfer_manager = manager_->get();
    transfer.data = bytes.data();
    transfer.transfer_size = static_cast<int64_t>(bytes.size());
    transfer.is_last_transfer = true;
    // On an error, destroying the transfer manager fails the buffer, so no reader hangs.
    GANGWAY_RETURN_IF_ERROR(manager_->api().Call(
        &PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_TransferData, transfer));
    manager_->api().OnEvent(
        transfer.done_with_h2d_transfer,
        [manager = manager_, packed, on_done = std::move(on_done)](absl::Status done) {
          if (on_done) on_done(std::move(done));
        });
    return absl::OkStatus();
  }

  absl::Status Fail(absl::Status error) override {
    if (error.ok())
      return absl::InvalidArgumentError("a buffer cannot fail with status OK; pass the error");
    if (settled_.exchange(true)) return AlreadySettled();
    return SetError(error);
  }

 private:
  static absl::Status AlreadySettled() {
    return absl::FailedPreconditionError("this placeholder was filled or failed before");
  }

  absl::Status SetError(const absl::Status& error) {
    PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args args{};
    args.transfer_manager = manager_->get();
    args.error_code = static_cast<PJRT_Error_Code>(error.code());
    const std::string text = MarkError(error);
    args.error_message = text.data();
    args.error_message_size = text.size();
    return manager_->api().Call(&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_SetBufferError,
                                args);
  }

  const std::shared_ptr<TransferManager> manager_;
  const ArraySpec spec_;
  std::atomic<bool> settled_ = false;
};

}  // namespace

PjrtBuffer::PjrtBuffer(std::shared_ptr<const PjrtClient> client, PJRT_Buffer* buffer, int device,
                       std::shared_ptr<const ArraySpec> spec)
    : client_(std::move(client)), buffer_(buffer), device_(device), spec_(std::move(spec)) {}

PjrtBuffer::~PjrtBuffer() {
  PJRT_Buffer_Destroy_Args destroy{};
  destroy.buffer = buffer_;
  (void)client_->api().Call(&PJRT_Api::PJRT_Buffer_Destroy, destroy);
}

std::string PjrtBuffer::memory_kind() const {
  PJRT_Buffer_Memory_Args memory{};
  memory.buffer = buffer_;
  if (!client_->api().Call(&PJRT_Api::PJRT_Buffer_Memory, memory).ok()) return "";
  PJRT_Memory_Kind_Args kind{};
  kind.memory = memory.memory;
  if (!client_->api().Call(&PJRT_Api::PJRT_Memory_Kind, kind).ok()) return "";
  return std::string(kind.kind, kind.kind_size);
}

absl::StatusOr<size_t> PjrtBuffer::OnDeviceBytes() const {
  PJRT_Buffer_OnDeviceSizeInBytes_Args size{};
  size.buffer = buffer_;
  GANGWAY_RETURN_IF_ERROR(client_->api().Call(&PJRT_Api::PJRT_Buffer_OnDeviceSizeInBytes, size));
  return size.on_device_size_in_bytes;
}

void PjrtBuffer::OnReady(StatusCallback callback) {
  PJRT_Buffer_ReadyEvent_Args ready{};
  ready.buffer = buffer_;
  absl::Status status = client_->api().Call(&PJRT_Api::PJRT_Buffer_ReadyEvent, ready);
  if (!status.ok()) return callback(std::move(status));
  client_->api().OnEvent(ready.event, std::move(callback));
}

void PjrtBuffer::CopyToHost(void* dst, size_t dst_bytes, StatusCallback on_done) {
  if (absl::Status status = CheckSize(*spec_, dst_bytes); !status.ok())
    return on_done(std::move(status));
  if (IsDeleted()) {
    return on_done(absl::InvalidArgumentError(
        "this buffer was deleted or donated; it cannot be read any more"));
  }
  if (dst_bytes == 0)
    return OnReady(std::move(on_done));  // PJRT reads a null `dst` as a query for the size
  std::vector<int64_t> minor_to_major(spec_->dims.size());
  std::iota(minor_to_major.rbegin(), minor_to_major.rend(), 0);
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  PJRT_Buffer_ToHostBuffer_Args copy{};
  copy.src = buffer_;
  copy.host_layout = &layout;
  copy.dst = dst;
  copy.dst_size = dst_bytes;
  absl::Status status = client_->api().Call(&PJRT_Api::PJRT_Buffer_ToHostBuffer, copy);
  if (!status.ok()) return on_done(std::move(status));
  client_->api().OnEvent(copy.event, std::move(on_done));
}

bool PjrtBuffer::IsReady() const {
  const PjrtApi& api = client_->api();
  PJRT_Buffer_ReadyEvent_Args ready{};
  ready.buffer = buffer_;
  if (!api.Call(&PJRT_Api::PJRT_Buffer_ReadyEvent, ready).ok()) return false;
  PJRT_Event_IsReady_Args is_ready{};
  is_ready.event = ready.event;
  PJRT_Event_Error_Args error{};
  error.event = ready.event;
  const bool good = api.Call(&PJRT_Api::PJRT_Event_IsReady, is_ready).ok() && is_ready.is_ready &&
                    api.Call(&PJRT_Api::PJRT_Event_Error, error).ok();
  PJRT_Event_Destroy_Args destroy{};
  destroy.event = ready.event;
  (void)api.Call(&PJRT_Api::PJRT_Event_Destroy, destroy);
  return good;
}

// Elements of less than a byte have other sizes on the device.
bool PjrtBuffer::CopyToHostNow(void* dst, size_t dst_bytes) {
  if (!client_->capabilities().host_zero_copy || dst_bytes == 0) return false;
  // A byte of device memory with a single element has other bits than the element's, too.
  if (ElementsPerDeviceByte(spec_->element_type) > 1) return false;
  if (!CheckSize(*spec_, dst_bytes).ok() || IsDeleted() || !IsReady()) return false;
  if (auto on_device = OnDeviceBytes(); !on_device.ok() || *on_device != dst_bytes) return false;
  PJRT_Buffer_UnsafePointer_Args memory{};
  memory.buffer = buffer_;
  if (!client_->api().Call(&PJRT_Api::PJRT_Buffer_UnsafePointer, memory).ok()) return false;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): PJRT's type for an address
  std::memcpy(dst, reinterpret_cast<const void*>(memory.buffer_pointer), dst_bytes);
  return true;
}

absl::StatusOr<std::unique_ptr<Buffer>> PjrtBuffer::CopyToDevice(int device,
                                                                 std::string_view memory_kind) {
  GANGWAY_ASSIGN_OR_RETURN(auto* memory, client_->Memory(device, memory_kind));
  PJRT_Buffer_CopyToMemory_Args copy{};
  copy.buffer = buffer_;
  copy.dst_memory = memory;
  GANGWAY_RETURN_IF_ERROR(client_->api().Call(&PJRT_Api::PJRT_Buffer_CopyToMemory, copy));
  return std::make_unique<PjrtBuffer>(client_, copy.dst_buffer, device, spec_);
}

void PjrtBuffer::Delete() {
  PJRT_Buffer_Delete_Args args{};
  args.buffer = buffer_;
  (void)client_->api().Call(&PJRT_Api::PJRT_Buffer_Delete, args);
}

bool PjrtBuffer::IsDeleted() const {
  PJRT_Buffer_IsDeleted_Args args{};
  args.buffer = buffer_;
  return client_->api().Call(&PJRT_Api::PJRT_Buffer_IsDeleted, args).ok() && args.is_deleted;
}

absl::StatusOr<std::unique_ptr<Buffer>> PjrtBufferFromHost(
    const std::shared_ptr<const PjrtClient>& client, int device, std::string_view memory_kind,
    const ArraySpec& spec, std::span<const std::byte> bytes, HostSemantics semantics,
    StatusCallback on_done) {
  GANGWAY_RETURN_IF_ERROR(CheckSize(spec, bytes.size()));
  GANGWAY_ASSIGN_OR_RETURN(PJRT_Buffer_Type type, xla::ToPjrtType(spec.element_type));
  GANGWAY_ASSIGN_OR_RETURN(auto* pjrt_device, client->Device(device));
  GANGWAY_ASSIGN_OR_RETURN(auto* memory, client->Memory(device, memory_kind));
  PJRT_Client_BufferFromHostBuffer_Args args{};
  args.client = client->client();
  args.data = bytes.data();
  args.type = type;
  args.dims = spec.dims.data();
  args.num_dims = spec.dims.size();
  args.host_buffer_semantics = ToPjrt(semantics, client->capabilities());
  args.device = pjrt_device;
  args.memory = memory;
  GANGWAY_RETURN_IF_ERROR(client->api().Call(&PJRT_Api::PJRT_Client_BufferFromHostBuffer, args));
  auto buffer =
      std::make_unique<PjrtBuffer>(client, args.buffer, device, std::make_shared<ArraySpec>(spec));
  client->api().OnEvent(args.done_with_host_buffer,
                        [on_done = std::move(on_done)](absl::Status done) {
                          if (on_done) on_done(std::move(done));
                        });
  return buffer;
}

absl::StatusOr<Placeholder> CreatePjrtPlaceholder(const std::shared_ptr<const PjrtClient>& client,
                                                  int device, const ArraySpec& spec) {
  GANGWAY_ASSIGN_OR_RETURN(PJRT_Buffer_Type type, xla::ToPjrtType(spec.element_type));
  if (!HostBytes(spec)) return CheckSize(spec, 0);
  GANGWAY_ASSIGN_OR_RETURN(auto* memory, client->Memory(device, ""));
  PJRT_ShapeSpec shape{};
  shape.struct_size = PJRT_ShapeSpec_STRUCT_SIZE;
  shape.dims = spec.dims.data();
  shape.num_dims = spec.dims.size();
  shape.element_type = type;
  PJRT_Client_CreateBuffersForAsyncHostToDevice_Args create{};
  create.client = client->client();
  create.shape_specs = &shape;
  create.num_shape_specs = 1;
  create.memory = memory;
  GANGWAY_RETURN_IF_ERROR(
      client->api().Call(&PJRT_Api::PJRT_Client_CreateBuffersForAsyncHostToDevice, create));
  auto manager = std::make_shared<TransferManager>(client, create.transfer_manager);
  PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args retrieve{};
  retrieve.transfer_manager = create.transfer_manager;
  GANGWAY_RETURN_IF_ERROR(client->api().Call(
      &PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, retrieve));
  Placeholder placeholder;
  placeholder.buffer = std::make_unique<PjrtBuffer>(client, retrieve.buffer_out, device,
                                                    std::make_shared<ArraySpec>(spec));
  placeholder.filler = std::make_unique<PjrtFiller>(std::move(manager), spec);
  return placeholder;
}

}  // namespace gangway::device
