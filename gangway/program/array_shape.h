// What each shard of an array is, shared by all arrays of the same making. Pure.
#ifndef GANGWAY_PROGRAM_ARRAY_SHAPE_H_
#define GANGWAY_PROGRAM_ARRAY_SHAPE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gangway {

struct ArrayShape {
  int32_t element_type = 0;  // XLA's PrimitiveType
  std::vector<int64_t> shard_dims;
  uint64_t shard_bytes = 0;  // dense, row-major
  std::string memory_kind;   // "": the devices' usual memory

  bool operator==(const ArrayShape&) const = default;
  template <typename H>
  friend H AbslHashValue(H state, const ArrayShape& shape) {
    return H::combine(std::move(state), shape.element_type, shape.shard_dims, shape.shard_bytes,
                      shape.memory_kind);
  }
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

// "f32[2,3]", with "{pinned_host}" behind it for another memory than the usual one.
std::string ToText(const ArrayShape& shape);

// Whether an array of this shape can be the argument for this parameter, in whatever memory. JAX passes an empty array
// of booleans for a token.
bool Fits(const ArrayShape& array, const ArrayShape& parameter);

}  // namespace gangway

#endif  // GANGWAY_PROGRAM_ARRAY_SHAPE_H_
