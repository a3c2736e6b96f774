// Rules of opcodes that give values: parameters, constants, tuples, tokens, random numbers, the largest elements.
#include <algorithm>
#include <vector>

#include "gangway/base/status.h"
#include "gangway/compiler/check/rules.h"

namespace gangway::compiler {

// That numbers are complete and fit the signature is checked with the computation.
absl::Status CheckParameter(const Site&) { return absl::OkStatus(); }

namespace {

using xla::hlo::Literal;

int64_t SumOf(const google::protobuf::RepeatedPtrField<std::string>& chunks) {
  int64_t bytes = 0;
  for (const std::string& chunk : chunks) bytes += static_cast<int64_t>(chunk.size());
  return bytes;
}

// Packed varints: each ends with a byte below 128.
int64_t VarintsIn(const google::protobuf::RepeatedPtrField<std::string>& chunks) {
  int64_t count = 0;
  for (const std::string& chunk : chunks)
    count += std::ranges::count_if(chunk, [](char c) { return (c & 0x80) == 0; });
  return count;
}

// Elements of fixed width; -1 if the bytes are no whole number of them. Types under a byte take one each.
int64_t CountOf(int64_t bytes, int64_t width) { return bytes % width == 0 ? bytes / width : -1; }

const std::string& BytesField(const Literal& literal, int type) {
  switch (type) {
    case xla::TYPE_S2:
      return literal.s2s();
    case xla::TYPE_S4:
      return literal.s4s();
    case xla::TYPE_S8:
      return literal.s8s();
    case xla::TYPE_S16:
      return literal.s16s();
    case xla::TYPE_U2:
      return literal.u2s();
    case xla::TYPE_U4:
      return literal.u4s();
    case xla::TYPE_U8:
      return literal.u8s();
    case xla::TYPE_U16:
      return literal.u16s();
    case xla::TYPE_F16:
      return literal.f16s();
    case xla::TYPE_BF16:
      return literal.bf16s();
    case xla::TYPE_F4E2M1FN:
      return literal.f4e2m1fns();
    case xla::TYPE_F8E3M4:
      return literal.f8e3m4s();
    case xla::TYPE_F8E4M3:
      return literal.f8e4m3s();
    case xla::TYPE_F8E4M3FN:
      return literal.f8e4m3fns();
    case xla::TYPE_F8E4M3B11FNUZ:
      return literal.f8e4m3b11fnuzs();
    case xla::TYPE_F8E4M3FNUZ:
      return literal.f8e4m3fnuzs();
    case xla::TYPE_F8E5M2:
      return literal.f8e5m2s();
    case xla::TYPE_F8E5M2FNUZ:
      return literal.f8e5m2fnuzs();
    default:
      return literal.f8e8m0fnus();
  }
}

bool HasAllElements(const Literal& literal, int type, int64_t elements) {
  switch (type) {
    case xla::TYPE_PRED:
      return VarintsIn(literal.preds()) == elements;
    case xla::TYPE_S32:
      return VarintsIn(literal.s32s()) == elements;
    case xla::TYPE_S64:
      return VarintsIn(literal.s64s()) == elements;
    case xla::TYPE_U32:
      return VarintsIn(literal.u32s()) == elements;
    case xla::TYPE_U64:
      return VarintsIn(literal.u64s()) == elements;
    case xla::TYPE_F32:
      return CountOf(SumOf(literal.f32s()), 4) == elements;
    case xla::TYPE_F64:
      return CountOf(SumOf(literal.f64s()), 8) == elements;
    case xla::TYPE_C64:
      return CountOf(SumOf(literal.c64s()), 8) == elements;
    case xla::TYPE_C128:
      return CountOf(SumOf(literal.c128s()), 16) == elements;
    default:
      break;
  }
  const auto bytes = static_cast<int64_t>(BytesField(literal, type).size());
  return CountOf(bytes, std::max(BitsOf(type) / 8, 1)) == elements;
}

}  // namespace

absl::Status CheckConstant(const Site& site) {
  if (!IsArray(site.shape()))
    return NotTaken("constants of ", Text(site.shape()),
                    " are not taken: make a constant of each array");
  const Literal& literal = site.self.literal();
  GANGWAY_RETURN_IF_ERROR(CheckShape(literal.shape()));
  if (!Same(literal.shape(), site.shape()))
    return Bad("its literal is ", Text(literal.shape()), ", and its shape ", Text(site.shape()));
  if (literal.tuple_literals_size() != 0 ||
      !HasAllElements(literal, site.shape().element_type(), Elements(site.shape())))
    return Bad("its literal does not have the elements of ", Text(site.shape()));
  return absl::OkStatus();
}

absl::Status CheckTuple(const Site& site) {
  if (!IsTuple(site.shape()) ||
      static_cast<size_t>(site.shape().tuple_shapes_size()) != site.operands.size())
    return Bad("its shape is ", Text(site.shape()), " for ", site.operands.size(), " operands");
  for (size_t i = 0; i < site.operands.size(); ++i)
    if (!Same(site.shape().tuple_shapes(static_cast<int>(i)), site.operand(i)))
      return Bad("operand ", i, " is ", Text(site.operand(i)), " in ", Text(site.shape()));
  return absl::OkStatus();
}

absl::Status CheckGetTupleElement(const Site& site) {
  const int64_t index = site.self.tuple_index();
  const Shape& from = site.operand(0);
  if (!IsTuple(from) || index < 0 || index >= from.tuple_shapes_size())
    return Bad("it takes part ", index, " of ", Text(from));
  return ExpectShape(site, from.tuple_shapes(static_cast<int>(index)));
}

absl::Status CheckSameAsOperand(const Site& site) { return ExpectShape(site, site.operand(0)); }

absl::Status CheckAfterAll(const Site& site) {
  for (const Shape* operand : site.operands)
    if (!IsToken(*operand)) return Bad("it waits for ", Text(*operand));
  return IsToken(site.shape()) ? absl::OkStatus() : Bad("its shape is ", Text(site.shape()));
}

absl::Status CheckAddDependency(const Site& site) {
  if (!IsToken(site.operand(1))) return Bad("it waits for ", Text(site.operand(1)));
  return ExpectShape(site, site.operand(0));
}

absl::Status CheckRng(const Site& site) {
  constexpr int kUniform = 1, kNormal = 2;
  const int kind = site.self.distribution();
  const Shape& to = site.shape();
  // XLA's CPU compiler ends its process over narrower types.
  const int bits = IsArray(to) ? BitsOf(to.element_type()) : 0;
  const bool is_float = bits >= 16 && IsFloat(to.element_type());
  const bool is_drawn = is_float || (bits >= 32 && IsInteger(to.element_type()));
  if ((kind != kUniform || !is_drawn) && (kind != kNormal || !is_float))
    return Bad("its distribution ", kind, " does not give ", Text(to));
  for (const Shape* operand : site.operands)
    if (!IsScalar(*operand) || operand->element_type() != to.element_type())
      return Bad("it draws ", Text(to), " with ", Text(*operand));
  return absl::OkStatus();
}

// The state has the size that every algorithm takes, or that Philox takes.
absl::Status CheckRngBitGenerator(const Site& site) {
  constexpr int kThreeFry = 1, kPhilox = 2;
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& state = site.operand(0);
  const int algorithm = site.self.rng_algorithm();
  if (algorithm < 0 || algorithm > kPhilox) return Bad("its algorithm is ", algorithm);
  const bool is_state = state.element_type() == xla::TYPE_U64 && Rank(state) == 1 &&
                        (Dim(state, 0) == 2 || (Dim(state, 0) == 3 && algorithm != kThreeFry));
  if (!is_state) return NotTaken("its state is ", Text(state), ": use u64[2]");
  if (!IsTuple(site.shape()) || site.shape().tuple_shapes_size() != 2 ||
      !Same(site.shape().tuple_shapes(0), state))
    return Bad("its shape is ", Text(site.shape()), " for a state of ", Text(state));
  const Shape& bits = site.shape().tuple_shapes(1);
  if (!IsArray(bits) || !IsInteger(bits.element_type()) || BitsOf(bits.element_type()) < 8)
    return Bad("it makes random bits of ", Text(bits));
  return absl::OkStatus();
}

absl::Status CheckTopK(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& from = site.operand(0);
  const int64_t k = site.self.k();
  const int type = from.element_type();
  if (Rank(from) < 1 || k < 0 || k > Dim(from, Rank(from) - 1) || IsComplex(type))
    return Bad("it takes the ", k, " largest elements of ", Text(from));
  Shape results[2] = {from, from};
  for (Shape& result : results) result.set_dimensions(from.dimensions_size() - 1, k);
  results[1].set_element_type(xla::TYPE_S32);
  return ExpectResults(site, results);
}

}  // namespace gangway::compiler
