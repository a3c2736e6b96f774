// Shapes of HLO values: whether one is valid, and arithmetic on valid ones. Every size is bounded when a shape is
// checked, so that sums and products of two of them fit 64 bits.
#ifndef GANGWAY_COMPILER_CHECK_SHAPES_H_
#define GANGWAY_COMPILER_CHECK_SHAPES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {

using xla::hlo::Shape;

inline constexpr int kRankMax = 64;
inline constexpr int kTupleDepthMax = 16;
// Also the bound of a product of dimensions of which some are 0, since XLA multiplies them before it looks.
inline constexpr int64_t kArrayBytesMax = int64_t{1} << 47;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

template <typename... Parts>
absl::Status NotTaken(const Parts&... parts) {
  return absl::UnimplementedError(absl::StrCat(parts...));
}

// A shape of a program that a client sent: arrays, tuples and tokens, no dynamic dimensions. INVALID_ARGUMENT, or
// UNIMPLEMENTED for dynamic dimensions, unknown types and layouts that a client cannot ask for.
absl::Status CheckShape(const Shape& shape, int depth = 0);

bool IsArray(const Shape& shape);
bool IsTuple(const Shape& shape);
bool IsToken(const Shape& shape);
bool IsScalar(const Shape& shape);

// Of element types.
bool IsFloat(int type);
bool IsComplex(int type);
bool IsSigned(int type);
bool IsUnsigned(int type);
bool IsInteger(int type);
bool IsPred(int type);
// Both integers, both floats, both complex or both predicates.
bool AreAlike(int a, int b);
int BitsOf(int type);
// f32 of c64, f64 of c128; any other type itself.
int RealOf(int type);

// Equal types and dimensions, at all depths. Layouts may differ: XLA assigns its own.
bool Same(const Shape& a, const Shape& b);
bool SameDims(const Shape& a, const Shape& b);
bool HasDims(const Shape& shape, std::span<const int64_t> dims);

// The part at an index of a tuple, of tuples in it. None if there is no such part.
template <typename Index>
const Shape* PartAt(const Shape& shape, const Index& index) {
  const Shape* part = &shape;
  for (const int64_t i : index) {
    if (i < 0 || i >= part->tuple_shapes_size() || !IsTuple(*part)) return nullptr;
    part = &part->tuple_shapes(static_cast<int>(i));
  }
  return part;
}

int64_t Elements(const Shape& shape);
// Arrays and tokens, at all depths.
int64_t Leaves(const Shape& shape);
// Arrays, tokens and tuples, at all depths.
int64_t Parts(const Shape& shape);
// "f32[2,3]", for messages. Bounded.
std::string Text(const Shape& shape);
std::string Text(int type, std::span<const int64_t> dims);

inline std::span<const int64_t> DimsOf(const Shape& shape) {
  return {shape.dimensions().data(), static_cast<size_t>(shape.dimensions_size())};
}
inline int64_t Dim(const Shape& shape, int64_t i) { return shape.dimensions(static_cast<int>(i)); }
inline int64_t Rank(const Shape& shape) { return shape.dimensions_size(); }

// Each in [0, limit), none twice.
bool AreDistinct(std::span<const int64_t> ids, int64_t limit);
// The same, and ascending.
bool AreAscending(std::span<const int64_t> ids, int64_t limit);
bool IsPermutation(std::span<const int64_t> ids, int64_t size);
bool Contains(std::span<const int64_t> ids, int64_t id);
template <typename Repeated>
std::span<const int64_t> SpanOf(const Repeated& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_SHAPES_H_
