// Memory for bytes of the cluster: used again, and bounded (host_memory.h).
#include "gangway/frontdoor/pjrt/host_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gangway::pjrt {
namespace {

TEST(HostMemoryTest, ALargeBlockIsUsedAgain) {
  auto block = HostMemory::Take(HostMemory::kKeptMin);
  char* const bytes = block.get();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 64, 0u);
  block.reset();
  auto again = HostMemory::Take(HostMemory::kKeptMin);
  EXPECT_EQ(again.get(), bytes);
  auto second = HostMemory::Take(HostMemory::kKeptMin);
  EXPECT_NE(second.get(), bytes) << "a block in use is given to nobody else";
}

TEST(HostMemoryTest, IdleBlocksAreBounded) {
  constexpr size_t kSize = size_t{64} << 20;
  std::vector<std::shared_ptr<char>> blocks;
  for (size_t bytes = 0; bytes <= HostMemory::kIdleMax; bytes += kSize)
    blocks.push_back(HostMemory::Take(kSize));
  ASSERT_GT(blocks.size() * kSize, HostMemory::kIdleMax);
  blocks.clear();
  EXPECT_LE(HostMemory::IdleBytes(), HostMemory::kIdleMax);
  EXPECT_GT(HostMemory::IdleBytes(), HostMemory::kIdleMax - kSize);
  EXPECT_NE(HostMemory::Take(0), nullptr);
}

}  // namespace
}  // namespace gangway::pjrt
