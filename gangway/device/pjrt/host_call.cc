// Implementation of host_call.h.
#include "gangway/device/pjrt/host_call.h"

#include <algorithm>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xla/ffi/api/ffi.h"

#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/device/element_type.h"
#include "gangway/device/packed_elements.h"
#include "gangway/device/pjrt/gpu_copies.h"

namespace gangway::device {
namespace {

namespace ffi = ::xla::ffi;

class Receivers {
 public:
  void Set(int32_t launch_id, int device, std::shared_ptr<HostCallReceiver> receiver)
      GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (receiver == nullptr) {
      by_launch_.erase({launch_id, device});
    } else {
      by_launch_[{launch_id, device}] = std::move(receiver);
    }
  }

  std::shared_ptr<HostCallReceiver> Find(int64_t launch_id, int device) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    auto found = by_launch_.find({launch_id, device});
    return found == by_launch_.end() ? nullptr : found->second;
  }

 private:
  Mutex mutex_;
  std::map<std::pair<int64_t, int>, std::shared_ptr<HostCallReceiver>> by_launch_
      GANGWAY_GUARDED_BY(mutex_);
};

Receivers& AllReceivers() {
  static auto* const receivers = new Receivers();
  return *receivers;
}

ffi::Error ToFfi(const absl::Status& status) {
  return {static_cast<ffi::ErrorCode>(status.code()), std::string(status.message())};
}

// An operand or a result in the device's form, where XLA has it.
struct DeviceArray {
  std::byte* address;
  size_t bytes;
  size_t host_bytes;
  int per_byte;  // elements that share one

  std::span<std::byte> span() const { return {address, bytes}; }
};

struct DeviceCall {
  int64_t run;
  int device;
  uint64_t function;
  std::vector<DeviceArray> operands;  // without tokens
  std::vector<DeviceArray> results;
};

void Add(const ffi::AnyBuffer& buffer, std::vector<DeviceArray>& arrays) {
  if (buffer.element_type() == ffi::DataType::TOKEN) return;
  const int per_byte = ElementsPerDeviceByte(static_cast<int32_t>(buffer.element_type()));
  const size_t host_bytes =
      buffer.size_bytes();  // one byte per element, also where several share one
  arrays.push_back({.address = static_cast<std::byte*>(buffer.untyped_data()),
                    .bytes = PackedBytes(host_bytes, per_byte),
                    .host_bytes = host_bytes,
                    .per_byte = per_byte});
}

std::optional<ffi::Error> Read(ffi::RemainingArgs arguments, ffi::RemainingRets results,
                               DeviceCall& read) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto operand = arguments.get<ffi::AnyBuffer>(i);
    if (operand.has_error()) return operand.error();
    Add(*operand, read.operands);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    auto result = results.get<ffi::AnyBuffer>(i);
    if (result.has_error()) return result.error();
    Add(**result, read.results);
  }
  return std::nullopt;
}

// The arrays are in memory that this process can use. Elements that share bytes pass through other memory.
absl::Status Forward(const DeviceCall& read) {
  HostCall call{.function = read.function};
  std::deque<std::vector<std::byte>> host;
  for (const DeviceArray& operand : read.operands) {
    std::span<std::byte> bytes = operand.span();
    if (operand.per_byte > 1) {
      bytes = host.emplace_back(operand.host_bytes);
      UnpackElements(operand.span(), operand.per_byte, bytes);
    }
    call.operands.emplace_back(bytes);
  }
  for (const DeviceArray& result : read.results) {
    std::ranges::fill(result.span(),
                      std::byte{0});  // none shows earlier contents of its memory (OB-3)
    call.results.push_back(result.per_byte > 1 ? host.emplace_back(result.host_bytes)
                                               : result.span());
  }
  std::shared_ptr<HostCallReceiver> receiver = AllReceivers().Find(read.run, read.device);
  if (receiver == nullptr) {
    return absl::InternalError(
        absl::StrCat("no client is known for the host callbacks of launch ", read.run));
  }
  GANGWAY_RETURN_IF_ERROR(receiver->OnHostCall(call));
  for (size_t i = 0; i < read.results.size(); ++i) {
    const DeviceArray& result = read.results[i];
    if (result.per_byte > 1) PackElements(call.results[i], result.per_byte, result.span());
  }
  return absl::OkStatus();
}

ffi::Error CallHost(ffi::RunId run, int32_t device, ffi::RemainingArgs arguments,
                    ffi::RemainingRets results, int64_t function) {
  try {
    DeviceCall read{
        .run = run.run_id, .device = device, .function = static_cast<uint64_t>(function)};
    if (auto error = Read(arguments, results, read)) return *error;
    const absl::Status status = Forward(read);
    return status.ok() ? ffi::Error::Success() : ToFfi(status);
  } catch (const std::bad_alloc&) {  // exceptions must not reach the plugin
    return {ffi::ErrorCode::kResourceExhausted, "not enough memory for a host callback"};
  }
}

// The same by copies, because this process cannot read the memory of a GPU.
absl::Status ForwardCopies(const GpuCopies& gpu, void* stream, DeviceCall& read) {
  std::deque<std::vector<std::byte>> memory;
  std::vector<std::pair<std::span<std::byte>, const void*>> in;
  std::vector<std::pair<std::span<const std::byte>, void*>> out;
  for (DeviceArray& operand : read.operands) {
    std::vector<std::byte>& copy = memory.emplace_back(operand.bytes);
    in.emplace_back(copy, std::exchange(operand.address, copy.data()));
  }
  for (DeviceArray& result : read.results) {
    std::vector<std::byte>& copy = memory.emplace_back(result.bytes);
    out.emplace_back(copy, std::exchange(result.address, copy.data()));
  }
  GANGWAY_RETURN_IF_ERROR(gpu.ToHost(stream, in));
  GANGWAY_RETURN_IF_ERROR(Forward(read));
  return gpu.ToDevice(stream, out);
}

ffi::Error CallHostFromGpu(void* stream, ffi::RunId run, int32_t device,
                           ffi::RemainingArgs arguments, ffi::RemainingRets results,
                           int64_t function) {
  try {
    DeviceCall read{
        .run = run.run_id, .device = device, .function = static_cast<uint64_t>(function)};
    if (auto error = Read(arguments, results, read)) return *error;
    auto gpu = GpuCopies::Load();
    const absl::Status status = gpu.ok() ? ForwardCopies(**gpu, stream, read) : gpu.status();
    return status.ok() ? ffi::Error::Success() : ToFfi(status);
  } catch (const std::bad_alloc&) {
    return {ffi::ErrorCode::kResourceExhausted, "not enough memory for a host callback"};
  }
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(HostCallHandler, CallHost,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::RunId>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("callback"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(GpuHostCallHandler, CallHostFromGpu,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void*>>()
                                  .Ctx<ffi::RunId>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("callback"));

}  // namespace

void ReceiveHostCalls(int32_t launch_id, int device, std::shared_ptr<HostCallReceiver> receiver) {
  AllReceivers().Set(launch_id, device, std::move(receiver));
}

HandlerGroup HostCallHandlers() {
  return {"with host callbacks",
          {{std::string(kHostCallTarget), reinterpret_cast<void*>(HostCallHandler)},
           {std::string(kLocalHostCallTarget), reinterpret_cast<void*>(HostCallHandler)},
           {std::string(kGpuHostCallTarget), reinterpret_cast<void*>(GpuHostCallHandler),
            /*device_memory=*/true}}};
}

}  // namespace gangway::device
