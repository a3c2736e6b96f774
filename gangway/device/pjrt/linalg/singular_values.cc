// Singular values, by divide and conquer (gesdd) or by QR iteration (gesvd).
#include "gangway/device/pjrt/linalg/custom_call.h"
#include "gangway/device/pjrt/linalg/lapack_routines.h"

namespace gangway::device::linalg {
namespace {

// The operand and the results of one matrix.
template <typename T>
struct SvdArrays {
  T* a;  // destroyed
  Real<T>* s;
  T* u;
  T* vt;
};

struct SvdSizes {
  char mode;  // 'A': all of u and vt, 'S': their first rank_max columns and rows, 'N': neither
  int m, n, lda, ldu, ldvt;
};

// LAPACK's bounds for the real and integer workspace of gesdd.
int64_t GesddRealSize(const SvdSizes& z) {
  const int64_t least = std::min(z.m, z.n), most = std::max(z.m, z.n);
  if (z.mode == 'N') return 7 * least;
  return std::max(5 * least * least + 5 * least, 2 * most * least + 2 * least * least + least);
}

// Gesdd and Gesvd own their workspace, except `work`. Calling with size -1 queries its size.
template <typename T>
class Gesdd {
 public:
  explicit Gesdd(const SvdSizes& sizes)
      : z_(sizes),
        integers_(Workspace<int>(8 * int64_t{std::min(sizes.m, sizes.n)})),
        reals_(Workspace<Real<T>>(kIsComplex<T> ? GesddRealSize(sizes) : 0)) {}

  int Call(const SvdArrays<T>& x, T* work, int size) {
    int code = 0;
    if constexpr (kIsComplex<T>) {
      Lapack<T>::gesdd(&z_.mode, &z_.m, &z_.n, x.a, &z_.lda, x.s, x.u, &z_.ldu, x.vt, &z_.ldvt,
                       work, &size, reals_.get(), integers_.get(), &code);
    } else {
      Lapack<T>::gesdd(&z_.mode, &z_.m, &z_.n, x.a, &z_.lda, x.s, x.u, &z_.ldu, x.vt, &z_.ldvt,
                       work, &size, integers_.get(), &code);
    }
    return code;
  }

 private:
  const SvdSizes z_;
  std::unique_ptr<int[]> integers_;
  std::unique_ptr<Real<T>[]> reals_;
};

template <typename T>
class Gesvd {
 public:
  explicit Gesvd(const SvdSizes& sizes)
      : z_(sizes), reals_(Workspace<Real<T>>(5 * int64_t{std::min(sizes.m, sizes.n)})) {}

  int Call(const SvdArrays<T>& x, T* work, int size) {
    int code = 0;
    if constexpr (kIsComplex<T>) {
      Lapack<T>::gesvd(&z_.mode, &z_.mode, &z_.m, &z_.n, x.a, &z_.lda, x.s, x.u, &z_.ldu, x.vt,
                       &z_.ldvt, work, &size, reals_.get(), &code);
    } else {
      Lapack<T>::gesvd(&z_.mode, &z_.mode, &z_.m, &z_.n, x.a, &z_.lda, x.s, x.u, &z_.ldu, x.vt,
                       &z_.ldvt, work, &size, &code);
    }
    return code;
  }

 private:
  const SvdSizes z_;
  std::unique_ptr<Real<T>[]> reals_;
};

template <typename T>
void FillIdentity(T* values, int64_t size) {
  Fill(values, size * size, T(0));
  for (int64_t i = 0; i < size; ++i) values[i * size + i] = T(1);
}

// s holds min(rows, cols) values; the mode determines the shapes of u and vt.
template <typename T>
struct SvdCall {
  Matrices a, u, vt;
  SvdArrays<T> x;
  int32_t* info;
  char mode;

  int64_t rank() const { return a.rank_max(); }
  void Next() {
    x.a += a.size();
    x.s += rank();
    x.u += u.size();
    x.vt += vt.size();
  }
  void FillVectors(T value) {
    Fill(x.u, u.size(), value);
    Fill(x.vt, vt.size(), value);
  }
};

template <template <typename> typename Method, typename T>
ffi::Error Decompose(std::string_view routine, SvdCall<T> call) {
  Method<T> method(
      {call.mode, call.a.rows, call.a.cols, call.a.leading(), call.u.leading(), call.vt.leading()});
  T answer{};
  if (int code = method.Call(call.x, &answer, -1); code < 0) return RefusedArgument(routine, code);
  const int size = WorkspaceSize(answer);
  auto work = Workspace<T>(size);
  for (int64_t i = 0; i < call.a.count; ++i, call.Next()) {
    int code = kNotFinite;
    if (AllFinite(call.x.a, call.a.size())) {
      code = method.Call(call.x, work.get(), size);
      if (code < 0) return RefusedArgument(routine, code);
    }
    call.info[i] = code;
    if (code != 0) Fill(call.x.s, call.rank(), NotANumber<Real<T>>());
    if (code != 0 || call.mode == 'N') call.FillVectors(code != 0 ? NotANumber<T>() : T(0));
  }
  return ffi::Error::Success();
}

// a = u diag(s) vt; info > 0: did not converge.
template <template <typename> typename Method>
struct Svd {
  template <typename T>
  static auto Bind() {
    return ffi::Ffi::Bind()
        .Arg<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<Real<T>>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<T>>()
        .template Ret<Operand<int32_t>>()
        .template Attr<uint8_t>("mode");
  }
  template <typename T>
  static ffi::Error Run(Operand<T> x, Result<T> x_out, Result<Real<T>> s, Result<T> u, Result<T> vt,
                        Result<int32_t> info, uint8_t mode) {
    constexpr std::string_view kRoutine =
        std::is_same_v<Method<float>, Gesdd<float>> ? "gesdd" : "gesvd";
    Checks checks(kRoutine);
    SvdCall<T> call;
    call.a = checks.Matrix("the operand", x.dimensions());
    call.u = checks.Matrix("u", u->dimensions());
    call.vt = checks.Matrix("vt", vt->dimensions());
    call.mode = static_cast<char>(mode);
    const int m = call.a.rows, n = call.a.cols, least = call.a.rank_max();
    checks.Letter("mode", mode, "ASN");
    checks.Fits("the destroyed operand", x_out->dimensions(), call.a, {m, n});
    checks.Fits("s", s->dimensions(), call.a, {least});
    const bool full = mode == 'A' || (mode == 'N' && call.u.cols == m && call.vt.rows == n);
    checks.Fits("u", u->dimensions(), call.a, {m, full ? m : least});
    checks.Fits("vt", vt->dimensions(), call.a, {full ? n : least, n});
    checks.Fits("info", info->dimensions(), call.a, {});
    checks.Workspace(4.0 * least * least + kBlockMax * (1.0 * m + n + least));
    if (checks.failed()) return checks.error();
    call.x = {CopyInto(x_out, x), s->typed_data(), u->typed_data(), vt->typed_data()};
    call.info = info->typed_data();
    if (call.a.size() != 0) return Decompose<Method, T>(kRoutine, call);
    for (int64_t i = 0; i < call.a.count; ++i, call.Next()) {  // LAPACK would not fill u and vt
      call.info[i] = 0;
      if (full) FillIdentity(call.x.u, m);
      if (full) FillIdentity(call.x.vt, n);
    }
    return ffi::Error::Success();
  }
};

}  // namespace

void AddSingularValues(std::vector<FfiHandler>& handlers) {
  AddAllTypes<Svd<Gesdd>>(handlers, "gesdd");
  AddAllTypes<Svd<Gesvd>>(handlers, "gesvd");
}

}  // namespace gangway::device::linalg
