// Symmetric and Hermitian matrices: eigenvalues and the reduction to tridiagonal form.
#include "gangway/device/pjrt/linalg/custom_call.h"
#include "gangway/device/pjrt/linalg/lapack_routines.h"

namespace gangway::device::linalg {
namespace {

// Whether the triangle that LAPACK reads is finite, diagonal included. The other may hold anything.
template <typename T>
bool TriangleFinite(const T* values, int n, char triangle) {
  bool finite = true;
  for (int64_t column = 0; column < n; ++column) {
    const int64_t first = triangle == 'L' ? column : 0;
    const int64_t last = triangle == 'L' ? n : column + 1;
    finite = finite && AllFinite(values + column * n + first, last - first);
  }
  return finite;
}

// syevd and heevd with their workspaces.
template <typename T>
class SymmetricSolver {
 public:
  SymmetricSolver(char mode, char triangle, int n) : mode_(mode), triangle_(triangle), n_(n) {}

  // Call before Solve. Does not touch `a`. Returns LAPACK's info.
  int Prepare(T* a, Real<T>* w) {
    T answer{};
    Real<T> real_answer{};
    int integer_answer = 0;
    size_ = real_size_ = integer_size_ = -1;
    const int code = Call(a, w, &answer, &real_answer, &integer_answer);
    size_ = WorkspaceSize(answer);
    real_size_ = WorkspaceSize(real_answer);
    integer_size_ = std::max(1, integer_answer);
    work_ = Workspace<T>(size_);
    reals_ = Workspace<Real<T>>(real_size_);
    integers_ = Workspace<int>(integer_size_);
    return code;
  }

  int Solve(T* a, Real<T>* w) { return Call(a, w, work_.get(), reals_.get(), integers_.get()); }

 private:
  int Call(T* a, Real<T>* w, T* work, Real<T>* reals, int* integers) {
    const int leading = std::max(1, n_);
    int code = 0;
    if constexpr (kIsComplex<T>) {
      Lapack<T>::syevd(&mode_, &triangle_, &n_, a, &leading, w, work, &size_, reals, &real_size_,
                       integers, &integer_size_, &code);
    } else {
      Lapack<T>::syevd(&mode_, &triangle_, &n_, a, &leading, w, work, &size_, integers,
                       &integer_size_, &code);
    }
    return code;
  }

  const char mode_, triangle_;
  const int n_;
  int size_ = -1, real_size_ = -1, integer_size_ = -1;
  std::unique_ptr<T[]> work_;
  std::unique_ptr<Real<T>[]> reals_;
  std::unique_ptr<int[]> integers_;
};

// x = v diag(w) v^H, eigenvalues ascending; info > 0: did not converge.
struct Syevd {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<Real<T>>>()
        .template Ret<Operand<int32_t>>()
        .template Attr<uint8_t>("mode")
        .template Attr<uint8_t>("uplo");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> vectors, Result<Real<T>> values,
                        Result<int32_t> info, uint8_t mode, uint8_t uplo) {
    Checks checks("syevd");
    const Matrices a = checks.SquareMatrix("the operand", x.dimensions());
    const int n = a.rows;
    checks.Fits("the vectors", vectors->dimensions(), a, {n, n});
    checks.Fits("the values", values->dimensions(), a, {n});
    checks.Fits("info", info->dimensions(), a, {});
    checks.Letter("mode", mode, "VN");
    checks.Workspace(2.0 * n * n + 6.0 * n + 1);
    checks.Workspace(kBlockMax * (n + 2.0));
    checks.Letter("uplo", uplo, "LU");
    if (checks.failed()) return checks.error();
    T* v = CopyInto(vectors, x);
    Real<T>* w = values->typed_data();
    const char triangle = static_cast<char>(uplo);
    SymmetricSolver<T> solver(static_cast<char>(mode), triangle, n);
    if (int code = solver.Prepare(v, w); code < 0) return RefusedArgument("syevd", code);
    for (int64_t i = 0; i < a.count; ++i, v += a.size(), w += n) {
      int code = kNotFinite;
      if (TriangleFinite(v, n, triangle)) {
        code = solver.Solve(v, w);
        if (code < 0) return RefusedArgument("syevd", code);
      }
      info->typed_data()[i] = code;
      if (code != 0) Fill(v, a.size(), NotANumber<T>());
      if (code != 0) Fill(w, n, NotANumber<Real<T>>());
    }
    return ffi::Error::Success();
  }
};

// x = Q t Q^H with t tridiagonal: its diagonal, its off-diagonal, Q as reflectors.
struct Sytrd {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<Real<T>>>()
        .template Ret<Operand<Real<T>>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<int32_t>>()
        .template Attr<uint8_t>("uplo");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> factors, Result<Real<T>> diagonals,
                        Result<Real<T>> off_diagonals, Result<T> taus, Result<int32_t> info,
                        uint8_t uplo) {
    Checks checks("sytrd");
    const Matrices a = checks.SquareMatrix("the operand", x.dimensions());
    const int n = a.rows, leading = a.leading(), off_size = n > 1 ? n - 1 : 0;
    checks.Fits("the factors", factors->dimensions(), a, {n, n});
    checks.Fits("the diagonal", diagonals->dimensions(), a, {n});
    checks.Fits("the off-diagonal", off_diagonals->dimensions(), a, {off_size});
    checks.Fits("tau", taus->dimensions(), a, {off_size});
    checks.Fits("info", info->dimensions(), a, {});
    checks.Letter("uplo", uplo, "LU");
    checks.Workspace(kBlockMax * n);
    if (checks.failed()) return checks.error();
    T* out = CopyInto(factors, x);
    Real<T>* d = diagonals->typed_data();
    Real<T>* e = off_diagonals->typed_data();
    T* tau = taus->typed_data();
    const char triangle = static_cast<char>(uplo);
    T answer{};
    int code = 0, size = -1;
    Lapack<T>::sytrd(&triangle, &n, out, &leading, d, e, tau, &answer, &size, &code);
    if (code < 0) return RefusedArgument("sytrd", code);
    size = WorkspaceSize(answer);
    auto work = Workspace<T>(size);
    for (int64_t i = 0; i < a.count; ++i) {
      Lapack<T>::sytrd(&triangle, &n, out, &leading, d, e, tau, work.get(), &size, &code);
      if (code < 0) return RefusedArgument("sytrd", code);
      info->typed_data()[i] = code;
      out += a.size();
      d += n;
      e += off_size;
      tau += off_size;
    }
    return ffi::Error::Success();
  }
};

}  // namespace

void AddSymmetricEigenvalues(std::vector<FfiHandler>& handlers) {
  AddReal<Syevd>(handlers, "syevd");
  AddComplex<Syevd>(handlers, "heevd");
  AddReal<Sytrd>(handlers, "sytrd");
  AddComplex<Sytrd>(handlers, "hetrd");
}

}  // namespace gangway::device::linalg
