// Tests of shared_heap.h with tcmalloc linked, as the command has it.
#include "gangway/base/shared_heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "gangway/base/heap.h"

namespace gangway {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

const SharedHeap& Heap() {
  static const SharedHeap heap = *ShareHeap();
  return heap;
}

// Volatile, so that the compiler keeps it.
std::byte* Touched(size_t bytes, int value) {
  void* volatile block = std::malloc(bytes);
  std::memset(block, value, bytes);
  return static_cast<std::byte*>(static_cast<void*>(block));
}

uint64_t BytesOfFile() {
  struct stat file{};
  fstat(Heap().descriptor, &file);
  return static_cast<uint64_t>(file.st_blocks) * 512;
}

TEST(SharedHeapTest, AnotherMappingReadsWhatMallocHolds) {
  const SharedHeap& heap = Heap();
  std::byte* const block = Touched(32 * kMiB, 7);
  ASSERT_GE(block, heap.base);
  ASSERT_LE(block + 32 * kMiB, heap.base + heap.bytes);
  void* const mapped =
      mmap(nullptr, heap.bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, heap.descriptor, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto* const there = static_cast<std::byte*>(mapped) + (block - heap.base);
  EXPECT_EQ(there[0], std::byte{7});
  block[32 * kMiB - 1] = std::byte{9};
  EXPECT_EQ(there[32 * kMiB - 1], std::byte{9});
  munmap(mapped, heap.bytes);
  std::free(block);
}

// Or malloc, which takes what it gets for whole pages of its own, would use memory before the file.
TEST(SharedHeapTest, TheFileBeginsAtAHugePage) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(Heap().base) % (2 * kMiB), 0);
}

TEST(SharedHeapTest, WhatMallocGivesBackTakesNoMemoryAndMayBeUsedAgain) {
  (void)Heap();
  std::byte* const block = Touched(200 * kMiB, 1);
  EXPECT_GE(BytesOfFile(), 200 * kMiB);
  std::free(block);
  ReleaseHeap(1024 * kMiB);
  EXPECT_LT(BytesOfFile(), 64 * kMiB);
  std::byte* const again = Touched(200 * kMiB, 2);
  EXPECT_EQ(again[100 * kMiB], std::byte{2});
  std::free(again);
}

TEST(SharedHeapTest, AForkedChildHasNoHeapAndSpoilsNone) {
  std::byte* const block = Touched(4 * kMiB, 3);
  const pid_t child = fork();
  if (child == 0) {
    block[0] = std::byte{4};  // ends it
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(block[0], std::byte{3});
  std::free(block);
}

// In a process of its own, which has no heap yet: whether `holds` does.
void ExpectInAnotherProcess(bool (*holds)()) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(_exit(holds() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(SharedHeapDeathTest, MallocGoesOnWhenTheFileIsFull) {
  ExpectInAnotherProcess([] {
    const rlimit small{.rlim_cur = 64 * kMiB, .rlim_max = 64 * kMiB};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) return false;
    const SharedHeap& heap = Heap();
    const std::byte* const first = Touched(kMiB, 1);
    const std::byte* const block = Touched(200 * kMiB, 5);
    const auto is_there = [&heap](const std::byte* at) {
      return at >= heap.base && at < heap.base + heap.bytes;
    };
    return heap.bytes == 64 * kMiB && is_there(first) && !is_there(block) &&
           block[100 * kMiB] == std::byte{5};
  });
}

TEST(SharedHeapDeathTest, IsRefusedWhereAddressesAreLimited) {
  ExpectInAnotherProcess([] {
    const rlimit limited{.rlim_cur = 100'000 * kMiB, .rlim_max = 100'000 * kMiB};
    return setrlimit(RLIMIT_AS, &limited) == 0 && absl::IsResourceExhausted(ShareHeap().status()) &&
           Touched(kMiB, 1)[5] == std::byte{1};
  });
}

}  // namespace
}  // namespace gangway
