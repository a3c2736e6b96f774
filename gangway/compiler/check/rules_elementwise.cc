// Rules of opcodes that compute each element of the result from the elements at the same place in the operands.
#include "gangway/base/status.h"
#include "gangway/compiler/check/rules.h"

namespace gangway::compiler {
namespace {

using OfType = bool (*)(int);

bool IsSignedNumber(int type) { return IsSigned(type) || IsFloat(type) || IsComplex(type); }
bool IsFloatOrComplex(int type) { return IsFloat(type) || IsComplex(type); }
bool IsLogical(int type) { return IsPred(type) || IsInteger(type); }
bool IsNumber(int type) { return IsInteger(type) || IsFloatOrComplex(type); }
bool IsOrdered(int type) { return IsLogical(type) || IsFloat(type); }
bool IsReal(int type) { return IsInteger(type) || IsFloat(type); }
bool IsAny(int) { return true; }

// All operands have the result's type and dimensions.
absl::Status CheckUniform(const Site& site, OfType takes) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& first = site.operand(0);
  for (const Shape* operand : site.operands)
    if (!Same(*operand, first))
      return Bad("its operands differ: ", Text(first), " and ", Text(*operand));
  if (!takes(first.element_type())) return Bad("it is not defined for ", Text(first));
  return ExpectShape(site, first);
}

}  // namespace

absl::Status CheckAnyUnary(const Site& site) { return CheckUniform(site, IsAny); }
absl::Status CheckSignedUnary(const Site& site) {
  return CheckUniform(site, site.self.opcode() == "negate" ? IsNumber : IsSignedNumber);
}
absl::Status CheckIntegerUnary(const Site& site) { return CheckUniform(site, IsInteger); }
absl::Status CheckNot(const Site& site) { return CheckUniform(site, IsLogical); }
absl::Status CheckFloatUnary(const Site& site) { return CheckUniform(site, IsFloat); }
absl::Status CheckFloatOrComplexUnary(const Site& site) {
  return CheckUniform(site, IsFloatOrComplex);
}
absl::Status CheckAnyBinary(const Site& site) { return CheckUniform(site, IsAny); }
absl::Status CheckNumericBinary(const Site& site) { return CheckUniform(site, IsNumber); }
absl::Status CheckOrderedBinary(const Site& site) { return CheckUniform(site, IsOrdered); }
absl::Status CheckRemainder(const Site& site) { return CheckUniform(site, IsReal); }
absl::Status CheckFloatOrComplexBinary(const Site& site) {
  return CheckUniform(site, IsFloatOrComplex);
}
absl::Status CheckLogicalBinary(const Site& site) { return CheckUniform(site, IsLogical); }
absl::Status CheckShift(const Site& site) { return CheckUniform(site, IsInteger); }

absl::Status CheckAbs(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& of = site.operand(0);
  if (!IsSignedNumber(of.element_type()) && !IsUnsigned(of.element_type()))
    return Bad("it is not defined for ", Text(of));
  return ExpectArray(site, RealOf(of.element_type()), DimsOf(of));
}

absl::Status CheckIsFinite(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  if (!IsFloat(site.operand(0).element_type()))
    return Bad("it is not defined for ", Text(site.operand(0)));
  return ExpectArray(site, xla::TYPE_PRED, DimsOf(site.operand(0)));
}

absl::Status CheckPart(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& of = site.operand(0);
  if (!IsFloatOrComplex(of.element_type())) return Bad("it is not defined for ", Text(of));
  return ExpectArray(site, RealOf(of.element_type()), DimsOf(of));
}

absl::Status CheckConvert(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& of = site.operand(0);
  if (!IsArray(site.shape())) return Bad("its result is not an array");
  if (IsComplex(of.element_type()) && !IsComplex(site.shape().element_type()))
    return Bad("it converts complex numbers to ", Text(site.shape()), ": take their real part");
  return ExpectArray(site, site.shape().element_type(), DimsOf(of));
}

// Between types of different widths, the last dimension is the ratio of the widths.
absl::Status CheckBitcastConvert(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& from = site.operand(0);
  const Shape& to = site.shape();
  if (!IsArray(to)) return Bad("its result is not an array");
  if (IsComplex(from.element_type()) != IsComplex(to.element_type()) ||
      (IsPred(from.element_type()) != IsPred(to.element_type())))
    return Bad("it makes ", Text(to), " of ", Text(from), ", which have no common bits");
  const int from_bits = BitsOf(from.element_type()), to_bits = BitsOf(to.element_type());
  if (from_bits == to_bits) return ExpectArray(site, to.element_type(), DimsOf(from));
  const Shape& narrow = from_bits < to_bits ? from : to;
  const Shape& wide = from_bits < to_bits ? to : from;
  const int ratio = BitsOf(wide.element_type()) / BitsOf(narrow.element_type());
  if (Rank(narrow) != Rank(wide) + 1 || Dim(narrow, Rank(narrow) - 1) != ratio ||
      !HasDims(wide, DimsOf(narrow).subspan(0, static_cast<size_t>(Rank(wide)))))
    return Bad("it makes ", Text(to), " of ", Text(from), ", which has not as many bits");
  return absl::OkStatus();
}

absl::Status CheckReducePrecision(const Site& site) {
  if (site.self.exponent_bits() < 1 || site.self.exponent_bits() > 64 ||
      site.self.mantissa_bits() < 0 || site.self.mantissa_bits() > 64)
    return Bad("it asks for ", site.self.exponent_bits(), " exponent bits and ",
               site.self.mantissa_bits(), " mantissa bits");
  return CheckUniform(site, IsFloat);
}

absl::Status CheckComplex(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& real = site.operand(0);
  const int type = real.element_type();
  if (!Same(real, site.operand(1)) || (type != xla::TYPE_F32 && type != xla::TYPE_F64))
    return Bad("it is not defined for ", Text(real), " and ", Text(site.operand(1)));
  return ExpectArray(site, type == xla::TYPE_F32 ? xla::TYPE_C64 : xla::TYPE_C128, DimsOf(real));
}

namespace {

// The type says again what the operands' element type says. XLA's newer versions add whether the order is total.
absl::Status CheckComparison(const xla::hlo::Instruction& self, int type) {
  const std::string& kind = self.comparison_type();
  const std::string& order = self.comparison_order();
  const bool fits = kind.empty() || (kind == "UNSIGNED" && (IsUnsigned(type) || IsPred(type))) ||
                    (kind == "SIGNED" && IsSigned(type)) ||
                    (kind == "FLOAT" && (IsFloat(type) || IsComplex(type))) ||
                    (kind == "TOTALORDER" && IsFloat(type));
  if (!fits) return Bad("its comparison type does not fit ", Text(type, {}));
  const bool is_partial = kind == "FLOAT" || (kind.empty() && (IsFloat(type) || IsComplex(type)));
  if (!order.empty() && order != (is_partial ? "PARTIAL" : "TOTAL"))
    return Bad("its order does not fit its comparison type");
  const std::string& direction = self.comparison_direction();
  const bool is_equality = direction == "EQ" || direction == "NE";
  const bool is_order =
      direction == "LT" || direction == "LE" || direction == "GT" || direction == "GE";
  if (!is_equality && !is_order) return Bad("its direction is not known");
  if (is_order && IsComplex(type)) return Bad("complex numbers have no order");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCompare(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& left = site.operand(0);
  if (!Same(left, site.operand(1)))
    return Bad("its operands differ: ", Text(left), " and ", Text(site.operand(1)));
  GANGWAY_RETURN_IF_ERROR(CheckComparison(site.self, left.element_type()));
  return ExpectArray(site, xla::TYPE_PRED, DimsOf(left));
}

absl::Status CheckSelect(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& which = site.operand(0);
  const Shape& chosen = site.operand(1);
  if (!IsPred(which.element_type()) || !SameDims(which, chosen))
    return Bad("it selects from ", Text(chosen), " by ", Text(which));
  if (!Same(chosen, site.operand(2)))
    return Bad("it selects from ", Text(chosen), " and ", Text(site.operand(2)));
  return ExpectShape(site, chosen);
}

absl::Status CheckClamp(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& value = site.operand(1);
  if (!IsOrdered(value.element_type())) return Bad("it is not defined for ", Text(value));
  for (const size_t bound : {0, 2}) {
    const Shape& limit = site.operand(bound);
    if (limit.element_type() != value.element_type() ||
        (!IsScalar(limit) && !SameDims(limit, value)))
      return Bad("it limits ", Text(value), " by ", Text(limit));
  }
  return ExpectShape(site, value);
}

}  // namespace gangway::compiler
