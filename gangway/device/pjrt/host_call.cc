// Implementation of host_call.h.
#include "gangway/device/pjrt/host_call.h"

#include <spdlog/spdlog.h>

#include <cstring>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xla/ffi/api/ffi.h"

#include "gangway/base/mutex.h"

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

ffi::Error CallHost(ffi::RunId run, int32_t device, ffi::RemainingArgs arguments,
                    ffi::RemainingRets results, int64_t function) {
  try {
    HostCall call{.function = static_cast<uint64_t>(function)};
    for (size_t i = 0; i < arguments.size(); ++i) {
      auto operand = arguments.get<ffi::AnyBuffer>(i);
      if (operand.has_error()) return operand.error();
      if (operand->element_type() == ffi::DataType::TOKEN) continue;
      call.operands.emplace_back(static_cast<const std::byte*>(operand->untyped_data()),
                                 operand->size_bytes());
    }
    for (size_t i = 0; i < results.size(); ++i) {
      auto result = results.get<ffi::AnyBuffer>(i);
      if (result.has_error()) return result.error();
      if ((*result)->element_type() == ffi::DataType::TOKEN) continue;
      auto* const bytes = static_cast<std::byte*>((*result)->untyped_data());
      // No result shows earlier contents of its memory (OB-3).
      if ((*result)->size_bytes() > 0) std::memset(bytes, 0, (*result)->size_bytes());
      call.results.emplace_back(bytes, (*result)->size_bytes());
    }
    const absl::Status status = Forward(run.run_id, device, call);
    return status.ok() ? ffi::Error::Success() : ToFfi(status);
  } catch (const std::bad_alloc&) {  // exceptions must not reach the plugin
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

}  // namespace

void ReceiveHostCalls(int32_t launch_id, int device, std::shared_ptr<HostCallReceiver> receiver) {
  AllReceivers().Set(launch_id, device, std::move(receiver));
}

bool MayCallHost(std::string_view serialized) {
  return serialized.find(kHostCallTarget) != std::string_view::npos;
}

void OfferHostCalls(Backend& backend) {
  if (!backend.capabilities().ffi_handlers) return;
  const std::vector<FfiHandler> handlers = {
      {std::string(kHostCallTarget), reinterpret_cast<void*>(HostCallHandler)}};
  const absl::Status status = backend.RegisterFfiHandlers(handlers);
  if (status.ok()) return;
  spdlog::warn("This process rejects programs with host callbacks: {}",
               std::string(status.message()));
}

}  // namespace gangway::device
