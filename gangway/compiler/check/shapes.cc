// Implementation of shapes.h.
#include "gangway/compiler/check/shapes.h"

#include <algorithm>
#include <bitset>
#include <ranges>

#include "absl/strings/str_join.h"

#include "gangway/base/status.h"
#include "gangway/xla/dtype.h"

namespace gangway::compiler {
namespace {

enum class Class : uint8_t { kNone, kPred, kSigned, kUnsigned, kFloat, kComplex };

struct Type {
  Class kind = Class::kNone;
  int bits = 0;
};

// F6 types and raw buffers have no rule. Integers of one bit have none, because XLA CPU writes a byte for each element
// of them into memory for an eighth of that, beyond the array; found by mutations (no dtype of JAX is one).
Type TypeOf(int type) {
  switch (type) {
    case xla::TYPE_PRED:
      return {Class::kPred, 8};
    case xla::TYPE_S2:
      return {Class::kSigned, 2};
    case xla::TYPE_S4:
      return {Class::kSigned, 4};
    case xla::TYPE_S8:
      return {Class::kSigned, 8};
    case xla::TYPE_S16:
      return {Class::kSigned, 16};
    case xla::TYPE_S32:
      return {Class::kSigned, 32};
    case xla::TYPE_S64:
      return {Class::kSigned, 64};
    case xla::TYPE_U2:
      return {Class::kUnsigned, 2};
    case xla::TYPE_U4:
      return {Class::kUnsigned, 4};
    case xla::TYPE_U8:
      return {Class::kUnsigned, 8};
    case xla::TYPE_U16:
      return {Class::kUnsigned, 16};
    case xla::TYPE_U32:
      return {Class::kUnsigned, 32};
    case xla::TYPE_U64:
      return {Class::kUnsigned, 64};
    case xla::TYPE_F4E2M1FN:
      return {Class::kFloat, 4};
    case xla::TYPE_F8E3M4:
    case xla::TYPE_F8E4M3:
    case xla::TYPE_F8E4M3FN:
    case xla::TYPE_F8E4M3B11FNUZ:
    case xla::TYPE_F8E4M3FNUZ:
    case xla::TYPE_F8E5M2:
    case xla::TYPE_F8E5M2FNUZ:
    case xla::TYPE_F8E8M0FNU:
      return {Class::kFloat, 8};
    case xla::TYPE_F16:
    case xla::TYPE_BF16:
      return {Class::kFloat, 16};
    case xla::TYPE_F32:
      return {Class::kFloat, 32};
    case xla::TYPE_F64:
      return {Class::kFloat, 64};
    case xla::TYPE_C64:
      return {Class::kComplex, 64};
    case xla::TYPE_C128:
      return {Class::kComplex, 128};
    default:
      return {};
  }
}

absl::Status CheckLayout(const Shape& shape, int bits) {
  const auto& layout = shape.layout();
  if (!IsPermutation(SpanOf(layout.minor_to_major()), Rank(shape)))
    return Bad("the layout of ", Text(shape), " is no permutation of its dimensions");
  if (layout.tiles_size() != 0 || layout.tail_padding_alignment_in_elements() < 0 ||
      layout.tail_padding_alignment_in_elements() > 1)
    return NotTaken("the layout of ", Text(shape), " has tiles or padding: leave them to XLA");
  if (layout.element_size_in_bits() != 0 && layout.element_size_in_bits() != bits)
    return Bad("the layout of ", Text(shape), " gives an element ", layout.element_size_in_bits(),
               " bits");
  // Space 5 is the host's memory.
  if (layout.memory_space() != 0 && layout.memory_space() != 5)
    return NotTaken("the layout of ", Text(shape), " asks for memory space ", layout.memory_space(),
                    ": use device or host memory");
  return absl::OkStatus();
}

absl::Status CheckArray(const Shape& shape) {
  const Type type = TypeOf(shape.element_type());
  if (type.kind == Class::kNone)
    return NotTaken("element type ", shape.element_type(), " is not known: use another dtype");
  if (shape.tuple_shapes_size() != 0) return Bad("an array has no parts");
  if (Rank(shape) > kRankMax)
    return Bad("an array has ", Rank(shape), " dimensions; at most ", kRankMax, " are taken");
  int64_t bytes = std::max(type.bits / 8, 1);
  for (const int64_t dim : shape.dimensions()) {
    if (dim < 0) return Bad("dimension ", dim, " of an array is negative");
    if (dim > kArrayBytesMax / bytes)
      return absl::ResourceExhaustedError(
          absl::StrCat(Text(shape), " is larger than 2^47 bytes: make it smaller"));
    bytes *= std::max(dim, int64_t{1});
  }
  const auto& dynamic = shape.is_dynamic_dimension();
  if (std::ranges::any_of(dynamic, [](bool is) { return is; }))
    return NotTaken("dynamic dimensions are not supported: pad the array to a fixed size");
  if (!dynamic.empty() && dynamic.size() != shape.dimensions_size())
    return Bad("an array of ", Rank(shape), " dimensions has ", dynamic.size(), " dynamic marks");
  return shape.has_layout() ? CheckLayout(shape, type.bits) : absl::OkStatus();
}

}  // namespace

absl::Status CheckShape(const Shape& shape, int depth) {
  if (!IsTuple(shape) && !IsToken(shape)) return CheckArray(shape);
  if (shape.dimensions_size() != 0 || shape.is_dynamic_dimension_size() != 0)
    return Bad("a tuple or token has no dimensions");
  if (shape.has_layout() && shape.layout().ByteSizeLong() != 0 &&
      (shape.layout().minor_to_major_size() != 0 || shape.layout().tiles_size() != 0))
    return Bad("a tuple or token has no layout");
  if (IsToken(shape))
    return shape.tuple_shapes_size() == 0 ? absl::OkStatus() : Bad("a token has no parts");
  if (depth >= kTupleDepthMax)
    return Bad("tuples are nested deeper than ", kTupleDepthMax, ": flatten them");
  for (const Shape& part : shape.tuple_shapes()) {
    GANGWAY_RETURN_IF_ERROR(CheckShape(part, depth + 1));
  }
  return absl::OkStatus();
}

bool IsArray(const Shape& shape) { return TypeOf(shape.element_type()).kind != Class::kNone; }
bool IsTuple(const Shape& shape) { return shape.element_type() == xla::TYPE_TUPLE; }
bool IsToken(const Shape& shape) { return shape.element_type() == xla::TYPE_TOKEN; }
bool IsScalar(const Shape& shape) { return IsArray(shape) && Rank(shape) == 0; }

bool IsFloat(int type) { return TypeOf(type).kind == Class::kFloat; }
bool IsComplex(int type) { return TypeOf(type).kind == Class::kComplex; }
bool IsSigned(int type) { return TypeOf(type).kind == Class::kSigned; }
bool IsUnsigned(int type) { return TypeOf(type).kind == Class::kUnsigned; }
bool IsInteger(int type) { return IsSigned(type) || IsUnsigned(type); }
bool IsPred(int type) { return type == xla::TYPE_PRED; }
bool AreAlike(int a, int b) {
  return (IsInteger(a) && IsInteger(b)) ||
         (!IsInteger(a) && TypeOf(a).kind == TypeOf(b).kind && TypeOf(a).kind != Class::kNone);
}
int BitsOf(int type) { return TypeOf(type).bits; }
int RealOf(int type) {
  if (type == xla::TYPE_C64) return xla::TYPE_F32;
  return type == xla::TYPE_C128 ? static_cast<int>(xla::TYPE_F64) : type;
}

bool Same(const Shape& a, const Shape& b) {
  if (a.element_type() != b.element_type() || !SameDims(a, b) ||
      a.tuple_shapes_size() != b.tuple_shapes_size())
    return false;
  for (int i = 0; i < a.tuple_shapes_size(); ++i)
    if (!Same(a.tuple_shapes(i), b.tuple_shapes(i))) return false;
  return true;
}

bool SameDims(const Shape& a, const Shape& b) { return HasDims(a, DimsOf(b)); }

bool HasDims(const Shape& shape, std::span<const int64_t> dims) {
  return std::ranges::equal(DimsOf(shape), dims);
}

int64_t Elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape.dimensions()) count *= dim;
  return count;
}

int64_t Leaves(const Shape& shape) {
  if (!IsTuple(shape)) return 1;
  int64_t count = 0;
  for (const Shape& part : shape.tuple_shapes()) count += Leaves(part);
  return count;
}

int64_t Parts(const Shape& shape) {
  int64_t count = 1;
  for (const Shape& part : shape.tuple_shapes()) count += Parts(part);
  return count;
}

std::string Text(int type, std::span<const int64_t> dims) {
  const auto shown = dims.subspan(0, std::min<size_t>(dims.size(), 16));
  return absl::StrCat(std::string(xla::ElementName(type)), "[", absl::StrJoin(shown, ","),
                      shown.size() < dims.size() ? ",..." : "", "]");
}

std::string Text(const Shape& shape) {
  if (IsToken(shape)) return "token";
  if (!IsTuple(shape)) return Text(shape.element_type(), DimsOf(shape));
  std::string text = "(";
  for (const Shape& part : shape.tuple_shapes()) {
    if (text.size() > 200) {
      absl::StrAppend(&text, "...");
      break;
    }
    absl::StrAppend(&text, text.size() > 1 ? ", " : "", IsTuple(part) ? "(...)" : Text(part));
  }
  return text + ")";
}

// `limit` is at most the rank of an array here, or the number of a program's positions.
bool AreDistinct(std::span<const int64_t> ids, int64_t limit) {
  if (static_cast<int64_t>(ids.size()) > limit) return false;
  if (limit <= kRankMax) {
    uint64_t seen = 0;
    for (const int64_t id : ids) {
      if (id < 0 || id >= limit || (seen >> id & 1) != 0) return false;
      seen |= uint64_t{1} << id;
    }
    return true;
  }
  std::vector<int64_t> sorted(ids.begin(), ids.end());
  std::ranges::sort(sorted);
  return sorted.empty() || (sorted.front() >= 0 && sorted.back() < limit &&
                            std::ranges::adjacent_find(sorted) == sorted.end());
}

bool AreAscending(std::span<const int64_t> ids, int64_t limit) {
  return AreDistinct(ids, limit) && std::ranges::is_sorted(ids);
}

bool IsPermutation(std::span<const int64_t> ids, int64_t size) {
  return static_cast<int64_t>(ids.size()) == size && AreDistinct(ids, size);
}

bool Contains(std::span<const int64_t> ids, int64_t id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace gangway::compiler
