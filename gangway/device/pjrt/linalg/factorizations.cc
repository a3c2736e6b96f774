// Factorizations that always terminate: Cholesky, LU, QR with and without pivoting, Q formed or
// applied from reflectors, and the reduction to Hessenberg form.
#include "gangway/device/pjrt/linalg/custom_call.h"
#include "gangway/device/pjrt/linalg/lapack_routines.h"

namespace gangway::device::linalg {
namespace {

// x = L L^H or U^H U, in the triangle that `uplo` names; info > 0: not positive definite.
struct Potrf {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<int32_t>>()
        .template Attr<uint8_t>("uplo");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> factor, Result<int32_t> info, uint8_t uplo) {
    Checks checks("potrf");
    const Matrices a = checks.SquareMatrix("the operand", x.dimensions());
    checks.Fits("the factor", factor->dimensions(), a, {a.rows, a.cols});
    checks.Fits("info", info->dimensions(), a, {});
    checks.Letter("uplo", uplo, "LU");
    if (checks.failed()) return checks.error();
    T* out = CopyInto(factor, x);
    const char triangle = static_cast<char>(uplo);
    const int n = a.rows, leading = a.leading();
    for (int64_t i = 0; i < a.count; ++i, out += a.size()) {
      int code = 0;
      Lapack<T>::potrf(&triangle, &n, out, &leading, &code);
      if (code < 0) return RefusedArgument("potrf", code);
      info->typed_data()[i] = code;
    }
    return ffi::Error::Success();
  }
};

// P x = L U; pivots count from 1; info > 0: U is singular, which is not an error.
struct Getrf {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<int32_t>>()
        .template Ret<Operand<int32_t>>();
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> factors, Result<int32_t> pivots,
                        Result<int32_t> info) {
    Checks checks("getrf");
    const Matrices a = checks.Matrix("the operand", x.dimensions());
    checks.Fits("the factors", factors->dimensions(), a, {a.rows, a.cols});
    checks.Fits("the pivots", pivots->dimensions(), a, {a.rank_max()});
    checks.Fits("info", info->dimensions(), a, {});
    if (checks.failed()) return checks.error();
    T* out = CopyInto(factors, x);
    int32_t* pivot = pivots->typed_data();
    const int m = a.rows, n = a.cols, leading = a.leading();
    for (int64_t i = 0; i < a.count; ++i, out += a.size(), pivot += a.rank_max()) {
      int code = 0;
      Lapack<T>::getrf(&m, &n, out, &leading, pivot, &code);
      if (code < 0) return RefusedArgument("getrf", code);
      info->typed_data()[i] = code;
    }
    return ffi::Error::Success();
  }
};

// x = Q R: R in the upper triangle, the reflectors that form Q below it, their factors in tau.
struct Geqrf {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind().Arg<Operand<T>>().template Ret<Operand<T>>().template Ret<Operand<T>>();
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> factors, Result<T> taus) {
    Checks checks("geqrf");
    const Matrices a = checks.Matrix("the operand", x.dimensions());
    checks.Fits("the factors", factors->dimensions(), a, {a.rows, a.cols});
    checks.Fits("tau", taus->dimensions(), a, {a.rank_max()});
    checks.Workspace(kBlockMax * (a.cols + 2.0));
    if (checks.failed()) return checks.error();
    T* out = CopyInto(factors, x);
    if (a.size() == 0) return ffi::Error::Success();
    T* tau = taus->typed_data();
    const int m = a.rows, n = a.cols, leading = a.leading();
    int code = 0, size = -1;
    T answer{};
    Lapack<T>::geqrf(&m, &n, out, &leading, tau, &answer, &size, &code);
    size = WorkspaceSize(answer);
    auto work = Workspace<T>(size);
    for (int64_t i = 0; i < a.count && code == 0; ++i, out += a.size(), tau += a.rank_max())
      Lapack<T>::geqrf(&m, &n, out, &leading, tau, work.get(), &size, &code);
    return code == 0 ? ffi::Error::Success() : RefusedArgument("geqrf", code);
  }
};

// x P = Q R. A column whose number in `permutation` is not 0 is moved to the front.
struct Geqp3 {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Arg<Operand<int32_t>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<int32_t>>()
        .template Ret<Operand<T>>();
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Operand<int32_t> chosen, Result<T> factors,
                        Result<int32_t> permutations, Result<T> taus) {
    Checks checks("geqp3");
    const Matrices a = checks.Matrix("the operand", x.dimensions());
    checks.Fits("the permutation", chosen.dimensions(), a, {a.cols});
    checks.Fits("the factors", factors->dimensions(), a, {a.rows, a.cols});
    checks.Fits("the resulting permutation", permutations->dimensions(), a, {a.cols});
    checks.Fits("tau", taus->dimensions(), a, {a.rank_max()});
    checks.Workspace(kBlockMax * (a.cols + 2.0));
    if (checks.failed()) return checks.error();
    T* out = CopyInto(factors, x);
    int32_t* permutation = CopyInto(permutations, chosen);
    if (a.size() == 0) return ffi::Error::Success();
    T* tau = taus->typed_data();
    const int m = a.rows, n = a.cols, leading = a.leading();
    auto real_work = Workspace<Real<T>>(2 * int64_t{n});
    auto factor = [&](T* work, int size) {
      int code = 0;
      if constexpr (kIsComplex<T>) {
        Lapack<T>::geqp3(&m, &n, out, &leading, permutation, tau, work, &size, real_work.get(),
                         &code);
      } else {
        Lapack<T>::geqp3(&m, &n, out, &leading, permutation, tau, work, &size, &code);
      }
      return code;
    };
    T answer{};
    int code = factor(&answer, -1);
    const int size = WorkspaceSize(answer);
    auto work = Workspace<T>(size);
    for (int64_t i = 0; i < a.count && code == 0; ++i) {
      code = factor(work.get(), size);
      out += a.size();
      permutation += n;
      tau += a.rank_max();
    }
    return code == 0 ? ffi::Error::Success() : RefusedArgument("geqp3", code);
  }
};

// The first columns of Q, from reflectors.
struct Orgqr {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind().Arg<Operand<T>>().template Arg<Operand<T>>().template Ret<Operand<T>>();
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Operand<T> taus, Result<T> q) {
    Checks checks("orgqr");
    const Matrices a = checks.Matrix("the operand", x.dimensions());
    const Dimensions tau_dimensions = taus.dimensions();
    const int64_t k = tau_dimensions.size() == 0 ? 0 : tau_dimensions.back();
    checks.Fits("tau", tau_dimensions, a, {k});
    checks.Fits("the result", q->dimensions(), a, {a.rows, a.cols});
    checks.True(k <= a.cols && a.cols <= a.rows, "sizes must satisfy tau <= columns <= rows");
    checks.Workspace(kBlockMax * a.cols);
    if (checks.failed()) return checks.error();
    T* out = CopyInto(q, x);
    if (a.size() == 0) return ffi::Error::Success();
    const T* tau = taus.typed_data();
    const int m = a.rows, n = a.cols, reflectors = static_cast<int>(k), leading = a.leading();
    int code = 0, size = -1;
    T answer{};
    Lapack<T>::orgqr(&m, &n, &reflectors, out, &leading, tau, &answer, &size, &code);
    size = WorkspaceSize(answer);
    auto work = Workspace<T>(size);
    for (int64_t i = 0; i < a.count && code == 0; ++i, out += a.size(), tau += k)
      Lapack<T>::orgqr(&m, &n, &reflectors, out, &leading, tau, work.get(), &size, &code);
    return code == 0 ? ffi::Error::Success() : RefusedArgument("orgqr", code);
  }
};

// Q c, Q^H c, c Q or c Q^H, with Q as reflectors.
struct Ormqr {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Arg<Operand<T>>()
        .template Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Attr<bool>("left")
        .template Attr<bool>("transpose");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Operand<T> taus, Operand<T> c, Result<T> product, bool left,
                        bool transpose) {
    Checks checks("ormqr");
    const Matrices a = checks.Matrix("the reflectors", x.dimensions());
    const Matrices target = checks.Matrix("the matrix", c.dimensions());
    const Dimensions tau_dimensions = taus.dimensions();
    const int64_t k = tau_dimensions.size() == 0 ? 0 : tau_dimensions.back();
    checks.Fits("tau", tau_dimensions, a, {k});
    checks.Fits("the matrix", c.dimensions(), a, {target.rows, target.cols});
    checks.Fits("the result", product->dimensions(), a, {target.rows, target.cols});
    checks.True(a.rows == (left ? target.rows : target.cols),
                "Q and the matrix must have sizes that can be multiplied");
    checks.True(k <= a.cols && k <= a.rows, "tau must not outnumber the reflectors");
    checks.Workspace(kBlockMax * (target.rows + kBlockMax + target.cols));
    if (checks.failed()) return checks.error();
    T* out = CopyInto(product, c);
    if (target.size() == 0) return ffi::Error::Success();
    const T* reflectors = x.typed_data();
    const T* tau = taus.typed_data();
    const char side = left ? 'L' : 'R', operation = !transpose ? 'N' : kIsComplex<T> ? 'C' : 'T';
    const int m = target.rows, n = target.cols, count = static_cast<int>(k);
    const int leading = a.leading(), target_leading = target.leading();
    int code = 0, size = -1;
    T answer{};
    Lapack<T>::ormqr(&side, &operation, &m, &n, &count, reflectors, &leading, tau, out,
                     &target_leading, &answer, &size, &code);
    size = WorkspaceSize(answer);
    auto work = Workspace<T>(size);
    for (int64_t i = 0; i < a.count && code == 0; ++i) {
      Lapack<T>::ormqr(&side, &operation, &m, &n, &count, reflectors, &leading, tau, out,
                       &target_leading, work.get(), &size, &code);
      reflectors += a.size();
      tau += k;
      out += target.size();
    }
    return code == 0 ? ffi::Error::Success() : RefusedArgument("ormqr", code);
  }
};

// x = Q H Q^H with H zero below its first subdiagonal. Rows and columns outside low..high (from 1)
// are triangular already.
struct Gehrd {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<int32_t>>()
        .template Attr<int32_t>("low")
        .template Attr<int32_t>("high");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> factors, Result<T> taus, Result<int32_t> info,
                        int32_t low, int32_t high) {
    Checks checks("gehrd");
    const Matrices a = checks.SquareMatrix("the operand", x.dimensions());
    const int n = a.rows, leading = a.leading(), reflectors = n > 1 ? n - 1 : 0;
    checks.Fits("the factors", factors->dimensions(), a, {n, n});
    checks.Fits("tau", taus->dimensions(), a, {reflectors});
    checks.Fits("info", info->dimensions(), a, {});
    checks.True(n == 0 ? low == 1 && high == 0 : 1 <= low && low <= high && high <= n,
                "low and high must bound a range of the matrix");
    checks.Workspace(kBlockMax * (n + kBlockMax));
    if (checks.failed()) return checks.error();
    T* out = CopyInto(factors, x);
    T* tau = taus->typed_data();
    T answer{};
    int code = 0, size = -1;
    Lapack<T>::gehrd(&n, &low, &high, out, &leading, tau, &answer, &size, &code);
    if (code < 0) return RefusedArgument("gehrd", code);
    size = WorkspaceSize(answer);
    auto work = Workspace<T>(size);
    for (int64_t i = 0; i < a.count; ++i, out += a.size(), tau += reflectors) {
      Lapack<T>::gehrd(&n, &low, &high, out, &leading, tau, work.get(), &size, &code);
      if (code < 0) return RefusedArgument("gehrd", code);
      info->typed_data()[i] = code;
    }
    return ffi::Error::Success();
  }
};

}  // namespace

void AddFactorizations(std::vector<FfiHandler>& handlers) {
  AddAllTypes<Potrf>(handlers, "potrf");
  AddAllTypes<Getrf>(handlers, "getrf");
  AddAllTypes<Geqrf>(handlers, "geqrf");
  AddAllTypes<Geqp3>(handlers, "geqp3");
  AddAllTypes<Gehrd>(handlers, "gehrd");
  AddReal<Orgqr>(handlers, "orgqr");
  AddComplex<Orgqr>(handlers, "ungqr");
  AddReal<Ormqr>(handlers, "ormqr");
  AddComplex<Ormqr>(handlers, "unmqr");
}

}  // namespace gangway::device::linalg
