// Implementation of host_callbacks.h.
#include "gangway/client/host_callbacks.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "gangway/base/detached_thread.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

thread_local uint32_t depth_of_thread = 0;

wire::HostCallbackReply Call(const HostFunctions* functions, const wire::HostCallback& callback) {
  wire::HostCallbackReply reply;
  reply.set_call(callback.call());
  absl::StatusOr<std::vector<std::string>> results =
      absl::UnimplementedError("this client has no functions that programs may call");
  if (functions != nullptr && *functions) {
    std::vector<std::string_view> operands(callback.operands().begin(), callback.operands().end());
    results = FromResult((*functions)(callback.callback(), operands));
  }
  if (!results.ok()) {
    *reply.mutable_failure() = wire::ToFailure(results.status());
    wire::Clip(*reply.mutable_failure());
  } else {
    for (std::string& result : *results) reply.add_results(std::move(result));
  }
  return reply;
}

}  // namespace

void HostCallbacks::Serve(HostFunctions functions) {
  MutexLock lock(state_->mutex);
  state_->functions = std::make_shared<const HostFunctions>(std::move(functions));
}

void HostCallbacks::Add(wire::HostCallback callback, Reply reply) {
  MutexLock lock(state_->mutex);
  if (state_->stopped) return;
  state_->queue.push_back({std::move(callback), std::move(reply)});
  state_->KeepSpareThread();
  state_->changed.NotifyAll();
}

void HostCallbacks::TellOfWorkers() {
  {
    MutexLock lock(state_->mutex);
    if (state_->functions == nullptr) return;
  }
  Add({}, [](const wire::HostCallbackReply&) {});
}

void HostCallbacks::Stop() {
  std::deque<Waiting> dropped;
  MutexLock lock(state_->mutex);
  state_->stopped = true;
  state_->functions = nullptr;
  dropped.swap(state_->queue);
  state_->changed.NotifyAll();
}

uint32_t HostCallbacks::Depth() { return depth_of_thread; }

HostCallbacks::Outside::Outside() : depth_(std::exchange(depth_of_thread, 0)) {}

HostCallbacks::Outside::~Outside() { depth_of_thread = depth_; }

// Detached: a thread in a callback may never end.
void HostCallbacks::State::KeepSpareThread() {
  if (queue.empty() || threads > running.size() || threads == kThreadsMax) return;
  ++threads;
  RunDetached([state = shared_from_this()] { state->Run(); });
}

Clock::time_point HostCallbacks::State::FirstBegins() const {
  if (queue.empty()) return Clock::time_point::max();
  return running.empty() ? Clock::time_point::min() : *running.rbegin() + kPatience;
}

void HostCallbacks::State::Run() {
  MutexLock lock(mutex);
  while (!stopped) {
    const auto now = Clock::now();
    const auto begins = FirstBegins();
    if (begins <= now) {
      RunFirst();
      continue;
    }
    const bool woken = changed.WaitUntil(
        mutex, std::min(begins, now + kIdleMax), [this, begins]() GANGWAY_NO_ANALYSIS {
          return stopped || FirstBegins() <= Clock::now() || FirstBegins() < begins;
        });
    if (!woken && queue.empty()) break;
  }
  --threads;
}

void HostCallbacks::State::RunFirst() {
  Waiting first = std::move(queue.front());
  queue.pop_front();
  const auto mine = running.insert(Clock::now());
  const std::shared_ptr<const HostFunctions> serving = functions;
  KeepSpareThread();
  mutex.Unlock();
  depth_of_thread = first.callback.depth();
  first.reply(Call(serving.get(), first.callback));
  depth_of_thread = 0;
  mutex.Lock();
  running.erase(mine);
  changed.NotifyAll();
}

}  // namespace gangway::client
