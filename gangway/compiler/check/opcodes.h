// The opcodes that a client's program may have. Internal to gangway/compiler/check.
#ifndef GANGWAY_COMPILER_CHECK_OPCODES_H_
#define GANGWAY_COMPILER_CHECK_OPCODES_H_

#include <string_view>

#include "absl/status/statusor.h"

#include "gangway/compiler/check/rules.h"

namespace gangway::compiler {

inline constexpr int kAny = -1;

struct Opcode {
  std::string_view name;
  int operands = 0;  // kAny: the rule decides
  int calls = 0;
  Rule rule = nullptr;
  // It may be in a computation that is applied to elements: the same operands give the same result, nothing else
  // depends on it, and XLA's CPU compiler, which puts such a computation into a loop, does not end its process over it.
  bool is_for_elements = true;
};

// UNIMPLEMENTED for an opcode that is not taken, with what to do instead.
absl::StatusOr<const Opcode*> FindOpcode(std::string_view name);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_OPCODES_H_
