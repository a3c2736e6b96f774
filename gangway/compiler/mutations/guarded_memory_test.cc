// Whatever leaves a block is found: one byte beyond by the pattern or, in instrumented code, at once; more, and a use
// after the free, by the pages around.
#include "gangway/compiler/mutations/guarded_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace gangway::compiler {
namespace {

constexpr size_t kSize = 100;  // not a multiple of the alignment: bytes of the pattern follow

unsigned char* Block() {
  void* block = nullptr;
  EXPECT_EQ(posix_memalign(&block, 64, kSize), 0);
  return static_cast<unsigned char*>(block);
}

// As code does that no sanitizer sees, like the runtime's.
__attribute__((no_sanitize("address"))) void WriteUnseen(unsigned char* at) {
  *const_cast<volatile unsigned char*>(at) = 1;
}

TEST(GuardedMemoryTest, ABlockIsUsable) {
  const uint64_t guarded = GuardedBlocks(), overwritten = OverwrittenBlocks();
  unsigned char* const block = Block();
  EXPECT_EQ(GuardedBlocks(), guarded + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
  std::memset(block, 7, kSize);
  auto* const larger = static_cast<unsigned char*>(std::realloc(block, 2 * kSize));
  EXPECT_EQ(larger[kSize - 1], 7);
  std::free(larger);
  EXPECT_EQ(OverwrittenBlocks(), overwritten);
}

TEST(GuardedMemoryTest, AWriteBeyondABlockIsFoundWhenItIsFreed) {
  const uint64_t before = OverwrittenBlocks();
  unsigned char* const block = Block();
  WriteUnseen(block + kSize);
  std::free(block);
  EXPECT_EQ(OverwrittenBlocks(), before + 1);
}

TEST(GuardedMemoryDeathTest, WhatLeavesThePagesEndsTheProcess) {
  unsigned char* const block = Block();
  EXPECT_DEATH(WriteUnseen(block + 128), "");
  EXPECT_DEATH(WriteUnseen(block - 4096), "");
  unsigned char* volatile freed = block;  // the compiler does not see the use after the free
  std::free(block);
  EXPECT_DEATH(WriteUnseen(freed), "");
}

#if defined(GANGWAY_IS_SANITIZED)
TEST(GuardedMemoryDeathTest, InstrumentedCodeIsStoppedAtTheFirstByteBeyond) {
  unsigned char* const block = Block();
  volatile size_t beyond = kSize;
  EXPECT_DEATH(block[beyond] = 1, "AddressSanitizer");
  EXPECT_DEATH(std::memset(block, 0, beyond + 1), "AddressSanitizer");
  std::free(block);
}
#endif

}  // namespace
}  // namespace gangway::compiler
