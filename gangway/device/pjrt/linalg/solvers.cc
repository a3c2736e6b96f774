// Systems of equations whose matrix is triangular or tridiagonal.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gangway/device/pjrt/linalg/custom_call.h"
#include "gangway/device/pjrt/linalg/lapack_routines.h"

namespace gangway::device::linalg {
namespace {

// op(a) x = b (side L) or x op(a) = b (side R), with a triangular.
struct Trsm {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Attr<uint8_t>("side")
        .template Attr<uint8_t>("uplo")
        .template Attr<uint8_t>("trans_x")
        .template Attr<uint8_t>("diag");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> a_operand, Operand<T> b_operand, Result<T> x, uint8_t side,
                        uint8_t uplo, uint8_t operation, uint8_t diagonal) {
    Checks checks("trsm");
    const Matrices a = checks.SquareMatrix("the matrix", a_operand.dimensions());
    const Matrices b = checks.Matrix("the right-hand side", b_operand.dimensions());
    checks.Fits("the right-hand side", b_operand.dimensions(), a, {b.rows, b.cols});
    checks.Fits("the result", x->dimensions(), a, {b.rows, b.cols});
    checks.Letter("side", side, "LR");
    checks.Letter("uplo", uplo, "LU");
    checks.Letter("trans_x", operation, "NTC");
    checks.Letter("diag", diagonal, "NU");
    checks.True(a.rows == (side == 'L' ? b.rows : b.cols),
                "the matrix and the right-hand side must have matching sizes");
    if (checks.failed()) return checks.error();
    T* out = CopyInto(x, b_operand);
    if (b.size() == 0) return ffi::Error::Success();
    const T* matrix = a_operand.typed_data();
    const T one = 1;
    auto solve = [&](auto alpha) {
      Lapack<T>::trsm(CblasColMajor, side == 'L' ? CblasLeft : CblasRight,
                      uplo == 'L' ? CblasLower : CblasUpper,
                      operation == 'N'   ? CblasNoTrans
                      : operation == 'T' ? CblasTrans
                                         : CblasConjTrans,
                      diagonal == 'U' ? CblasUnit : CblasNonUnit, b.rows, b.cols, alpha, matrix,
                      a.leading(), out, b.leading());
    };
    for (int64_t i = 0; i < a.count; ++i, matrix += a.size(), out += b.size()) {
      if constexpr (kIsComplex<T>) {
        solve(&one);
      } else {
        solve(one);
      }
    }
    return ffi::Error::Success();
  }
};

// The shapes of a tridiagonal system: diagonals [..., m] and right-hand sides [..., m, k].
template <typename Buffer>
Matrices CheckTridiagonal(Checks& checks, const Buffer& lower, const Buffer& diagonal,
                          const Buffer& upper, const Buffer& right) {
  const Matrices b = checks.Matrix("the right-hand side", right.dimensions());
  checks.Fits("the lower diagonal", lower.dimensions(), b, {b.rows});
  checks.Fits("the diagonal", diagonal.dimensions(), b, {b.rows});
  checks.Fits("the upper diagonal", upper.dimensions(), b, {b.rows});
  return b;
}

// The lower diagonal's first element and the upper diagonal's last are not part of the matrix. The
// resulting diagonals are as the factorization leaves them; info > 0: singular.
struct Gtsv {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Arg<Operand<T>>()
        .template Arg<Operand<T>>()
        .template Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<int32_t>>();
  }
  template <typename T>
  static ffi::Error Run(Operand<T> lower, Operand<T> diagonal, Operand<T> upper, Operand<T> right,
                        Result<T> lower_out, Result<T> diagonal_out, Result<T> upper_out,
                        Result<T> x, Result<int32_t> info) {
    Checks checks("gtsv");
    const Matrices b = CheckTridiagonal(checks, lower, diagonal, upper, right);
    CheckTridiagonal(checks, *lower_out, *diagonal_out, *upper_out, *x);
    checks.Fits("the result", x->dimensions(), b, {b.rows, b.cols});
    checks.Fits("info", info->dimensions(), b, {});
    if (checks.failed()) return checks.error();
    T* dl = CopyInto(lower_out, lower);
    T* d = CopyInto(diagonal_out, diagonal);
    T* du = CopyInto(upper_out, upper);
    T* out = CopyInto(x, right);
    const int n = b.rows, columns = b.cols, leading = b.leading();
    for (int64_t i = 0; i < b.count; ++i, dl += n, d += n, du += n, out += b.size()) {
      int code = 0;
      if (n > 0) Lapack<T>::gtsv(&n, &columns, dl + 1, d, du, out, &leading, &code);
      if (code < 0) return RefusedArgument("gtsv", code);
      info->typed_data()[i] = code;
    }
    return ffi::Error::Success();
  }
};

// Factors a tridiagonal matrix as L U with row exchanges (LAPACK's gttrf), and then moves pivots
// near zero away to eps x the largest element of U. A singular system thus gives large finite
// numbers, which inverse iteration needs. LAPACK has this (lagtf, lagts) for real types only.
template <typename T>
class PerturbedTridiagonal {
 public:
  explicit PerturbedTridiagonal(int n)
      : n_(n), multiplier_(n), pivot_(n), upper_(n), upper2_(n), exchanged_(n) {}

  void Factor(const T* lower, const T* diagonal, const T* upper) {
    std::copy_n(diagonal, n_, pivot_.begin());
    std::copy_n(upper, n_, upper_.begin());
    std::fill(upper2_.begin(), upper2_.end(), T(0));
    if (n_ > 0) upper_[n_ - 1] = T(0);
    for (int i = 0; i + 1 < n_; ++i) Eliminate(i, lower[i + 1]);
    Real<T> largest = 0;
    for (const auto* values : {&pivot_, &upper_, &upper2_})
      for (const T& value : *values) largest = std::max(largest, std::abs(value));
    Real<T> least = std::numeric_limits<Real<T>>::epsilon() * (largest > 0 ? largest : Real<T>(1));
    for (T& pivot : pivot_) {
      if (std::abs(pivot) < least) pivot = std::real(pivot) < 0 ? -least : least;
    }
  }

  void Solve(T* x) const {
    for (int i = 0; i + 1 < n_; ++i) {
      if (exchanged_[i]) std::swap(x[i], x[i + 1]);
      x[i + 1] -= multiplier_[i] * x[i];
    }
    for (int i = n_ - 1; i >= 0; --i) {
      if (i + 1 < n_) x[i] -= upper_[i] * x[i + 1];
      if (i + 2 < n_) x[i] -= upper2_[i] * x[i + 2];
      x[i] /= pivot_[i];
    }
  }

 private:
  // Clears the element below pivot i.
  void Eliminate(int i, T below) {
    exchanged_[i] = std::abs(pivot_[i]) < std::abs(below);
    if (exchanged_[i]) {
      std::swap(pivot_[i], below);
      std::swap(upper_[i], pivot_[i + 1]);
      upper2_[i] = upper_[i + 1];
      upper_[i + 1] = T(0);
    }
    multiplier_[i] = pivot_[i] == T(0) ? T(0) : below / pivot_[i];
    pivot_[i + 1] -= multiplier_[i] * upper_[i];
    upper_[i + 1] -= multiplier_[i] * upper2_[i];
  }

  const int n_;
  std::vector<T> multiplier_, pivot_, upper_, upper2_;
  std::vector<char> exchanged_;
};

template <typename T>
void SolvePerturbed(const Matrices& b, const T* lower, const T* diagonal, const T* upper, T* x) {
  PerturbedTridiagonal<T> matrix(b.rows);
  for (int64_t i = 0; i < b.count; ++i) {
    matrix.Factor(lower, diagonal, upper);
    for (int column = 0; column < b.cols; ++column, x += b.rows) matrix.Solve(x);
    lower += b.rows;
    diagonal += b.rows;
    upper += b.rows;
  }
}

// One target for all element types.
ffi::Error SolvePerturbedAnyType(ffi::AnyBuffer lower, ffi::AnyBuffer diagonal,
                                 ffi::AnyBuffer upper, ffi::AnyBuffer right,
                                 ffi::Result<ffi::AnyBuffer> x) {
  Checks checks("tridiagonal_solve_perturbed");
  const Matrices b = CheckTridiagonal(checks, lower, diagonal, upper, right);
  checks.Fits("the result", x->dimensions(), b, {b.rows, b.cols});
  const ffi::DataType type = right.element_type();
  checks.True(lower.element_type() == type && diagonal.element_type() == type &&
                  upper.element_type() == type && x->element_type() == type,
              "all operands and the result must be of one type");
  if (checks.failed()) return checks.error();
  if (right.element_count() == 0) return ffi::Error::Success();
  if (x->untyped_data() != right.untyped_data())
    std::memcpy(x->untyped_data(), right.untyped_data(), right.size_bytes());
  auto solve = [&]<typename T>(T*) {
    SolvePerturbed<T>(b, lower.typed_data<T>(), diagonal.typed_data<T>(), upper.typed_data<T>(),
                      x->typed_data<T>());
    return ffi::Error::Success();
  };
  switch (type) {
    case ffi::DataType::F32:
      return solve(static_cast<float*>(nullptr));
    case ffi::DataType::F64:
      return solve(static_cast<double*>(nullptr));
    case ffi::DataType::C64:
      return solve(static_cast<std::complex<float>*>(nullptr));
    case ffi::DataType::C128:
      return solve(static_cast<std::complex<double>*>(nullptr));
    default:
      checks.True(false, "the type must be F32, F64, C64 or C128");
      return checks.error();
  }
}

struct TridiagonalSolvePerturbed {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<ffi::AnyBuffer>()
        .Arg<ffi::AnyBuffer>()
        .Arg<ffi::AnyBuffer>()
        .Arg<ffi::AnyBuffer>()
        .Ret<ffi::AnyBuffer>();
  }
  template <typename T>
  static constexpr auto Run = SolvePerturbedAnyType;
};

}  // namespace

void AddSolvers(std::vector<FfiHandler>& handlers) {
  AddAllTypes<Trsm>(handlers, "trsm");
  AddAllTypes<Gtsv>(handlers, "gtsv");
  AddHandler<TridiagonalSolvePerturbed, void>(handlers, "tridiagonal_solve_perturbed_ffi");
}

}  // namespace gangway::device::linalg
