// Executables of a PJRT plugin: compile, load, describe, serialize, execute. Internal to
// device/pjrt. Immutable, so thread-safe.
//
// Serialized form: an envelope with the plugin's bytes and the compile options. To load on other
// devices, the plugin needs the same options with another device assignment.
#ifndef GANGWAY_DEVICE_PJRT_PJRT_EXECUTABLE_H_
#define GANGWAY_DEVICE_PJRT_PJRT_EXECUTABLE_H_

#include <memory>
#include <string>
#include <vector>

#include "gangway/device/device.h"
#include "gangway/device/pjrt/pjrt_client.h"

namespace gangway::device {

class PjrtExecutable final : public Executable {
 public:
  static absl::StatusOr<std::unique_ptr<Executable>> Compile(
      std::shared_ptr<const PjrtClient> client, const Program& program,
      std::string_view compile_options, std::span<const int> devices);
  static absl::StatusOr<std::unique_ptr<Executable>> Load(std::shared_ptr<const PjrtClient> client,
                                                          std::string_view serialized,
                                                          std::span<const int> devices);
  ~PjrtExecutable() override;

  std::string_view name() const override { return name_; }
  int num_replicas() const override { return num_replicas_; }
  int num_partitions() const override { return num_partitions_; }
  std::span<const int> devices() const override { return devices_; }
  std::span<const ArraySpec> outputs() const override { return *outputs_; }
  std::span<const std::string> output_memory_kinds() const override { return memory_kinds_; }
  absl::StatusOr<MemoryStats> GetMemoryStats() const override;
  absl::StatusOr<std::vector<std::pair<std::string, double>>> GetCostAnalysis() const override;
  absl::StatusOr<std::string> Serialize() const override;
  absl::StatusOr<std::string> OptimizedProgram() const override;
  absl::StatusOr<std::vector<std::unique_ptr<Buffer>>> ExecuteOn(
      int device, std::span<Buffer* const> arguments, const ExecuteOptions& options,
      StatusCallback on_complete) override;

 private:
  PjrtExecutable(std::shared_ptr<const PjrtClient> client, PJRT_LoadedExecutable* loaded,
                 std::string compile_options, std::vector<int> devices)
      : client_(std::move(client)),
        loaded_(loaded),
        compile_options_(std::move(compile_options)),
        devices_(std::move(devices)) {}
  absl::Status Describe();
  absl::Status DescribeOutputs();
  absl::Status DescribeMemoryKinds();
  absl::Status CheckArguments(int device, std::span<Buffer* const> arguments) const;

  const std::shared_ptr<const PjrtClient> client_;
  PJRT_LoadedExecutable* const loaded_;
  const std::string compile_options_;  // with the device assignment of devices_
  const std::vector<int> devices_;
  PJRT_Executable* executable_ = nullptr;
  std::string name_;
  int num_replicas_ = 1;
  int num_partitions_ = 1;
  std::shared_ptr<const std::vector<ArraySpec>> outputs_;  // shared with the output buffers
  std::vector<std::string> memory_kinds_;
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_PJRT_EXECUTABLE_H_
