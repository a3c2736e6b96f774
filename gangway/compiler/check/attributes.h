// Attributes that every instruction may have: shardings, frontend attributes, notes. Internal to
// gangway/compiler/check.
#ifndef GANGWAY_COMPILER_CHECK_ATTRIBUTES_H_
#define GANGWAY_COMPILER_CHECK_ATTRIBUTES_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/compiler/check/check.h"
#include "gangway/compiler/check/shapes.h"

namespace gangway::compiler {

// More positions than any program has (compiler/partition.h), where their number is not known.
inline constexpr int64_t kPositionsMax = int64_t{1} << 16;
inline constexpr size_t kNameBytesMax = size_t{64} << 10;
inline constexpr size_t kAttributeBytesMax = size_t{1} << 20;
inline constexpr int kAttributesMax = 256;

// The product of the mesh's axes, at most kPositionsMax.
absl::StatusOr<int64_t> CheckMesh(const xla::hlo::Mesh& mesh);
// The product of the named axes, or parts of axes. None may be named twice.
absl::StatusOr<int64_t> CheckAxes(
    const xla::hlo::Mesh& mesh, const google::protobuf::RepeatedPtrField<xla::hlo::AxisRef>& axes);
// 0, 1, ... total - 1, reshaped and transposed.
absl::Status CheckIotaForm(std::span<const int64_t> dims,
                           const google::protobuf::RepeatedField<int32_t>& order, int64_t total);

// How a value of `shape` lies over the positions.
absl::Status CheckSharding(const xla::hlo::Sharding& sharding, const Shape& shape,
                           const Positions& positions, int depth = 0);

// Keys that XLA and Shardy give a meaning have to be known ones; others are for the client's tools.
absl::Status CheckFrontendAttributes(const xla::hlo::FrontendAttributes& attributes);

// `frames`: how many stack frames the module lists.
absl::Status CheckMetadata(const xla::hlo::Metadata& metadata, int frames);

// Not empty, bounded, and without control characters: names reach logs and dumps.
absl::Status CheckName(std::string_view name);

// A name as messages show it.
std::string Shown(std::string_view name);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_ATTRIBUTES_H_
