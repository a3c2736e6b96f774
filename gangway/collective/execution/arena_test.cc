// What other processes hand over as an arena or a heap is looked at before it is used.
#include "gangway/collective/execution/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

namespace gangway::collective {
namespace {

TEST(ReadableHeap, IsASealedFileWhoseBoundsHold) {
  constexpr uint64_t kBytes = 8192;
  FileDescriptor file(memfd_create("heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadableHeap::Map(file).status())) << "it could shrink";
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  ASSERT_EQ(pwrite(file.get(), "x", 1, 5000), 1);
  const auto heap = *ReadableHeap::Map(file);
  const std::byte* const there = heap->At(5000, 1);
  ASSERT_NE(there, nullptr);
  EXPECT_EQ(*there, std::byte{'x'});
  EXPECT_NE(heap->At(0, kBytes), nullptr);
  for (uint64_t offset : {uint64_t{1}, kBytes, ~uint64_t{0}, ~uint64_t{0} - kBytes + 1})
    EXPECT_EQ(heap->At(offset, kBytes), nullptr) << offset;
  EXPECT_EQ(heap->OffsetOf({there, 10}), 5000u);
  EXPECT_FALSE(heap->OffsetOf({there, kBytes}).has_value());
  const std::byte here{};
  EXPECT_FALSE(heap->OffsetOf({&here, 1}).has_value());
  EXPECT_TRUE(absl::IsInvalidArgument(ReadableHeap::Map(FileDescriptor()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadableHeap::Map(FileDescriptor(open("/dev/zero", O_RDWR | O_CLOEXEC))).status()));
}

TEST(Arena, RejectsWhatIsNotOne) {
  auto arena = *Arena::Create(2);
  auto copy = [&] { return FileDescriptor(fcntl(arena->descriptor(), F_DUPFD_CLOEXEC, 0)); };
  EXPECT_TRUE(Arena::Map(copy(), 2).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Arena::Map(copy(), 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Arena::Map(copy(), 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Arena::Map(FileDescriptor(), 2).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Arena::Map(FileDescriptor(open("/dev/zero", O_RDWR | O_CLOEXEC)), 2).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Arena::Create(kDevicesMax + 1).status()));
}

// What is counted is the file's: pages that were never asked for are none.
TEST(Arena, HasMemoryForTheWorkersThatAreKnown) {
  constexpr uint32_t kDevices = 3;
  const auto arena = *Arena::Create(kDevices);
  const auto memory = [&] {
    struct stat file{};
    EXPECT_EQ(fstat(arena->descriptor(), &file), 0);
    return static_cast<size_t>(file.st_blocks) * 512;
  };
  EXPECT_EQ(memory(), Arena::MemoryFor(kDevices, 0));
  for (const auto& [workers, reserved] :
       std::vector<std::pair<uint32_t, uint32_t>>{{2, 8}, {8, 8}, {9, 16}, {33, 40}, {41, 80}}) {
    ASSERT_TRUE(arena->Reserve(workers).ok());
    EXPECT_EQ(memory(), Arena::MemoryFor(kDevices, reserved)) << workers << " workers";
  }
  ASSERT_TRUE(arena->Reserve(kWorkersMax).ok());
  EXPECT_EQ(memory(), arena->bytes());
  // The budget of a worker with four devices in an island of 1,024 workers: slots, headers, and words of reads.
  EXPECT_EQ(Arena::MemoryFor(4, 1024), size_t{4} * ((1024 + 4 + 512) << 10));
}

}  // namespace
}  // namespace gangway::collective
