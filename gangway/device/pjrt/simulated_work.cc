// Implementation of simulated_work.h.
#include "gangway/device/pjrt/simulated_work.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

#include "gangway/base/clock.h"

namespace gangway::device {
namespace {

namespace ffi = ::xla::ffi;

constexpr int64_t kMicrosecondsMax = 10'000'000;

ffi::Error SimulatedWork(ffi::AnyBuffer clock, ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> ticked,
                         ffi::Result<ffi::AnyBuffer> y, int64_t microseconds) {
  const auto began = Clock::now();
  if (microseconds < 0 || microseconds > kMicrosecondsMax)
    return ffi::Error::InvalidArgument("simulated work takes 0 to 10,000,000 microseconds");
  if (clock.size_bytes() != ticked->size_bytes() || x.size_bytes() != y->size_bytes())
    return ffi::Error::InvalidArgument("simulated work must not change shapes");
  std::memcpy(ticked->untyped_data(), clock.untyped_data(), clock.size_bytes());
  std::memcpy(y->untyped_data(), x.untyped_data(), x.size_bytes());
  std::this_thread::sleep_until(began + std::chrono::microseconds(microseconds));
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(SimulatedWorkHandler, SimulatedWork,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int64_t>("microseconds"));

}  // namespace

HandlerGroup SimulatedWorkHandlers() {
  HandlerGroup group{"with simulated work", {}};
  const char* wanted = std::getenv("GANGWAY_SIMULATED_WORK");
  if (wanted != nullptr && std::string_view(wanted) == "1") {
    group.handlers.push_back(
        {"gangway_simulated_work", reinterpret_cast<void*>(SimulatedWorkHandler)});
  }
  return group;
}

}  // namespace gangway::device
