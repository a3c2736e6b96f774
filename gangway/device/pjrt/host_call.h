// The custom call by which a running program calls a function of its client's process (jax.debug.print, pure_callback,
// io_callback). Its target has the name that JAX gives it, since the partitioner knows that name, and runs such a call
// on one device if it is told so; its attribute is the client's number of the function. The handler finds the receiver
// of its launch by XLA's RunId, which is the launch id of the execute, and by the device; the receiver gets the bytes
// to the client and back.
//
// Threading: the handler runs on a thread of the device runtime, or inside ExecuteOn, and blocks it until the receiver
// returns. Receivers of different devices are called at the same time, and one receiver may be, too.
#ifndef GANGWAY_DEVICE_PJRT_HOST_CALL_H_
#define GANGWAY_DEVICE_PJRT_HOST_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "gangway/device/device.h"
#include "gangway/device/handler_group.h"

namespace gangway::device {

inline constexpr std::string_view kHostCallTarget = "xla_ffi_python_cpu_callback";
// Once per shard, with what is there (compiler/sharded_calls.h).
inline constexpr std::string_view kLocalHostCallTarget = "xla_ffi_partitioned_python_cpu_callback";
inline constexpr std::string_view kGpuHostCallTarget = "xla_ffi_python_gpu_callback";

// One call. Arrays are dense and row-major, as the program's text asks, in their host form: an element of less than a
// byte takes one. Tokens are left out.
struct HostCall {
  uint64_t function = 0;  // the client's number of it
  std::vector<std::span<const std::byte>> operands;
  std::vector<std::span<std::byte>> results;  // zeros, to be filled
};

class HostCallReceiver {
 public:
  virtual ~HostCallReceiver() = default;
  // An error ends the run of the program on its device.
  virtual absl::Status OnHostCall(const HostCall& call) = 0;
};

// Of the execute with this launch id on this local device, from now on; null: no longer. Launch ids are those of one
// worker: a process that runs several must not let them execute parts of one launch that call the host.
void ReceiveHostCalls(int32_t launch_id, int device, std::shared_ptr<HostCallReceiver> receiver);

// Whether an optimized program may hold such calls. (A serialized executable of XLA's GPU compiler does not show them.)
inline bool MayCallHost(std::string_view program) {
  return program.find(kHostCallTarget) != std::string_view::npos ||
         program.find(kLocalHostCallTarget) != std::string_view::npos ||
         program.find(kGpuHostCallTarget) != std::string_view::npos;
}

HandlerGroup HostCallHandlers();

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_HOST_CALL_H_
