// Pointers to a buffer's bytes, as DLPack wants them: to a copy in this process, made when it is first asked for, which
// lives as long as the buffer's external references. Only for devices whose memory is a host's: another platform's
// callers take a pointer for one of the device.
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/pjrt/buffer.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/event.h"

namespace gangway::pjrt {
namespace {

constexpr size_t kAlignment = 64;  // of XLA's buffers on CPUs

absl::Status CheckHost(const PJRT_Buffer* buffer) {
  GANGWAY_RETURN_IF_ERROR(ShardIn(buffer));
  const std::string& platform = buffer->memory->device->client->topology.platform;
  if (platform == "cpu") return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the memory of a ", platform,
                   " device belongs to another process: copy the array to the host (np.asarray)"));
}

std::shared_ptr<char> NewBytes(size_t size) {
  const size_t rounded = (size + kAlignment) / kAlignment * kAlignment;
  auto* const bytes = static_cast<char*>(std::aligned_alloc(kAlignment, rounded));
  if (bytes == nullptr) throw std::bad_alloc();
  return {bytes, [](char* done) { std::free(done); }};
}

// Waits for the buffer's bytes.
absl::StatusOr<std::shared_ptr<char>> Copy(PJRT_Buffer* buffer) {
  const size_t size = buffer->shape->bytes;
  std::shared_ptr<char> bytes = NewBytes(size);
  PJRT_Buffer_CopyRawToHost_Args args{};
  args.buffer = buffer;
  args.dst = bytes.get();
  args.transfer_size = static_cast<int64_t>(size);
  GANGWAY_RETURN_IF_ERROR(BufferRawToHost(args));
  const std::unique_ptr<PJRT_Event> event(args.event);
  GANGWAY_RETURN_IF_ERROR(event->outcome->Wait());
  return bytes;
}

}  // namespace

absl::Status BufferAddReference(PJRT_Buffer_IncreaseExternalReferenceCount_Args& args) {
  GANGWAY_RETURN_IF_ERROR(CheckHost(args.buffer));
  MutexLock lock(args.buffer->mutex);
  ++args.buffer->references;
  return absl::OkStatus();
}

absl::Status BufferRemoveReference(PJRT_Buffer_DecreaseExternalReferenceCount_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, "the buffer"));
  std::shared_ptr<char> last;
  MutexLock lock(args.buffer->mutex);
  if (args.buffer->references == 0)
    return absl::FailedPreconditionError("the buffer has no external reference");
  if (--args.buffer->references == 0) last.swap(args.buffer->host_copy);
  return absl::OkStatus();
}

absl::Status BufferPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args& args) {
  GANGWAY_RETURN_IF_ERROR(CheckHost(args.buffer));
  {
    MutexLock lock(args.buffer->mutex);
    if (args.buffer->references == 0) {
      return absl::FailedPreconditionError(
          "a pointer is valid while the buffer has an external reference, and it has none");
    }
    args.device_memory_ptr = args.buffer->host_copy.get();
    if (args.device_memory_ptr != nullptr) return absl::OkStatus();
  }
  GANGWAY_ASSIGN_OR_RETURN(std::shared_ptr<char> copy, Copy(args.buffer));
  MutexLock lock(args.buffer->mutex);
  if (args.buffer->host_copy == nullptr) args.buffer->host_copy = std::move(copy);
  args.device_memory_ptr = args.buffer->host_copy.get();  // the first copy, if two were made
  return absl::OkStatus();
}

// Nothing would say how long a pointer without a reference is used.
absl::Status BufferUnsafePointer(PJRT_Buffer_UnsafePointer_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.buffer, "the buffer"));
  return absl::UnimplementedError(
      "the buffer's memory belongs to another process: copy the array to the host (np.asarray), or "
      "export it with DLPack");
}

}  // namespace gangway::pjrt
