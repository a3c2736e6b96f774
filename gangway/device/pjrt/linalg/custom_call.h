// The shared parts of the handlers in device/pjrt/linalg: types of a custom call's buffers, checks
// of their shapes, workspace, and registration in the list of handlers.
//
// A client's program determines a custom call. JAX emits valid ones; others may name a target with
// any shapes and attributes, so a handler checks all of them before it touches memory. It fills
// every result that it does not compute, so that no result shows earlier contents of its memory
// (OB-3). Internal to device/pjrt/linalg.
#ifndef GANGWAY_DEVICE_PJRT_LINALG_CUSTOM_CALL_H_
#define GANGWAY_DEVICE_PJRT_LINALG_CUSTOM_CALL_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "xla/ffi/api/ffi.h"

#include "gangway/device/device.h"

namespace gangway::device::linalg {

namespace ffi = ::xla::ffi;

using Dimensions = ffi::Span<const int64_t>;

template <typename T>
inline constexpr ffi::DataType kDataType = ffi::DataType::INVALID;
template <>
inline constexpr ffi::DataType kDataType<int32_t> = ffi::DataType::S32;
template <>
inline constexpr ffi::DataType kDataType<float> = ffi::DataType::F32;
template <>
inline constexpr ffi::DataType kDataType<double> = ffi::DataType::F64;
template <>
inline constexpr ffi::DataType kDataType<std::complex<float>> = ffi::DataType::C64;
template <>
inline constexpr ffi::DataType kDataType<std::complex<double>> = ffi::DataType::C128;

// The buffers of a handler's signature. A call with other types is rejected before Run.
template <typename T>
using Operand = ffi::Buffer<kDataType<T>>;
template <typename T>
using Result = ffi::Result<ffi::Buffer<kDataType<T>>>;

template <typename T>
struct RealOf {
  using type = T;
};
template <typename T>
struct RealOf<std::complex<T>> {
  using type = T;
};
template <typename T>
using Real = typename RealOf<T>::type;
template <typename T>
inline constexpr bool kIsComplex = !std::is_same_v<T, Real<T>>;

// A batch of matrices, each column-major (the layout that JAX requests), one after another.
struct Matrices {
  Dimensions batch;   // the leading dimensions
  int64_t count = 0;  // their product
  int rows = 0;
  int cols = 0;

  int64_t size() const { return int64_t{rows} * cols; }
  int leading() const { return rows > 1 ? rows : 1; }  // LAPACK's leading dimension
  int rank_max() const { return rows < cols ? rows : cols; }
};

// The most columns that a LAPACK routine processes at once.
inline constexpr double kBlockMax = 128;

// Checks the shapes and attributes of a call, and reports the first fault.
class Checks {
 public:
  explicit Checks(std::string_view routine) : routine_(routine) {}

  // All dimensions but the last two are the batch. On a fault it is empty.
  Matrices Matrix(std::string_view name, Dimensions dimensions);
  Matrices SquareMatrix(std::string_view name, Dimensions dimensions);
  // `dimensions` must be `like`'s batch, followed by `trailing`.
  void Fits(std::string_view name, Dimensions dimensions, const Matrices& like,
            std::initializer_list<int64_t> trailing);
  void Letter(std::string_view attribute, uint8_t value, std::string_view allowed);
  void True(bool holds, std::string_view what);
  // LAPACK computes the sizes of its workspaces with 32 bits and does not detect overflow.
  // `elements` is an upper bound of the largest one, with blocks of kBlockMax columns.
  void Workspace(double elements);

  bool failed() const { return !fault_.empty(); }
  ffi::Error error() const;

 private:
  void Fault(std::string text);

  const std::string_view routine_;
  std::string fault_;
};

// For info < 0: LAPACK rejected an argument that the checks should have rejected.
ffi::Error RefusedArgument(std::string_view routine, int info);

// Copies the operand into the result, and returns the result's data. They may be one buffer.
template <ffi::DataType kType>
ffi::NativeType<kType>* CopyInto(ffi::ResultBuffer<kType>& result,
                                 const ffi::Buffer<kType>& operand) {
  const size_t bytes = operand.size_bytes();
  if (bytes != 0 && result->untyped_data() != operand.untyped_data())
    std::memcpy(result->untyped_data(), operand.untyped_data(), bytes);
  return result->typed_data();
}

template <typename T>
void Fill(T* values, int64_t count, T value) {
  for (int64_t i = 0; i < count; ++i) values[i] = value;
}

template <typename T>
T NotANumber() {
  return T(std::numeric_limits<Real<T>>::quiet_NaN());
}

// Eigenvalue iterations may not terminate on infinities and NaNs, so such matrices do not go to
// LAPACK. Their info code is LAPACK's own.
inline constexpr int kNotFinite = -4;

template <typename T>
bool AllFinite(const T* values, int64_t count) {
  using std::isfinite;
  bool finite = true;  // no branch in the loop, so that it is vectorized
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (kIsComplex<T>) {
      finite &= isfinite(values[i].real()) && isfinite(values[i].imag());
    } else {
      finite &= isfinite(values[i]);
    }
  }
  return finite;
}

// Uninitialized. Throws std::bad_alloc, which `Guard` turns into an error.
template <typename T>
std::unique_ptr<T[]> Workspace(int64_t count) {
  return std::make_unique_for_overwrite<T[]>(count < 1 ? 1 : count);
}

// The size from a workspace query. LAPACK returns a floating-point number, which may be rounded
// down for large sizes.
template <typename T>
int WorkspaceSize(T answer) {
  const Real<T> exact = std::real(answer);
  const double size = std::nextafter(exact, std::numeric_limits<Real<T>>::infinity());
  constexpr double kMax = std::numeric_limits<int>::max();
  return size < 1 ? 1 : static_cast<int>(size < kMax ? size : kMax);
}

// Exceptions must not reach the plugin.
template <typename... A>
auto Guard(ffi::Error (*run)(A...)) {
  return [run](A... arguments) -> ffi::Error {
    try {
      return run(arguments...);
    } catch (const std::bad_alloc&) {
      return {ffi::ErrorCode::kResourceExhausted,
              "not enough memory for the workspace of a LAPACK routine; use smaller matrices or "
              "give the worker's host more memory"};
    }
  };
}

// A routine is a struct with two static templates: Bind<T>(), the signature of its custom call, and
// Run<T>(...), which computes.
template <typename Routine, typename T>
XLA_FFI_Error* Handle(XLA_FFI_CallFrame* frame) {
  static auto* const handler =
      Routine::template Bind<T>().To(Guard(Routine::template Run<T>)).release();
  return handler->Call(frame);
}

template <typename Routine, typename T>
void AddHandler(std::vector<FfiHandler>& handlers, std::string_view target) {
  handlers.push_back({std::string(target), reinterpret_cast<void*>(&Handle<Routine, T>)});
}

template <typename Routine>
void AddReal(std::vector<FfiHandler>& handlers, const std::string& name) {
  AddHandler<Routine, float>(handlers, "lapack_s" + name + "_ffi");
  AddHandler<Routine, double>(handlers, "lapack_d" + name + "_ffi");
}

template <typename Routine>
void AddComplex(std::vector<FfiHandler>& handlers, const std::string& name) {
  AddHandler<Routine, std::complex<float>>(handlers, "lapack_c" + name + "_ffi");
  AddHandler<Routine, std::complex<double>>(handlers, "lapack_z" + name + "_ffi");
}

template <typename Routine>
void AddAllTypes(std::vector<FfiHandler>& handlers, const std::string& name) {
  AddReal<Routine>(handlers, name);
  AddComplex<Routine>(handlers, name);
}

// One function per file.
void AddFactorizations(std::vector<FfiHandler>& handlers);
void AddSolvers(std::vector<FfiHandler>& handlers);
void AddSingularValues(std::vector<FfiHandler>& handlers);
void AddSymmetricEigenvalues(std::vector<FfiHandler>& handlers);
void AddGeneralEigenvalues(std::vector<FfiHandler>& handlers);

}  // namespace gangway::device::linalg

#endif  // GANGWAY_DEVICE_PJRT_LINALG_CUSTOM_CALL_H_
