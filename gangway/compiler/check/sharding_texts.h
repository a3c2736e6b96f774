// What an instruction's frontend attributes say for Shardy. XLA ends its process where such a text is malformed, or
// names a mesh that the module does not have. Internal to gangway/compiler/check.
#ifndef GANGWAY_COMPILER_CHECK_SHARDING_TEXTS_H_
#define GANGWAY_COMPILER_CHECK_SHARDING_TEXTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/compiler/check/check.h"
#include "gangway/compiler/check_calls/sharding_text.h"
#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {

// The meshes of the module; none without the attribute.
absl::StatusOr<calls::TextMeshes> MeshesOf(const xla::hlo::Module& module);

// Each text parses, names a mesh of the program, and is of the arrays of the instruction's shape.
absl::Status CheckShardingTexts(const xla::hlo::Instruction& self, const calls::TextMeshes& meshes,
                                const Positions& positions);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_SHARDING_TEXTS_H_
