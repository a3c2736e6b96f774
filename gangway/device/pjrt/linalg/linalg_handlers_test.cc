// The handlers through the real plugin: all of them register, hostile calls fail with clear errors,
// and edge cases that JAX itself does not reach. tests/test_linalg.py compares their results with
// numpy.
#include "gangway/device/pjrt/linalg/linalg_handlers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "gangway/base/status.h"
#include "gangway/device/pjrt/linalg/openblas.h"
#include "gangway/device/pjrt/pjrt_test_programs.h"
#include "gangway/device/sim/sim_backend.h"

namespace gangway::device {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Backend& RegisteredBackend() {
  static Backend* const backend = [] {
    auto opened = OpenTestPlugin(1);
    EXPECT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE(
        (*opened)->RegisterFfiHandlers(LinalgHandlers((*opened)->capabilities()).handlers).ok());
    return opened->release();  // lives as long as the process
  }();
  return *backend;
}

// A program of one custom call, each operand and result in column-major order as JAX requests it, unless one is empty:
// XLA CPU dies of a copy of an empty array to another order (pjrt_traps_test.cc), which JAX avoids.
struct Call {
  std::string target;
  std::string attributes;
  std::vector<std::vector<int64_t>> operands;
  std::vector<std::string> results;  // MLIR types
};

std::string Layouts(const std::vector<int>& ranks) {
  std::string text;
  for (int rank : ranks) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", "dense<[");
    if (rank >= 2) absl::StrAppend(&text, rank - 2, ", ", rank - 1);
    for (int i = rank >= 2 ? rank - 3 : rank - 1; i >= 0; --i)
      absl::StrAppend(&text, i == rank - 1 ? "" : ", ", i);
    absl::StrAppend(&text, "]> : tensor<", rank, "xindex>");
  }
  return text;
}

std::string F32Type(const std::vector<int64_t>& dims) {
  std::string text = "tensor<";
  for (int64_t dim : dims) absl::StrAppend(&text, dim, "x");
  return text + "f32>";
}

// Counts each x after a digit: "complex" contains an x, too.
int RankOf(const std::string& type) {
  int rank = 0;
  for (size_t i = 1; i < type.size(); ++i) rank += type[i] == 'x' && std::isdigit(type[i - 1]);
  return rank;
}

TestProgram Program(const Call& call) {
  std::string parameters, names, types, results;
  std::vector<int> operand_ranks, result_ranks;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const std::string type = F32Type(call.operands[i]);
    absl::StrAppend(&parameters, i ? ", " : "", "%x", i, ": ", type);
    absl::StrAppend(&names, i ? ", " : "", "%x", i);
    absl::StrAppend(&types, i ? ", " : "", type);
    operand_ranks.push_back(static_cast<int>(call.operands[i].size()));
  }
  std::string values;
  for (size_t i = 0; i < call.results.size(); ++i) {
    absl::StrAppend(&results, i ? ", " : "", call.results[i]);
    absl::StrAppend(&values, i ? ", " : "",
                    call.results.size() > 1 ? absl::StrCat("%r#", i) : "%r");
    result_ranks.push_back(RankOf(call.results[i]));
  }
  const bool is_empty = std::ranges::any_of(call.operands, [](const std::vector<int64_t>& dims) {
    return std::ranges::find(dims, 0) != dims.end();
  });
  const std::string layouts =
      is_empty ? ""
               : absl::StrCat(", operand_layouts = [", Layouts(operand_ranks),
                              "], result_layouts = [", Layouts(result_ranks), "]");
  return Mlir(absl::Substitute(
      R"(func.func public @main($0) -> ($1) {
    %r$2 = stablehlo.custom_call @$3($4) {api_version = 4 : i32, backend_config = {$5}$6} : ($7) -> ($1)
    return $8 : $1
  })",
      parameters, results, call.results.size() > 1 ? absl::StrCat(":", call.results.size()) : "",
      call.target, names, call.attributes, layouts, types, values));
}

// The results, row-major, or the error. Types other than f32 are read as raw bits.
absl::StatusOr<std::vector<std::vector<float>>> RunCall(
    const Call& call, const std::vector<std::vector<float>>& inputs) {
  Backend& backend = RegisteredBackend();
  const TestProgram program = Program(call);
  GANGWAY_ASSIGN_OR_RETURN(auto executable, backend.Compile({program.code, program.format},
                                                            program.compile_options, {}));
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<Buffer*> arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    GANGWAY_ASSIGN_OR_RETURN(auto buffer,
                             backend.BufferFromHost(0, "", F32(call.operands[i]), Bytes(inputs[i]),
                                                    HostSemantics::kCopyDuringCall, nullptr));
    buffers.push_back(std::move(buffer));
    arguments.push_back(buffers.back().get());
  }
  GANGWAY_ASSIGN_OR_RETURN(auto outputs, executable->ExecuteOn(0, arguments, {}, nullptr));
  std::vector<std::vector<float>> read;
  for (auto& output : outputs) {
    GANGWAY_ASSIGN_OR_RETURN(auto values, ReadFloats(*output));
    read.push_back(std::move(values));
  }
  return read;
}

int32_t Info(const std::vector<float>& result, size_t index = 0) {
  int32_t code;
  std::memcpy(&code, &result.at(index), sizeof(code));
  return code;
}

Call Cholesky(std::vector<int64_t> dims) {
  std::string batch;
  for (size_t i = 0; i + 2 < dims.size(); ++i) absl::StrAppend(&batch, dims[i], "x");
  return {"lapack_spotrf_ffi",
          "uplo = 76 : ui8",
          {dims},
          {F32Type(dims), absl::StrCat("tensor<", batch, "i32>")}};
}

Call Svd(int64_t m, int64_t n, char mode) {
  const int64_t k = std::min(m, n);
  return {"lapack_sgesdd_ffi",
          absl::StrCat("mode = ", static_cast<int>(mode), " : ui8"),
          {{m, n}},
          {F32Type({m, n}), F32Type({k}), F32Type({m, mode == 'S' ? k : m}),
           F32Type({mode == 'S' ? k : n, n}), "tensor<i32>"}};
}

TEST(LinalgHandlers, EachTargetOfJaxTakes) {
  const HandlerGroup group = LinalgHandlers(RegisteredBackend().capabilities());
  std::set<std::string> names;
  for (const FfiHandler& handler : group.handlers) names.insert(handler.name);
  EXPECT_EQ(names.size(), 61u);  // 15 routines for 4 types, and one for all types
  GANGWAY_ASSERT_OK(RegisteredBackend().RegisterFfiHandlers(group.handlers));
}

TEST(LinalgHandlers, ARuntimeWithoutFfiGoesOnWithoutThem) {
  auto sim = OpenSim({.device_count = 1});
  EXPECT_TRUE(LinalgHandlers(sim->capabilities()).handlers.empty());
}

int ThreadCount() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

TEST(LinalgHandlers, OpenBlasStartsNoThreads) {
  // Runs in a process of its own, where nothing else loads OpenBLAS or starts threads.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto load = [] {
    const int before = ThreadCount();
    absl::Status status = linalg::LoadOpenBlas(linalg::DefaultOpenBlasPath());
    _exit(status.ok() ? ThreadCount() - before : 100);
  };
  EXPECT_EXIT(load(), testing::ExitedWithCode(0), "");
}

TEST(LinalgHandlers, ALibraryThatIsNotThereOrNotOpenBlasIsRefusedByName) {
  absl::Status absent = linalg::LoadOpenBlas("/nowhere/libopenblas.so.0");
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(absent.ToString(), HasSubstr("/nowhere/libopenblas.so.0"));
  absl::Status other = linalg::LoadOpenBlas("libm.so.6");
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(other.ToString(), HasSubstr("openblas_get_parallel"));
}

TEST(LinalgHandlers, ACholeskyFactorAndItsInfoPerMatrixOfABatch) {
  auto results = RunCall(Cholesky({2, 2, 2}), {{4, 2, 2, 5, 1, 2, 2, 1}});
  ASSERT_TRUE(results.ok()) << results.status();
  const std::vector<float>& factor = (*results)[0];
  EXPECT_FLOAT_EQ(factor[0], 2);
  EXPECT_FLOAT_EQ(factor[2], 1);
  EXPECT_FLOAT_EQ(factor[3], 2);
  EXPECT_EQ(Info((*results)[1], 0), 0);
  EXPECT_EQ(Info((*results)[1], 1), 2) << "the second matrix is not positive definite";
}

TEST(LinalgHandlers, NothingToDoForNoMatricesAndEmptyOnes) {
  for (const auto& dims : std::vector<std::vector<int64_t>>{{0, 3, 3}, {0, 0}, {2, 0, 0}}) {
    auto results = RunCall(Cholesky(dims), {{}});
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_THAT((*results)[0], IsEmpty());
  }
  auto results = RunCall(Svd(2, 0, 'A'), {{}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT((*results)[2], ElementsAre(1, 0, 0, 1));
}

TEST(LinalgHandlers, AMatrixWithNansIsReportedAndItsResultsAreNan) {
  auto results = RunCall(Svd(3, 2, 'S'), {{1, 2, 3, kNan, 5, 6}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_NE(Info((*results)[4]), 0);
  for (int i : {1, 2, 3}) EXPECT_THAT((*results)[i], Each(IsNan()));
  auto eigenvalues = RunCall({"lapack_sgeev_ffi",
                              "compute_left = 78 : ui8, compute_right = 78 : ui8",
                              {{2, 2}},
                              {"tensor<2xf32>", "tensor<2xf32>", "tensor<2x2xcomplex<f32>>",
                               "tensor<2x2xcomplex<f32>>", "tensor<i32>"}},
                             {{1, 2, std::numeric_limits<float>::infinity(), 4}});
  ASSERT_TRUE(eigenvalues.ok()) << eigenvalues.status();
  EXPECT_NE(Info((*eigenvalues)[4]), 0);
  for (int i : {0, 1}) EXPECT_THAT((*eigenvalues)[i], Each(IsNan()));
  for (int i : {2, 3}) EXPECT_THAT((*eigenvalues)[i][0], IsNan());
}

TEST(LinalgHandlers, WhatWasNotAskedForIsZeroNotOldMemory) {
  auto results = RunCall(Svd(3, 2, 'N'), {{1, 0, 0, 2, 0, 0}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT((*results)[1], ElementsAre(FloatEq(2), FloatEq(1)));
  EXPECT_THAT((*results)[2], Each(0));
  EXPECT_THAT((*results)[3], Each(0));
}

TEST(LinalgHandlers, ASingularTridiagonalSystemGetsALargeFiniteAnswer) {
  // [[1, 1], [1, 1]] x = [1, 0], as inverse iteration asks at an eigenvalue.
  auto results =
      RunCall({"tridiagonal_solve_perturbed_ffi", "", {{2}, {2}, {2}, {2, 1}}, {"tensor<2x1xf32>"}},
              {{0, 1}, {1, 1}, {1, 0}, {1, 0}});
  ASSERT_TRUE(results.ok()) << results.status();
  const std::vector<float>& x = (*results)[0];
  EXPECT_TRUE(std::isfinite(x[0]) && std::isfinite(x[1]));
  EXPECT_GT(std::abs(x[0]), 1e5f);
  EXPECT_NEAR(x[0] / x[1], -1, 1e-5);
}

struct Hostile {
  std::string why;
  Call call;
};

TEST(LinalgHandlers, CallsThatDoNotFitAreRefusedByNameAndTouchNothing) {
  const std::string m4 = F32Type({4, 4}), i0 = "tensor<i32>";
  const std::string uplo = "uplo = 76 : ui8";
  const std::vector<Hostile> calls = {
      {"is not square", {"lapack_spotrf_ffi", uplo, {{4, 8}}, {"tensor<4x8xf32>", i0}}},
      {"info has shape", {"lapack_spotrf_ffi", uplo, {{64, 4, 4}}, {"tensor<64x4x4xf32>", i0}}},
      {"the factor has shape", {"lapack_spotrf_ffi", uplo, {{8, 8}}, {m4, i0}}},
      {"not a batch of matrices", {"lapack_spotrf_ffi", uplo, {{16}}, {"tensor<16xf32>", i0}}},
      {"uplo", {"lapack_spotrf_ffi", "uplo = 88 : ui8", {{4, 4}}, {m4, i0}}},
      {"Wrong buffer dtype", {"lapack_dpotrf_ffi", uplo, {{4, 4}}, {m4, i0}}},
      {"number of attributes", {"lapack_spotrf_ffi", "", {{4, 4}}, {m4, i0}}},
      {"the pivots", {"lapack_sgetrf_ffi", "", {{8, 8}}, {F32Type({8, 8}), "tensor<2xi32>", i0}}},
      {"low and high",
       {"lapack_sgehrd_ffi",
        "low = 1 : i32, high = 900 : i32",
        {{4, 4}},
        {m4, "tensor<3xf32>", i0}}},
      {"tau", {"lapack_sorgqr_ffi", "", {{4, 4}, {9}}, {m4}}},
      {"can be multiplied",
       {"lapack_sormqr_ffi",
        "left = true, transpose = false",
        {{4, 4}, {4}, {9, 4}},
        {"tensor<9x4xf32>"}}},
      {"matching sizes",
       {"lapack_strsm_ffi",
        "side = 76 : ui8, uplo = 76 : ui8, trans_x = 78 : ui8, diag = 78 : ui8",
        {{4, 4}, {9, 2}},
        {"tensor<9x2xf32>"}}},
      {"lower diagonal",
       {"tridiagonal_solve_perturbed_ffi", "", {{2}, {9}, {9}, {9, 1}}, {"tensor<9x1xf32>"}}},
      // A workspace whose size exceeds 32 bits.
      {"too large",
       {"lapack_sgesdd_ffi",
        "mode = 83 : ui8",
        {{1, 1 << 24}},
        {F32Type({1, 1 << 24}), "tensor<1xf32>", "tensor<1x1xf32>", F32Type({1, 1 << 24}), i0}}},
      {"of one type",
       {"tridiagonal_solve_perturbed_ffi", "", {{2}, {2}, {2}, {2, 1}}, {"tensor<2x1xf64>"}}},
  };
  for (const Hostile& hostile : calls) {
    std::vector<std::vector<float>> inputs;
    for (const auto& dims : hostile.call.operands) {
      int64_t count = 1;
      for (int64_t dim : dims) count *= dim;
      inputs.emplace_back(count, 1.0f);
    }
    const absl::Status status = RunCall(hostile.call, inputs).status();
    EXPECT_FALSE(status.ok()) << hostile.call.target << ", " << hostile.why;
    EXPECT_THAT(status.ToString(), HasSubstr(hostile.why)) << hostile.call.target;
  }
}

TEST(LinalgHandlers, ManyThreadsAtOnceGetTheResultsOfOne) {
  Backend& backend = RegisteredBackend();
  const TestProgram program =
      Program({"lapack_ssyevd_ffi",
               "mode = 86 : ui8, uplo = 76 : ui8",
               {{20, 60, 60}},
               {"tensor<20x60x60xf32>", "tensor<20x60xf32>", "tensor<20xi32>"}});
  auto executable = backend.Compile({program.code, program.format}, program.compile_options, {});
  ASSERT_TRUE(executable.ok()) << executable.status();
  std::vector<float> matrices(size_t{20} * 60 * 60);
  for (size_t i = 0; i < matrices.size(); ++i) matrices[i] = static_cast<float>((i * 7919) % 101);
  auto compute = [&] {
    auto argument = backend.BufferFromHost(0, "", F32({20, 60, 60}), Bytes(matrices),
                                           HostSemantics::kCopyDuringCall, nullptr);
    Buffer* pointer = argument->get();
    auto outputs = (*executable)->ExecuteOn(0, {&pointer, 1}, {}, nullptr);
    return outputs.ok() ? *ReadFloats(*(*outputs)[0]) : std::vector<float>();
  };
  const std::vector<float> alone = compute();
  ASSERT_EQ(alone.size(), matrices.size());
  std::atomic<int> different = 0;
  OnThreads(8, [&](int) {
    for (int round = 0; round < 10; ++round) different += compute() != alone;
  });
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace gangway::device
