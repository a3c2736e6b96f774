// An executable for one position, loaded on several devices of a process: looks like one executable on all of them.
#ifndef GANGWAY_DEVICE_EACH_DEVICE_H_
#define GANGWAY_DEVICE_EACH_DEVICE_H_

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"

#include "gangway/device/device.h"

namespace gangway::device {

// Loads the bytes, which are for one device, on each of `devices`. The result's devices() are these; a launch may run
// on any of them. The first error of a load is the result's. INVALID_ARGUMENT: no devices.
absl::StatusOr<std::unique_ptr<Executable>> LoadOnEach(Backend& backend,
                                                       std::string_view serialized,
                                                       std::span<const int> devices);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_EACH_DEVICE_H_
