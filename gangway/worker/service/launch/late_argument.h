// A copy of an argument of a program that calls its client, which is filled only after the program is enqueued. XLA CPU
// runs a small program whose arguments are ready inside ExecuteOn, and there the device's thread would wait for the
// client; with a late argument, another thread does.
//
// Threading: the thread that executes the position. The bytes arrive on a thread of the runtime, and a spare thread
// fills the copy.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_LATE_ARGUMENT_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_LATE_ARGUMENT_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gangway/device/device.h"
#include "gangway/store/slot.h"
#include "gangway/worker/service/device/node_task.h"

namespace gangway::worker {

class LateArgument {
 public:
  // Of an argument that is copied: programs that run on the device's thread are small.
  static constexpr size_t kBytesMax = size_t{1} << 20;

  // Replaces the smallest of `arguments`, the buffers of `contents` on the device, that is not donated. Nothing: that
  // one is not small, or there is none, or ExecuteOn would wait for it.
  static std::optional<LateArgument> Make(device::Backend& backend, int device,
                                          const std::vector<store::Content>& contents,
                                          const std::vector<bool>& donated,
                                          std::vector<device::Buffer*>& arguments);

  // Once, after ExecuteOn. A copy that is dropped instead fails the program that reads it.
  void Fill(const std::shared_ptr<const TaskEnvironment>& environment) &&;

 private:
  LateArgument(std::shared_ptr<device::Buffer> original, device::Placeholder copy, size_t bytes)
      : original_(std::move(original)), copy_(std::move(copy)), bytes_(bytes) {}

  std::shared_ptr<device::Buffer> original_;
  device::Placeholder copy_;
  size_t bytes_ = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_LATE_ARGUMENT_H_
