// Implementation of call_check.h.
#include "gangway/compiler/check_calls/call_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gangway::compiler::calls {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

int64_t Elements(const Shape& shape) {
  return std::ranges::count(shape.dimensions(), 0) != 0 ? 0 : 1;  // only whether there are any
}

bool IsPlain(const xla::hlo::Layout& layout) {
  return layout.tiles().empty() && layout.element_size_in_bits() == 0 &&
         layout.memory_space() == 0 && layout.tail_padding_alignment_in_elements() <= 1;
}

}  // namespace

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape.dimensions(), ","), "]");
}

bool SameArray(const Shape& a, const Shape& b) {
  return a.element_type() == b.element_type() && std::ranges::equal(a.dimensions(), b.dimensions());
}

bool SameLayout(const Shape& a, const Shape& b) {
  return std::ranges::equal(a.layout().minor_to_major(), b.layout().minor_to_major());
}

bool IsRowMajor(const Shape& shape) {
  const auto& order = shape.layout().minor_to_major();
  for (int i = 0; i < order.size(); ++i)
    if (order[i] != order.size() - 1 - i) return false;
  return order.size() == shape.dimensions_size() || !shape.has_layout();
}

CallCheck::CallCheck(const CustomCallSite& site, const CallProgram& program)
    : site_(site), program_(program) {
  if (yields_tuple()) {
    for (const Shape& part : call().shape().tuple_shapes()) results_.push_back(&part);
  } else {
    results_.push_back(&call().shape());
  }
  True(!call().has_literal() && !call().has_window() &&
           !call().has_convolution_dimension_numbers() && !call().has_dot_dimension_numbers() &&
           call().padding_type() == 0 && call().feature_group_count() <= 1 &&
           call().batch_group_count() <= 1 && call().precision_config().algorithm() == 0 &&
           std::ranges::all_of(call().precision_config().operand_precision(),
                               [](int precision) { return precision == 0; }),
       "it has properties of a convolution or a constant");
  True(call().custom_call_schedule() == 0, "it asks for a schedule of its own");
}

void CallCheck::True(bool holds, std::string_view otherwise) {
  if (!holds) Fault(std::string(otherwise));
}

void CallCheck::Fault(std::string text) {
  if (fault_.empty()) fault_ = std::move(text);
}

absl::Status CallCheck::status() const {
  if (!failed()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("custom call '", call().custom_call_target(), "': ", fault_,
                   ". JAX's own functions make no such call: correct it, or leave it out."));
}

void CallCheck::Interface(std::initializer_list<int32_t> allowed) {
  True(std::ranges::count(allowed, call().custom_call_api_version()) != 0,
       "it is called by another interface than its own (api_version)");
}

void CallCheck::Operands(int count) {
  if (static_cast<int>(operands().size()) != count)
    Fault(absl::StrCat("it has ", operands().size(), " operands, and takes ", count));
}

void CallCheck::NoCallees() {
  True(call().called_computation_ids().empty(), "it calls a computation");
}

void CallCheck::NoAliases() {
  True(call().output_operand_aliasing().empty(), "a result of it aliases an operand");
}

void CallCheck::NoConfig() { True(call().backend_config().empty(), "it has a backend_config"); }

void CallCheck::Aliases(std::span<const AllowedAlias> allowed) {
  std::vector<int64_t> seen;
  for (const xla::hlo::OutputOperandAliasing& alias : call().output_operand_aliasing()) {
    const auto& index = alias.output_shape_index();
    const int64_t result = index.empty() ? 0 : index[0];
    const bool fits = index.size() == (yields_tuple() ? 1 : 0) &&
                      alias.operand_shape_index().empty() &&
                      std::ranges::any_of(allowed, [&](const AllowedAlias& each) {
                        return each.result == result && each.operand == alias.operand_index();
                      });
    if (!fits || std::ranges::count(seen, result) != 0)
      return Fault("a result of it aliases an operand that its handler does not");
    seen.push_back(result);
    if (result >= static_cast<int64_t>(results_.size()) ||
        alias.operand_index() >= static_cast<int64_t>(operands().size()))
      return Fault("an alias names what it does not have");
    const Shape* const operand = Placed(static_cast<int>(alias.operand_index()));
    if (operand == nullptr) return;
    const Shape& aliased = *results_[static_cast<size_t>(result)];
    if (!SameArray(*operand, aliased) || !SameLayout(*operand, aliased))
      return Fault(absl::StrCat("its result ", result, ", ", ShapeText(aliased),
                                ", aliases an operand of shape ", ShapeText(*operand)));
  }
}

Attributes CallCheck::TypedAttributes() {
  Interface({kTypedInterface});
  absl::StatusOr<Attributes> parsed = ParseAttributes(call().backend_config());
  if (!parsed.ok()) Fault(std::string(parsed.status().message()));
  return failed() ? Attributes() : *std::move(parsed);
}

std::string CallCheck::FrontendAttribute(std::string_view name) {
  const auto& attributes = call().frontend_attributes().map();
  const auto found = attributes.find(std::string(name));
  if (found != attributes.end()) return found->second;
  Fault(absl::StrCat("it has no attribute ", View(name)));
  return "";
}

void CallCheck::Array(const Shape& shape, std::string_view name, bool may_be_token) {
  const int32_t type = shape.element_type();
  if (may_be_token && type == xla::TYPE_TOKEN) return;
  True(type != xla::TYPE_TUPLE && type != xla::TYPE_OPAQUE_TYPE && type != xla::TYPE_TOKEN &&
           type != xla::TYPE_INVALID,
       absl::StrCat(View(name), " is no array"));
  True(IsPlain(shape.layout()), absl::StrCat(View(name), " has a layout with tiles or padding"));
}

const Shape* CallCheck::Placed(int operand) {
  if (static_cast<size_t>(call().operand_shapes_with_layout_size()) != operands().size() ||
      !call().constrain_layout()) {
    Fault("it does not say how each of its operands lies in memory (operand_layouts)");
    return nullptr;
  }
  const Shape& placed = call().operand_shapes_with_layout(operand);
  if (SameArray(placed, *operands()[static_cast<size_t>(operand)])) return &placed;
  Fault(absl::StrCat("operand ", operand, " has shape ",
                     ShapeText(*operands()[static_cast<size_t>(operand)]),
                     ", and its layout is for ", ShapeText(placed)));
  return nullptr;
}

void CallCheck::RowMajor(const Shape& shape, std::string_view name) {
  True(IsRowMajor(shape), absl::StrCat(View(name), " is not in row-major order"));
}

void CallCheck::ColumnMajor(const Shape& shape, std::string_view name) {
  const auto& order = shape.layout().minor_to_major();
  const int rank = shape.dimensions_size();
  bool holds = rank >= 2 && order.size() == rank && order[0] == rank - 2 && order[1] == rank - 1;
  for (int i = 2; holds && i < rank; ++i) holds = order[i] == rank - 1 - i;
  True(holds, absl::StrCat(View(name), " is not in column-major order"));
  True(Elements(shape) != 0, absl::StrCat(View(name), " is empty and not in row-major order"));
}

void CallCheck::SameShape() {
  Operands(1);
  NoCallees();
  NoAliases();
  if (failed()) return;
  Array(*operands()[0], "its operand");
  Array(call().shape(), "its result");
  if (!SameArray(*operands()[0], call().shape()))
    Fault(absl::StrCat("its operand has shape ", ShapeText(*operands()[0]), " and its result ",
                       ShapeText(call().shape())));
}

}  // namespace gangway::compiler::calls
