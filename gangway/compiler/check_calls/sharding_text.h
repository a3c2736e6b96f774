// The shardings of Shardy, which XLA carries as text in frontend attributes of the calls that change shapes, and the
// meshes that they name. Pure, on untrusted bytes.
#ifndef GANGWAY_COMPILER_CHECK_CALLS_SHARDING_TEXT_H_
#define GANGWAY_COMPILER_CHECK_CALLS_SHARDING_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gangway::compiler::calls {

inline constexpr size_t kShardingTextBytesMax = size_t{256} << 10;
inline constexpr size_t kMeshAxesMax = 64;
inline constexpr int64_t kMeshPositionsMax = int64_t{1} << 16;

struct TextMesh {
  std::map<std::string, int64_t> axes;  // with their sizes, each at least 1
  int64_t positions = 1;                // the product of the sizes, at most kMeshPositionsMax
};

using TextMeshes = std::map<std::string, TextMesh, std::less<>>;

// An axis by which a dimension is cut, or a part of one.
struct AxisUse {
  std::string axis;
  int64_t size = 1;
};

struct TextSharding {
  TextMesh mesh;
  std::vector<std::vector<AxisUse>> dims;
};

// Errors of all: INVALID_ARGUMENT, with the reason. No axis is used twice, unless by parts.

// {mesh = #sdy.mesh<["a"=2, "b"=4]>, ...}
absl::StatusOr<TextMeshes> ParseMeshes(std::string_view text);

// #sdy.sharding_per_value<[<@mesh, [{"a"}, {}]>, ...]>
absl::StatusOr<std::vector<TextSharding>> ParseShardings(std::string_view text,
                                                         const TextMeshes& meshes);

// The same, or that of one array: #sdy.sharding<@mesh, [{"a"}, {}]>
absl::StatusOr<std::vector<TextSharding>> ParseShardingsOf(std::string_view text,
                                                           const TextMeshes& meshes);

// #sdy<manual_axes{"a", "b"}>
absl::StatusOr<std::vector<std::string>> ParseManualAxes(std::string_view text);

}  // namespace gangway::compiler::calls

#endif  // GANGWAY_COMPILER_CHECK_CALLS_SHARDING_TEXT_H_
