// Implementation of pjrt_backend.h.
#include "gangway/device/pjrt/pjrt_backend.h"

#include "gangway/base/lasting_error.h"
#include "gangway/base/status.h"
#include "gangway/device/pjrt/pjrt_buffer.h"
#include "gangway/device/pjrt/pjrt_client.h"
#include "gangway/device/pjrt/pjrt_executable.h"
#include "gangway/device/pjrt/pjrt_ffi.h"

namespace gangway::device {
namespace {

class PjrtBackend final : public Backend {
 public:
  explicit PjrtBackend(std::shared_ptr<const PjrtClient> client) : client_(std::move(client)) {}

  const Capabilities& capabilities() const override { return client_->capabilities(); }
  std::span<const DeviceInfo> devices() const override { return client_->devices(); }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program,
                                                      std::string_view compile_options,
                                                      std::span<const int> devices) override {
    return PjrtExecutable::Compile(client_, program, compile_options, devices);
  }

  absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view serialized,
                                                   std::span<const int> devices) override {
    return PjrtExecutable::Load(client_, serialized, devices);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> BufferFromHost(int device, std::string_view memory_kind,
                                                         const ArraySpec& spec,
                                                         std::span<const std::byte> bytes,
                                                         HostSemantics semantics,
                                                         StatusCallback on_done) override {
    return PjrtBufferFromHost(client_, device, memory_kind, spec, bytes, semantics,
                              std::move(on_done));
  }

  absl::StatusOr<Placeholder> CreatePlaceholder(int device, const ArraySpec& spec) override {
    return CreatePjrtPlaceholder(client_, device, spec);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> CreateErrorBuffer(int device, const ArraySpec& spec,
                                                            absl::Status error) override {
    GANGWAY_ASSIGN_OR_RETURN(Placeholder placeholder, CreatePjrtPlaceholder(client_, device, spec));
    GANGWAY_RETURN_IF_ERROR(placeholder.filler->Fail(std::move(error)));
    return std::move(placeholder.buffer);
  }

  absl::StatusOr<std::shared_ptr<void>> PinHostMemory(std::span<std::byte> memory) override {
    if (!capabilities().pins_host_memory) return Backend::PinHostMemory(memory);
    PJRT_Client_DmaMap_Args map{};
    map.client = client_->client();
    map.data = memory.data();
    map.size = memory.size();
    GANGWAY_RETURN_IF_ERROR(client_->api().Call(&PJRT_Api::PJRT_Client_DmaMap, map));
    return std::shared_ptr<void>(memory.data(), [client = client_](void* data) {
      PJRT_Client_DmaUnmap_Args unmap{};
      unmap.client = client->client();
      unmap.data = data;
      (void)client->api().Call(&PJRT_Api::PJRT_Client_DmaUnmap, unmap);
    });
  }

  absl::Status RegisterFfiHandlers(std::span<const FfiHandler> handlers) override {
    return RegisterPjrtFfiHandlers(client_, handlers);
  }

 private:
  const std::shared_ptr<const PjrtClient> client_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> OpenPjrt(const PjrtOptions& options) {
  absl::StatusOr<std::shared_ptr<PjrtClient>> client = PjrtClient::Open(options);
  if (client.ok()) return std::make_unique<PjrtBackend>(*std::move(client));
  const absl::Status& error = client.status();
  const bool lasts = absl::IsFailedPrecondition(error) || absl::IsInvalidArgument(error) ||
                     absl::IsNotFound(error);
  return lasts ? Lasting(error) : error;
}

}  // namespace gangway::device
