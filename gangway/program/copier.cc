// Implementation of copier.h.
#include "gangway/program/copier.h"

#include <utility>

namespace gangway::program {

Copier::Copier(const Program& from, Program& to)
    : from_(from),
      to_(to),
      values_(from.value_count()),
      functions_(from.functions().size()),
      device_lists_(from.device_lists().size()),
      sources_(from.sources().size()) {}

DevicesId Copier::OfDevices(DevicesId list) {
  std::optional<uint32_t>& known = device_lists_[list];
  if (!known) known = to_.ListOf(from_.device_lists()[list]);
  return *known;
}

Node Copier::Translated(const Node& node) {
  Node copy = node;
  if (node.kind == Kind::kCall) {
    std::optional<uint32_t>& known = functions_[node.function];
    if (!known) known = to_.FunctionNamed(from_.functions()[node.function]);
    copy.function = *known;
  }
  for (ValueId& input : copy.inputs) input = Of(input);
  if (node.devices) copy.devices = OfDevices(*node.devices);
  if (node.source) {
    std::optional<uint32_t>& known = sources_[*node.source];
    if (!known) known = to_.SourceNamed(from_.sources()[*node.source]);
    copy.source = known;
  }
  return copy;
}

ValueId Copier::Add(Node translated, const Node& node) {
  const ValueId first = to_.Add(std::move(translated));
  for (uint32_t i = 0; i < node.output_count; ++i) values_[node.first_output + i] = first + i;
  return first;
}

void Copier::CopyShapes(const Node& node) {
  for (uint32_t i = 0; i < node.output_count; ++i) {
    const ValueId output = node.first_output + i;
    const std::optional<ShapeId> shape = from_.values()[output].shape;
    if (shape) to_.SetShape(Of(output), from_.shapes()[*shape]);
  }
}

void Copier::Copy(const Node& node) {
  Add(Translated(node), node);
  CopyShapes(node);
}

}  // namespace gangway::program
