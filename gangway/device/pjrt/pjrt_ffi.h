// Registration of typed-FFI handlers with a plugin. Internal to device/pjrt. Thread-safe.
#ifndef GANGWAY_DEVICE_PJRT_PJRT_FFI_H_
#define GANGWAY_DEVICE_PJRT_PJRT_FFI_H_

#include <memory>
#include <span>

#include "absl/status/status.h"

#include "gangway/device/device.h"
#include "gangway/device/pjrt/pjrt_client.h"

namespace gangway::device {

// See Backend::RegisterFfiHandlers. ALREADY_EXISTS: a name was registered with another address.
absl::Status RegisterPjrtFfiHandlers(const std::shared_ptr<const PjrtClient>& client,
                                     std::span<const FfiHandler> handlers);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_PJRT_FFI_H_
