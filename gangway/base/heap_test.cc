// Tests of heap.h with tcmalloc linked, as the command has it.
#include "gangway/base/heap.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace gangway {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A block whose pages are resident; volatile, so that the compiler keeps it.
void* Touched(size_t bytes) {
  void* volatile block = std::malloc(bytes);
  if (block != nullptr) std::memset(block, 1, bytes);
  return block;
}

TEST(HeapTest, KeptAndLiveBytesStayWithinTheLimitAndLiveBytesMayExceedIt) {
  LimitHeap(256 * kMiB);
  std::free(Touched(200 * kMiB));
  EXPECT_GE(GetHeapUse().kept_bytes, 190 * kMiB) << "kept for the next program";

  void* other = Touched(240 * kMiB);  // does not fit beside what is kept
  EXPECT_LE(GetHeapUse().kept_bytes + GetHeapUse().live_bytes, 260 * kMiB);
  void* beyond = Touched(300 * kMiB);
  ASSERT_NE(beyond, nullptr) << "the limit gives way to live bytes";
  EXPECT_GE(GetHeapUse().live_bytes, 540 * kMiB);
  std::free(beyond);
  std::free(other);

  ReleaseHeap(1024 * kMiB);
  EXPECT_LE(GetHeapUse().kept_bytes, 16 * kMiB);
}

TEST(HeapTest, AnImpossibleRequestFailsAndTheLimitGivesWayAgainLater) {
  LimitHeap(256 * kMiB);
  void* volatile impossible = std::malloc(size_t{1} << 50);
  EXPECT_EQ(impossible, nullptr);
  ReleaseHeap(1024 * kMiB);  // restores the limit
  void* beyond = Touched(300 * kMiB);
  EXPECT_NE(beyond, nullptr);
  std::free(beyond);
}

}  // namespace
}  // namespace gangway
