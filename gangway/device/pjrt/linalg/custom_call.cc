// Implementation of custom_call.h.
#include "gangway/device/pjrt/linalg/custom_call.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gangway::device::linalg {
namespace {

std::string ShapeText(Dimensions dimensions) {
  return absl::StrCat("[", absl::StrJoin(dimensions.begin(), dimensions.end(), ","), "]");
}

}  // namespace

void Checks::Fault(std::string text) {
  if (fault_.empty()) fault_ = std::move(text);
}

Matrices Checks::Matrix(std::string_view name, Dimensions dimensions) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  Matrices matrices;
  const size_t rank = dimensions.size();
  if (rank < 2 || dimensions[rank - 2] > kMax || dimensions[rank - 1] > kMax) {
    Fault(absl::StrCat(std::string(name), " is not a batch of matrices with at most ", kMax,
                       " rows and columns: its shape is ", ShapeText(dimensions)));
    return matrices;
  }
  int64_t count = 1;
  for (int64_t dimension : dimensions.first(rank - 2)) {
    if (__builtin_mul_overflow(count, dimension, &count)) {
      Fault(absl::StrCat(std::string(name), " has too many matrices: ", ShapeText(dimensions)));
      return matrices;
    }
  }
  matrices.batch = dimensions.first(rank - 2);
  matrices.count = count;
  matrices.rows = static_cast<int>(dimensions[rank - 2]);
  matrices.cols = static_cast<int>(dimensions[rank - 1]);
  return matrices;
}

Matrices Checks::SquareMatrix(std::string_view name, Dimensions dimensions) {
  Matrices matrices = Matrix(name, dimensions);
  if (matrices.rows == matrices.cols) return matrices;
  Fault(absl::StrCat(std::string(name), " is not square: its shape is ", ShapeText(dimensions)));
  return {};
}

void Checks::Fits(std::string_view name, Dimensions dimensions, const Matrices& like,
                  std::initializer_list<int64_t> trailing) {
  if (failed()) return;  // `like` may be empty
  std::vector<int64_t> wanted(like.batch.begin(), like.batch.end());
  wanted.insert(wanted.end(), trailing);
  if (dimensions == Dimensions(wanted)) return;
  Fault(absl::StrCat(std::string(name), " has shape ", ShapeText(dimensions), " where ",
                     ShapeText(wanted), " is required"));
}

void Checks::Letter(std::string_view attribute, uint8_t value, std::string_view allowed) {
  if (allowed.find(static_cast<char>(value)) != std::string_view::npos) return;
  Fault(absl::StrCat("the attribute ", std::string(attribute), " is ", value,
                     ", which is not the code of one of the letters ", std::string(allowed)));
}

void Checks::True(bool holds, std::string_view what) {
  if (!holds) Fault(std::string(what));
}

void Checks::Workspace(double elements) {
  if (elements < std::numeric_limits<int>::max()) return;
  Fault(absl::StrCat("the matrices are too large for LAPACK: the workspace of about ", elements,
                     " elements exceeds its 32-bit sizes"));
}

ffi::Error Checks::error() const {
  return ffi::Error::InvalidArgument(
      absl::StrCat("custom call to LAPACK's ", std::string(routine_), ": ", fault_,
                   ". If the size is the problem, use smaller matrices; JAX 0.8 to 0.10 emits no "
                   "other invalid calls"));
}

ffi::Error RefusedArgument(std::string_view routine, int info) {
  return ffi::Error::InvalidArgument(
      absl::StrCat("LAPACK's ", std::string(routine), " rejects its argument ", -info,
                   ". Its sizes and workspaces are 32-bit numbers: check the matrices' sizes"));
}

}  // namespace gangway::device::linalg
