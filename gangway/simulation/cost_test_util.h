// What the tests of costs share: a controller of two islands, and how work may grow. The work is counted
// (counted_work.h), not timed.
#ifndef GANGWAY_SIMULATION_COST_TEST_UTIL_H_
#define GANGWAY_SIMULATION_COST_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "gangway/controller/core/controller.h"
#include "gangway/simulation/counted_work.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::simulation {

inline constexpr size_t kParts = 2500;  // up to four times as many in one message
inline constexpr double kGrowthMax =
    6;  // from n to 4n: more than linear (4), far less than quadratic (16)

// Prepares with n parts, and returns the work of the messages in question.
using Case = std::function<CountedWork(size_t)>;

inline void ExpectLinear(const Case& one) {
  const CountedWork small = one(kParts), middle = one(2 * kParts), large = one(4 * kParts);
  EXPECT_GT(small.blocks, kParts / 8) << "nothing was counted";
  EXPECT_LT(static_cast<double>(large.blocks), kGrowthMax * static_cast<double>(small.blocks))
      << "blocks: " << small.blocks << ", " << middle.blocks << ", " << large.blocks;
  EXPECT_LT(static_cast<double>(large.bytes), kGrowthMax * static_cast<double>(small.bytes) + 4096)
      << "bytes: " << small.bytes << ", " << middle.bytes << ", " << large.bytes;
}

// The work of this step does not depend on n.
inline void ExpectConstant(const Case& one, size_t blocks_min = 20) {
  const CountedWork small = one(kParts), large = one(4 * kParts);
  EXPECT_GT(small.blocks, blocks_min) << "nothing was counted";
  EXPECT_LT(static_cast<double>(large.blocks), 1.1 * static_cast<double>(small.blocks))
      << "blocks: " << small.blocks << ", " << large.blocks;
  EXPECT_LT(static_cast<double>(large.bytes), 1.1 * static_cast<double>(small.bytes))
      << "bytes: " << small.bytes << ", " << large.bytes;
}

// A controller of two islands, with n devices in all: device d is on island d % 2.
class Head {
 public:
  explicit Head(size_t devices, bool wants_ends = false)
      : devices_(devices), controller_(ConfigOf(devices)) {
    Step(controller::CompilerUp{1});
    Step(controller::SessionOpened{SessionId(1), "one", wants_ends});
  }

  void Step(controller::Event event) {
    actions = {};
    controller_.Step(std::move(event), now_, actions);
  }
  wire::Op* Add() { return batch_.add_ops(); }
  void Send() { Step(controller::FromClient{SessionId(1), std::exchange(batch_, {})}); }
  CountedWork Cost() {
    EXPECT_LT(batch_.ByteSizeLong(), 1u << 20);
    return WorkOf([this] { Send(); });
  }
  // Reports the end of nodes, by both islands.
  void End(uint64_t first, uint64_t last, const wire::Failure* failure = nullptr) {
    for (uint32_t island : {0, 1}) {
      controller::FromScheduler event{island, {}};
      for (uint64_t ordinal = first; ordinal <= last; ++ordinal) {
        wire::Done* done = event.batch.add_reports()->mutable_done();
        done->set_ordinal(ordinal);
        if (failure != nullptr) *done->mutable_failure() = *failure;
      }
      Step(std::move(event));
    }
  }

  void Spec(wire::ArraySpec* spec, uint32_t first, size_t count) const {
    spec->set_element_type(11);
    spec->add_shard_dims(2);
    spec->set_shard_bytes(8);
    for (size_t i = 0; i < count; ++i)
      spec->add_devices(static_cast<uint32_t>((first + i) % devices_));
  }
  // The uploads take ordinals in order, from 1.
  void Upload(uint64_t handle, uint32_t first, size_t count) {
    wire::UploadOp* op = Add()->mutable_upload();
    op->set_array(handle);
    op->set_upload(handle);
    Spec(op->mutable_spec(), first, count);
    ++ordinal;
  }
  // Arrays 1 to n of one shard each, on device 0 or on device i.
  void HaveMany(size_t count, bool spread) {
    const uint64_t first = ordinal + 1;
    for (size_t i = 0; i < count; ++i) Upload(i + 1, spread ? static_cast<uint32_t>(i) : 0, 1);
    Send();
    End(first, ordinal);
  }
  // Executable 1, on the first devices: two of them are on two islands.
  void Compile(size_t parameters, size_t results, size_t devices, bool donates = false) {
    wire::CompileOp* op = Add()->mutable_compile();
    op->set_executable(1);
    for (uint32_t device = 0; device < devices; ++device) op->add_devices(device);
    Send();
    controller::FromCompiler event;
    event.result.set_request(1);
    wire::ExecutableInfo* info = event.result.mutable_info();
    info->set_name("step");
    for (size_t i = 0; i < parameters; ++i) Tensor(info->add_parameters());
    for (size_t i = 0; i < results; ++i) Tensor(info->add_results());
    for (size_t i = 0; donates && i < parameters; ++i) info->add_donated(static_cast<uint32_t>(i));
    Step(std::move(event));
  }

  controller::Actions actions;
  uint64_t ordinal = 0;

 private:
  static void Tensor(wire::TensorSpec* spec) {
    spec->set_element_type(11);
    spec->add_shard_dims(2);
    spec->set_shard_bytes(8);
  }
  static controller::ControllerConfig ConfigOf(size_t devices) {
    controller::ControllerConfig config;
    config.program_reach = controller::Reach::kCluster;
    config.pending_nodes_max = 1 << 20;
    for (uint32_t island : {0, 1}) {
      wire::Worker worker;
      worker.set_island(island);
      for (size_t device = island; device < std::max<size_t>(devices, 2); device += 2)
        worker.add_devices(static_cast<uint32_t>(device));
      config.workers.push_back(std::move(worker));
    }
    return config;
  }

  const size_t devices_;
  controller::Controller controller_;
  wire::SessionBatch batch_;
  controller::Time now_ = controller::Time() + std::chrono::hours(1);
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_COST_TEST_UTIL_H_
