// Implementation of each_device.h.
#include "gangway/device/each_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::device {
namespace {

class OnEach final : public Executable {
 public:
  OnEach(std::vector<int> devices, std::vector<std::unique_ptr<Executable>> loaded)
      : devices_(std::move(devices)), loaded_(std::move(loaded)) {}

  std::string_view name() const override { return loaded_[0]->name(); }
  int num_replicas() const override { return static_cast<int>(devices_.size()); }
  int num_partitions() const override { return 1; }
  std::span<const int> devices() const override { return devices_; }
  std::span<const ArraySpec> outputs() const override { return loaded_[0]->outputs(); }
  absl::StatusOr<MemoryStats> GetMemoryStats() const override {
    return loaded_[0]->GetMemoryStats();
  }
  absl::StatusOr<std::vector<std::pair<std::string, double>>> GetCostAnalysis() const override {
    return loaded_[0]->GetCostAnalysis();
  }
  absl::StatusOr<std::string> Serialize() const override { return loaded_[0]->Serialize(); }
  absl::StatusOr<std::string> OptimizedProgram() const override {
    return loaded_[0]->OptimizedProgram();
  }

  absl::StatusOr<std::vector<std::unique_ptr<Buffer>>> ExecuteOn(
      int device, std::span<Buffer* const> arguments, const ExecuteOptions& options,
      StatusCallback on_complete) override {
    const auto at = std::ranges::find(devices_, device);
    if (at == devices_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(name()), " is not loaded on local device ", device));
    }
    return loaded_[at - devices_.begin()]->ExecuteOn(device, arguments, options,
                                                     std::move(on_complete));
  }

 private:
  const std::vector<int> devices_;
  const std::vector<std::unique_ptr<Executable>> loaded_;  // by index in devices_
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executable>> LoadOnEach(Backend& backend,
                                                       std::string_view serialized,
                                                       std::span<const int> devices) {
  if (devices.empty()) return absl::InvalidArgumentError("a program is loaded on no device");
  std::vector<std::unique_ptr<Executable>> loaded;
  for (const int& device : devices) {
    GANGWAY_ASSIGN_OR_RETURN(auto executable, backend.Load(serialized, {&device, 1}));
    loaded.push_back(std::move(executable));
  }
  return std::make_unique<OnEach>(std::vector<int>(devices.begin(), devices.end()),
                                  std::move(loaded));
}

}  // namespace gangway::device
