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

TEST(HeapTest, ATrimmerGivesBackWhatWasUnusedThroughItsLastBeats) {
  LimitHeap(1024 * kMiB);
  ReleaseHeap(1024 * kMiB);
  HeapTrimmer trimmer(50 * kMiB, 100 * kMiB);
  for (size_t beat = 0; beat < 2 * HeapTrimmer::kBeats; ++beat) {  // in use at every other beat
    void* block = Touched(300 * kMiB);
    if (beat % 2 == 0) std::free(block);
    trimmer.OnBeat();
    if (beat % 2 != 0) std::free(block);
  }
  for (size_t beat = 1; beat < HeapTrimmer::kBeats; ++beat) trimmer.OnBeat();
  EXPECT_GE(GetHeapUse().kept_bytes, 290 * kMiB) << "it was in use at a beat before these";

  trimmer.OnBeat();
  EXPECT_LE(GetHeapUse().kept_bytes, 200 * kMiB) << "at least a step";
}

TEST(HeapTest, ATrimmerSparesWhatSmallUsesNeed) {
  LimitHeap(1024 * kMiB);
  ReleaseHeap(1024 * kMiB);
  std::free(Touched(40 * kMiB));
  HeapTrimmer trimmer(50 * kMiB, 100 * kMiB);
  for (size_t beat = 0; beat < 2 * HeapTrimmer::kBeats; ++beat) trimmer.OnBeat();
  EXPECT_GE(GetHeapUse().kept_bytes, 35 * kMiB);
}

}  // namespace
}  // namespace gangway
