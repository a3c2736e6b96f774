// Implementation of linalg_handlers.h.
#include "gangway/device/pjrt/linalg/linalg_handlers.h"

#include <spdlog/spdlog.h>

#include <string>

#include "absl/strings/str_cat.h"

#include "gangway/device/pjrt/linalg/custom_call.h"
#include "gangway/device/pjrt/linalg/openblas.h"

namespace gangway::device {

HandlerGroup LinalgHandlers(const Capabilities& capabilities) {
  HandlerGroup group{"that call LAPACK (jnp.linalg on CPU does)", {}};
  if (capabilities.ffi_handlers != Capabilities::FfiHandlers::kHostMemory) return group;
  const absl::Status loaded = linalg::LoadOpenBlas(linalg::DefaultOpenBlasPath());
  if (!loaded.ok()) {
    spdlog::warn("This process rejects programs {}: {}", group.programs,
                 std::string(loaded.message()));
    return group;
  }
  linalg::AddFactorizations(group.handlers);
  linalg::AddSolvers(group.handlers);
  linalg::AddSingularValues(group.handlers);
  linalg::AddSymmetricEigenvalues(group.handlers);
  linalg::AddGeneralEigenvalues(group.handlers);
  return group;
}

}  // namespace gangway::device
