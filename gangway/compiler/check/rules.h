// The rules of the opcodes, by family: one file for each. Internal to gangway/compiler/check; opcodes.cc says which
// opcode has which rule.
#ifndef GANGWAY_COMPILER_CHECK_RULES_H_
#define GANGWAY_COMPILER_CHECK_RULES_H_

#include "gangway/compiler/check/site.h"

namespace gangway::compiler {

// rules_elementwise.cc
absl::Status CheckAnyUnary(const Site& site);  // any element type
absl::Status CheckSignedUnary(const Site& site);
absl::Status CheckIntegerUnary(const Site& site);
absl::Status CheckNot(const Site& site);
absl::Status CheckFloatUnary(const Site& site);
absl::Status CheckFloatOrComplexUnary(const Site& site);
absl::Status CheckAbs(const Site& site);
absl::Status CheckIsFinite(const Site& site);
absl::Status CheckPart(const Site& site);  // real, imag
absl::Status CheckConvert(const Site& site);
absl::Status CheckBitcastConvert(const Site& site);
absl::Status CheckReducePrecision(const Site& site);
absl::Status CheckAnyBinary(const Site& site);
absl::Status CheckNumericBinary(const Site& site);
absl::Status CheckOrderedBinary(const Site& site);
absl::Status CheckRemainder(const Site& site);
absl::Status CheckFloatOrComplexBinary(const Site& site);
absl::Status CheckLogicalBinary(const Site& site);
absl::Status CheckShift(const Site& site);
absl::Status CheckComplex(const Site& site);
absl::Status CheckCompare(const Site& site);
absl::Status CheckSelect(const Site& site);
absl::Status CheckClamp(const Site& site);

// rules_arrange.cc
absl::Status CheckBroadcast(const Site& site);
absl::Status CheckReshape(const Site& site);
absl::Status CheckTranspose(const Site& site);
absl::Status CheckReverse(const Site& site);
absl::Status CheckSlice(const Site& site);
absl::Status CheckConcatenate(const Site& site);
absl::Status CheckPad(const Site& site);
absl::Status CheckIota(const Site& site);

// rules_indexed.cc
absl::Status CheckDynamicSlice(const Site& site);
absl::Status CheckDynamicUpdateSlice(const Site& site);
absl::Status CheckGather(const Site& site);
absl::Status CheckScatter(const Site& site);

// rules_window.cc
absl::Status CheckReduceWindow(const Site& site);
absl::Status CheckSelectAndScatter(const Site& site);
absl::Status CheckConvolution(const Site& site);

// rules_linear.cc
absl::Status CheckDot(const Site& site);
absl::Status CheckFft(const Site& site);
absl::Status CheckTriangularSolve(const Site& site);
absl::Status CheckCholesky(const Site& site);
absl::Status CheckBatchNormInference(const Site& site);
absl::Status CheckBatchNormTraining(const Site& site);
absl::Status CheckBatchNormGrad(const Site& site);

// rules_called.cc
absl::Status CheckCall(const Site& site);
absl::Status CheckWhile(const Site& site);
absl::Status CheckConditional(const Site& site);
absl::Status CheckMap(const Site& site);
absl::Status CheckReduce(const Site& site);
absl::Status CheckSort(const Site& site);
absl::Status CheckCustomCallSite(const Site& site);

// rules_collective.cc
absl::Status CheckAllReduce(const Site& site);
absl::Status CheckAllGather(const Site& site);
absl::Status CheckReduceScatter(const Site& site);
absl::Status CheckAllToAll(const Site& site);
absl::Status CheckRaggedAllToAll(const Site& site);
absl::Status CheckCollectivePermute(const Site& site);
absl::Status CheckCollectiveBroadcast(const Site& site);
absl::Status CheckPositionId(const Site& site);

// rules_values.cc
absl::Status CheckParameter(const Site& site);
absl::Status CheckConstant(const Site& site);
absl::Status CheckTuple(const Site& site);
absl::Status CheckGetTupleElement(const Site& site);
absl::Status CheckSameAsOperand(const Site& site);  // optimization barriers
absl::Status CheckAfterAll(const Site& site);
absl::Status CheckAddDependency(const Site& site);
absl::Status CheckRng(const Site& site);
absl::Status CheckRngBitGenerator(const Site& site);
absl::Status CheckTopK(const Site& site);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_RULES_H_
