// Implementation of the public header cluster.h, but for Connect.
#include "gangway/cluster.h"

#include <utility>

#include "gangway/client/api/array_state.h"
#include "gangway/client/api/elements.h"
#include "gangway/client/api/function_state.h"
#include "gangway/client/api/session.h"

namespace gangway {

const ClusterInfo& Cluster::info() const { return session_->client().cluster(); }

Array Cluster::PutBytes(std::span<const std::byte> bytes, ElementType type, const Shape& shape,
                        const Sharding& sharding) const {
  return api::PutElements(session_, bytes, type, shape, sharding);
}

Result<Function> Cluster::Compile(std::string_view stablehlo, const Mesh& mesh,
                                  const FunctionOptions& options) const {
  return ToResult(api::FunctionState::Compile(session_, std::string(stablehlo), mesh, options));
}

Status Cluster::Wait(std::span<const Array> arrays) const {
  std::vector<ArrayHandle> handles;
  for (const Array& array : arrays) {
    const api::ArrayState* const state = api::ArrayState::Of(array);
    if (absl::Status status = api::CheckHasElements(state); !status.ok()) return status;
    if (state->session() != session_) {
      if (Status status = array.Wait(); !status.ok()) return status;
      continue;
    }
    handles.push_back(state->handle());
  }
  return session_->Await(handles);
}

}  // namespace gangway
