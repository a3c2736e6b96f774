// The host callbacks of one run of a program, on one device: each waits in HostCalls for the reply of the client, and a
// failed one is the failure of the gang.
//
// Threading: any thread; several at once.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_HOST_CALLER_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_HOST_CALLER_H_

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/status.h"

#include "gangway/device/pjrt/host_call.h"
#include "gangway/worker/service/device/node_task.h"
#include "gangway/worker/service/launch/host_calls.h"

namespace gangway::worker {

class HostCaller final : public device::HostCallReceiver {
 public:
  // What a failed callback does to the run. A program with collectives of the device runtime goes on, with zeros for
  // the callback's results: the other members would wait for this one in a collective, and only the end of the process
  // ends such a wait. The gang's results are failed once the program has ended.
  enum class OnFailure { kEndsRun, kRunGoesOn };
  // After so many failures a run ends all the same: zeros may keep a loop of the program from ending.
  static constexpr int kFailedCallsMax = 1000;

  HostCaller(std::shared_ptr<NodeTask> task, std::shared_ptr<HostCalls> calls,
             HostCalls::Caller caller, OnFailure on_failure)
      : task_(std::move(task)),
        calls_(std::move(calls)),
        caller_(std::move(caller)),
        on_failure_(on_failure) {}

  absl::Status OnHostCall(const device::HostCall& call) override {
    absl::Status status = calls_->Call(caller_, call, [this] { return task_->Unwanted(); });
    if (status.ok()) return status;
    task_->Note(status, caller_.local_device);
    const bool goes_on = on_failure_ == OnFailure::kRunGoesOn && ++failed_calls_ < kFailedCallsMax;
    return goes_on ? absl::OkStatus() : status;
  }

 private:
  const std::shared_ptr<NodeTask> task_;
  const std::shared_ptr<HostCalls> calls_;
  const HostCalls::Caller caller_;
  const OnFailure on_failure_;
  std::atomic<int> failed_calls_ = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_HOST_CALLER_H_
