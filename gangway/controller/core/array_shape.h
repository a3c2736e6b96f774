// What each shard of an array is, shared by all arrays of the same making. Pure.
#ifndef GANGWAY_CONTROLLER_CORE_ARRAY_SHAPE_H_
#define GANGWAY_CONTROLLER_CORE_ARRAY_SHAPE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gangway::controller {

struct ArrayShape {
  int32_t element_type = 0;
  std::vector<int64_t> shard_dims;
  uint64_t shard_bytes = 0;
  std::string memory_kind;
};
using ArrayShapeRef = std::shared_ptr<const ArrayShape>;

// From a wire::ArraySpec or wire::TensorSpec.
template <typename Spec>
ArrayShapeRef ShapeOf(const Spec& spec) {
  return std::make_shared<const ArrayShape>(
      ArrayShape{.element_type = spec.element_type(),
                 .shard_dims = {spec.shard_dims().begin(), spec.shard_dims().end()},
                 .shard_bytes = spec.shard_bytes(),
                 .memory_kind = spec.memory_kind()});
}

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_ARRAY_SHAPE_H_
