// Shared functions of the device tests: wait for a callback with a deadline, and copy arrays of
// floats to and from buffers.
#ifndef GANGWAY_DEVICE_CONFORMANCE_DEVICE_TEST_UTIL_H_
#define GANGWAY_DEVICE_CONFORMANCE_DEVICE_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/device/device.h"
#include "gangway/device/element_type.h"

#define GANGWAY_ASSERT_OK(expression)                          \
  do {                                                         \
    const absl::Status status_of_it = (expression);            \
    ASSERT_TRUE(status_of_it.ok()) << status_of_it.ToString(); \
  } while (false)

namespace gangway::device {

inline constexpr std::chrono::milliseconds kTestDeadline{30000};

// Waits for one callback. Copies share the state, so a late callback never touches freed memory.
class Waiter {
 public:
  StatusCallback Callback() {
    return [state = state_](absl::Status status) {
      MutexLock lock(state->mutex);
      state->status = std::move(status);
      ++state->calls;
      state->changed.NotifyAll();
    };
  }

  // The status, or DEADLINE_EXCEEDED.
  absl::Status Wait(std::chrono::milliseconds limit = kTestDeadline) {
    MutexLock lock(state_->mutex);
    State* state = state_.get();
    if (!state_->changed.WaitFor(state_->mutex, limit,
                                 [state]() GANGWAY_NO_ANALYSIS { return state->calls > 0; })) {
      return absl::DeadlineExceededError("the callback did not run before the deadline");
    }
    return state_->status;
  }

  bool done() const {
    MutexLock lock(state_->mutex);
    return state_->calls > 0;
  }
  int calls() const {
    MutexLock lock(state_->mutex);
    return state_->calls;
  }

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    absl::Status status GANGWAY_GUARDED_BY(mutex);
    int calls GANGWAY_GUARDED_BY(mutex) = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

inline ArraySpec F32(std::vector<int64_t> dims) { return ArraySpec{kF32, std::move(dims)}; }

inline std::span<const std::byte> Bytes(const std::vector<float>& values) {
  return std::as_bytes(std::span<const float>(values));
}

inline absl::StatusOr<std::unique_ptr<Buffer>> MakeBuffer(Backend& backend, int device,
                                                          const std::vector<float>& values) {
  return backend.BufferFromHost(device, "", F32({static_cast<int64_t>(values.size())}),
                                Bytes(values), HostSemantics::kCopyDuringCall, nullptr);
}

// The contents of an f32 buffer.
inline absl::StatusOr<std::vector<float>> ReadFloats(Buffer& buffer) {
  const std::optional<size_t> bytes = HostBytes(buffer.spec());
  auto values = std::make_shared<std::vector<float>>(bytes.value_or(0) / sizeof(float));
  Waiter waiter;
  // The callback keeps the vector alive, in case it runs after the deadline.
  buffer.CopyToHost(
      values->data(), values->size() * sizeof(float),
      [values, done = waiter.Callback()](absl::Status status) { done(std::move(status)); });
  GANGWAY_RETURN_IF_ERROR(waiter.Wait());
  return *values;
}

using BufferList = std::vector<std::unique_ptr<Buffer>>;

inline std::vector<Buffer*> Pointers(const BufferList& buffers) {
  std::vector<Buffer*> pointers;
  for (const auto& buffer : buffers) pointers.push_back(buffer.get());
  return pointers;
}

// Runs `body(i)` for i in 0..count-1, each on its own thread, by the rule "one thread per device".
template <typename Body>
void OnThreads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_CONFORMANCE_DEVICE_TEST_UTIL_H_
