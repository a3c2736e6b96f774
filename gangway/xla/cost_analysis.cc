// Implementation of cost_analysis.h.
#include "gangway/xla/cost_analysis.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/hlo_cost.pb.h"

namespace gangway::xla {
namespace {

using Instruction = HloInstructionCostProto;

constexpr int kTupleDepthMax = 8;

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("malformed compiled program: ", why));
}

// Sizes are doubles: products of untrusted dimensions do not wrap.
double Elements(const ShapeProto& shape) {
  double count = 1;
  for (int64_t size : shape.dimensions()) count *= static_cast<double>(std::max<int64_t>(0, size));
  return count;
}

double ElementsOfAll(const ShapeProto& shape, int depth = 0) {
  if (shape.element_type() != TYPE_TUPLE) return Elements(shape);
  double sum = 0;
  for (const ShapeProto& part : shape.tuple_shapes())
    sum += depth < kTupleDepthMax ? ElementsOfAll(part, depth + 1) : 0;
  return sum;
}

double Bytes(const ShapeProto& shape, int depth = 0) {
  if (shape.element_type() == TYPE_TUPLE) {
    double sum = 0;
    for (const ShapeProto& part : shape.tuple_shapes())
      sum += depth < kTupleDepthMax ? Bytes(part, depth + 1) : 0;
    return sum;
  }
  const auto element = ElementBytes(shape.element_type());
  return element.ok() ? Elements(shape) * static_cast<double>(*element) : 0;
}

int64_t Size(const ShapeProto& shape, int64_t dimension) {
  return dimension >= 0 && dimension < shape.dimensions_size()
             ? std::max<int64_t>(0, shape.dimensions(static_cast<int>(dimension)))
             : 1;
}

double Dimension(const ShapeProto& shape, int64_t i) { return static_cast<double>(Size(shape, i)); }

double Log2(double count) { return count > 1 ? std::ceil(std::log2(count)) : 0; }

double WindowElements(const WindowProto& window) {
  double count = 1;
  for (const WindowDimensionProto& each : window.dimensions())
    count *= static_cast<double>(std::max<int64_t>(0, each.size()));
  return count;
}

bool IsTranscendental(std::string_view opcode) {
  static const auto* const kAll = new absl::flat_hash_set<std::string_view>{
      "acos", "acosh",        "asin",     "asinh", "atan2",       "atanh",
      "cbrt", "cosine",       "cosh",     "erf",   "exponential", "exponential-minus-one",
      "log",  "log-plus-one", "logistic", "power", "rsqrt",       "sine",
      "sinh", "sqrt",         "tan",      "tanh"};
  return kAll->contains(opcode);
}

bool IsElementwise(std::string_view opcode) {
  static const auto* const kAll =
      new absl::flat_hash_set<std::string_view>{"abs",
                                                "add",
                                                "and",
                                                "ceil",
                                                "clamp",
                                                "compare",
                                                "complex",
                                                "convert",
                                                "count-leading-zeros",
                                                "divide",
                                                "floor",
                                                "imag",
                                                "is-finite",
                                                "maximum",
                                                "minimum",
                                                "multiply",
                                                "negate",
                                                "not",
                                                "or",
                                                "popcnt",
                                                "real",
                                                "reduce-precision",
                                                "remainder",
                                                "round-nearest-afz",
                                                "round-nearest-even",
                                                "select",
                                                "shift-left",
                                                "shift-right-arithmetic",
                                                "shift-right-logical",
                                                "sign",
                                                "stochastic-convert",
                                                "subtract",
                                                "xor"};
  return kAll->contains(opcode);
}

// Neither reads nor writes memory: names for parts of what other instructions wrote, and marks.
bool AccessesNothing(std::string_view opcode) {
  static const auto* const kAll = new absl::flat_hash_set<std::string_view>{
      "add-dependency", "after-all", "bitcast",      "constant",   "domain", "get-tuple-element",
      "opt-barrier",    "parameter", "partition-id", "replica-id", "tuple"};
  return kAll->contains(opcode);
}

// Pairs of an output and a place in its window that meet an element of the base, not padding or the room between
// dilated elements, along one dimension.
double ValidPairs(const WindowDimensionProto& window, int64_t base, int64_t outputs) {
  constexpr int64_t kLookedAtMax = int64_t{1} << 16;  // beyond, all pairs count
  const int64_t size = std::max<int64_t>(0, window.size());
  outputs = std::max<int64_t>(0, outputs);
  const double pairs = static_cast<double>(size) * static_cast<double>(outputs);
  const int64_t stride = window.stride(), spread = window.window_dilation();
  const int64_t apart = window.base_dilation(), padding = window.padding_low();
  constexpr int64_t kSizeMax = int64_t{1} << 40;
  for (int64_t each : {stride, spread, apart, base})
    if (each < 1 || each > kSizeMax) return pairs;
  if (padding < -kSizeMax || padding > kSizeMax) return pairs;
  if (pairs > static_cast<double>(kLookedAtMax)) return pairs;
  int64_t valid = 0;
  for (int64_t k = 0; k < size; ++k) {
    for (int64_t o = 0; o < outputs; ++o) {
      const int64_t place = o * stride + k * spread - padding;
      if (place >= 0 && place % apart == 0 && place / apart < base) ++valid;
    }
  }
  return static_cast<double>(valid);
}

ProgramCosts operator+(const ProgramCosts& a, const ProgramCosts& b) {
  return {a.flops + b.flops, a.transcendentals + b.transcendentals,
          a.bytes_accessed + b.bytes_accessed};
}

ProgramCosts Dearest(const ProgramCosts& a, const ProgramCosts& b) {
  return {std::max(a.flops, b.flops), std::max(a.transcendentals, b.transcendentals),
          std::max(a.bytes_accessed, b.bytes_accessed)};
}

class Analysis {
 public:
  absl::StatusOr<ProgramCosts> Run(const HloModuleCostProto& module) {
    for (const HloComputationCostProto& computation : module.computations())
      GANGWAY_RETURN_IF_ERROR(Add(computation));
    const auto entry = computations_.find(module.entry_computation_id());
    if (entry == computations_.end()) return Malformed("its entry is missing");
    const ProgramCosts& costs = entry->second.costs;
    if (!std::isfinite(costs.flops + costs.transcendentals + costs.bytes_accessed))
      return Malformed("its sizes are no numbers");
    return costs;
  }

 private:
  struct Computation {
    ProgramCosts costs;
    // What a fusion of it reads of each parameter, and writes.
    absl::flat_hash_map<int64_t, double> bytes_read;
    double bytes_written = 0;
  };

  // The computations that it calls come before it.
  absl::Status Add(const HloComputationCostProto& proto) {
    instructions_.clear();
    parameter_bytes_.clear();
    Computation computation;
    for (const Instruction& instruction : proto.instructions()) {
      GANGWAY_ASSIGN_OR_RETURN(const ProgramCosts costs, Of(instruction));
      computation.costs = computation.costs + costs;
      instructions_[instruction.id()] = &instruction;
    }
    const auto root = instructions_.find(proto.root_id());
    if (root == instructions_.end()) return Malformed("a computation without its root");
    for (const Instruction& instruction : proto.instructions()) {
      if (instruction.opcode() == "parameter")
        parameter_bytes_[instruction.id()] = Bytes(instruction.shape());
    }
    for (const Instruction& instruction : proto.instructions()) NoteReads(instruction, computation);
    computation.bytes_written = Written(*root->second);
    computations_[proto.id()] = std::move(computation);
    return absl::OkStatus();
  }

  // An update is done in place: it writes its own size only, and reads nothing of what it updates.
  double Written(const Instruction& root) const {
    if (root.opcode() == "dynamic-update-slice") return Bytes(Operand(root, 1));
    if (root.opcode() != "tuple") return Bytes(root.shape());
    double sum = 0;
    for (int64_t id : root.operand_ids()) {
      const Instruction& part = *instructions_.at(id);
      sum += part.opcode() == "tuple" ? Bytes(part.shape()) : Written(part);
    }
    return sum;
  }

  // `user` is one of a fused computation: what it reads of each parameter that is its operand.
  void NoteReads(const Instruction& user, Computation& computation) const {
    for (int i = 0; i < user.operand_ids_size(); ++i) {
      const Instruction& operand = *instructions_.at(user.operand_ids(i));
      if (operand.opcode() != "parameter") continue;
      const double all = parameter_bytes_.at(operand.id());
      double read = all;
      if (user.opcode() == "slice" || (user.opcode() == "dynamic-slice" && i == 0))
        read = Bytes(user.shape());
      else if (user.opcode() == "dynamic-update-slice" && i == 0)
        read = 0;
      double& sum = computation.bytes_read[operand.parameter_number()];
      sum = std::min(all, sum + read);
    }
  }

  absl::StatusOr<ProgramCosts> Of(const Instruction& instruction) {
    for (int64_t id : instruction.operand_ids()) {
      if (!instructions_.contains(id)) return Malformed("an operand comes after its use");
    }
    std::vector<const Computation*> called;
    for (int64_t id : instruction.called_computation_ids()) {
      const auto found = computations_.find(id);
      if (found == computations_.end()) return Malformed("a computation comes after its call");
      called.push_back(&found->second);
    }
    if (IsCall(instruction.opcode())) return OfCall(instruction, called);
    ProgramCosts costs;
    if (IsTranscendental(instruction.opcode()))
      costs.transcendentals = ElementsOfAll(instruction.shape());
    else
      costs = OfArithmetic(instruction, called.empty() ? ProgramCosts() : called.back()->costs);
    costs.bytes_accessed = BytesOf(instruction);
    return costs;
  }

  // What its called computations do is done once, by itself.
  static bool IsCall(std::string_view opcode) {
    return opcode == "fusion" || opcode == "call" || opcode == "while" || opcode == "conditional" ||
           opcode == "async-start";
  }

  ProgramCosts OfCall(const Instruction& instruction,
                      const std::vector<const Computation*>& called) const {
    ProgramCosts costs;
    for (const Computation* each : called)
      costs =
          instruction.opcode() == "conditional" ? Dearest(costs, each->costs) : costs + each->costs;
    if (instruction.opcode() != "fusion" || called.empty()) return costs;
    costs.bytes_accessed = called[0]->bytes_written;
    for (int i = 0; i < instruction.operand_ids_size(); ++i) {
      const auto read = called[0]->bytes_read.find(i);
      if (read != called[0]->bytes_read.end()) costs.bytes_accessed += read->second;
    }
    return costs;
  }

  // `combiner`: of what it calls for each pair of elements.
  ProgramCosts OfArithmetic(const Instruction& instruction, const ProgramCosts& combiner) const {
    const std::string& opcode = instruction.opcode();
    const double elements = ElementsOfAll(instruction.shape());
    auto combined = [&combiner](double times) {
      return ProgramCosts{combiner.flops * times, combiner.transcendentals * times};
    };
    if (IsElementwise(opcode)) return {.flops = elements};
    if (opcode == "dot") return {.flops = OfDot(instruction)};
    if (opcode == "convolution") return {.flops = OfConvolution(instruction)};
    if (opcode == "fft") return {.flops = OfFft(instruction)};
    if (opcode == "map") return combined(elements);
    if (opcode == "reduce") {
      double pairs = 0;
      for (int i = 0; i < instruction.operand_ids_size() / 2; ++i)
        pairs = std::max(pairs, Elements(Operand(instruction, i).element_type() == TYPE_TUPLE
                                             ? ShapeProto()
                                             : Operand(instruction, i)));
      const ShapeProto& result = instruction.shape();
      const double results = result.element_type() == TYPE_TUPLE && !result.tuple_shapes().empty()
                                 ? Elements(result.tuple_shapes(0))
                                 : Elements(result);
      return combined(std::max(0.0, pairs - results));
    }
    if (opcode == "reduce-window")
      return combined(elements * std::max(0.0, WindowElements(instruction.window()) - 1));
    if (opcode == "select-and-scatter")
      return combined(Elements(Operand(instruction, 1)) * WindowElements(instruction.window()));
    if (opcode == "scatter") return combined(Elements(Operand(instruction, 2)));
    if (opcode == "sort") {
      const double count = Elements(Operand(instruction, 0));
      return {.flops = count * Log2(count)};
    }
    if (opcode == "rng" || opcode == "rng-bit-generator") return {.transcendentals = elements};
    for (std::string_view kind : {"all-reduce", "reduce-scatter"}) {
      if (std::string_view(opcode).starts_with(kind) && !opcode.ends_with("-done"))
        return combined(ElementsOfAll(Operand(instruction, 0)));
    }
    return {};
  }

  double OfDot(const Instruction& dot) const {
    double contracted = 1;
    for (int64_t i : dot.dot_dimension_numbers().lhs_contracting_dimensions())
      contracted *= Dimension(Operand(dot, 0), i);
    return 2 * Elements(dot.shape()) * contracted;
  }

  double OfConvolution(const Instruction& convolution) const {
    const ConvolutionDimensionsProto& numbers = convolution.convolution_dimension_numbers();
    const ShapeProto& base = Operand(convolution, 0);
    const WindowProto& window = convolution.window();
    double pairs = 1;
    for (int i = 0; i < window.dimensions_size(); ++i) {
      if (i >= numbers.input_spatial_dimensions_size() ||
          i >= numbers.output_spatial_dimensions_size())
        return 0;
      pairs *= ValidPairs(window.dimensions(i), Size(base, numbers.input_spatial_dimensions(i)),
                          Size(convolution.shape(), numbers.output_spatial_dimensions(i)));
    }
    const double groups =
        static_cast<double>(std::max<int64_t>(1, convolution.batch_group_count()));
    return 2 * pairs *
           Dimension(Operand(convolution, 1), numbers.kernel_input_feature_dimension()) *
           Dimension(convolution.shape(), numbers.output_feature_dimension()) *
           Dimension(base, numbers.input_batch_dimension()) / groups;
  }

  double OfFft(const Instruction& fft) const {
    constexpr double kPerStep = 8;  // a complex multiplication that is added
    double length = 1;
    for (int64_t each : fft.fft_length()) length *= static_cast<double>(std::max<int64_t>(1, each));
    return kPerStep * Log2(length) * Elements(Operand(fft, 0));
  }

  double BytesOf(const Instruction& instruction) const {
    const std::string& opcode = instruction.opcode();
    if (AccessesNothing(opcode) || opcode.ends_with("-done")) return 0;
    const double result = Bytes(instruction.shape());
    if (opcode == "slice") return 2 * result;
    if (opcode == "dynamic-slice" || opcode == "gather") {
      double sum = 2 * result;
      for (int i = 1; i < instruction.operand_ids_size(); ++i)
        sum += Bytes(Operand(instruction, i));
      return sum;
    }
    if (opcode == "dynamic-update-slice") {
      double sum = 2 * Bytes(Operand(instruction, 1));
      for (int i = 2; i < instruction.operand_ids_size(); ++i)
        sum += Bytes(Operand(instruction, i));
      return sum;
    }
    double sum = result;
    for (int i = 0; i < instruction.operand_ids_size(); ++i) sum += Bytes(Operand(instruction, i));
    return sum;
  }

  // An empty shape if there are fewer operands.
  const ShapeProto& Operand(const Instruction& instruction, int i) const {
    if (i >= instruction.operand_ids_size()) return ShapeProto::default_instance();
    return instructions_.at(instruction.operand_ids(i))->shape();
  }

  absl::flat_hash_map<int64_t, Computation> computations_;
  // Of the computation at hand.
  absl::flat_hash_map<int64_t, const Instruction*> instructions_;
  absl::flat_hash_map<int64_t, double>
      parameter_bytes_;  // a tuple may have as many parts as readers
};

}  // namespace

absl::StatusOr<ProgramCosts> AnalyzeCosts(const HloWithConfigCostProto& program) {
  return Analysis().Run(program.module());
}

}  // namespace gangway::xla
