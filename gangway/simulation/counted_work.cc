// Implementation of counted_work.h: the hooks of the compiler and of the language. Compiled without the counting.
#include "gangway/simulation/counted_work.h"

#include <cstdlib>
#include <new>

namespace {
gangway::simulation::CountedWork so_far;
}  // namespace

extern "C" void __sanitizer_cov_trace_pc() { ++so_far.blocks; }  // NOLINT: the compiler's name

void* operator new(size_t size) {
  so_far.bytes += size;
  void* memory = std::malloc(size == 0 ? 1 : size);  // NOLINT(cppcoreguidelines-no-malloc)
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }          // NOLINT
void operator delete(void* memory, size_t) noexcept { std::free(memory); }  // NOLINT

namespace gangway::simulation {

CountedWork WorkSoFar() { return so_far; }

}  // namespace gangway::simulation
