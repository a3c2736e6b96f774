// Which node of a launched program an operation is, for the records of failures (ER-1) and for people. Pure.
#ifndef GANGWAY_CONTROLLER_CORE_PROGRAM_NODE_H_
#define GANGWAY_CONTROLLER_CORE_PROGRAM_NODE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "gangway/wire/program.pb.h"

namespace gangway::controller {

// A registration of a program.
struct ProgramName {
  uint64_t id = 0;  // cluster-wide, never reused
  std::string name;
};

struct ProgramNode {
  std::shared_ptr<const ProgramName> program;
  uint32_t node = 0;  // its index, arguments counted
  wire::Dispatch dispatch = wire::DISPATCH_PARALLEL;
  std::shared_ptr<const std::string> source;  // null: not known
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_PROGRAM_NODE_H_
