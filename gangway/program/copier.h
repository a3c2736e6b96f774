// Copies the nodes of a program to the end of another one, which may have other nodes among them. Values and entries of
// tables have other numbers there; each entry is looked up once. For passes; pure.
#ifndef GANGWAY_PROGRAM_COPIER_H_
#define GANGWAY_PROGRAM_COPIER_H_

#include <optional>
#include <vector>

#include "gangway/program/program.h"

namespace gangway::program {

class Copier {
 public:
  // Both outlive it.
  Copier(const Program& from, Program& to);

  // The node, its inputs among those that were added before, as it is to be added.
  Node Translated(const Node& node);
  // Adds what Translated gave of `node`, perhaps changed, without the shapes of its outputs, the first of which it
  // returns.
  ValueId Add(Node translated, const Node& node);
  void CopyShapes(const Node& node);  // of its outputs
  void Copy(const Node& node);

  ValueId Of(ValueId value) const { return values_[value]; }
  DevicesId OfDevices(DevicesId list);

 private:
  const Program& from_;
  Program& to_;
  std::vector<ValueId> values_;
  std::vector<std::optional<uint32_t>> functions_, device_lists_, sources_;
};

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_COPIER_H_
