// Matrices without symmetry: eigenvalues with left and right vectors (geev), and the Schur form
// (gees). Their custom calls differ by type: those of real types return the real and imaginary
// parts of eigenvalues separately.
#include "gangway/device/pjrt/linalg/custom_call.h"
#include "gangway/device/pjrt/linalg/lapack_routines.h"

namespace gangway::device::linalg {
namespace {

template <typename T>
using ComplexOf = std::complex<Real<T>>;

// LAPACK packs the vectors of a conjugate pair of eigenvalues into two real columns: the real and
// the imaginary part of the first vector.
template <typename T>
void UnpackVectors(int n, const T* imaginary, const T* packed, std::complex<T>* vectors) {
  const auto column = [n](auto* matrix, int64_t j) { return matrix + j * n; };
  for (int j = 0; j < n; ++j) {
    const T* re = column(packed, j);
    if (imaginary[j] == 0 || j + 1 == n) {
      for (int i = 0; i < n; ++i) column(vectors, j)[i] = re[i];
      continue;
    }
    const T* im = column(packed, j + 1);
    for (int i = 0; i < n; ++i) {
      column(vectors, j)[i] = {re[i], im[i]};
      column(vectors, j + 1)[i] = {re[i], -im[i]};
    }
    ++j;
  }
}

// The results of one matrix. Complex types have their values in `w`, real types in `w` (real parts)
// and `w_imaginary`.
template <typename T>
struct EigArrays {
  T* w;
  T* w_imaginary;
  ComplexOf<T>* left;
  ComplexOf<T>* right;
};

// geev with its workspaces; does not change the operand.
template <typename T>
class EigSolver {
 public:
  EigSolver(int n, char left, char right)
      : n_(n),
        leading_(std::max(1, n)),
        left_(left),
        right_(right),
        matrix_(Workspace<T>(int64_t{n} * n)),
        reals_(Workspace<Real<T>>(2 * int64_t{n})) {
    if constexpr (!kIsComplex<T>) {
      packed_left_ = Workspace<T>(int64_t{n} * n);
      packed_right_ = Workspace<T>(int64_t{n} * n);
    }
  }

  int Prepare() {
    T answer{};
    T values[2];
    const int code = Call({values, values + 1, nullptr, nullptr}, &answer, -1);
    size_ = WorkspaceSize(answer);
    work_ = Workspace<T>(size_);
    return code;
  }

  int Solve(const T* a, const EigArrays<T>& out) {
    const int64_t count = int64_t{n_} * n_;
    int code = kNotFinite;
    if (AllFinite(a, count)) {
      std::copy_n(a, count, matrix_.get());
      code = Call(out, work_.get(), size_);
    }
    if (code != 0) Fill(out.w, n_, NotANumber<T>());
    if (code != 0 && !kIsComplex<T>) Fill(out.w_imaginary, n_, NotANumber<T>());
    Finish(code, left_, packed_left_.get(), out.w_imaginary, out.left);
    Finish(code, right_, packed_right_.get(), out.w_imaginary, out.right);
    return code;
  }

 private:
  int Call(const EigArrays<T>& out, T* work, int size) {
    int code = 0;
    if constexpr (kIsComplex<T>) {
      Lapack<T>::geev(&left_, &right_, &n_, matrix_.get(), &leading_, out.w, out.left, &leading_,
                      out.right, &leading_, work, &size, reals_.get(), &code);
    } else {
      Lapack<T>::geev(&left_, &right_, &n_, matrix_.get(), &leading_, out.w, out.w_imaginary,
                      packed_left_.get(), &leading_, packed_right_.get(), &leading_, work, &size,
                      &code);
    }
    return code;
  }

  // Writes vectors as JAX expects them: complex, and defined even if not requested or not found.
  void Finish(int code, char wanted, const T* packed, const T* imaginary, ComplexOf<T>* vectors) {
    const int64_t count = int64_t{n_} * n_;
    if (code != 0) return Fill(vectors, count, NotANumber<ComplexOf<T>>());
    if (wanted == 'N') return Fill(vectors, count, ComplexOf<T>(0));
    if constexpr (!kIsComplex<T>) UnpackVectors(n_, imaginary, packed, vectors);
  }

  const int n_, leading_;
  const char left_, right_;
  int size_ = -1;
  std::unique_ptr<T[]> matrix_, packed_left_, packed_right_, work_;
  std::unique_ptr<Real<T>[]> reals_;
};

template <typename T>
ffi::Error RunGeev(Operand<T> x, EigArrays<T> out, const Matrices& a, int32_t* info, char left,
                   char right) {
  EigSolver<T> solver(a.rows, left, right);
  if (int code = solver.Prepare(); code < 0) return RefusedArgument("geev", code);
  const T* matrix = x.typed_data();
  for (int64_t i = 0; i < a.count; ++i, matrix += a.size()) {
    info[i] = solver.Solve(matrix, out);
    if (info[i] < 0 && info[i] != kNotFinite) return RefusedArgument("geev", info[i]);
    out.w += a.rows;
    if (out.w_imaginary != nullptr) out.w_imaginary += a.rows;
    out.left += a.size();
    out.right += a.size();
  }
  return ffi::Error::Success();
}

template <typename T>
Matrices CheckGeev(Checks& checks, const Operand<T>& x, Result<T>& w, Result<ComplexOf<T>>& left,
                   Result<ComplexOf<T>>& right, Result<int32_t>& info, uint8_t compute_left,
                   uint8_t compute_right) {
  const Matrices a = checks.SquareMatrix("the operand", x.dimensions());
  checks.Fits("the values", w->dimensions(), a, {a.rows});
  checks.Fits("the left vectors", left->dimensions(), a, {a.rows, a.rows});
  checks.Fits("the right vectors", right->dimensions(), a, {a.rows, a.rows});
  checks.Fits("info", info->dimensions(), a, {});
  checks.Workspace(2 * kBlockMax * (a.rows + 2.0));
  checks.Letter("compute_left", compute_left, "VN");
  checks.Letter("compute_right", compute_right, "VN");
  return a;
}

// Eigenvalues and vectors as columns; info > 0: did not converge.
struct GeevReal {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<ComplexOf<T>>>()
        .template Ret<Operand<ComplexOf<T>>>()
        .template Ret<Operand<int32_t>>()
        .template Attr<uint8_t>("compute_left")
        .template Attr<uint8_t>("compute_right");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> w, Result<T> w_imaginary, Result<ComplexOf<T>> left,
                        Result<ComplexOf<T>> right, Result<int32_t> info, uint8_t compute_left,
                        uint8_t compute_right) {
    Checks checks("geev");
    const Matrices a = CheckGeev<T>(checks, x, w, left, right, info, compute_left, compute_right);
    checks.Fits("the values' imaginary parts", w_imaginary->dimensions(), a, {a.rows});
    if (checks.failed()) return checks.error();
    const EigArrays<T> out{w->typed_data(), w_imaginary->typed_data(), left->typed_data(),
                           right->typed_data()};
    return RunGeev<T>(x, out, a, info->typed_data(), static_cast<char>(compute_left),
                      static_cast<char>(compute_right));
  }
};

struct GeevComplex {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<int32_t>>()
        .template Attr<uint8_t>("compute_left")
        .template Attr<uint8_t>("compute_right");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> w, Result<T> left, Result<T> right,
                        Result<int32_t> info, uint8_t compute_left, uint8_t compute_right) {
    Checks checks("geev");
    const Matrices a = CheckGeev<T>(checks, x, w, left, right, info, compute_left, compute_right);
    if (checks.failed()) return checks.error();
    const EigArrays<T> out{w->typed_data(), nullptr, left->typed_data(), right->typed_data()};
    return RunGeev<T>(x, out, a, info->typed_data(), static_cast<char>(compute_left),
                      static_cast<char>(compute_right));
  }
};

// The Schur form of one matrix.
template <typename T>
struct SchurArrays {
  T* form;
  T* vectors;
  T* w;
  T* w_imaginary;  // real types only
};

template <typename T>
class SchurSolver {
 public:
  SchurSolver(int n, char mode)
      : n_(n), leading_(std::max(1, n)), mode_(mode), reals_(Workspace<Real<T>>(n)) {}

  int Prepare(const SchurArrays<T>& out) {
    T answer{};
    const int code = Call(out, &answer, -1);
    size_ = WorkspaceSize(answer);
    work_ = Workspace<T>(size_);
    return code;
  }

  int Solve(const SchurArrays<T>& out) {
    const int64_t count = int64_t{n_} * n_;
    const int code = AllFinite(out.form, count) ? Call(out, work_.get(), size_) : kNotFinite;
    if (code != 0) {
      Fill(out.form, count, NotANumber<T>());
      Fill(out.w, n_, NotANumber<T>());
      if (out.w_imaginary != nullptr) Fill(out.w_imaginary, n_, NotANumber<T>());
    }
    if (code != 0 || mode_ == 'N') Fill(out.vectors, count, code != 0 ? NotANumber<T>() : T(0));
    return code;
  }

 private:
  int Call(const SchurArrays<T>& out, T* work, int size) {
    constexpr char kUnsorted = 'N';
    int selected = 0, code = 0;
    if constexpr (kIsComplex<T>) {
      Lapack<T>::gees(&mode_, &kUnsorted, nullptr, &n_, out.form, &leading_, &selected, out.w,
                      out.vectors, &leading_, work, &size, reals_.get(), nullptr, &code);
    } else {
      Lapack<T>::gees(&mode_, &kUnsorted, nullptr, &n_, out.form, &leading_, &selected, out.w,
                      out.w_imaginary, out.vectors, &leading_, work, &size, nullptr, &code);
    }
    return code;
  }

  const int n_, leading_;
  const char mode_;
  int size_ = -1;
  std::unique_ptr<T[]> work_;
  std::unique_ptr<Real<T>[]> reals_;
};

template <typename T>
Matrices CheckGees(Checks& checks, const Operand<T>& x, Result<T>& form, Result<T>& vectors,
                   Result<T>& w, Result<int32_t>& selected, Result<int32_t>& info, uint8_t mode,
                   uint8_t sort) {
  const Matrices a = checks.SquareMatrix("the operand", x.dimensions());
  checks.Fits("the Schur form", form->dimensions(), a, {a.rows, a.rows});
  checks.Fits("the Schur vectors", vectors->dimensions(), a, {a.rows, a.rows});
  checks.Fits("the values", w->dimensions(), a, {a.rows});
  checks.Fits("the selected count", selected->dimensions(), a, {});
  checks.Fits("info", info->dimensions(), a, {});
  checks.Workspace(2 * kBlockMax * (a.rows + 2.0));
  checks.Letter("mode", mode, "VN");
  checks.Letter("sort", sort, "N");  // sorting needs a function of the client
  return a;
}

template <typename T>
ffi::Error RunGees(SchurArrays<T> out, const Matrices& a, int32_t* selected, int32_t* info,
                   char mode) {
  SchurSolver<T> solver(a.rows, mode);
  if (int code = solver.Prepare(out); code < 0) return RefusedArgument("gees", code);
  for (int64_t i = 0; i < a.count; ++i) {
    selected[i] = 0;
    info[i] = solver.Solve(out);
    if (info[i] < 0 && info[i] != kNotFinite) return RefusedArgument("gees", info[i]);
    out.form += a.size();
    out.vectors += a.size();
    out.w += a.rows;
    if (out.w_imaginary != nullptr) out.w_imaginary += a.rows;
  }
  return ffi::Error::Success();
}

// x = Z t Z^H, t triangular (real types: with 2 x 2 blocks for conjugate pairs); info > 0: did not
// converge.
struct GeesReal {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<int32_t>>()
        .template Ret<Operand<int32_t>>()
        .template Attr<uint8_t>("mode")
        .template Attr<uint8_t>("sort");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> form, Result<T> vectors, Result<T> w,
                        Result<T> w_imaginary, Result<int32_t> selected, Result<int32_t> info,
                        uint8_t mode, uint8_t sort) {
    Checks checks("gees");
    const Matrices a = CheckGees<T>(checks, x, form, vectors, w, selected, info, mode, sort);
    checks.Fits("the values' imaginary parts", w_imaginary->dimensions(), a, {a.rows});
    if (checks.failed()) return checks.error();
    return RunGees<T>(
        {CopyInto(form, x), vectors->typed_data(), w->typed_data(), w_imaginary->typed_data()}, a,
        selected->typed_data(), info->typed_data(), static_cast<char>(mode));
  }
};

struct GeesComplex {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<int32_t>>()
        .template Ret<Operand<int32_t>>()
        .template Attr<uint8_t>("mode")
        .template Attr<uint8_t>("sort");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> form, Result<T> vectors, Result<T> w,
                        Result<int32_t> selected, Result<int32_t> info, uint8_t mode,
                        uint8_t sort) {
    Checks checks("gees");
    const Matrices a = CheckGees<T>(checks, x, form, vectors, w, selected, info, mode, sort);
    if (checks.failed()) return checks.error();
    return RunGees<T>({CopyInto(form, x), vectors->typed_data(), w->typed_data(), nullptr}, a,
                      selected->typed_data(), info->typed_data(), static_cast<char>(mode));
  }
};

}  // namespace

void AddGeneralEigenvalues(std::vector<FfiHandler>& handlers) {
  AddReal<GeevReal>(handlers, "geev");
  AddComplex<GeevComplex>(handlers, "geev");
  AddReal<GeesReal>(handlers, "gees");
  AddComplex<GeesComplex>(handlers, "gees");
}

}  // namespace gangway::device::linalg
