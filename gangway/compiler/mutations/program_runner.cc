// Implementation of program_runner.h.
#include "gangway/compiler/mutations/program_runner.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/check.h"
#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/collective/execution/collective_call.h"
#include "gangway/collective/execution/plan.h"
#include "gangway/compiler/mutations/random_bytes.h"
#include "gangway/device/element_type.h"
#include "gangway/device/pjrt/host_call.h"
#include "gangway/device/pjrt/position_call.h"

namespace gangway::compiler {
namespace {

using collective::LocalDevice;

constexpr uint32_t kWorkers = 2;
constexpr uint32_t kDevicesOfWorker = kRunnerDevices / kWorkers;
constexpr std::chrono::seconds kRunLimit{10};
constexpr std::chrono::seconds kWaitLimit{5};  // of a member for others
// Of all positions. In a cluster, admission keeps programs out that need more than their device has.
constexpr uint64_t kBytesMax = uint64_t{256} << 20;
constexpr uint64_t kArgumentBytesMax = uint64_t{16} << 20;

// The client that a program calls.
class AnyClient final : public device::HostCallReceiver {
 public:
  explicit AnyClient(uint32_t seed) : random_(seed) {}

  absl::Status OnHostCall(const device::HostCall& call) override {
    MutexLock lock(mutex_);
    for (const auto& operand : call.operands) Take(operand);
    for (const auto& result : call.results)
      std::ranges::generate(result, [&]() GANGWAY_NO_ANALYSIS { return std::byte(random_()); });
    return random_() % 16 == 0 ? absl::AbortedError("the function failed") : absl::OkStatus();
  }

 private:
  // Reads each byte, so that a sanitizer sees those that are not the operand's.
  void Take(std::span<const std::byte> operand) GANGWAY_REQUIRES(mutex_) {
    random_.seed(std::accumulate(
        operand.begin(), operand.end(), static_cast<uint32_t>(random_()),
        [](uint32_t sum, std::byte each) { return sum * 31 + static_cast<uint32_t>(each); }));
  }

  Mutex mutex_;
  std::mt19937 random_ GANGWAY_GUARDED_BY(mutex_);
};

bool IsSmall(const wire::ExecutableInfo& info, uint32_t positions) {
  uint64_t arguments = 0;
  for (const auto& each : info.parameters()) arguments += each.shard_bytes();
  const wire::MemoryStats& memory = info.memory();
  return arguments <= kArgumentBytesMax / positions &&
         memory.argument_bytes() <= kBytesMax / positions &&
         memory.output_bytes() <= kBytesMax / positions &&
         memory.temp_bytes() <= kBytesMax / positions;
}

std::shared_ptr<collective::Arena> MapOf(const collective::Arena& arena) {
  auto mapped = collective::Arena::Map(
      FileDescriptor(fcntl(arena.descriptor(), F_DUPFD_CLOEXEC, 0)), kDevicesOfWorker);
  GANGWAY_CHECK(mapped.ok(), "a worker's arena can be mapped");
  return *std::move(mapped);
}

}  // namespace

// One run of a program. Callbacks of the runtime hold it, too.
struct ProgramRunner::Execution {
  struct Position {
    std::vector<std::unique_ptr<device::Buffer>> arguments, results;
    std::shared_ptr<LocalDevice> device;  // once it takes part in collectives
    Answer<absl::Status> ended;
    Thread thread;
  };

  void End(uint32_t position, const absl::Status& status) {
    const auto device = static_cast<int>(position);
    if (!status.ok())
      for (const auto& launch : launches) launch->Abort(status);
    collective::SetMember(launch_id, device, nullptr);
    device::SetPosition(launch_id, device, std::nullopt);
    device::ReceiveHostCalls(launch_id, device, nullptr);
    Position& own = positions[position];
    if (own.device != nullptr)
      own.device->Leave(static_cast<uint64_t>(launch_id),
                        status.ok() ? LocalDevice::Ending::kUnread : LocalDevice::Ending::kEarly);
    own.ended.Set(status);
  }

  // Waits for all positions; nothing, if one does not end.
  std::optional<absl::Status> Wait() {
    absl::Status first;
    const Clock::time_point deadline = Clock::now() + kRunLimit;
    for (Position& each : positions) {
      const auto status = each.ended.WaitFor(
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()));
      if (!status) return std::nullopt;
      if (first.ok()) first = *status;
    }
    for (Position& each : positions) each.thread.Join();
    return first;
  }

  int32_t launch_id = 0;
  wire::CompileResult compiled;
  std::shared_ptr<const collective::Plan> plan;  // null: the program has no collectives
  std::vector<std::shared_ptr<collective::Launch>> launches;  // by worker, with a plan
  std::shared_ptr<device::Executable> executable;
  std::vector<Position> positions;
};

ProgramRunner::ProgramRunner(device::Backend& backend) : backend_(backend), peers_(kWorkers) {
  GANGWAY_CHECK(backend.devices().size() == kRunnerDevices, "each position has a device");
  std::vector<std::shared_ptr<collective::Arena>> arenas;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    auto arena = collective::Arena::Create(kDevicesOfWorker);
    GANGWAY_CHECK(arena.ok(), "there is memory for an arena");
    arenas.push_back(*std::move(arena));
    for (uint32_t device = 0; device < kDevicesOfWorker; ++device)
      devices_.push_back(std::make_shared<LocalDevice>(arenas.back(), worker, device,
                                                       std::make_shared<collective::Couriers>()));
  }
  for (uint32_t worker = 0; worker < kWorkers; ++worker)
    for (uint32_t other = 0; other < kWorkers; ++other)
      peers_[worker].push_back(std::make_shared<collective::Peer>(
          absl::StrCat("worker", other), other,
          other == worker ? arenas[other] : MapOf(*arenas[other])));
}

ProgramRunner::~ProgramRunner() = default;

absl::Status ProgramRunner::Start(const std::shared_ptr<Execution>& execution, uint32_t position,
                                  std::mt19937& random) {
  Execution::Position& own = execution->positions[position];
  const auto device = static_cast<int>(position);
  for (const wire::TensorSpec& parameter : execution->compiled.info().parameters()) {
    device::ArraySpec spec{.element_type = parameter.element_type(),
                           .dims = {parameter.shard_dims().begin(), parameter.shard_dims().end()}};
    const auto bytes = device::HostBytes(spec);
    if (!bytes) return absl::InvalidArgumentError("no array has the form of a parameter");
    const std::string text = RandomBytes(*bytes, random);
    GANGWAY_ASSIGN_OR_RETURN(
        auto buffer, backend_.BufferFromHost(
                         device, parameter.memory_kind(), spec, std::as_bytes(std::span(text)),
                         device::HostSemantics::kCopyDuringCall, [](const absl::Status&) {}));
    own.arguments.push_back(std::move(buffer));
  }
  const auto partitions = std::max(uint32_t{1}, execution->compiled.positions().partitions());
  device::SetPosition(execution->launch_id, device,
                      device::LogicalPosition{.replica = position / partitions,
                                              .partition = position % partitions});
  device::ReceiveHostCalls(execution->launch_id, device,
                           std::make_shared<AnyClient>(static_cast<uint32_t>(random())));
  if (execution->plan == nullptr) return absl::OkStatus();
  own.device = devices_[position];
  collective::SetMember(
      execution->launch_id, device,
      std::make_shared<collective::Member>(execution->launches[position / kDevicesOfWorker],
                                           own.device, position));
  own.device->Enter(static_cast<uint64_t>(execution->launch_id));
  return absl::OkStatus();
}

Outcome ProgramRunner::Run(const wire::CompileResult& compiled, uint32_t positions,
                           std::mt19937& random) {
  if (!IsSmall(compiled.info(), positions)) return Outcome::kNotRun;
  auto execution = std::make_shared<Execution>();
  execution->launch_id = ++launches_;
  execution->compiled = compiled;
  std::string serialized = compiled.serialized();
  if (compiled.has_positions()) {
    auto unpacked = collective::Unpack(serialized, positions);
    if (!unpacked.ok()) return Outcome::kNotCompiled;
    execution->plan = std::move(unpacked->plan);
    serialized = std::move(unpacked->executable);
  }
  std::vector<int> devices(positions);
  std::iota(devices.begin(), devices.end(), 0);
  auto loaded = backend_.Load(serialized, devices);
  if (!loaded.ok()) return Outcome::kNotCompiled;
  execution->executable = *std::move(loaded);
  for (uint32_t worker = 0; execution->plan != nullptr && worker < kWorkers; ++worker) {
    std::vector<collective::PeerDevice> members;
    for (uint32_t i = 0; i < positions; ++i)
      members.push_back({peers_[worker][i / kDevicesOfWorker], i % kDevicesOfWorker});
    const auto name = static_cast<uint64_t>(execution->launch_id);
    execution->launches.push_back(collective::Launch::Begin(
        execution->plan, std::make_shared<const collective::PeerDevices>(std::move(members)),
        {.order = name, .ordinal = name}, kWaitLimit));
  }
  execution->positions = std::vector<Execution::Position>(positions);
  std::vector<absl::Status> started;
  for (uint32_t i = 0; i < positions; ++i) started.push_back(Start(execution, i, random));
  for (uint32_t i = 0; i < positions; ++i) {
    // A small program runs inside ExecuteOn, and may have no end.
    execution->positions[i].thread = Thread("position", [execution, i, start = started[i]] {
      if (!start.ok()) return execution->End(i, start);
      Execution::Position& own = execution->positions[i];
      std::vector<device::Buffer*> arguments;
      for (const auto& each : own.arguments) arguments.push_back(each.get());
      auto results = execution->executable->ExecuteOn(
          static_cast<int>(i), arguments, {.launch_id = execution->launch_id},
          [execution, i](const absl::Status& status) { execution->End(i, status); });
      if (!results.ok()) return execution->End(i, results.status());
      own.results = *std::move(results);
    });
  }
  const auto status = execution->Wait();
  if (!status) {
    new std::shared_ptr<Execution>(execution);  // threads use it until the process ends
    return Outcome::kEndless;
  }
  return status->ok() ? Outcome::kRan : Outcome::kFailed;
}

}  // namespace gangway::compiler
