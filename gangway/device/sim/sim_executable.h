// A sim program loaded on simulated devices. Internal to device/sim. Immutable, so thread-safe.
#ifndef GANGWAY_DEVICE_SIM_SIM_EXECUTABLE_H_
#define GANGWAY_DEVICE_SIM_SIM_EXECUTABLE_H_

#include <memory>
#include <string>
#include <vector>

#include "gangway/device/device.h"
#include "gangway/device/sim/sim_engine.h"
#include "gangway/device/sim/sim_program.h"

namespace gangway::device {

class SimExecutable final : public Executable {
 public:
  // `device_count` is the backend's. INVALID_ARGUMENT: `devices` is not one distinct existing device per partition or,
  // of a program with collectives of Gangway's own, for some of them.
  static absl::StatusOr<std::unique_ptr<Executable>> Place(std::shared_ptr<SimEngine> engine,
                                                           std::shared_ptr<SimMemory> memory,
                                                           int device_count, SimProgram program,
                                                           std::span<const int> devices);

  std::string_view name() const override { return program_->name; }
  int num_replicas() const override { return 1; }
  int num_partitions() const override { return program_->partitions; }
  std::span<const int> devices() const override { return devices_; }
  std::span<const ArraySpec> outputs() const override { return program_->outputs; }
  absl::StatusOr<MemoryStats> GetMemoryStats() const override;
  absl::StatusOr<std::vector<std::pair<std::string, double>>> GetCostAnalysis() const override;
  absl::StatusOr<std::string> Serialize() const override;
  absl::StatusOr<std::string> OptimizedProgram() const override { return HloOf(*program_); }
  absl::StatusOr<std::vector<std::unique_ptr<Buffer>>> ExecuteOn(
      int device, std::span<Buffer* const> arguments, const ExecuteOptions& options,
      StatusCallback on_complete) override;

 private:
  SimExecutable(std::shared_ptr<SimEngine> engine, std::shared_ptr<SimMemory> memory,
                int device_count, SimProgram program, std::vector<int> devices);
  absl::Status CheckArguments(int device, std::span<Buffer* const> arguments) const;

  const std::shared_ptr<SimEngine> engine_;
  const std::shared_ptr<SimMemory> memory_;
  const int device_count_;
  const uint64_t id_;  // unique in this process; part of a gang's key
  const std::shared_ptr<const SimProgram> program_;
  const std::vector<int> devices_;
};

// The program inside Serialize()'s bytes.
absl::StatusOr<SimProgram> ReadSerializedSim(std::string_view serialized);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_SIM_SIM_EXECUTABLE_H_
