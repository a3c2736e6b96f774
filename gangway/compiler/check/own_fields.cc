// Implementation of own_fields.h.
#include "gangway/compiler/check/own_fields.h"

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "absl/container/flat_hash_map.h"

#include "gangway/compiler/check/shapes.h"

namespace gangway::compiler {
namespace {

using xla::hlo::Instruction;

// A set of field numbers below 128.
class Fields {
 public:
  constexpr Fields() = default;
  constexpr Fields(std::initializer_list<int> numbers) {
    for (const int number : numbers) Add(number);
  }
  constexpr void Add(int number) { Half(number) |= uint64_t{1} << (number % 64); }
  constexpr void AddIf(bool is_set, int number) {
    Half(number) |= uint64_t{is_set} << (number % 64);
  }
  // The lowest that the other one lacks, or 0.
  constexpr int FirstBeyond(const Fields& other) const {
    if (const uint64_t low = low_ & ~other.low_; low != 0) return std::countr_zero(low);
    const uint64_t high = high_ & ~other.high_;
    return high == 0 ? 0 : 64 + std::countr_zero(high);
  }

 private:
  constexpr uint64_t& Half(int number) { return number < 64 ? low_ : high_; }
  uint64_t low_ = 0, high_ = 0;
};

void AddNumbers(const Instruction& self, Fields& set) {
  set.AddIf(self.has_window(), Instruction::kWindowFieldNumber);
  set.AddIf(self.has_convolution_dimension_numbers(),
            Instruction::kConvolutionDimensionNumbersFieldNumber);
  set.AddIf(self.feature_group_count() != 0, Instruction::kFeatureGroupCountFieldNumber);
  set.AddIf(self.batch_group_count() != 0, Instruction::kBatchGroupCountFieldNumber);
  set.AddIf(self.slice_dimensions_size() != 0, Instruction::kSliceDimensionsFieldNumber);
  set.AddIf(self.dynamic_slice_sizes_size() != 0, Instruction::kDynamicSliceSizesFieldNumber);
  set.AddIf(self.has_padding_config(), Instruction::kPaddingConfigFieldNumber);
  set.AddIf(self.has_dot_dimension_numbers(), Instruction::kDotDimensionNumbersFieldNumber);
  set.AddIf(self.fft_type() != 0, Instruction::kFftTypeFieldNumber);
  set.AddIf(self.fft_length_size() != 0, Instruction::kFftLengthFieldNumber);
  set.AddIf(self.has_gather_dimension_numbers(), Instruction::kGatherDimensionNumbersFieldNumber);
  set.AddIf(self.gather_slice_sizes_size() != 0, Instruction::kGatherSliceSizesFieldNumber);
  set.AddIf(self.has_scatter_dimension_numbers(), Instruction::kScatterDimensionNumbersFieldNumber);
  set.AddIf(self.indices_are_sorted(), Instruction::kIndicesAreSortedFieldNumber);
  set.AddIf(self.unique_indices(), Instruction::kUniqueIndicesFieldNumber);
  set.AddIf(self.has_triangular_solve_options(), Instruction::kTriangularSolveOptionsFieldNumber);
  set.AddIf(self.has_cholesky_options(), Instruction::kCholeskyOptionsFieldNumber);
  set.AddIf(self.has_sparsity_config(), Instruction::kSparsityConfigFieldNumber);
  set.AddIf(self.has_block_scaling_config(), Instruction::kBlockScalingConfigFieldNumber);
  set.AddIf(self.has_precision_config(), Instruction::kPrecisionConfigFieldNumber);
  set.AddIf(self.padding_type() != 0, Instruction::kPaddingTypeFieldNumber);
}

void AddScalars(const Instruction& self, Fields& set) {
  set.AddIf(self.has_literal(), Instruction::kLiteralFieldNumber);
  set.AddIf(self.parameter_number() != 0, Instruction::kParameterNumberFieldNumber);
  set.AddIf(self.tuple_index() != 0, Instruction::kTupleIndexFieldNumber);
  set.AddIf(self.dimensions_size() != 0, Instruction::kDimensionsFieldNumber);
  set.AddIf(self.exponent_bits() != 0, Instruction::kExponentBitsFieldNumber);
  set.AddIf(self.mantissa_bits() != 0, Instruction::kMantissaBitsFieldNumber);
  set.AddIf(self.distribution() != 0, Instruction::kDistributionFieldNumber);
  set.AddIf(self.epsilon() != 0, Instruction::kEpsilonFieldNumber);
  set.AddIf(self.feature_index() != 0, Instruction::kFeatureIndexFieldNumber);
  set.AddIf(!self.comparison_direction().empty(), Instruction::kComparisonDirectionFieldNumber);
  set.AddIf(!self.comparison_type().empty(), Instruction::kComparisonTypeFieldNumber);
  set.AddIf(!self.comparison_order().empty(), Instruction::kComparisonOrderFieldNumber);
  set.AddIf(self.is_stable(), Instruction::kIsStableFieldNumber);
  set.AddIf(self.rng_algorithm() != 0, Instruction::kRngAlgorithmFieldNumber);
  set.AddIf(self.k() != 0, Instruction::kKFieldNumber);
  set.AddIf(self.largest(), Instruction::kLargestFieldNumber);
  set.AddIf(self.is_composite(), Instruction::kIsCompositeFieldNumber);
  set.AddIf(self.has_result_accuracy(), Instruction::kResultAccuracyFieldNumber);
}

void AddCalls(const Instruction& self, Fields& set) {
  set.AddIf(self.channel_id() != 0, Instruction::kChannelIdFieldNumber);
  set.AddIf(self.use_global_device_ids(), Instruction::kUseGlobalDeviceIdsFieldNumber);
  set.AddIf(self.replica_groups_size() != 0, Instruction::kReplicaGroupsFieldNumber);
  set.AddIf(self.has_collective_device_list(), Instruction::kCollectiveDeviceListFieldNumber);
  set.AddIf(self.has_iota_collective_device_list(),
            Instruction::kIotaCollectiveDeviceListFieldNumber);
  set.AddIf(self.has_mesh_axes_replica_group_list(),
            Instruction::kMeshAxesReplicaGroupListFieldNumber);
  set.AddIf(self.source_target_pairs_size() != 0, Instruction::kSourceTargetPairsFieldNumber);
  set.AddIf(!self.custom_call_target().empty(), Instruction::kCustomCallTargetFieldNumber);
  set.AddIf(self.custom_call_has_side_effect(), Instruction::kCustomCallHasSideEffectFieldNumber);
  set.AddIf(self.custom_call_schedule() != 0, Instruction::kCustomCallScheduleFieldNumber);
  set.AddIf(self.custom_call_api_version() != 0, Instruction::kCustomCallApiVersionFieldNumber);
  set.AddIf(self.constrain_layout(), Instruction::kConstrainLayoutFieldNumber);
  set.AddIf(self.operand_shapes_with_layout_size() != 0,
            Instruction::kOperandShapesWithLayoutFieldNumber);
  set.AddIf(self.output_operand_aliasing_size() != 0,
            Instruction::kOutputOperandAliasingFieldNumber);
  set.AddIf(!self.backend_config().empty(), Instruction::kBackendConfigFieldNumber);
}

constexpr int kDimensions = Instruction::kDimensionsFieldNumber;
constexpr int kAccuracy = Instruction::kResultAccuracyFieldNumber;
constexpr int kEpsilon = Instruction::kEpsilonFieldNumber;
constexpr int kFeature = Instruction::kFeatureIndexFieldNumber;
constexpr int kWindow = Instruction::kWindowFieldNumber;
constexpr int kChannel = Instruction::kChannelIdFieldNumber;
constexpr int kGlobal = Instruction::kUseGlobalDeviceIdsFieldNumber;
constexpr int kGroups = Instruction::kReplicaGroupsFieldNumber;
constexpr int kDevices = Instruction::kCollectiveDeviceListFieldNumber;
constexpr int kIota = Instruction::kIotaCollectiveDeviceListFieldNumber;
constexpr int kMesh = Instruction::kMeshAxesReplicaGroupListFieldNumber;
constexpr int kPrecision = Instruction::kPrecisionConfigFieldNumber;
constexpr int kFeatureGroups = Instruction::kFeatureGroupCountFieldNumber;
constexpr int kBatchGroups = Instruction::kBatchGroupCountFieldNumber;
constexpr int kSorted = Instruction::kIndicesAreSortedFieldNumber;
constexpr int kUnique = Instruction::kUniqueIndicesFieldNumber;
constexpr int kStable = Instruction::kIsStableFieldNumber;

using Table = absl::flat_hash_map<std::string_view, Fields>;

void AddArrangements(Table& table) {
  for (const std::string_view name :
       {"broadcast", "concatenate", "iota", "map", "reduce", "reverse", "transpose"})
    table[name] = {kDimensions};
  table["sort"] = {kDimensions, kStable};
  table["topk"] = {kStable, Instruction::kKFieldNumber, Instruction::kLargestFieldNumber};
  table["slice"] = {Instruction::kSliceDimensionsFieldNumber};
  table["dynamic-slice"] = {Instruction::kDynamicSliceSizesFieldNumber};
  table["pad"] = {Instruction::kPaddingConfigFieldNumber};
  table["gather"] = {Instruction::kGatherDimensionNumbersFieldNumber,
                     Instruction::kGatherSliceSizesFieldNumber, kSorted, kUnique};
  table["scatter"] = {Instruction::kScatterDimensionNumbersFieldNumber, kSorted, kUnique};
  table["constant"] = {Instruction::kLiteralFieldNumber};
  table["parameter"] = {Instruction::kParameterNumberFieldNumber};
  table["get-tuple-element"] = {Instruction::kTupleIndexFieldNumber};
  table["call"] = {Instruction::kIsCompositeFieldNumber};
}

void AddArithmetic(Table& table) {
  for (const std::string_view name : {"acos",
                                      "acosh",
                                      "asin",
                                      "asinh",
                                      "atanh",
                                      "cbrt",
                                      "cosh",
                                      "cosine",
                                      "erf",
                                      "exponential",
                                      "exponential-minus-one",
                                      "log",
                                      "log-plus-one",
                                      "logistic",
                                      "rsqrt",
                                      "sine",
                                      "sinh",
                                      "sqrt",
                                      "tan",
                                      "tanh"})
    table[name] = {kAccuracy};
  for (const std::string_view name :
       {"batch-norm-grad", "batch-norm-inference", "batch-norm-training"})
    table[name] = {kEpsilon, kFeature};
  for (const std::string_view name : {"reduce-window", "select-and-scatter"})
    table[name] = {kWindow};
  table["reduce-precision"] = {Instruction::kExponentBitsFieldNumber,
                               Instruction::kMantissaBitsFieldNumber};
  table["compare"] = {Instruction::kComparisonDirectionFieldNumber,
                      Instruction::kComparisonTypeFieldNumber,
                      Instruction::kComparisonOrderFieldNumber};
  table["convolution"] = {kWindow,
                          kPrecision,
                          kFeatureGroups,
                          kBatchGroups,
                          Instruction::kConvolutionDimensionNumbersFieldNumber,
                          Instruction::kSparsityConfigFieldNumber,
                          Instruction::kBlockScalingConfigFieldNumber};
  table["dot"] = {kPrecision, Instruction::kDotDimensionNumbersFieldNumber};
  table["fft"] = {Instruction::kFftTypeFieldNumber, Instruction::kFftLengthFieldNumber};
  table["triangular-solve"] = {Instruction::kTriangularSolveOptionsFieldNumber};
  table["cholesky"] = {Instruction::kCholeskyOptionsFieldNumber};
  table["rng"] = {Instruction::kDistributionFieldNumber};
  table["rng-bit-generator"] = {Instruction::kRngAlgorithmFieldNumber};
}

void AddCollectives(Table& table) {
  for (const std::string_view name : {"all-gather", "all-reduce", "reduce-scatter"})
    table[name] = {kDimensions, kChannel, kGlobal, kGroups, kDevices, kIota, kMesh};
  for (const std::string_view name : {"all-to-all", "ragged-all-to-all", "collective-broadcast"})
    table[name] = {kDimensions, kChannel, kGroups, kDevices, kIota, kMesh};
  table["collective-permute"] = {kChannel, Instruction::kSourceTargetPairsFieldNumber};
  // The converter gives every custom call the numbers of a convolution.
  table["custom-call"] = {kPrecision,
                          kFeatureGroups,
                          kBatchGroups,
                          Instruction::kCustomCallTargetFieldNumber,
                          Instruction::kCustomCallHasSideEffectFieldNumber,
                          Instruction::kCustomCallScheduleFieldNumber,
                          Instruction::kCustomCallApiVersionFieldNumber,
                          Instruction::kConstrainLayoutFieldNumber,
                          Instruction::kOperandShapesWithLayoutFieldNumber,
                          Instruction::kOutputOperandAliasingFieldNumber,
                          Instruction::kBackendConfigFieldNumber};
}

}  // namespace

absl::Status CheckOwnFields(const Instruction& self) {
  static const auto* const kTable = [] {
    auto* table = new Table();
    AddArrangements(*table);
    AddArithmetic(*table);
    AddCollectives(*table);
    return table;
  }();
  Fields set;
  AddNumbers(self, set);
  AddScalars(self, set);
  AddCalls(self, set);
  const auto found = kTable->find(self.opcode());
  const int beyond = set.FirstBeyond(found == kTable->end() ? Fields() : found->second);
  if (beyond == 0) return absl::OkStatus();
  return Bad("it has ", Instruction::descriptor()->FindFieldByNumber(beyond)->name(),
             ", which belongs to other operations: leave it out");
}

}  // namespace gangway::compiler
