// Tests of ids.h.
#include "gangway/base/ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <type_traits>
#include <unordered_set>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace gangway {
namespace {

using ::testing::ElementsAre;

// What the types are for: neither another type nor a plain number is taken for an id.
static_assert(!std::is_convertible_v<StorageId, ExecutableId>);
static_assert(!std::is_constructible_v<StorageId, ExecutableId>);
static_assert(!std::is_convertible_v<uint64_t, StorageId>);
static_assert(!std::is_convertible_v<StorageId, uint64_t>);
static_assert(!std::is_convertible_v<uint32_t, IslandDevice>);
static_assert(!std::is_convertible_v<ArrayHandle, ExecutableHandle>);
static_assert(!std::is_convertible_v<uint64_t, ArrayHandle>);
static_assert(!std::is_convertible_v<ArrayHandle, uint64_t>);
static_assert(!std::is_constructible_v<FetchId, UploadId>);
static_assert(sizeof(StorageId) == sizeof(uint64_t) && sizeof(IslandDevice) == sizeof(uint32_t));

TEST(IdTest, TheDefaultIsZero) {
  EXPECT_EQ(StorageId(), StorageId(0));
  EXPECT_EQ(StorageId(7).number(), 7u);
  EXPECT_EQ(ArrayHandle(), ArrayHandle(0));
  EXPECT_EQ(NumberOf(ArrayHandle(7)), 7u);
}

TEST(IdTest, IdsAreOrderedAndHashedByTheirNumbers) {
  EXPECT_THAT((std::set<StorageId>{StorageId(3), StorageId(1), StorageId(2)}),
              ElementsAre(StorageId(1), StorageId(2), StorageId(3)));
  const std::unordered_set<StorageId> standard = {StorageId(1), StorageId(2), StorageId(1)};
  EXPECT_EQ(standard.size(), 2u);
  const absl::flat_hash_set<IslandDevice> flat = {IslandDevice(1), IslandDevice(2)};
  EXPECT_TRUE(flat.contains(IslandDevice(2)));
  EXPECT_FALSE(flat.contains(IslandDevice(3)));
}

TEST(IdTest, TextIsTheNumber) {
  EXPECT_EQ(absl::StrCat("storage ", StorageId(17), " on device ", IslandDevice(0), " of ", 4, " ",
                         ExecutableId(5), " ", ArrayHandle(6)),
            "storage 17 on device 0 of 4 5 6");
  std::ostringstream stream;
  stream << StorageId(UINT64_MAX);
  stream << " " << UploadId(8);
  EXPECT_EQ(stream.str(), "18446744073709551615 8");
}

}  // namespace
}  // namespace gangway
