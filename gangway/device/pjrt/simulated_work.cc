// Implementation of simulated_work.h.
#include "gangway/device/pjrt/simulated_work.h"

#include <sys/prctl.h>

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

// Linux wakes a thread up to its timer slack (50 us) late, so that it can wake several at once. A thread that stands
// for a device must not be late because of that.
class NoTimerSlack {
 public:
  NoTimerSlack() : before_ns_(prctl(PR_GET_TIMERSLACK)) { prctl(PR_SET_TIMERSLACK, 1); }
  ~NoTimerSlack() { prctl(PR_SET_TIMERSLACK, before_ns_); }
  NoTimerSlack(const NoTimerSlack&) = delete;
  NoTimerSlack& operator=(const NoTimerSlack&) = delete;

 private:
  const int before_ns_;
};

ffi::Error SimulatedWork(ffi::AnyBuffer clock, ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> ticked,
                         ffi::Result<ffi::AnyBuffer> y, int64_t microseconds) {
  const auto began = Clock::now();
  if (microseconds < 0 || microseconds > kMicrosecondsMax)
    return ffi::Error::InvalidArgument("simulated work takes 0 to 10,000,000 microseconds");
  if (clock.size_bytes() != ticked->size_bytes() || x.size_bytes() != y->size_bytes())
    return ffi::Error::InvalidArgument("simulated work must not change shapes");
  std::memcpy(ticked->untyped_data(), clock.untyped_data(), clock.size_bytes());
  std::memcpy(y->untyped_data(), x.untyped_data(), x.size_bytes());
  const NoTimerSlack exact;
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
