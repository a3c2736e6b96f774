// Chains of executes, each on the result of the one before.
#ifndef GANGWAY_DEVICE_CONFORMANCE_CHAIN_H_
#define GANGWAY_DEVICE_CONFORMANCE_CHAIN_H_

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gangway/device/conformance/device_test_util.h"
#include "gangway/device/device.h"

namespace gangway::device {

// A chain of `length` unary executes that starts at `first`; returns the last output.
inline std::unique_ptr<Buffer> Chain(Executable& unary, Buffer* first, int length,
                                     std::vector<Waiter>* complete) {
  std::unique_ptr<Buffer> last;
  for (int i = 0; i < length; ++i) {
    Buffer* argument = last ? last.get() : first;
    complete->emplace_back();
    auto outputs =
        unary.ExecuteOn(first->device(), {&argument, 1}, {}, complete->back().Callback());
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    if (!outputs.ok()) return nullptr;
    last = std::move((*outputs)[0]);
  }
  return last;
}

// A chain behind an argument that is not filled yet, enqueued by a thread of its own: that of the device, which
// ExecuteOn may hold until the argument is settled.
class ChainBehind {
 public:
  ChainBehind(const Backend& backend, Executable& unary, Buffer* first, int length)
      : thread_([this, &unary, first, length] {
          last_ = Chain(unary, first, length, &complete_);
          enqueued_.Callback()(absl::OkStatus());
        }) {
    if (!backend.capabilities().execute_waits_for_arguments) Await();
  }
  ~ChainBehind() { Await(); }
  ChainBehind(const ChainBehind&) = delete;
  ChainBehind& operator=(const ChainBehind&) = delete;

  // After the argument is settled, or where ExecuteOn does not wait for that.
  std::vector<Waiter>& complete() { return Await().complete_; }
  Buffer* last() { return Await().last_.get(); }

 private:
  ChainBehind& Await() {
    if (!thread_.joinable()) return *this;
    const absl::Status enqueued = enqueued_.Wait();
    if (!enqueued.ok()) {
      fprintf(stderr, "ExecuteOn did not return: %s\n", enqueued.ToString().c_str());
      std::_Exit(1);
    }
    thread_.join();
    return *this;
  }

  std::vector<Waiter> complete_;
  std::unique_ptr<Buffer> last_;
  Waiter enqueued_;
  std::thread thread_;
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_CONFORMANCE_CHAIN_H_
