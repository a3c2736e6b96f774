// For tests of what takes part in a node's work: a task without work of its own, on devices that the environment names.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_NODE_TASK_TEST_UTIL_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_NODE_TASK_TEST_UTIL_H_

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gangway/device/device.h"
#include "gangway/device/element_type.h"
#include "gangway/worker/service/device/node_task.h"

namespace gangway::worker {

class IdleTask final : public NodeTask {
 public:
  explicit IdleTask(std::shared_ptr<const TaskEnvironment> environment)
      : NodeTask(std::move(environment), Ordinal(7), wire::LabelOf("idle"), 1) {}
  void Enqueue() override {}
};

inline std::shared_ptr<device::Buffer> FloatsOn(device::Backend& backend, int device,
                                                std::vector<float> values) {
  const device::ArraySpec spec{device::kF32, {static_cast<int64_t>(values.size())}};
  auto made =
      backend.BufferFromHost(device, "", spec, std::as_bytes(std::span<const float>(values)),
                             device::HostSemantics::kCopyDuringCall, nullptr);
  return made.ok() ? std::shared_ptr<device::Buffer>(*std::move(made)) : nullptr;
}

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_NODE_TASK_TEST_UTIL_H_
