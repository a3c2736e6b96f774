// Implementation of checked_program.h.
#include "gangway/compiler/checked_program.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/compiler/check/check.h"
#include "gangway/compiler/check_calls/check_calls.h"
#include "gangway/compiler/hlo_conversion.h"
#include "gangway/compiler/hlo_field.h"
#include "gangway/device/pjrt/compile_options_edit.h"
#include "gangway/wire/failure.h"
#include "gangway/xla/allowed_options.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::compiler {

namespace {

constexpr int kProgramShape = 4;  // of HloModuleProto

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool HasNarrowElements(const xla::ShapeProto& shape) {
  return xla::IsNarrow(shape.element_type()) ||
         std::ranges::any_of(shape.tuple_shapes(), HasNarrowElements);
}

// Whether StableHLO says what its HLO, `module`, does not. Attributes' names are bytes of a program in each form.
bool SaysMore(std::string_view stablehlo, const std::string& module) {
  if (Contains(stablehlo, "layout_mode") || Contains(stablehlo, "memory_kind")) return true;
  xla::ProgramShapeProto shape;
  if (!shape.ParseFromString(FieldOf(module, kProgramShape).value_or(""))) return true;
  return HasNarrowElements(shape.result()) ||
         std::ranges::any_of(shape.parameters(), HasNarrowElements);
}

// Arrays alone cross the cluster's interface. XLA also counts on it: a tuple beside another parameter ends its process.
absl::Status CheckInterface(const xla::ProgramShapeProto& shape) {
  const auto is_tuple = [](const xla::ShapeProto& part) {
    return part.element_type() == xla::TYPE_TUPLE;
  };
  if (std::ranges::any_of(shape.parameters(), is_tuple))
    return absl::UnimplementedError(
        "A parameter of the program is a tuple: make each of its parts a parameter");
  if (std::ranges::any_of(shape.result().tuple_shapes(), is_tuple))
    return absl::UnimplementedError(
        "The program's result is a tuple of tuples: return all parts in one tuple");
  return absl::OkStatus();
}

struct Program {
  std::string module;
  bool is_changed = false;
};

absl::StatusOr<Program> Check(device::Backend& converter, const wire::CompileRequest& request,
                              CallSettings settings) {
  Program program;
  if (request.format() == "mlir") {
    GANGWAY_ASSIGN_OR_RETURN(program.module, ConvertToHlo(converter, request));
  } else if (request.format() == "hlo") {
    program.module = request.program();
  } else {
    return absl::UnimplementedError(
        absl::StrCat("Unknown program format '", wire::ValidUtf8(request.format().substr(0, 64)),
                     "': send StableHLO as 'mlir', or an HloModuleProto as 'hlo'"));
  }
  GANGWAY_ASSIGN_OR_RETURN(const device::LogicalShape shape,
                           device::ReadLogicalShape(request.options()));
  settings.partitions = shape.num_partitions;
  const auto rules = [&settings](const xla::hlo::Module& module) {
    return MakeCustomCallRule(module, settings);
  };
  GANGWAY_ASSIGN_OR_RETURN(
      const Checked checked,
      CheckProgram(program.module, rules,
                   {.replicas = shape.num_replicas, .partitions = shape.num_partitions}));
  if (!checked.wants_changes()) return program;
  GANGWAY_ASSIGN_OR_RETURN(program.module, WithChanges(program.module, checked));
  program.is_changed = true;
  return program;
}

}  // namespace

absl::StatusOr<std::string> CheckedHlo(device::Backend& converter,
                                       const wire::CompileRequest& request,
                                       const CallSettings& settings) {
  GANGWAY_ASSIGN_OR_RETURN(Program program, Check(converter, request, settings));
  return std::move(program.module);
}

absl::Status CheckRequest(device::Backend& converter, wire::CompileRequest& request,
                          const CallSettings& settings) {
  GANGWAY_ASSIGN_OR_RETURN(Program program, Check(converter, request, settings));
  xla::ProgramShapeProto shape;
  if (!shape.ParseFromString(FieldOf(program.module, kProgramShape).value_or("")))
    return absl::InvalidArgumentError("the program has no shape");
  GANGWAY_RETURN_IF_ERROR(CheckInterface(shape));
  GANGWAY_RETURN_IF_ERROR(xla::CheckPropagation(request.options(), shape));
  const bool stays = request.format() == "mlir" && !program.is_changed &&
                     SaysMore(request.program(), program.module);
  if (stays) return absl::OkStatus();
  request.set_program(std::move(program.module));
  request.set_format("hlo");
  return absl::OkStatus();
}

}  // namespace gangway::compiler
