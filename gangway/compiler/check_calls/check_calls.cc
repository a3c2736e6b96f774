// Implementation of check_calls.h: the table of targets, and the words for what is not in it.
#include "gangway/compiler/check_calls/check_calls.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/compiler/check_calls/call_check.h"

namespace gangway::compiler::calls {
namespace {

// Platforms, as bits.
enum Platforms { kCpu = 1, kCuda = 2, kRocm = 4, kTpu = 8, kGpu = kCuda | kRocm, kAll = 15 };

struct Row {
  std::string_view target;
  int platforms;
  CallRule rule;
};

// Sorted by target.
constexpr Row kRows[] = {
#define GANGWAY_LAPACK_ROW(letter, routine) {"lapack_" letter routine "_ffi", kCpu, &CheckLapack}
#define GANGWAY_REAL_ROWS(letter)                                               \
  GANGWAY_LAPACK_ROW(letter, "gees"), GANGWAY_LAPACK_ROW(letter, "geev"),       \
      GANGWAY_LAPACK_ROW(letter, "gehrd"), GANGWAY_LAPACK_ROW(letter, "geqp3"), \
      GANGWAY_LAPACK_ROW(letter, "geqrf"), GANGWAY_LAPACK_ROW(letter, "gesdd"), \
      GANGWAY_LAPACK_ROW(letter, "gesvd"), GANGWAY_LAPACK_ROW(letter, "getrf"), \
      GANGWAY_LAPACK_ROW(letter, "gtsv"), GANGWAY_LAPACK_ROW(letter, "orgqr"),  \
      GANGWAY_LAPACK_ROW(letter, "ormqr"), GANGWAY_LAPACK_ROW(letter, "potrf"), \
      GANGWAY_LAPACK_ROW(letter, "syevd"), GANGWAY_LAPACK_ROW(letter, "sytrd"), \
      GANGWAY_LAPACK_ROW(letter, "trsm")
#define GANGWAY_COMPLEX_ROWS(letter)                                            \
  GANGWAY_LAPACK_ROW(letter, "gees"), GANGWAY_LAPACK_ROW(letter, "geev"),       \
      GANGWAY_LAPACK_ROW(letter, "gehrd"), GANGWAY_LAPACK_ROW(letter, "geqp3"), \
      GANGWAY_LAPACK_ROW(letter, "geqrf"), GANGWAY_LAPACK_ROW(letter, "gesdd"), \
      GANGWAY_LAPACK_ROW(letter, "gesvd"), GANGWAY_LAPACK_ROW(letter, "getrf"), \
      GANGWAY_LAPACK_ROW(letter, "gtsv"), GANGWAY_LAPACK_ROW(letter, "heevd"),  \
      GANGWAY_LAPACK_ROW(letter, "hetrd"), GANGWAY_LAPACK_ROW(letter, "potrf"), \
      GANGWAY_LAPACK_ROW(letter, "trsm"), GANGWAY_LAPACK_ROW(letter, "ungqr"),  \
      GANGWAY_LAPACK_ROW(letter, "unmqr")
    {"CustomSPMDPartitioning", kAll, &CheckAsked},
    {"InspectSharding", kAll, &CheckAsked},
    {"LayoutConstraint", kAll, &CheckLayoutConstraint},
    {"SPMDFullToShardShape", kAll, &CheckFullToShard},
    {"SPMDShardToFullShape", kAll, &CheckShardToFull},
    {"Sharding", kAll, &CheckSharding},
    {"TopK", kCpu, &CheckTopK},
    {"__cudnn$fmhaScaleBiasSoftmax", kCuda, &CheckDeviceCode},
    {"__cudnn$fmhaScaleBiasSoftmaxBackward", kCuda, &CheckDeviceCode},
    {"__cudnn$fmhaScaleBiasSoftmaxDropout", kCuda, &CheckDeviceCode},
    {"__cudnn$fmhaScaleBiasSoftmaxDropoutBackward", kCuda, &CheckDeviceCode},
    {"__cudnn$fmhaSoftmax", kCuda, &CheckDeviceCode},
    {"__cudnn$fmhaSoftmaxBackward", kCuda, &CheckDeviceCode},
    {"__cudnn$fmhaSoftmaxBackwardF8", kCuda, &CheckDeviceCode},
    {"__cudnn$fmhaSoftmaxDropout", kCuda, &CheckDeviceCode},
    {"__cudnn$fmhaSoftmaxDropoutBackward", kCuda, &CheckDeviceCode},
    {"__cudnn$fmhaSoftmaxF8", kCuda, &CheckDeviceCode},
    {"__cudnn$fusion", kCuda, &CheckDeviceCode},
    {"__gpu$xla.gpu.triton", kGpu, &CheckDeviceCode},
    {"__op$block_scaled_dot", kCuda, &CheckDeviceCode},
    {"annotate_device_placement", kAll, &CheckPlacement},
    {"cu_cholesky_update_ffi", kCuda, &CheckGpuSolver},
    {"cu_lu_pivots_to_permutation", kCuda, &CheckGpuSolver},
    {"cu_threefry2x32_ffi", kCuda, &CheckThreefry},
    {"cu_tridiagonal_solve_perturbed", kCuda, &CheckGpuSolver},
    {"cudnn_rnn_bwd_ffi", kCuda, &CheckDeviceCode},
    {"cudnn_rnn_ffi", kCuda, &CheckDeviceCode},
    {"cuhybrid_eig_comp", kCuda, &CheckGpuSolver},
    {"cuhybrid_eig_real", kCuda, &CheckGpuSolver},
    {"cuhybrid_geqp3", kCuda, &CheckGpuSolver},
    {"cusolver_geev_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_geqrf_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_gesvd_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_gesvdj_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_gesvdp_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_getrf_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_orgqr_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_ormqr_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_potrf_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_syevd_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_syrk_ffi", kCuda, &CheckGpuSolver},
    {"cusolver_sytrd_ffi", kCuda, &CheckGpuSolver},
    {"cusparse_gtsv2_ffi", kCuda, &CheckGpuSolver},
    {"gangway_simulated_work", kCpu, &CheckSimulatedWork},
    {"hip_lu_pivots_to_permutation", kRocm, &CheckGpuSolver},
    {"hip_threefry2x32_ffi", kRocm, &CheckThreefry},
    {"hip_tridiagonal_solve_perturbed", kRocm, &CheckGpuSolver},
    {"hiphybrid_eig_comp", kRocm, &CheckGpuSolver},
    {"hiphybrid_eig_real", kRocm, &CheckGpuSolver},
    {"hiphybrid_geqp3", kRocm, &CheckGpuSolver},
    {"hipsolver_geqrf_ffi", kRocm, &CheckGpuSolver},
    {"hipsolver_gesdd_ffi", kRocm, &CheckGpuSolver},
    {"hipsolver_gesvd_ffi", kRocm, &CheckGpuSolver},
    {"hipsolver_gesvdj_ffi", kRocm, &CheckGpuSolver},
    {"hipsolver_getrf_ffi", kRocm, &CheckGpuSolver},
    {"hipsolver_orgqr_ffi", kRocm, &CheckGpuSolver},
    {"hipsolver_ormqr_ffi", kRocm, &CheckGpuSolver},
    {"hipsolver_potrf_ffi", kRocm, &CheckGpuSolver},
    {"hipsolver_syevd_ffi", kRocm, &CheckGpuSolver},
    {"hipsolver_sytrd_ffi", kRocm, &CheckGpuSolver},
    {"hipsparse_gtsv2_ffi", kRocm, &CheckGpuSolver},
    GANGWAY_COMPLEX_ROWS("c"),
    GANGWAY_REAL_ROWS("d"),
    GANGWAY_REAL_ROWS("s"),
    GANGWAY_COMPLEX_ROWS("z"),
    {"mosaic_gpu_v2", kCuda, &CheckDeviceCode},
    {"tpu_custom_call", kTpu, &CheckDeviceCode},
    {"tridiagonal_solve_perturbed_ffi", kCpu, &CheckLapack},
    {"triton_kernel_call_ffi", kGpu, &CheckDeviceCode},
    {"xla.sdy.FuncResultSharding", kAll, &CheckResultSharding},
    {"xla.sdy.GlobalToLocalShape", kAll, &CheckGlobalToLocal},
    {"xla.sdy.LocalToGlobalShape", kAll, &CheckLocalToGlobal},
    {"xla.sdy.ShardingGroup", kAll, &CheckShardingGroup},
    {"xla_ffi_partitioned_python_cpu_callback", kCpu, &CheckLocalHostCall},
    {"xla_ffi_python_cpu_callback", kCpu, &CheckHostCall},
    {"xla_ffi_python_gpu_callback", kGpu, &CheckHostCall},
#undef GANGWAY_COMPLEX_ROWS
#undef GANGWAY_REAL_ROWS
#undef GANGWAY_LAPACK_ROW
};

static_assert(std::ranges::is_sorted(kRows, {}, &Row::target));

// What a script can do instead, by a part of the target. The first row that fits counts.
struct Advice {
  std::string_view part;
  std::string_view text;
};
constexpr Advice kAdvice[] = {
    {"xla_buffer_python_",
     "Buffers of a worker are not in the script's process: use jax.pure_callback or "
     "jax.experimental.io_callback."},
    {"_callback",
     "It is no form of host callback that the devices have: use jax.pure_callback or "
     "jax.experimental.io_callback."},
    {"AllocateBuffer",
     "Its memory may hold other programs' arrays: use jnp.zeros, not jax.lax.empty."},
    {"CreateBuffer",
     "Its memory may hold other programs' arrays: use jnp.zeros, not jax.lax.empty."},
    {"tpu_custom_call",
     "This is a Pallas kernel for TPUs: pass interpret=True to pallas_call, or another "
     "implementation of the function."},
    {"triton",
     "This is a kernel for GPUs: pass interpret=True to pallas_call, or another implementation of "
     "the function."},
    {"mosaic",
     "This is a kernel for GPUs: pass interpret=True to pallas_call, or another implementation of "
     "the function."},
    {"__cudnn$", "cuDNN needs GPUs: choose another implementation (implementation=\"xla\")."},
    {"dynamic", "Compile the program for arrays of fixed shapes."},
    {"PadToStatic", "Compile the program for arrays of fixed shapes."},
    {"SliceToDynamic", "Compile the program for arrays of fixed shapes."},
};
constexpr std::string_view kOtherwise =
    "The workers have no such function. Compute this part in the script's own process, on arrays "
    "of "
    "jax.devices(\"host\")[0].";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string_view AdviceOnTarget(std::string_view target) {
  for (const Advice& advice : kAdvice)
    if (target.find(advice.part) != std::string_view::npos) return advice.text;
  return kOtherwise;
}

int PlatformBit(std::string_view platform) {
  if (platform == "cpu") return kCpu;
  if (platform == "cuda" || platform == "gpu") return kCuda;
  if (platform == "rocm") return kRocm;
  if (platform == "tpu") return kTpu;
  return 0;
}

// A name is a client's: only a short and printable one is repeated.
std::string Shown(std::string_view target) {
  constexpr size_t kShownMax = 100;
  std::string shown(target.substr(0, kShownMax));
  for (char& c : shown)
    if (c < 0x20 || c > 0x7e) c = '?';
  return target.size() > kShownMax ? shown + "..." : shown;
}

absl::Status Refused(std::string_view target, std::string_view platform, bool is_elsewhere) {
  const std::string shown = Shown(target);
  if (target.starts_with("gangway.") || target.starts_with("$gangway."))
    return absl::InvalidArgumentError(
        absl::StrCat("custom call '", shown, "' calls ", shown,
                     ", which no program may call itself: leave it out."));
  return absl::UnimplementedError(
      absl::StrCat("custom call '", shown, "' is not one that ",
                   is_elsewhere ? absl::StrCat("programs for platform ", View(platform), " make")
                                : "Gangway knows and can check",
                   ". ", View(AdviceOnTarget(target))));
}

// Only borders of shards need the shardings of their operands.
void ReadShardings(const xla::hlo::Module& module, CallProgram& program) {
  absl::flat_hash_set<int64_t> asked;
  for (const auto& computation : module.computations())
    for (const auto& instruction : computation.instructions())
      if (instruction.custom_call_target().starts_with("SPMD"))
        asked.insert(instruction.operand_ids().begin(), instruction.operand_ids().end());
  if (asked.empty()) return;
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation.instructions()) {
      if (!asked.contains(instruction.id())) continue;
      const xla::hlo::Sharding* sharding =
          instruction.has_sharding() ? &instruction.sharding() : nullptr;
      const auto [found, is_new] = program.shardings.emplace(instruction.id(), sharding);
      if (!is_new) found->second = nullptr;
    }
  }
}

std::shared_ptr<const CallProgram> Read(const xla::hlo::Module& module, CallSettings settings) {
  auto program = std::make_shared<CallProgram>();
  program->settings = std::move(settings);
  ReadShardings(module, *program);
  const auto& attributes = module.frontend_attributes().map();
  if (const auto meshes = attributes.find("xla.sdy.meshes"); meshes != attributes.end())
    program->meshes = ParseMeshes(meshes->second);
  return program;
}

// XLA parses the text wherever it is.
void CheckShardingOfCall(CallCheck& check) {
  const auto& attributes = check.call().frontend_attributes().map();
  const auto found = attributes.find("xla.sdy.sharding");
  if (found == attributes.end() || check.failed()) return;
  const absl::StatusOr<TextMeshes>& meshes = check.program().meshes;
  if (!meshes.ok()) return check.Fault(std::string(meshes.status().message()));
  const auto shardings = ParseShardings(found->second, *meshes);
  if (!shardings.ok()) check.Fault(std::string(shardings.status().message()));
}

absl::Status CheckCall(const CustomCallSite& site, const CallProgram& program) {
  const std::string_view target = site.call.custom_call_target();
  const Row* const row = std::ranges::lower_bound(kRows, target, {}, &Row::target);
  if (row == std::end(kRows) || row->target != target)
    return Refused(target, program.settings.platform, /*is_elsewhere=*/false);
  if ((row->platforms & PlatformBit(program.settings.platform)) == 0)
    return Refused(target, program.settings.platform, /*is_elsewhere=*/true);
  CallCheck check(site, program);
  if (!check.failed()) row->rule(check);
  CheckShardingOfCall(check);
  return check.status();
}

}  // namespace

static CustomCallRule RuleFor(const xla::hlo::Module& module, CallSettings settings) {
  return [program = Read(module, std::move(settings))](const CustomCallSite& site) {
    return CheckCall(site, *program);
  };
}

static std::vector<std::string_view> Targets() {
  std::vector<std::string_view> targets;
  for (const Row& row : kRows) targets.push_back(row.target);
  return targets;
}

}  // namespace gangway::compiler::calls

namespace gangway::compiler {

CustomCallRule MakeCustomCallRule(const xla::hlo::Module& module, CallSettings settings) {
  return calls::RuleFor(module, std::move(settings));
}

std::vector<std::string_view> KnownTargets() { return calls::Targets(); }

}  // namespace gangway::compiler
