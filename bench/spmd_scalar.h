// The scalar program of bench/spmd.py as StableHLO, x <- sum(x) / D + b on D devices, and the cases in which it runs
// (commands.h): "scalar one", "scalar awaited", "scalar chain" and "scalar fused". Header-only; one thread.
#ifndef BENCH_SPMD_SCALAR_H_
#define BENCH_SPMD_SCALAR_H_

#include <functional>
#include <optional>
#include <string>

#include "chain_cases.h"
#include "commands.h"

namespace gangway::bench {

// `sum` defines %sum from %x, both of `type`, which has one element. A fused program has kChain computations.
inline std::string ScalarProgram(const std::string& sum, int devices, bool fused,
                                 const std::string& type = "tensor<f32>") {
  const std::string share = std::to_string(1.0 / devices);
  const std::string node = sum + "\n%share = stablehlo.constant dense<" + share + "> : " + type +
                           "\n%mean = stablehlo.multiply %sum, %share : " + type +
                           "\n%y = stablehlo.add %mean, %b : " + type + "\n";
  const auto open = [&type](const std::string& argument) {
    return "module @scalar {\nfunc.func public @main(" + argument + ": " + type + ", %b: " + type +
           ") -> " + type + " {\n";
  };
  if (!fused) return open("%x") + node + "return %y : " + type + "\n}\n}\n";
  return open("%start") + "%zero = stablehlo.constant dense<0> : tensor<i32>\n" +
         "%one = stablehlo.constant dense<1> : tensor<i32>\n" +
         "%count = stablehlo.constant dense<" + std::to_string(kChain) + "> : tensor<i32>\n" +
         "%end:2 = stablehlo.while(%i = %zero, %x = %start) : tensor<i32>, " + type +
         "\ncond {\n"
         "%more = stablehlo.compare LT, %i, %count : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
         "stablehlo.return %more : tensor<i1>\n} do {\n" +
         node +
         "%next = stablehlo.add %i, %one : tensor<i32>\n"
         "stablehlo.return %next, %y : tensor<i32>, " +
         type + "\n}\nreturn %end#1 : " + type + "\n}\n}\n";
}

// Of the biases, whose mean is 1: so the mean of x counts the computations.
inline float Bias(int position, int devices) {
  return static_cast<float>(position) - static_cast<float>(devices - 1) / 2 + 1;
}

// Runs a case. `run(fused, calls, awaited_every)` makes the calls, waits after each `awaited_every` of them and after
// the last, and returns the seconds. None: there is no such case.
inline std::optional<Ran> RunScalar(const std::string& name, int count,
                                    const std::function<double(bool, int, int)>& run) {
  if (name == "scalar one") return Ran{run(false, count, count)};
  if (name == "scalar awaited") return Ran{run(false, count, 1)};
  if (name == "scalar chain") return Ran{run(false, count * kChain, kChain)};
  if (name == "scalar fused") return Ran{run(true, count, count)};
  return std::nullopt;
}

}  // namespace gangway::bench

#endif  // BENCH_SPMD_SCALAR_H_
