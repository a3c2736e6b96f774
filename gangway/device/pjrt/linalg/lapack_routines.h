// LAPACK and BLAS by element type: Lapack<float>::potrf is spotrf. Plain calls of the library's
// Fortran routines (column-major, 32-bit sizes, arguments by address, `info` last). LoadOpenBlas
// must succeed first; then any thread may call. Internal to device/pjrt/linalg.
#ifndef GANGWAY_DEVICE_PJRT_LINALG_LAPACK_ROUTINES_H_
#define GANGWAY_DEVICE_PJRT_LINALG_LAPACK_ROUTINES_H_

#include <complex>
#include <vector>

// Must precede lapack.h, which otherwise uses C's complex types.
#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>

#include <cblas.h>
#include <lapack.h>

namespace gangway::device::linalg {

template <typename T>
struct Lapack;

// A routine's symbol, and the variable that receives its address.
struct Routine {
  const char* symbol;
  void** address;
};

// The types come from the library's own headers; its code is not linked. Fortran appends the length
// of each character argument: these are the arguments after the symbol.
#define GANGWAY_LAPACK_ROUTINE(name, symbol, ...)            \
  static inline decltype(symbol)* name##_address = nullptr;  \
  template <typename... Arguments>                           \
  static void name(Arguments... arguments) {                 \
    name##_address(arguments... __VA_OPT__(, ) __VA_ARGS__); \
  }
#define GANGWAY_LAPACK_ADDRESS(name, symbol, ...) \
  Routine{#symbol, reinterpret_cast<void**>(&name##_address)},

// `letter` is a routine's first. Routines for orthogonal and symmetric matrices have another name
// for complex types: un instead of or, he instead of sy.
#define GANGWAY_LAPACK_ROUTINES(each, letter, orthogonal, symmetric)                       \
  each(potrf, letter##potrf_, 1) each(getrf, letter##getrf_) each(geqrf, letter##geqrf_)   \
      each(geqp3, letter##geqp3_) each(orgqr, letter##orthogonal##gqr_)                    \
          each(ormqr, letter##orthogonal##mqr_, 1, 1) each(gesdd, letter##gesdd_, 1)       \
              each(gesvd, letter##gesvd_, 1, 1) each(syevd, letter##symmetric##evd_, 1, 1) \
                  each(sytrd, letter##symmetric##trd_, 1) each(geev, letter##geev_, 1, 1)  \
                      each(gees, letter##gees_, 1, 1) each(gehrd, letter##gehrd_)          \
                          each(gtsv, letter##gtsv_) each(trsm, cblas_##letter##trsm)

#define GANGWAY_LAPACK(type, letter, orthogonal, symmetric)                                    \
  template <>                                                                                  \
  struct Lapack<type> {                                                                        \
    GANGWAY_LAPACK_ROUTINES(GANGWAY_LAPACK_ROUTINE, letter, orthogonal, symmetric)             \
    static std::vector<Routine> Routines() {                                                   \
      return {GANGWAY_LAPACK_ROUTINES(GANGWAY_LAPACK_ADDRESS, letter, orthogonal, symmetric)}; \
    }                                                                                          \
  }

GANGWAY_LAPACK(float, s, or, sy);
GANGWAY_LAPACK(double, d, or, sy);
GANGWAY_LAPACK(std::complex<float>, c, un, he);
GANGWAY_LAPACK(std::complex<double>, z, un, he);

#undef GANGWAY_LAPACK
#undef GANGWAY_LAPACK_ROUTINES
#undef GANGWAY_LAPACK_ADDRESS
#undef GANGWAY_LAPACK_ROUTINE

}  // namespace gangway::device::linalg

#endif  // GANGWAY_DEVICE_PJRT_LINALG_LAPACK_ROUTINES_H_
