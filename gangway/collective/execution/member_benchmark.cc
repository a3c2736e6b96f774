// A loop of scalar all-reduces between two devices of a worker, which is the most that collectives cost by themselves,
// and the flight recorder's part of it: FlightRecord is what Member::Run adds, two reads of the clock included.
#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "gangway/base/check.h"
#include "gangway/base/thread.h"
#include "gangway/collective/execution/collective_call.h"
#include "gangway/collective/execution/flight_record.h"
#include "gangway/collective/execution/member.h"

namespace gangway::collective {
namespace {

constexpr uint32_t kDevices = 2;
constexpr int kAtOnce = 1000;  // collectives of one launch

std::shared_ptr<const Plan> ScalarSum() {
  xla::CollectiveTable table;
  table.set_replica_count(1);
  table.set_partition_count(kDevices);
  auto& group = *table.add_groups()->add_groups();
  for (uint32_t i = 0; i < kDevices; ++i) group.add_positions(i);
  xla::Collective& sum = *table.add_collectives();
  sum.set_kind(xla::Collective::ALL_REDUCE);
  sum.set_reduction(xla::Collective::SUM);
  sum.set_name("sum");
  auto& operand = *sum.add_operands();
  operand.set_element_type(11);  // F32
  operand.set_outer(1);
  operand.set_piece_bytes(sizeof(float));
  auto plan = Plan::Make(table);
  GANGWAY_CHECK(plan.ok(), "the table is sound");
  return *plan;
}

void RunScalars(Member& member) {
  float value = 1;
  for (int i = 0; i < kAtOnce; ++i) {
    const std::array operand = {std::as_bytes(std::span(&value, 1))};
    const std::array result = {std::as_writable_bytes(std::span(&value, 1))};
    GANGWAY_CHECK(member.Run(0, operand, result).ok(), "no member is missing");
    value *= 0.5F;
  }
}

// The memory of a worker's devices, and where the members of a launch find one another.
struct OneWorker {
  OneWorker() {
    const auto peer = std::make_shared<Peer>("worker0", 0, arena);
    std::vector<PeerDevice> devices;
    for (uint32_t i = 0; i < kDevices; ++i) devices.push_back({peer, i});
    by_position = std::make_shared<const PeerDevices>(std::move(devices));
  }
  std::shared_ptr<LocalDevice> Device(uint32_t index) const {
    return std::make_shared<LocalDevice>(arena, 0, index, couriers);
  }
  static std::shared_ptr<Arena> MakeArena() {
    auto made = Arena::Create(kDevices);
    GANGWAY_CHECK(made.ok(), "two regions fit into memory");
    return *std::move(made);
  }

  const std::shared_ptr<Arena> arena = MakeArena();
  const std::shared_ptr<Couriers> couriers = std::make_shared<Couriers>();
  std::shared_ptr<const PeerDevices> by_position;
};

void BM_ScalarAllReduce(benchmark::State& state) {
  const auto plan = ScalarSum();
  const OneWorker worker;
  std::vector<std::shared_ptr<LocalDevice>> devices;
  for (uint32_t i = 0; i < kDevices; ++i) devices.push_back(worker.Device(i));
  uint64_t gang = 0;
  for (auto _ : state) {
    ++gang;
    auto launch = Launch::Begin(plan, worker.by_position, GangName{gang, gang},
                                std::chrono::milliseconds(60'000));
    for (const auto& device : devices) device->Enter(gang);
    Thread other("other", [&] {
      Member member(launch, devices[1], 1);
      RunScalars(member);
    });
    {
      Member member(launch, devices[0], 0);
      RunScalars(member);
    }
    other.Join();
    for (const auto& device : devices) device->Leave(gang, LocalDevice::Ending::kComplete);
  }
  state.SetItemsProcessed(state.iterations() * kAtOnce);
}
BENCHMARK(BM_ScalarAllReduce)->UseRealTime()->Unit(benchmark::kMicrosecond);

// What a gang costs each device beside its collectives: it is entered and left, and its member is known to the
// runtime's calls. No member waits for the device.
void BM_Entry(benchmark::State& state) {
  const auto plan = ScalarSum();
  const OneWorker worker;
  const auto index = static_cast<uint32_t>(state.thread_index());
  const std::shared_ptr<LocalDevice> device = worker.Device(index);
  uint64_t gang = 0;
  for (auto _ : state) {
    ++gang;
    auto launch = Launch::Begin(plan, worker.by_position, GangName{gang, gang},
                                std::chrono::milliseconds(60'000));
    device->Enter(gang);
    SetMember(static_cast<int32_t>(gang), static_cast<int>(index),
              std::make_shared<Member>(std::move(launch), device, index));
    SetMember(static_cast<int32_t>(gang), static_cast<int>(index), nullptr);
    device->Leave(gang, LocalDevice::Ending::kComplete);
  }
}
BENCHMARK(BM_Entry)->Threads(1)->Threads(2);

void BM_FlightRecord(benchmark::State& state) {
  FlightRecord record(0, 1);
  for (auto _ : state) {
    const Clock::time_point began = Clock::now();
    record.Add(0, began, Clock::now());
  }
}
BENCHMARK(BM_FlightRecord);

}  // namespace
}  // namespace gangway::collective

BENCHMARK_MAIN();
