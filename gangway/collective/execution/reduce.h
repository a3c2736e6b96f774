// Element-wise reductions of memory: into = sources[0] (reduction) sources[1] (reduction) ..., from left to right.
// 16-bit floats are rounded after each step. Denormal floats count as zero, as in the programs of XLA CPU, whatever the
// calling thread's mode is. Thread-safe.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_REDUCE_H_
#define GANGWAY_COLLECTIVE_EXECUTION_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "gangway/xla/collectives.pb.h"

namespace gangway::collective {

// `bytes` are a multiple of the element's size; all sides are aligned to it. There is at least one source; `into` may
// be one of them, and overlaps with no other one.
using Reducer = void (*)(std::byte* into, std::span<const std::byte* const> sources, size_t bytes);

struct Reduction {
  Reducer reducer = nullptr;  // null: there is none for this type
  size_t element_bytes = 0;
};

// `element_type`: XLA's PrimitiveType.
Reduction FindReduction(xla::Collective::Reduction reduction, int32_t element_type);

// Sets the calling thread's mode of floating-point arithmetic that reductions have, while it lives.
class ReductionMode {
 public:
  ReductionMode();
  ~ReductionMode();
  ReductionMode(const ReductionMode&) = delete;
  ReductionMode& operator=(const ReductionMode&) = delete;

 private:
  uint32_t saved_ = 0;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_REDUCE_H_
