// Implementation of host_call.h.
#include "gangway/device/pjrt/host_call.h"

#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xla/ffi/api/ffi.h"

#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
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

absl::Status Forward(int64_t run, int device, const HostCall& call) {
  std::shared_ptr<HostCallReceiver> receiver = AllReceivers().Find(run, device);
  if (receiver != nullptr) return receiver->OnHostCall(call);
  return absl::InternalError(
      absl::StrCat("no client is known for the host callbacks of launch ", run));
}

// A call whose operands and results are where XLA has them; without tokens.
struct DeviceCall {
  HostCall call;
  std::vector<const void*> operands;
  std::vector<void*> results;
};

std::optional<ffi::Error> Read(ffi::RemainingArgs arguments, ffi::RemainingRets results,
                               DeviceCall& read) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto operand = arguments.get<ffi::AnyBuffer>(i);
    if (operand.has_error()) return operand.error();
    if (operand->element_type() == ffi::DataType::TOKEN) continue;
    read.operands.push_back(operand->untyped_data());
    read.call.operands.emplace_back(static_cast<const std::byte*>(operand->untyped_data()),
                                    operand->size_bytes());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    auto result = results.get<ffi::AnyBuffer>(i);
    if (result.has_error()) return result.error();
    if ((*result)->element_type() == ffi::DataType::TOKEN) continue;
    read.results.push_back((*result)->untyped_data());
    read.call.results.emplace_back(static_cast<std::byte*>((*result)->untyped_data()),
                                   (*result)->size_bytes());
  }
  return std::nullopt;
}

ffi::Error CallHost(ffi::RunId run, int32_t device, ffi::RemainingArgs arguments,
                    ffi::RemainingRets results, int64_t function) {
  try {
    DeviceCall read{.call = {.function = static_cast<uint64_t>(function)}};
    if (auto error = Read(arguments, results, read)) return *error;
    // No result shows earlier contents of its memory (OB-3).
    for (std::span<std::byte> result : read.call.results)
      if (!result.empty()) std::memset(result.data(), 0, result.size());
    const absl::Status status = Forward(run.run_id, device, read.call);
    return status.ok() ? ffi::Error::Success() : ToFfi(status);
  } catch (const std::bad_alloc&) {  // exceptions must not reach the plugin
    return {ffi::ErrorCode::kResourceExhausted, "not enough memory for a host callback"};
  }
}

// The same by copies, because this process cannot read the memory of a GPU.
absl::Status ForwardCopies(const GpuCopies& gpu, void* stream, int64_t run, int device,
                           DeviceCall& read) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::pair<std::span<std::byte>, const void*>> in;
  std::vector<std::pair<std::span<const std::byte>, void*>> out;
  for (size_t i = 0; i < read.operands.size(); ++i) {
    memory.emplace_back(read.call.operands[i].size());
    read.call.operands[i] = memory.back();
    in.emplace_back(memory.back(), read.operands[i]);
  }
  for (size_t i = 0; i < read.results.size(); ++i) {
    memory.emplace_back(read.call.results[i].size());
    read.call.results[i] = memory.back();
    out.emplace_back(memory.back(), read.results[i]);
  }
  GANGWAY_RETURN_IF_ERROR(gpu.ToHost(stream, in));
  GANGWAY_RETURN_IF_ERROR(Forward(run, device, read.call));
  return gpu.ToDevice(stream, out);
}

ffi::Error CallHostFromGpu(void* stream, ffi::RunId run, int32_t device,
                           ffi::RemainingArgs arguments, ffi::RemainingRets results,
                           int64_t function) {
  try {
    DeviceCall read{.call = {.function = static_cast<uint64_t>(function)}};
    if (auto error = Read(arguments, results, read)) return *error;
    auto gpu = GpuCopies::Load();
    const absl::Status status =
        gpu.ok() ? ForwardCopies(**gpu, stream, run.run_id, device, read) : gpu.status();
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
           {std::string(kGpuHostCallTarget), reinterpret_cast<void*>(GpuHostCallHandler),
            /*device_memory=*/true}}};
}

}  // namespace gangway::device
