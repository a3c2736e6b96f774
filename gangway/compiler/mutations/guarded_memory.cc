// Implementation of guarded_memory.h. A block is [header page][guard page][bytes ... pattern][guard page], mapped for
// itself. Blocks lie in a range of addresses that is reserved at the first use, by which free knows them. For
// AddressSanitizer the bytes of the pattern are poisoned, so that instrumented code stops at a block's last byte.
#include "gangway/compiler/mutations/guarded_memory.h"

#include <dlfcn.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace gangway::compiler {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kRange = size_t{1} << 44;  // of addresses, each used once
constexpr size_t kGuardedMax = size_t{64} << 20;
constexpr size_t kAlignmentMin = 64;  // of XLA CPU's buffers; a compiler's own objects have less
// Each takes up to four mappings, and a process may have 65,530.
constexpr uint64_t kLiveMax = 8192;
constexpr unsigned char kPattern = 0xd5;

std::atomic<uint64_t> overwritten{0}, guarded{0}, live{0};
std::atomic<size_t> used{0};

struct Header {
  size_t mapped;  // bytes, from this page on
  size_t size;    // of the block
  unsigned char* end;
};

unsigned char* Range() {
  static auto* const range = static_cast<unsigned char*>(
      mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return range;
}

bool IsGuarded(const void* block) {
  const auto* at = static_cast<const unsigned char*>(block);
  return Range() != MAP_FAILED && at >= Range() && at < Range() + kRange;
}

Header* HeaderOf(void* block) {
  auto* const at = static_cast<unsigned char*>(block);
  const size_t into_page = reinterpret_cast<uintptr_t>(block) % kPage;
  return reinterpret_cast<Header*>(at - into_page - 2 * kPage);
}

// Null if there is no room.
void* Allocate(size_t alignment, size_t size) {
  if (Range() == MAP_FAILED || alignment < kAlignmentMin || alignment > kPage || size == 0 ||
      size > kGuardedMax || live >= kLiveMax)
    return nullptr;
  const size_t room = (size + kPage - 1) / kPage * kPage;
  const size_t mapped = room + 3 * kPage;
  const size_t at = used.fetch_add(mapped);
  if (at + mapped > kRange) return nullptr;
  unsigned char* const base = Range() + at;
  unsigned char* const bytes = base + 2 * kPage;
  if (mprotect(base, kPage, PROT_READ | PROT_WRITE) != 0 ||
      mprotect(bytes, room, PROT_READ | PROT_WRITE) != 0)
    return nullptr;
  // The block may begin in the first page only, where its header is found.
  unsigned char* const block = bytes + (room - size) / alignment * alignment;
  std::memset(block + size, kPattern, static_cast<size_t>(bytes + room - (block + size)));
  *reinterpret_cast<Header*>(base) = {mapped, size, bytes + room};
  ASAN_POISON_MEMORY_REGION(block + size, static_cast<size_t>(bytes + room - (block + size)));
  ++guarded;
  ++live;
  return block;
}

void Free(void* block) {
  --live;
  Header* const header = HeaderOf(block);
  const auto* const end = static_cast<unsigned char*>(block) + header->size;
  ASAN_UNPOISON_MEMORY_REGION(end, static_cast<size_t>(header->end - end));
  if (std::any_of(end, static_cast<const unsigned char*>(header->end),
                  [](unsigned char each) { return each != kPattern; }))
    ++overwritten;
  // The addresses are never used again, so what uses the block after this ends the process.
  if (mmap(header, header->mapped, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    std::abort();
}

}  // namespace

uint64_t OverwrittenBlocks() { return overwritten; }
uint64_t GuardedBlocks() { return guarded; }

}  // namespace gangway::compiler

// The allocator beneath. A sanitizer's has these names, in this program.
#if defined(GANGWAY_IS_SANITIZED)
extern "C" {
int __interceptor_posix_memalign(void** out, size_t alignment, size_t size);
void* __interceptor_aligned_alloc(size_t alignment, size_t size);
void __interceptor_free(void* block);
void* __interceptor_realloc(void* block, size_t size);
}
#define GANGWAY_NEXT(function) __interceptor_##function
#else
#define GANGWAY_NEXT(function)                             \
  [] {                                                     \
    static void* const next = dlsym(RTLD_NEXT, #function); \
    return reinterpret_cast<decltype(&::function)>(next);  \
  }()
#endif

extern "C" {

int posix_memalign(void** out, size_t alignment, size_t size) {
  *out = gangway::compiler::Allocate(alignment, size);
  return *out != nullptr ? 0 : GANGWAY_NEXT(posix_memalign)(out, alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  void* const block = gangway::compiler::Allocate(alignment, size);
  return block != nullptr ? block : GANGWAY_NEXT(aligned_alloc)(alignment, size);
}

void free(void* block) {
  if (block != nullptr && gangway::compiler::IsGuarded(block))
    return gangway::compiler::Free(block);
  GANGWAY_NEXT(free)(block);
}

void* realloc(void* block, size_t size) {
  if (block == nullptr || !gangway::compiler::IsGuarded(block))
    return GANGWAY_NEXT(realloc)(block, size);
  void* const moved = std::malloc(size);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(size, gangway::compiler::HeaderOf(block)->size));
  gangway::compiler::Free(block);
  return moved;
}

}  // extern "C"
