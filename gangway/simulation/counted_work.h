// Counts what the code of this process does, in numbers that are the same in every run: the basic blocks that run in
// sources compiled with -fsanitize-coverage=trace-pc, and the bytes that operator new gives out. Tests compare the
// counts of inputs of different sizes, so that a cost which grows too fast fails on any machine.
//
// For processes with one thread.
#ifndef GANGWAY_SIMULATION_COUNTED_WORK_H_
#define GANGWAY_SIMULATION_COUNTED_WORK_H_

#include <cstdint>

namespace gangway::simulation {

struct CountedWork {
  uint64_t blocks = 0;
  uint64_t bytes = 0;
};

// Since the process began.
CountedWork WorkSoFar();

// That `work` does.
template <typename Work>
CountedWork WorkOf(const Work& work) {
  const CountedWork before = WorkSoFar();
  work();
  const CountedWork after = WorkSoFar();
  return {after.blocks - before.blocks, after.bytes - before.bytes};
}

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_COUNTED_WORK_H_
