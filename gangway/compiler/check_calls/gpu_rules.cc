// JAX's calls of libraries on GPUs, whose handlers are jaxlib's and come with the plugin of the devices. The rules are
// for shapes and attributes, as jaxlib's lowering makes them. They were compared with lowered programs; no handler of
// a GPU ran behind them.
//
// Kernels (Triton, Mosaic, cuDNN graphs) are code for the device: no rule can say what they read and write. They are
// allowed by name, and not confined.
#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "gangway/compiler/check_calls/signature.h"

namespace gangway::compiler::calls {
namespace {

constexpr size_t kArraysMax = 4096;                   // operands or results of a kernel
constexpr size_t kKernelBytesMax = size_t{64} << 20;  // of its code and its description

bool Boolean(const Attributes& attributes, std::string_view name) {
  const auto found = attributes.find(name);
  return found != attributes.end() && found->second.integer != 0;
}

void FitsUv(CallCheck& check, const Sizes& sizes, int64_t u, int64_t v) {
  const int64_t m = sizes.Of('m'), n = sizes.Of('n'), least = std::min(m, n);
  check.True((u == m && v == n) || (u == least && v == least),
             "its u and v have neither all columns nor those of the singular values");
}

void HasUv(CallCheck& check, const Sizes& sizes, const Attributes& /*attributes*/) {
  FitsUv(check, sizes, sizes.Of('u'), sizes.Of('v'));
}

// The results are u and vt, or vt and u of a transposed operand.
void HasUvInOrder(CallCheck& check, const Sizes& sizes, const Attributes& attributes) {
  const bool transposed = Boolean(attributes, "transposed");
  const int64_t m = sizes.Of('m'), n = sizes.Of('n');
  const int64_t rows_of_u = transposed ? sizes.Of('c') : sizes.Of('a');
  const int64_t columns_of_vt = transposed ? sizes.Of('b') : sizes.Of('d');
  check.True(rows_of_u == m && columns_of_vt == n, "its u and vt do not have its operand's sizes");
  bool fits = IsRowMajor(check.call().operand_shapes_with_layout(0)) == transposed;
  for (const int matrix : {0, 2, 3})
    fits = fits && IsRowMajor(*check.results()[static_cast<size_t>(matrix)]) == transposed;
  check.True(fits, "its matrices are not row-major if and only if it is transposed");
  FitsUv(check, sizes, transposed ? sizes.Of('d') : sizes.Of('b'),
         transposed ? sizes.Of('a') : sizes.Of('c'));
}

void HasNoUv(CallCheck& check, const Sizes& /*sizes*/, const Attributes& attributes) {
  const bool transposed = Boolean(attributes, "transposed");
  check.True(IsRowMajor(check.call().operand_shapes_with_layout(0)) == transposed &&
                 IsRowMajor(*check.results()[0]) == transposed,
             "its matrices are not row-major if and only if it is transposed");
}

void FormsQ(CallCheck& check, const Sizes& sizes, const Attributes& /*attributes*/) {
  check.True(sizes.Of('k') <= sizes.Of('n') && sizes.Of('n') <= sizes.Of('m'),
             "its sizes are not tau <= columns <= rows");
}

void Multiplies(CallCheck& check, const Sizes& sizes, const Attributes& attributes) {
  check.True(sizes.Of('r') == (Boolean(attributes, "left") ? sizes.Of('m') : sizes.Of('n')) &&
                 sizes.Of('k') <= sizes.Of('c') && sizes.Of('k') <= sizes.Of('r'),
             "its reflectors and its matrix have sizes that cannot be multiplied");
}

void IsNotTransposed(CallCheck& check, const Sizes& /*sizes*/, const Attributes& attributes) {
  check.True(!Boolean(attributes, "transpose"), "its operand is transposed");
}

void Permutes(CallCheck& check, const Sizes& sizes, const Attributes& /*attributes*/) {
  check.True(sizes.Of('k') <= sizes.Of('n'), "it has more pivots than rows");
}

void IsReal(CallCheck& check, const Sizes& /*sizes*/, const Attributes& /*attributes*/) {
  const int32_t type = check.operands()[0]->element_type();
  check.True(type == xla::TYPE_F32 || type == xla::TYPE_F64, "its type is not f32 or f64");
}

// After the vendor's prefix: cusolver_potrf_ffi, hipsolver_potrf_ffi. Sorted.
constexpr Signature kSignatures[] = {
    {"_cholesky_update_ffi", "T[nn] T[n]", "T[nn] T[n]", "", "00 11", &IsReal, MatrixOrder::kRows},
    {"_lu_pivots_to_permutation", "i[k]", "i[n]", "", "", &Permutes},
    {"_tridiagonal_solve_perturbed", "T[n] T[n] T[n] T[nk]", "T[nk]", "", ""},
    {"hybrid_eig_comp", "T[nn]", "T[n] T[nn] T[nn] i[]", "left:bool magma:string right:bool", ""},
    {"hybrid_eig_real", "T[nn]", "T[n] T[n] C[nn] C[nn] i[]", "left:bool magma:string right:bool",
     ""},
    {"hybrid_geqp3", "T[mn] i[n]", "T[mn] i[n] T[q]", "magma:string", "00 11"},
    {"solver_geev_ffi", "T[nn]", "T[nn] C[n] T[nn] T[nn] i[]", "left:bool right:bool", ""},
    {"solver_geqrf_ffi", "T[mn]", "T[mn] T[q]", "", "00"},
    {"solver_gesdd_ffi", "T[mn]", "T[mn] R[q] T[ab] T[cd] i[]",
     "compute_uv:bool full_matrices:bool transposed:bool", "00", &HasUvInOrder,
     MatrixOrder::kEither},
    {"solver_gesvd_ffi", "T[mn]", "T[mn] R[q] T[ab] T[cd] i[]",
     "compute_uv:bool full_matrices:bool transposed:bool", "00", &HasUvInOrder,
     MatrixOrder::kEither},
    {"solver_gesvdj_ffi", "T[mn]", "T[mn] R[q] T[mu] T[nv] i[]",
     "compute_uv:bool full_matrices:bool", "00", &HasUv},
    {"solver_gesvdp_ffi", "T[mn]", "T[mn] R[q] T[mu] T[nv] i[]",
     "compute_uv:bool full_matrices:bool", "00", &HasUv},
    {"solver_getrf_ffi", "T[mn]", "T[mn] i[q] i[]", "", "00"},
    {"solver_orgqr_ffi", "T[mn] T[k]", "T[mn]", "", "00", &FormsQ},
    {"solver_ormqr_ffi", "T[rc] T[k] T[mn]", "T[mn]", "left:bool transpose:bool", "02",
     &Multiplies},
    {"solver_potrf_ffi", "T[nn]", "T[nn] i[]", "lower:bool", "00"},
    {"solver_syevd_ffi", "T[nn]", "T[nn] R[n] i[]", "algorithm:ui8 lower:bool", "00"},
    {"solver_syrk_ffi", "T[nk] T[nn] T() T()", "T[nn]", "transpose:bool", "01", &IsNotTransposed,
     MatrixOrder::kRows},
    {"solver_sytrd_ffi", "T[nn]", "T[nn] R[n] R[p] T[p] i[]", "lower:bool", "00"},
    {"sparse_gtsv2_ffi", "T[n] T[n] T[n] T[nk]", "T[nk]", "", "03"},
};

// Where only singular values are asked of them, scalars are in the places of u and vt.
constexpr Signature kWithoutVectors[] = {
    {"solver_gesdd_ffi", "T[mn]", "T[mn] R[q] T() T() i[]",
     "compute_uv:bool full_matrices:bool transposed:bool", "00", &HasNoUv, MatrixOrder::kEither},
    {"solver_gesvd_ffi", "T[mn]", "T[mn] R[q] T() T() i[]",
     "compute_uv:bool full_matrices:bool transposed:bool", "00", &HasNoUv, MatrixOrder::kEither},
};

bool AsksForVectors(const xla::hlo::Instruction& call) {
  const auto attributes = ParseAttributes(call.backend_config());
  return !attributes.ok() || !attributes->contains("compute_uv") ||
         Boolean(*attributes, "compute_uv");
}

const Signature* FindIn(std::span<const Signature> rows, std::string_view name) {
  const auto found = std::ranges::find(rows, name, &Signature::name);
  return found == rows.end() ? nullptr : &*found;
}

const Signature* Find(const xla::hlo::Instruction& call) {
  const std::string_view target = call.custom_call_target();
  for (const std::string_view vendor : {"cu", "hip"}) {
    if (!target.starts_with(vendor)) continue;
    const std::string_view name = target.substr(vendor.size());
    const Signature* const without = FindIn(kWithoutVectors, name);
    if (without != nullptr && !AsksForVectors(call)) return without;
    if (const Signature* const found = FindIn(kSignatures, name); found != nullptr) return found;
  }
  return nullptr;
}

// Each result in its operand's memory at most, as input_output_aliases of a kernel asks.
void CheckKernelAliases(CallCheck& check) {
  std::vector<AllowedAlias> any;
  for (const xla::hlo::OutputOperandAliasing& alias : check.call().output_operand_aliasing()) {
    const int64_t result = alias.output_shape_index().empty() ? 0 : alias.output_shape_index(0);
    if (result >= 0 && result < static_cast<int64_t>(check.results().size()) &&
        alias.operand_index() >= 0 &&
        alias.operand_index() < static_cast<int64_t>(check.operands().size()))
      any.push_back({static_cast<int>(result), static_cast<int>(alias.operand_index())});
  }
  check.Aliases(any);
}

}  // namespace

void CheckGpuSolver(CallCheck& check) {
  const Signature* const signature = Find(check.call());
  check.True(signature != nullptr, "it has no signature");
  const int32_t type = check.operands().empty() ? 0 : check.operands()[0]->element_type();
  check.True(type == xla::TYPE_F32 || type == xla::TYPE_F64 || type == xla::TYPE_C64 ||
                 type == xla::TYPE_C128 || type == xla::TYPE_S32,
             "its type is not f32, f64, c64 or c128");
  if (!check.failed()) CheckSignature(check, *signature, type);
}

// Two words of a key and two of a counter, for each element.
void CheckThreefry(CallCheck& check) {
  const Attributes attributes = check.TypedAttributes();
  check.True(attributes.empty(), "it has attributes that its handler does not take");
  check.Operands(4);
  check.NoCallees();
  check.NoAliases();
  check.True(check.results().size() == 2, "it has not two results");
  if (check.failed()) return;
  const Shape& first = *check.results()[0];
  check.True(first.element_type() == xla::TYPE_U32, "its type is not u32");
  for (size_t i = 0; i < 4 && !check.failed(); ++i) {
    const Shape* const placed = check.Placed(static_cast<int>(i));
    if (placed == nullptr) return;
    check.Array(*placed, "an operand");
    check.True(SameArray(*placed, first), "its operands have not one shape");
    check.RowMajor(*placed, "an operand");
  }
  for (const Shape* result : check.results()) {
    check.Array(*result, "a result");
    check.True(SameArray(*result, first), "its results have not one shape");
    check.RowMajor(*result, "a result");
  }
}

void CheckDeviceCode(CallCheck& check) {
  // cuDNN takes one computation, the graph that it fuses. Its instructions are checked as those of any other.
  if (check.call().custom_call_target() == "__cudnn$fusion") {
    check.True(check.call().called_computation_ids_size() == 1, "it has not one computation");
  } else {
    check.NoCallees();
  }
  check.True(check.call().backend_config().size() <= kKernelBytesMax, "its kernel is too large");
  check.True(check.operands().size() <= kArraysMax && check.results().size() <= kArraysMax,
             absl::StrCat("it passes more than ", kArraysMax, " arrays"));
  for (const Shape* operand : check.operands()) check.Array(*operand, "an operand");
  for (const Shape* result : check.results()) check.Array(*result, "a result");
  if (!check.failed()) CheckKernelAliases(check);
}

}  // namespace gangway::compiler::calls
