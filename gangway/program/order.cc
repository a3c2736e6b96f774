// Implementation of Order and ArgumentsFirst in passes.h.
#include <vector>

#include "gangway/program/copier.h"
#include "gangway/program/passes.h"

namespace gangway::program {

Program Order(const Program& program) {
  const std::vector<Node>& nodes = program.nodes();
  // By call: the transfers of its outputs.
  std::vector<std::vector<uint32_t>> followers(nodes.size());
  std::vector<bool> follows(nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind != Kind::kTransfer) continue;
    const uint32_t producer = program.values()[nodes[i].inputs[0]].node;
    if (nodes[producer].kind != Kind::kCall) continue;
    followers[producer].push_back(i);
    follows[i] = true;
  }
  Program ordered(program.name());
  Copier copier(program, ordered);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (follows[i]) continue;
    copier.Copy(nodes[i]);
    for (uint32_t follower : followers[i]) copier.Copy(nodes[follower]);
  }
  return ordered;
}

Program ArgumentsFirst(const Program& program) {
  Program ordered(program.name());
  Copier copier(program, ordered);
  for (bool arguments : {true, false}) {
    for (const Node& node : program.nodes())
      if ((node.kind == Kind::kArgument) == arguments) copier.Copy(node);
  }
  return ordered;
}

}  // namespace gangway::program
