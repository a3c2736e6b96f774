// Rules of opcodes of linear algebra, Fourier transforms and batch normalization.
#include <algorithm>
#include <vector>

#include "gangway/base/status.h"
#include "gangway/compiler/check/rules.h"

namespace gangway::compiler {
namespace {

bool PairUp(const Shape& left, std::span<const int64_t> of_left, const Shape& right,
            std::span<const int64_t> of_right) {
  if (of_left.size() != of_right.size()) return false;
  for (size_t i = 0; i < of_left.size(); ++i)
    if (Dim(left, of_left[i]) != Dim(right, of_right[i])) return false;
  return true;
}

bool AreDistinctTogether(std::span<const int64_t> some, std::span<const int64_t> others,
                         int64_t limit) {
  std::vector<int64_t> all(some.begin(), some.end());
  all.insert(all.end(), others.begin(), others.end());
  return AreDistinct(all, limit);
}

}  // namespace

absl::Status CheckDot(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& left = site.operand(0);
  const Shape& right = site.operand(1);
  const int result = site.shape().element_type();
  if (!AreAlike(left.element_type(), right.element_type()) ||
      !AreAlike(result, left.element_type()) ||
      BitsOf(result) < std::max(BitsOf(left.element_type()), BitsOf(right.element_type())))
    return Bad("it makes ", Text(site.shape()), " of ", Text(left), " and ", Text(right));
  const auto& numbers = site.self.dot_dimension_numbers();
  const auto left_summed = SpanOf(numbers.lhs_contracting_dimensions());
  const auto right_summed = SpanOf(numbers.rhs_contracting_dimensions());
  const auto left_batch = SpanOf(numbers.lhs_batch_dimensions());
  const auto right_batch = SpanOf(numbers.rhs_batch_dimensions());
  if (!AreDistinctTogether(left_summed, left_batch, Rank(left)) ||
      !AreDistinctTogether(right_summed, right_batch, Rank(right)) ||
      !PairUp(left, left_summed, right, right_summed) ||
      !PairUp(left, left_batch, right, right_batch))
    return Bad("its dimension numbers do not fit ", Text(left), " and ", Text(right));
  std::vector<int64_t> dims;
  for (const int64_t i : left_batch) dims.push_back(Dim(left, i));
  for (int64_t i = 0; i < Rank(left); ++i)
    if (!Contains(left_summed, i) && !Contains(left_batch, i)) dims.push_back(Dim(left, i));
  for (int64_t i = 0; i < Rank(right); ++i)
    if (!Contains(right_summed, i) && !Contains(right_batch, i)) dims.push_back(Dim(right, i));
  return ExpectArray(site, result, dims);
}

absl::Status CheckFft(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  enum : int { kFft, kInverse, kReal, kInverseReal };
  const Shape& from = site.operand(0);
  const auto lengths = SpanOf(site.self.fft_length());
  const int kind = site.self.fft_type();
  if (kind < kFft || kind > kInverseReal) return Bad("its kind is ", kind);
  if (lengths.empty() || lengths.size() > 3 || static_cast<int64_t>(lengths.size()) > Rank(from) ||
      std::ranges::any_of(lengths, [](int64_t n) { return n < 1 || n > kArrayBytesMax; }))
    return Bad("its lengths do not fit ", Text(from), ": give 1 to 3, each at least 1");
  const bool is_from_real = kind == kReal;
  const int type = from.element_type();
  if (is_from_real ? type != xla::TYPE_F32 && type != xla::TYPE_F64 : !IsComplex(type))
    return Bad("it is not defined for ", Text(from));
  std::vector<int64_t> dims(from.dimensions().begin(), from.dimensions().end());
  const size_t first = dims.size() - lengths.size();
  for (size_t i = 0; i < lengths.size(); ++i) {
    const bool is_half = kind == kInverseReal && i + 1 == lengths.size();
    if (dims[first + i] != (is_half ? lengths[i] / 2 + 1 : lengths[i]))
      return Bad("its length ", lengths[i], " does not fit ", Text(from));
  }
  if (kind == kFft || kind == kInverse) return ExpectShape(site, from);
  dims.back() = kind == kReal ? lengths.back() / 2 + 1 : lengths.back();
  if (kind == kInverseReal) return ExpectArray(site, RealOf(type), dims);
  return ExpectArray(site, type == xla::TYPE_F32 ? xla::TYPE_C64 : xla::TYPE_C128, dims);
}

namespace {

bool IsSquareMatrix(const Shape& shape) {
  const bool is_type = IsComplex(shape.element_type()) || IsFloat(shape.element_type());
  return is_type && Rank(shape) >= 2 && Dim(shape, Rank(shape) - 1) == Dim(shape, Rank(shape) - 2);
}

}  // namespace

absl::Status CheckTriangularSolve(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& a = site.operand(0);
  const Shape& b = site.operand(1);
  const auto& options = site.self.triangular_solve_options();
  if (options.transpose_a() < 1 || options.transpose_a() > 3)
    return Bad("it does not say whether it transposes");
  bool fits = IsSquareMatrix(a) && a.element_type() == b.element_type() && Rank(a) == Rank(b);
  for (int64_t i = 0; fits && i + 2 < Rank(a); ++i) fits = Dim(a, i) == Dim(b, i);
  if (!fits || Dim(b, Rank(b) - (options.left_side() ? 2 : 1)) != Dim(a, Rank(a) - 1))
    return Bad("it solves ", Text(a), " for ", Text(b));
  return ExpectShape(site, b);
}

absl::Status CheckCholesky(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  if (!IsSquareMatrix(site.operand(0)))
    return Bad("it takes square matrices, not ", Text(site.operand(0)));
  return ExpectShape(site, site.operand(0));
}

namespace {

// Operands from `first` to before `last` are vectors of the features of operand 0.
absl::Status CheckFeatures(const Site& site, size_t first, size_t last, Shape& vector) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& array = site.operand(0);
  const int64_t feature = site.self.feature_index();
  if (!IsFloat(array.element_type()) || feature < 0 || feature >= Rank(array))
    return Bad("its feature dimension ", feature, " does not fit ", Text(array));
  vector.set_element_type(array.element_type());
  vector.add_dimensions(Dim(array, feature));
  for (size_t i = first; i < last; ++i)
    if (!Same(site.operand(i), vector))
      return Bad("operand ", i, " is ", Text(site.operand(i)), " instead of ", Text(vector));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBatchNormInference(const Site& site) {
  Shape vector;
  GANGWAY_RETURN_IF_ERROR(CheckFeatures(site, 1, 5, vector));
  return ExpectShape(site, site.operand(0));
}

absl::Status CheckBatchNormTraining(const Site& site) {
  Shape vector;
  GANGWAY_RETURN_IF_ERROR(CheckFeatures(site, 1, 3, vector));
  const Shape results[] = {site.operand(0), vector, vector};
  return ExpectResults(site, results);
}

absl::Status CheckBatchNormGrad(const Site& site) {
  Shape vector;
  GANGWAY_RETURN_IF_ERROR(CheckFeatures(site, 1, 4, vector));
  if (!Same(site.operand(4), site.operand(0)))
    return Bad("its gradient is ", Text(site.operand(4)), " of ", Text(site.operand(0)));
  const Shape results[] = {site.operand(0), vector, vector};
  return ExpectResults(site, results);
}

}  // namespace gangway::compiler
