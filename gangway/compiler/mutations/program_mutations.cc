// Implementation of program_mutations.h.
#include "gangway/compiler/mutations/program_mutations.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gangway/xla/fuzz_message.h"
#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {
namespace {

using xla::hlo::Module;
using xla::hlo::Shape;

void AddShapes(Shape& shape, std::vector<Shape*>& shapes) {
  shapes.push_back(&shape);
  for (Shape& part : *shape.mutable_tuple_shapes()) AddShapes(part, shapes);
}

void AddShapes(xla::hlo::ProgramShape& shape, std::vector<Shape*>& shapes) {
  for (Shape& parameter : *shape.mutable_parameters()) AddShapes(parameter, shapes);
  if (shape.has_result()) AddShapes(*shape.mutable_result(), shapes);
}

std::vector<Shape*> AllShapes(Module& module) {
  std::vector<Shape*> shapes;
  AddShapes(*module.mutable_host_program_shape(), shapes);
  for (auto& computation : *module.mutable_computations()) {
    AddShapes(*computation.mutable_program_shape(), shapes);
    for (auto& each : *computation.mutable_instructions()) {
      AddShapes(*each.mutable_shape(), shapes);
      for (Shape& operand : *each.mutable_operand_shapes_with_layout()) AddShapes(operand, shapes);
    }
  }
  return shapes;
}

int64_t Size(int64_t before, std::mt19937& random) {
  constexpr int64_t kSizes[] = {0, 1, 2, 3, 5, 8, 16, 17, 33, 64, 127, 200, 513};
  switch (random() % 4) {
    case 0:
      return before + 1;
    case 1:
      return before - 1;
    case 2:
      return before * 2;
    default:
      return kSizes[random() % std::size(kSizes)];
  }
}

// A size becomes another one in all shapes.
void ReplaceSize(Module& module, std::mt19937& random) {
  const std::vector<Shape*> shapes = AllShapes(module);
  const Shape& any = *shapes[random() % shapes.size()];
  if (any.dimensions().empty()) return;
  const int64_t before =
      any.dimensions(static_cast<int>(random() % static_cast<unsigned>(any.dimensions_size())));
  const int64_t after = Size(before, random);
  for (Shape* shape : shapes)
    for (int64_t& each : *shape->mutable_dimensions())
      if (each == before) each = after;
}

// An element type becomes another one in all shapes.
void ReplaceType(Module& module, std::mt19937& random) {
  constexpr uint32_t kTypesMax = 34;  // numbers of XLA's PrimitiveType
  const std::vector<Shape*> shapes = AllShapes(module);
  const int32_t before = shapes[random() % shapes.size()]->element_type();
  const auto after = static_cast<int32_t>(random() % kTypesMax);
  for (Shape* shape : shapes)
    if (shape->element_type() == before) shape->set_element_type(after);
}

}  // namespace

std::string MutatedProgram(const std::string& module, std::mt19937& random) {
  Module program;
  if (!program.ParseFromString(module)) program.Clear();
  const uint32_t kind = random() % 8;
  if (kind < 4) ReplaceSize(program, random);
  if (kind == 3 || kind == 4) ReplaceType(program, random);
  for (uint32_t changes = kind < 3 ? random() % 2 : 1 + random() % 3; changes > 0; --changes)
    xla::MutateMessage(program, random);
  return program.SerializePartialAsString();
}

}  // namespace gangway::compiler
