// Implementation of AddFrees in passes.h.
#include <vector>

#include "gangway/program/copier.h"
#include "gangway/program/passes.h"

namespace gangway::program {

Program AddFrees(const Program& program) {
  const std::vector<Node>& nodes = program.nodes();
  // By value: the node behind which it is freed, if it is not gone by itself.
  std::vector<std::optional<uint32_t>> last_use(program.value_count());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    const bool is_argument = node.kind == Kind::kArgument;
    for (uint32_t k = 0; k < node.output_count && !is_argument; ++k)
      last_use[node.first_output + k] = i;
    for (ValueId input : node.inputs) {
      if (last_use[input]) last_use[input] = i;
    }
    if (node.kind == Kind::kFree)
      for (ValueId input : node.inputs) last_use[input].reset();
    for (uint32_t index : node.donated) last_use[node.inputs[index]].reset();
  }
  std::vector<std::vector<ValueId>> ends(nodes.size());
  for (ValueId value = 0; value < program.value_count(); ++value) {
    if (last_use[value]) ends[*last_use[value]].push_back(value);
  }
  Program freeing(program.name());
  Copier copier(program, freeing);
  for (size_t i = 0; i < nodes.size(); ++i) {
    copier.Copy(nodes[i]);
    if (ends[i].empty()) continue;
    copier.Copy({.kind = Kind::kFree, .inputs = std::move(ends[i])});
  }
  return freeing;
}

}  // namespace gangway::program
