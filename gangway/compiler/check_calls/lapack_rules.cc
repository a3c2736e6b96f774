// JAX's calls of LAPACK on CPU devices: lapack_, a letter of the type, the routine, _ffi. Our handlers
// (device/pjrt/linalg) check shapes and attributes again when they run, since they do not know who compiled. Here a
// wrong call is refused before it is compiled, and what XLA alone assumes is checked: aliases and layouts.
#include <algorithm>
#include <string_view>

#include "gangway/compiler/check_calls/signature.h"

namespace gangway::compiler::calls {
namespace {

int64_t Integer(const Attributes& attributes, std::string_view name) {
  const auto found = attributes.find(name);
  return found == attributes.end() ? 0 : found->second.integer;
}

void Multiplies(CallCheck& check, const Sizes& sizes, const Attributes& attributes) {
  const bool left = Integer(attributes, "left") != 0;
  check.True(sizes.Of('r') == (left ? sizes.Of('m') : sizes.Of('n')),
             "its reflectors and its matrix have sizes that cannot be multiplied");
  check.True(sizes.Of('k') <= sizes.Of('c') && sizes.Of('k') <= sizes.Of('r'),
             "its tau outnumbers the reflectors");
}

void FormsQ(CallCheck& check, const Sizes& sizes, const Attributes& /*attributes*/) {
  check.True(sizes.Of('k') <= sizes.Of('n') && sizes.Of('n') <= sizes.Of('m'),
             "its sizes are not tau <= columns <= rows");
}

void HasRange(CallCheck& check, const Sizes& sizes, const Attributes& attributes) {
  const int64_t low = Integer(attributes, "low"), high = Integer(attributes, "high");
  const int64_t n = sizes.Of('n');
  check.True(n == 0 ? low == 1 && high == 0 : 1 <= low && low <= high && high <= n,
             "its low and high bound no range of the matrix");
}

// u and vt are whole, or have as many columns and rows as there are singular values.
void Decomposes(CallCheck& check, const Sizes& sizes, const Attributes& attributes) {
  const int64_t mode = Integer(attributes, "mode");
  const int64_t m = sizes.Of('m'), n = sizes.Of('n'), least = std::min(m, n);
  const bool is_whole = sizes.Of('u') == m && sizes.Of('v') == n;
  const bool is_thin = sizes.Of('u') == least && sizes.Of('v') == least;
  check.True(mode == 'A'   ? is_whole
             : mode == 'S' ? is_thin
                           : is_whole || is_thin,
             "its u and vt do not have the sizes of its mode");
}

void Solves(CallCheck& check, const Sizes& sizes, const Attributes& attributes) {
  const bool left = Integer(attributes, "side") == 'L';
  check.True(sizes.Of('a') == (left ? sizes.Of('m') : sizes.Of('n')),
             "its matrix and its right-hand side have sizes that do not match");
}

// Sorted by name. Routines of the same name whose results differ by type have a row for each.
constexpr Signature kReal[] = {
    {"gees", "T[nn]", "T[nn] T[nn] T[n] T[n] i[] i[]", "mode:VN sort:N", "00"},
    {"geev", "T[nn]", "T[n] T[n] C[nn] C[nn] i[]", "compute_left:VN compute_right:VN", ""},
    {"orgqr", "T[mn] T[k]", "T[mn]", "", "00", &FormsQ},
    {"ormqr", "T[rc] T[k] T[mn]", "T[mn]", "left:bool transpose:bool", "02", &Multiplies},
    {"syevd", "T[nn]", "T[nn] R[n] i[]", "mode:VN uplo:LU", "00"},
    {"sytrd", "T[nn]", "T[nn] R[n] R[p] T[p] i[]", "uplo:LU", "00"},
};

constexpr Signature kComplex[] = {
    {"gees", "T[nn]", "T[nn] T[nn] T[n] i[] i[]", "mode:VN sort:N", "00"},
    {"geev", "T[nn]", "T[n] T[nn] T[nn] i[]", "compute_left:VN compute_right:VN", ""},
    {"heevd", "T[nn]", "T[nn] R[n] i[]", "mode:VN uplo:LU", "00"},
    {"hetrd", "T[nn]", "T[nn] R[n] R[p] T[p] i[]", "uplo:LU", "00"},
    {"ungqr", "T[mn] T[k]", "T[mn]", "", "00", &FormsQ},
    {"unmqr", "T[rc] T[k] T[mn]", "T[mn]", "left:bool transpose:bool", "02", &Multiplies},
};

constexpr Signature kAny[] = {
    {"gehrd", "T[nn]", "T[nn] T[p] i[]", "high:i32 low:i32", "00", &HasRange},
    {"geqp3", "T[mn] i[n]", "T[mn] i[n] T[q]", "", "00 11"},
    {"geqrf", "T[mn]", "T[mn] T[q]", "", "00"},
    {"gesdd", "T[mn]", "T[mn] R[q] T[mu] T[vn] i[]", "mode:ASN", "00", &Decomposes},
    {"gesvd", "T[mn]", "T[mn] R[q] T[mu] T[vn] i[]", "mode:ASN", "00", &Decomposes},
    {"getrf", "T[mn]", "T[mn] i[q] i[]", "", "00"},
    {"gtsv", "T[n] T[n] T[n] T[nk]", "T[n] T[n] T[n] T[nk] i[]", "", "00 11 22 33"},
    {"potrf", "T[nn]", "T[nn] i[]", "uplo:LU", "00"},
    {"trsm", "T[aa] T[mn]", "T[mn]", "diag:NU side:LR trans_x:NTC uplo:LU", "01", &Solves},
};

constexpr Signature kPerturbed = {"tridiagonal_solve_perturbed", "T[n] T[n] T[n] T[nk]", "T[nk]",
                                  "", ""};

bool IsLapackType(int32_t type) {
  return type == xla::TYPE_F32 || type == xla::TYPE_F64 || type == xla::TYPE_C64 ||
         type == xla::TYPE_C128;
}

}  // namespace

void CheckLapack(CallCheck& check) {
  std::string_view routine = check.call().custom_call_target();
  routine.remove_suffix(std::string_view("_ffi").size());
  if (routine == kPerturbed.name) {
    const int32_t type = check.operands().empty() ? 0 : check.operands()[0]->element_type();
    check.True(IsLapackType(type), "its type is not f32, f64, c64 or c128");
    if (!check.failed()) CheckSignature(check, kPerturbed, type);
    return;
  }
  routine.remove_prefix(std::string_view("lapack_").size());
  const char letter = routine.front();
  routine.remove_prefix(1);
  const int32_t type = letter == 's'   ? xla::TYPE_F32
                       : letter == 'd' ? xla::TYPE_F64
                       : letter == 'c' ? xla::TYPE_C64
                                       : xla::TYPE_C128;
  const bool is_real = letter == 's' || letter == 'd';
  const auto own = is_real ? std::span(kReal) : std::span(kComplex);
  for (const std::span<const Signature> rows : {std::span<const Signature>(own), {kAny}})
    for (const Signature& row : rows)
      if (row.name == routine) return CheckSignature(check, row, type);
  check.Fault("it has no signature");
}

}  // namespace gangway::compiler::calls
