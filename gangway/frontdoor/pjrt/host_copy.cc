// Implementation of host_copy.h, and the calls of the C API that lead to it. Only for devices whose memory is a host's:
// another platform's callers take a pointer for one of the device.
#include "gangway/frontdoor/pjrt/host_copy.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/pjrt/buffer.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/event.h"
#include "gangway/frontdoor/pjrt/host_memory.h"
#include "gangway/frontdoor/pjrt/layout.h"
#include "gangway/xla/dtype.h"

namespace gangway::pjrt {
namespace {

constexpr int kAttempts = 3;
constexpr std::chrono::seconds kAddressLimit{2};
constexpr size_t kJoinedBytesMax = size_t{64} << 10;  // larger copies are worth an operation each

bool IsHostMemory(const PJRT_Buffer& buffer) {
  return buffer.memory->device->client->topology.platform == "cpu";
}

absl::Status CheckHost(const PJRT_Buffer* buffer) {
  GANGWAY_RETURN_IF_ERROR(Need(buffer, "the buffer"));
  if (IsHostMemory(*buffer)) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the memory of a ", buffer->memory->device->client->topology.platform,
                   " device belongs to another process: copy the array to the host (np.asarray)"));
}

bool Failed(const HostCopy& copy) {
  const std::optional<absl::Status> arrived = copy.arrived()->Peek();
  return arrived && !arrived->ok();
}

// The copy that is here or under way, or a new one. A caller gets a pointer before the bytes are here if the array is
// not ready, and has to await the buffer's readiness; but one that has asked for that already may not ask again.
std::shared_ptr<HostCopy> Copy(PJRT_Buffer& buffer, const std::shared_ptr<Shard>& shard) {
  const bool is_ready = shard->array().Ready()->Peek().has_value();
  MutexLock lock(buffer.mutex);
  if (buffer.host_copy == nullptr || Failed(*buffer.host_copy)) {
    const bool at_once = !is_ready && !buffer.was_awaited;
    buffer.host_copy = HostCopy::Begin(shard, buffer.shape,
                                       at_once ? HostCopy::Place::kKnown : HostCopy::Place::kLent);
  }
  return buffer.host_copy;
}

}  // namespace

std::shared_ptr<HostCopy> HostCopy::Begin(const std::shared_ptr<Shard>& shard,
                                          std::shared_ptr<const Shape> shape, Place place) {
  auto copy = std::make_shared<HostCopy>(&shard->array().client());
  const size_t size = shape->bytes;
  if (!IsRowMajor(*shape)) copy->dense_.resize(size);
  copy->shape_ = std::move(shape);
  copy->may_lend_ = place == Place::kLent;
  const std::optional<absl::Status> ready = shard->array().Ready()->Peek();
  const bool may_join = ready && ready->ok() && size <= kJoinedBytesMax;
  // No worker lends so little. On the client's loop, which would allocate it otherwise, the heap grows by a system call
  // for each page: only the main thread's grows in larger steps.
  if (place == Place::kKnown || may_join) copy->Target();
  Fetch(copy, shard, kAttempts, may_join);
  return copy;
}

char* HostCopy::Target() {
  MutexLock lock(mutex_);
  if (bytes_ == nullptr) bytes_ = HostMemory::Take(shape_->bytes);
  return bytes_.get();
}

absl::Status HostCopy::Finish() {
  char* const target = Target();  // of an empty shard, nothing has come
  if (dense_.empty()) return absl::OkStatus();
  const std::string dense = std::move(dense_);  // not needed as long as the copy is
  return Arrange(dense, *shape_, target);
}

void HostCopy::Reject(size_t bytes) {
  arrived_->Set(absl::InternalError(
      absl::StrCat("the cluster sent ", bytes, " bytes of a shard of ", shape_->bytes)));
}

char* HostCopy::bytes() const {
  MutexLock lock(mutex_);
  return bytes_.get();
}

void HostCopy::Fetch(const std::shared_ptr<HostCopy>& copy, const std::shared_ptr<Shard>& shard,
                     int attempts, bool may_join) {
  shard->array().client().Fetch(
      shard->name().array, {shard->index()},
      {.on_data =
           [copy](size_t, uint64_t at, std::string_view data) {
             const size_t size = copy->shape_->bytes;
             if (at > size || data.size() > size - at) return copy->Reject(at + data.size());
             std::memcpy(copy->Arriving() + at, data.data(), data.size());
           },
       .on_place =
           [copy](size_t, std::shared_ptr<const char> bytes, size_t count) {
             if (count != copy->shape_->bytes) return copy->Reject(count);
             if (!copy->may_lend_ || !copy->dense_.empty()) {
               std::memcpy(copy->Arriving(), bytes.get(), count);
               return;
             }
             MutexLock lock(copy->mutex_);
             copy->bytes_ = std::const_pointer_cast<char>(std::move(bytes));
           },
       .on_done =
           [copy, shard, attempts, may_join](const absl::Status& status) {
             if ((absl::IsUnavailable(status) || (may_join && !status.ok())) && attempts > 1)
               return Fetch(copy, shard, attempts - 1, false);
             copy->arrived_->Set(status.ok() ? copy->Finish() : status);
           },
       .may_join = may_join});
}

// Callers ask when they want the bytes brought, or just before they read them, so the copy is begun. Elements narrower
// than a byte are not read in place. A buffer's answer must never change: jaxlib asks twice, and aborts if it does.
absl::Status BufferIsOnCpu(PJRT_Buffer_IsOnCpu_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, "the buffer"));
  args.is_on_cpu = IsHostMemory(*args.buffer);
  const std::shared_ptr<Shard> shard = args.buffer->Find();
  if (args.is_on_cpu && shard != nullptr && !xla::IsNarrow(args.buffer->shape->element_type))
    Copy(*args.buffer, shard);
  return absl::OkStatus();
}

absl::Status BufferAddReference(PJRT_Buffer_IncreaseExternalReferenceCount_Args& args) {
  GANGWAY_RETURN_IF_ERROR(CheckHost(args.buffer));
  GANGWAY_RETURN_IF_ERROR(ShardIn(args.buffer));
  MutexLock lock(args.buffer->mutex);
  ++args.buffer->references;
  return absl::OkStatus();
}

absl::Status BufferRemoveReference(PJRT_Buffer_DecreaseExternalReferenceCount_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, "the buffer"));
  std::shared_ptr<HostCopy> last;
  MutexLock lock(args.buffer->mutex);
  if (args.buffer->references == 0)
    return absl::FailedPreconditionError("the buffer has no external reference");
  if (--args.buffer->references == 0 && !args.buffer->is_pinned) last.swap(args.buffer->host_copy);
  return absl::OkStatus();
}

absl::Status BufferPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args& args) {
  GANGWAY_RETURN_IF_ERROR(CheckHost(args.buffer));
  GANGWAY_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardIn(args.buffer));
  {
    MutexLock lock(args.buffer->mutex);
    if (args.buffer->references == 0) {
      return absl::FailedPreconditionError(
          "a pointer is valid while the buffer has an external reference, and it has none");
    }
  }
  const std::shared_ptr<HostCopy> copy = Copy(*args.buffer, shard);
  if (!copy->is_known()) GANGWAY_RETURN_IF_ERROR(WaitFor(*copy->arrived()));
  args.device_memory_ptr = copy->bytes();
  return absl::OkStatus();
}

// The caller holds no reference, so the buffer does. Callers read at once, as they can where small programs run inside
// of their call; but jaxlib waits here with Python's lock held, which a callback of the pending program may need.
absl::Status BufferUnsafePointer(PJRT_Buffer_UnsafePointer_Args& args) {
  GANGWAY_RETURN_IF_ERROR(CheckHost(args.buffer));
  PJRT_Buffer& buffer = *args.buffer;
  GANGWAY_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard, ShardIn(&buffer));
  {
    MutexLock lock(buffer.mutex);
    buffer.is_pinned = true;
  }
  const std::shared_ptr<HostCopy> copy = Copy(buffer, shard);
  buffer.session()->SendNow();
  const std::optional<absl::Status> arrived = WaitFor(*copy->arrived(), kAddressLimit);
  if (!arrived) {
    return absl::DeadlineExceededError(
        absl::StrCat("the array's bytes have not come within ", kAddressLimit.count(),
                     " s: wait until it is ready (x.block_until_ready()), then ask again"));
  }
  GANGWAY_RETURN_IF_ERROR(*arrived);
  args.buffer_pointer = reinterpret_cast<uintptr_t>(copy->bytes());
  return absl::OkStatus();
}

absl::Status BufferDelete(PJRT_Buffer_Delete_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, "the buffer"));
  args.buffer->Release();
  std::shared_ptr<HostCopy> last;
  MutexLock lock(args.buffer->mutex);
  args.buffer->is_pinned = false;
  if (args.buffer->references == 0) last.swap(args.buffer->host_copy);
  return absl::OkStatus();
}

// Also the arrival of a copy whose pointer a caller may have, who reads it once the buffer is ready.
absl::Status BufferReadyEvent(PJRT_Buffer_ReadyEvent_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, "the buffer"));
  PJRT_Buffer& buffer = *args.buffer;
  const std::shared_ptr<Shard> shard = buffer.Find();
  std::shared_ptr<HostCopy> copy;
  {
    MutexLock lock(buffer.mutex);
    buffer.was_awaited = true;
    if (buffer.host_copy != nullptr && buffer.host_copy->is_known()) copy = buffer.host_copy;
  }
  if (copy != nullptr) {
    args.event = NewEvent(copy->arrived());
  } else if (shard != nullptr) {
    args.event = NewEvent(shard->array().Ready());
  } else {
    args.event = ReadyEvent(ShardIn(args.buffer).status());
  }
  args.event->outcome->Peek();  // so that the look travels with what is sent now
  buffer.session()->SendNow();  // the caller is about to wait
  LookFor(*args.event->outcome);
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
