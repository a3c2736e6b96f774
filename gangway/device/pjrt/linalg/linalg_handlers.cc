// Implementation of linalg_handlers.h.
#include "gangway/device/pjrt/linalg/linalg_handlers.h"

#include <spdlog/spdlog.h>

#include <string>

#include "absl/strings/str_cat.h"

#include "gangway/device/pjrt/linalg/custom_call.h"
#include "gangway/device/pjrt/linalg/openblas.h"

namespace gangway::device {

const std::vector<FfiHandler>& LinalgHandlers() {
  static const auto* const all = [] {
    auto* handlers = new std::vector<FfiHandler>();
    linalg::AddFactorizations(*handlers);
    linalg::AddSolvers(*handlers);
    linalg::AddSingularValues(*handlers);
    linalg::AddSymmetricEigenvalues(*handlers);
    linalg::AddGeneralEigenvalues(*handlers);
    return handlers;
  }();
  return *all;
}

absl::Status RegisterLinalgHandlers(Backend& backend) {
  if (!backend.capabilities().ffi_handlers) {
    return absl::UnimplementedError(
        absl::StrCat("platform ", backend.capabilities().platform, " has no FFI handlers"));
  }
  absl::Status loaded = linalg::LoadOpenBlas(linalg::DefaultOpenBlasPath());
  return loaded.ok() ? backend.RegisterFfiHandlers(LinalgHandlers()) : loaded;
}

void OfferLinalg(Backend& backend) {
  const absl::Status status = RegisterLinalgHandlers(backend);
  if (status.ok()) return;
  // A platform without FFI handlers is expected, not a fault.
  const bool expected = absl::IsUnimplemented(status);
  spdlog::log(expected ? spdlog::level::info : spdlog::level::warn,
              "This process rejects programs that call LAPACK (jnp.linalg on CPU does): {}",
              std::string(status.message()));
}

}  // namespace gangway::device
