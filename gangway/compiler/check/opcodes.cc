// Implementation of opcodes.h.
#include "gangway/compiler/check/opcodes.h"

#include "absl/strings/match.h"

#include "gangway/compiler/check/attributes.h"

namespace gangway::compiler {
namespace {

constexpr Opcode kOpcodes[] = {
    // Elementwise.
    {"abs", 1, 0, CheckAbs},
    // XLA's CPU compiler ends its process over acos, acosh, asin, asinh, atanh, cosh and sinh of complex numbers. JAX
    // computes them by other operations.
    {"acos", 1, 0, CheckFloatUnary},
    {"acosh", 1, 0, CheckFloatUnary},
    {"asin", 1, 0, CheckFloatUnary},
    {"asinh", 1, 0, CheckFloatUnary},
    {"atanh", 1, 0, CheckFloatUnary},
    {"cbrt", 1, 0, CheckFloatUnary},
    {"ceil", 1, 0, CheckFloatUnary},
    {"copy", 1, 0, CheckAnyUnary},
    {"cosh", 1, 0, CheckFloatUnary},
    {"cosine", 1, 0, CheckFloatOrComplexUnary},
    {"count-leading-zeros", 1, 0, CheckIntegerUnary},
    {"erf", 1, 0, CheckFloatUnary},
    {"exponential", 1, 0, CheckFloatOrComplexUnary},
    {"exponential-minus-one", 1, 0, CheckFloatOrComplexUnary},
    {"floor", 1, 0, CheckFloatUnary},
    {"imag", 1, 0, CheckPart},
    {"is-finite", 1, 0, CheckIsFinite},
    {"log", 1, 0, CheckFloatOrComplexUnary},
    {"log-plus-one", 1, 0, CheckFloatOrComplexUnary},
    {"logistic", 1, 0, CheckFloatOrComplexUnary},
    {"negate", 1, 0, CheckSignedUnary},
    {"not", 1, 0, CheckNot},
    {"popcnt", 1, 0, CheckIntegerUnary},
    {"real", 1, 0, CheckPart},
    {"reduce-precision", 1, 0, CheckReducePrecision},
    {"round-nearest-afz", 1, 0, CheckFloatUnary},
    {"round-nearest-even", 1, 0, CheckFloatUnary},
    {"rsqrt", 1, 0, CheckFloatOrComplexUnary},
    {"sign", 1, 0, CheckSignedUnary},
    {"sine", 1, 0, CheckFloatOrComplexUnary},
    {"sinh", 1, 0, CheckFloatUnary},
    {"sqrt", 1, 0, CheckFloatOrComplexUnary},
    {"tan", 1, 0, CheckFloatOrComplexUnary},
    {"tanh", 1, 0, CheckFloatOrComplexUnary},
    {"convert", 1, 0, CheckConvert},
    {"bitcast-convert", 1, 0, CheckBitcastConvert},
    {"add", 2, 0, CheckAnyBinary},
    {"and", 2, 0, CheckLogicalBinary},
    {"atan2", 2, 0, CheckFloatOrComplexBinary},
    {"compare", 2, 0, CheckCompare},
    {"complex", 2, 0, CheckComplex},
    {"divide", 2, 0, CheckNumericBinary},
    {"maximum", 2, 0, CheckOrderedBinary},
    {"minimum", 2, 0, CheckOrderedBinary},
    {"multiply", 2, 0, CheckAnyBinary},
    {"or", 2, 0, CheckLogicalBinary},
    {"power", 2, 0, CheckNumericBinary},
    {"remainder", 2, 0, CheckRemainder},
    {"shift-left", 2, 0, CheckShift},
    {"shift-right-arithmetic", 2, 0, CheckShift},
    {"shift-right-logical", 2, 0, CheckShift},
    {"subtract", 2, 0, CheckNumericBinary},
    {"xor", 2, 0, CheckLogicalBinary},
    {"clamp", 3, 0, CheckClamp},
    {"select", 3, 0, CheckSelect},
    // Arrangement.
    {"broadcast", 1, 0, CheckBroadcast},
    {"concatenate", kAny, 0, CheckConcatenate},
    {"iota", 0, 0, CheckIota},
    {"pad", 2, 0, CheckPad},
    {"reshape", 1, 0, CheckReshape},
    {"reverse", 1, 0, CheckReverse},
    {"slice", 1, 0, CheckSlice},
    {"transpose", 1, 0, CheckTranspose},
    {"dynamic-slice", kAny, 0, CheckDynamicSlice},
    {"dynamic-update-slice", kAny, 0, CheckDynamicUpdateSlice},
    {"gather", 2, 0, CheckGather},
    {"scatter", kAny, 1, CheckScatter, false},
    // Arithmetic over several elements.
    {"batch-norm-grad", 5, 0, CheckBatchNormGrad},
    {"batch-norm-inference", 5, 0, CheckBatchNormInference},
    {"batch-norm-training", 3, 0, CheckBatchNormTraining},
    {"cholesky", 1, 0, CheckCholesky, false},
    {"convolution", 2, 0, CheckConvolution, false},
    {"dot", 2, 0, CheckDot, false},
    {"fft", 1, 0, CheckFft, false},
    {"map", kAny, 1, CheckMap},
    {"reduce", kAny, 1, CheckReduce},
    {"reduce-window", kAny, 1, CheckReduceWindow},
    {"select-and-scatter", 3, 2, CheckSelectAndScatter, false},
    {"sort", kAny, 1, CheckSort, false},
    {"topk", 1, 0, CheckTopK},
    {"triangular-solve", 2, 0, CheckTriangularSolve, false},
    // Control and structure.
    {"add-dependency", 2, 0, CheckAddDependency, false},
    {"after-all", kAny, 0, CheckAfterAll, false},
    {"call", kAny, 1, CheckCall},
    {"conditional", kAny, kAny, CheckConditional, false},
    {"constant", 0, 0, CheckConstant},
    {"get-tuple-element", 1, 0, CheckGetTupleElement},
    {"opt-barrier", 1, 0, CheckSameAsOperand},
    {"parameter", 0, 0, CheckParameter},
    {"tuple", kAny, 0, CheckTuple},
    {"while", 1, 2, CheckWhile, false},
    // What depends on more than the operands.
    {"all-gather", kAny, 0, CheckAllGather, false},
    {"all-reduce", kAny, 1, CheckAllReduce, false},
    {"all-to-all", kAny, 0, CheckAllToAll, false},
    {"collective-broadcast", 1, 0, CheckCollectiveBroadcast, false},
    {"collective-permute", 1, 0, CheckCollectivePermute, false},
    {"custom-call", kAny, kAny, CheckCustomCallSite, false},
    {"partition-id", 0, 0, CheckPositionId, false},
    {"ragged-all-to-all", 6, 0, CheckRaggedAllToAll, false},
    {"reduce-scatter", kAny, 1, CheckReduceScatter, false},
    {"replica-id", 0, 0, CheckPositionId, false},
    {"rng", 2, 0, CheckRng, false},
    {"rng-bit-generator", 1, 0, CheckRngBitGenerator, false},
};

struct Refusal {
  std::string_view prefix;
  std::string_view instead;
};

// The first that an opcode starts with.
constexpr Refusal kRefusals[] = {
    {"infeed", "pass the values as arguments"},
    {"outfeed", "return the values, or use a host callback"},
    {"send", "use collectives, or a host callback"},
    {"recv", "use collectives, or a host callback"},
    {"get-dimension-size", "dynamic dimensions are not supported: pad arrays to a fixed size"},
    {"set-dimension-size", "dynamic dimensions are not supported: pad arrays to a fixed size"},
    {"dynamic-reshape", "dynamic dimensions are not supported: pad arrays to a fixed size"},
    {"fusion", "send the program as it is before XLA optimizes it"},
    {"bitcast", "send the program as it is before XLA optimizes it, or use a reshape"},
    {"async-", "send the program as it is before XLA optimizes it"},
    {"copy-", "send the program as it is before XLA optimizes it"},
    {"all-gather-", "send the program as it is before XLA optimizes it"},
    {"all-reduce-", "send the program as it is before XLA optimizes it"},
    {"collective-permute-", "send the program as it is before XLA optimizes it"},
    {"domain", "leave it out: XLA places domains itself"},
    {"rng-get-and-update-state", "use rng-bit-generator with a state of its own"},
    {"stochastic-convert", "round with random bits by elementwise operations"},
};

}  // namespace

absl::StatusOr<const Opcode*> FindOpcode(std::string_view name) {
  static const auto* const kByName = [] {
    auto* table = new absl::flat_hash_map<std::string_view, const Opcode*>();
    for (const Opcode& opcode : kOpcodes) table->emplace(opcode.name, &opcode);
    return table;
  }();
  if (const auto found = kByName->find(name); found != kByName->end()) return found->second;
  for (const Refusal& refusal : kRefusals)
    if (name.starts_with(refusal.prefix))
      return NotTaken("\"", Shown(name), "\" is not taken from clients: ",
                      absl::string_view(refusal.instead.data(), refusal.instead.size()));
  return NotTaken("operation \"", Shown(name),
                  "\" is not known: use others, or another version of the client");
}

}  // namespace gangway::compiler
