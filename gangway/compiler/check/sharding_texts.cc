// Implementation of sharding_texts.h.
#include "gangway/compiler/check/sharding_texts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gangway/base/status.h"
#include "gangway/compiler/check/shapes.h"

namespace gangway::compiler {
namespace {

using calls::TextSharding;

void AddLeaves(const Shape& shape, std::vector<const Shape*>& leaves) {
  if (!IsTuple(shape)) leaves.push_back(&shape);
  for (const Shape& part : shape.tuple_shapes()) AddLeaves(part, leaves);
}

absl::Status CheckOne(const TextSharding& sharding, const Shape* array,
                      const Positions& positions) {
  const bool is_known = positions.replicas != 0;
  if (is_known && sharding.mesh.positions != 1 && sharding.mesh.positions != positions.partitions)
    return Bad("its text of shardings is over ", sharding.mesh.positions,
               " positions, and the program has ", positions.partitions);
  if (array != nullptr && !sharding.dims.empty() &&
      static_cast<int64_t>(sharding.dims.size()) != Rank(*array))
    return Bad("its text of shardings has ", sharding.dims.size(), " dimensions, for ",
               Text(*array));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<calls::TextMeshes> MeshesOf(const xla::hlo::Module& module) {
  const auto& attributes = module.frontend_attributes().map();
  const auto found = attributes.find("xla.sdy.meshes");
  if (found == attributes.end()) return calls::TextMeshes();
  return calls::ParseMeshes(found->second);
}

absl::Status CheckShardingTexts(const xla::hlo::Instruction& self, const calls::TextMeshes& meshes,
                                const Positions& positions) {
  const auto& attributes = self.frontend_attributes().map();
  if (const auto own = attributes.find("xla.sdy.sharding"); own != attributes.end()) {
    GANGWAY_ASSIGN_OR_RETURN(const auto shardings, calls::ParseShardingsOf(own->second, meshes));
    // XLA's converter also writes the text of an operation with several results at each of its parts.
    const bool is_part = self.opcode() == "get-tuple-element";
    std::vector<const Shape*> leaves;
    if (!is_part) AddLeaves(self.shape(), leaves);
    // A result without arrays still has one sharding, of the device that yields it.
    if (!is_part && shardings.size() != std::max<size_t>(leaves.size(), 1))
      return Bad("its text has ", shardings.size(), " shardings, for ", Text(self.shape()));
    for (size_t i = 0; i < shardings.size(); ++i)
      GANGWAY_RETURN_IF_ERROR(
          CheckOne(shardings[i], i < leaves.size() ? leaves[i] : nullptr, positions));
  }
  for (const char* key : {"xla.sdy.in_shardings", "xla.sdy.out_shardings"}) {
    const auto found = attributes.find(key);
    if (found == attributes.end()) continue;
    GANGWAY_ASSIGN_OR_RETURN(const auto shardings, calls::ParseShardingsOf(found->second, meshes));
    for (const TextSharding& each : shardings)
      GANGWAY_RETURN_IF_ERROR(CheckOne(each, nullptr, positions));
  }
  const auto axes = attributes.find("xla.sdy.manual_axes");
  return axes == attributes.end() ? absl::OkStatus()
                                  : calls::ParseManualAxes(axes->second).status();
}

}  // namespace gangway::compiler
