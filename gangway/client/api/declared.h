// What the caller of Cluster::Compile declares about shardings, against what the compiler made of the text. Pure.
#ifndef GANGWAY_CLIENT_API_DECLARED_H_
#define GANGWAY_CLIENT_API_DECLARED_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/client/api/array_state.h"
#include "gangway/client/client.h"
#include "gangway/client/include/gangway/function.h"

namespace gangway::api {

// The serialized xla.CompileOptionsProto of a function for this mesh. INVALID_ARGUMENT: a declared sharding makes no
// sense, or is over other devices than the mesh.
absl::StatusOr<std::string> CompileOptionsOf(std::string_view stablehlo, const Mesh& mesh,
                                             const FunctionOptions& options);

// The types of the results. INVALID_ARGUMENT naming the parameter or result: a missing declaration, too many of them,
// or one that the partitioned function does not agree with.
absl::StatusOr<std::vector<ArrayTypeRef>> ResultTypes(const ExecutableInfo& info, const Mesh& mesh,
                                                      const FunctionOptions& options);

}  // namespace gangway::api

#endif  // GANGWAY_CLIENT_API_DECLARED_H_
