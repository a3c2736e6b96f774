// The cases of chains of nodes (bench/launch_programs.py): "single", "single awaited", "program N" and
// "program N awaited". Each node takes the result of the one before it. A chain is made of single calls, or of programs
// of N nodes; an awaited call or program is waited for before the next one begins. A client without programs makes N
// single calls in place of one. Header-only; one thread.
#ifndef BENCH_CHAIN_CASES_H_
#define BENCH_CHAIN_CASES_H_

#include <cstdlib>
#include <optional>
#include <string>

namespace gangway::bench {

inline constexpr int kChain = 128;  // nodes, or computations, of a chain

struct ChainCase {
  bool is_program = false;
  int nodes = 1;  // of a program
  bool is_awaited = false;
};

// None: it is no such case.
inline std::optional<ChainCase> ParseChainCase(const std::string& name) {
  const std::string awaited = " awaited", program = "program ";
  ChainCase found{.is_awaited = name.ends_with(awaited)};
  const std::string kind = name.substr(0, name.size() - (found.is_awaited ? awaited.size() : 0));
  if (kind == "single") return found;
  if (!kind.starts_with(program)) return std::nullopt;
  found.is_program = true;
  found.nodes = std::atoi(kind.substr(program.size()).c_str());
  return found.nodes > 0 ? std::optional(found) : std::nullopt;
}

}  // namespace gangway::bench

#endif  // BENCH_CHAIN_CASES_H_
