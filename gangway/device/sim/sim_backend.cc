// Implementation of sim_backend.h.
#include "gangway/device/sim/sim_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/status.h"
#include "gangway/device/element_type.h"
#include "gangway/device/sim/sim_buffer.h"
#include "gangway/device/sim/sim_engine.h"
#include "gangway/device/sim/sim_executable.h"
#include "gangway/device/sim/sim_program.h"

namespace gangway::device {
namespace {

class SimBackendImpl final : public SimBackend {
 public:
  explicit SimBackendImpl(SimOptions options)
      : timer_(options.timer ? std::move(options.timer) : std::make_shared<RealSimTimer>()),
        memory_(std::make_shared<SimMemory>(options.device_count, std::move(options.on_use))),
        engine_(std::make_shared<SimEngine>(options, timer_)) {
    capabilities_.platform = "sim";
    capabilities_.platform_version = "gangway simulated accelerator 1";
    capabilities_.api_version = "sim 1";
    capabilities_.inflight_max = options.inflight_max;
    capabilities_.programs = Capabilities::Programs::kDeclared;
    capabilities_.executes_inline = true;
    capabilities_.collectives.block_threads = options.collectives_block_threads;
    for (int i = 0; i < options.device_count; ++i) {
      devices_.push_back({.local_index = i,
                          .runtime_id = i,
                          .kind = "sim",
                          .memory_kinds = {std::string(kSimMemoryKind)},
                          .memory_bytes = options.memory_bytes});
    }
  }
  ~SimBackendImpl() override { engine_->Close(); }

  const Capabilities& capabilities() const override { return capabilities_; }
  std::span<const DeviceInfo> devices() const override { return devices_; }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program, std::string_view,
                                                      std::span<const int> devices) override {
    if (program.format != "sim") {
      return absl::InvalidArgumentError(
          absl::StrCat("simulated devices run programs of format 'sim', not '",
                       std::string(program.format), "'; a cluster without --simulate runs those"));
    }
    GANGWAY_ASSIGN_OR_RETURN(SimProgram parsed, ParseSimProgram(program.code));
    return SimExecutable::Place(engine_, memory_, device_count(), std::move(parsed), devices);
  }

  absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view serialized,
                                                   std::span<const int> devices) override {
    GANGWAY_ASSIGN_OR_RETURN(SimProgram parsed, ReadSerializedSim(serialized));
    return SimExecutable::Place(engine_, memory_, device_count(), std::move(parsed), devices);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> BufferFromHost(int device, std::string_view memory_kind,
                                                         const ArraySpec& spec,
                                                         std::span<const std::byte> bytes,
                                                         HostSemantics,
                                                         StatusCallback on_done) override {
    GANGWAY_RETURN_IF_ERROR(CheckSimPlace(device, device_count(), memory_kind));
    GANGWAY_ASSIGN_OR_RETURN(Placeholder placeholder, CreatePlaceholder(device, spec));
    GANGWAY_RETURN_IF_ERROR(placeholder.filler->Fill(bytes, std::move(on_done)));
    return std::move(placeholder.buffer);
  }

  absl::StatusOr<Placeholder> CreatePlaceholder(int device, const ArraySpec& spec) override {
    GANGWAY_RETURN_IF_ERROR(CheckSimPlace(device, device_count(), ""));
    const std::optional<size_t> bytes = HostBytes(spec);
    if (!bytes) return CheckSimSize(spec, 0);
    auto storage = std::make_shared<SimStorage>(memory_->Take(device, *bytes));
    Placeholder placeholder;
    placeholder.buffer = std::make_unique<SimBuffer>(device, device_count(), spec, storage);
    placeholder.filler = std::make_unique<SimFiller>(spec, std::move(storage), timer_);
    return placeholder;
  }

  absl::StatusOr<std::unique_ptr<Buffer>> CreateErrorBuffer(int device, const ArraySpec& spec,
                                                            absl::Status error) override {
    GANGWAY_ASSIGN_OR_RETURN(Placeholder placeholder, CreatePlaceholder(device, spec));
    GANGWAY_RETURN_IF_ERROR(placeholder.filler->Fail(std::move(error)));
    return std::move(placeholder.buffer);
  }

  absl::Status RegisterFfiHandlers(std::span<const FfiHandler>) override {
    return absl::UnimplementedError("simulated devices run no FFI handlers");
  }

  void Inject(SimFault fault) override { engine_->Inject(std::move(fault)); }
  void ReleaseHung() override { engine_->ReleaseHung(); }
  int64_t BusyMicros(int device) const override {
    GANGWAY_CHECK(device >= 0 && device < device_count(),
                  "BusyMicros of a device that does not exist");
    return engine_->BusyMicros(device);
  }

 private:
  int device_count() const { return static_cast<int>(devices_.size()); }

  const std::shared_ptr<SimTimer> timer_;
  const std::shared_ptr<SimMemory> memory_;
  const std::shared_ptr<SimEngine> engine_;
  Capabilities capabilities_;
  std::vector<DeviceInfo> devices_;
};

}  // namespace

std::unique_ptr<SimBackend> OpenSim(SimOptions options) {
  return std::make_unique<SimBackendImpl>(std::move(options));
}

}  // namespace gangway::device
