// How much memory fetched shards may hold (fetched_shard.h).
#include "gangway/worker/service/transfer/fetched_shard.h"

#include <gtest/gtest.h>

#include <memory>

namespace gangway::worker {
namespace {

TEST(FetchShareTest, ASessionHasAPartAndAllHaveALimit) {
  auto all = std::make_shared<FetchShare>(100);
  FetchShare one(60, all), other(60, all);
  EXPECT_FALSE(one.Take(61));
  EXPECT_EQ(all->used(), 0u);
  EXPECT_TRUE(one.Take(60));
  EXPECT_FALSE(other.Take(41)) << "its own part has room, but all together have none";
  EXPECT_EQ(other.used(), 0u);
  EXPECT_TRUE(other.Take(40));
  one.Return(60);
  EXPECT_TRUE(other.Take(20));
  other.Return(60);
  EXPECT_EQ(all->used(), 0u);
}

TEST(FetchShareTest, SizesWhoseSumWrapsAreRefused) {
  FetchShare share(SIZE_MAX);
  EXPECT_TRUE(share.Take(SIZE_MAX));
  EXPECT_FALSE(share.Take(1));
  EXPECT_EQ(share.used(), SIZE_MAX);
}

}  // namespace
}  // namespace gangway::worker
