// Tests of sharding.h.
#include "gangway/xla/sharding.h"

#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gangway::xla {
namespace {

using ::testing::ElementsAre;
using Dims = std::vector<int64_t>;

OpShardingProto Tiled(Dims tiles, Dims reshape, std::vector<int> perm,
                      bool replicate_last = false) {
  OpShardingProto proto;
  proto.set_type(OpShardingProto::TYPE_OTHER);
  for (int64_t v : tiles) proto.add_tile_assignment_dimensions(v);
  for (int64_t v : reshape) proto.add_iota_reshape_dims(v);
  for (int v : perm) proto.add_iota_transpose_perm(v);
  proto.set_replicate_on_last_tile_dim(replicate_last);
  return proto;
}

OpShardingProto Listed(Dims tiles, Dims positions, bool replicate_last = false) {
  OpShardingProto proto = Tiled(std::move(tiles), {}, {}, replicate_last);
  for (int64_t v : positions) proto.add_tile_assignment_devices(v);
  return proto;
}

TEST(TileAssignment, IotaTransposed) {
  EXPECT_THAT(*TileAssignment(Tiled({4, 2}, {2, 4}, {1, 0})), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
  EXPECT_THAT(*TileAssignment(Tiled({8}, {2, 2, 2}, {2, 0, 1})),
              ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
}

TEST(Sharding, TilesInTwoDimensions) {
  Sharding sharding = *Sharding::FromProto(Tiled({2, 4}, {8}, {0}), 8);
  EXPECT_THAT(*sharding.ShardShape(Dims{8, 12}), ElementsAre(4, 3));
  EXPECT_THAT(*sharding.GlobalShape(Dims{4, 3}), ElementsAre(8, 12));
  EXPECT_EQ(*sharding.Extent(6, Dims{8, 12}), (ShardExtent{{4, 6}, {4, 3}}));
  EXPECT_FALSE(sharding.fully_replicated());
}

TEST(Sharding, ListedAndIotaAgree) {
  Sharding iota = *Sharding::FromProto(Tiled({4, 2}, {2, 4}, {1, 0}), 8);
  Sharding listed = *Sharding::FromProto(Listed({4, 2}, {0, 4, 1, 5, 2, 6, 3, 7}), 8);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(*iota.Extent(i, Dims{8, 8}), *listed.Extent(i, Dims{8, 8})) << i;
  EXPECT_EQ(iota.Extent(4, Dims{8, 8})->offset, (Dims{0, 4}));
}

TEST(Sharding, PartlyReplicated) {
  // P('x') on a 4 x 2 mesh: positions 2k and 2k + 1 share tile k.
  Sharding sharding = *Sharding::FromProto(Tiled({4, 1, 2}, {8}, {0}, true), 8);
  EXPECT_THAT(sharding.tile_counts(), ElementsAre(4, 1));
  EXPECT_EQ(sharding.Extent(5, Dims{8, 3})->offset, (Dims{4, 0}));
  EXPECT_EQ(*sharding.Extent(5, Dims{8, 3}), *sharding.Extent(4, Dims{8, 3}));
  Sharding whole = *Sharding::FromProto(Tiled({1, 8}, {8}, {0}, true), 8);
  EXPECT_TRUE(whole.fully_replicated());
}

TEST(Sharding, ManualSubgroup) {
  OpShardingProto proto = Tiled({2, 2, 2}, {8}, {0});
  proto.add_last_tile_dims(OpShardingProto::TYPE_MANUAL);
  proto.add_last_tile_dims(OpShardingProto::TYPE_REPLICATED);
  EXPECT_THAT(Sharding::FromProto(proto, 8)->tile_counts(), ElementsAre(2));
}

TEST(Sharding, PositionsThatShareATileMayHoldDifferentBytes) {
  for (auto kind : {OpShardingProto::TYPE_MANUAL, OpShardingProto::TYPE_UNREDUCED}) {
    OpShardingProto proto = Tiled({1, 4}, {4}, {0});
    proto.add_last_tile_dims(kind);
    Sharding sharding = *Sharding::FromProto(proto, 4);
    EXPECT_THAT(sharding.tile_counts(), ElementsAre(1));
    EXPECT_EQ(sharding.ShardShape(Dims{3})->at(0), 3);
    EXPECT_FALSE(sharding.fully_replicated()) << kind;
    proto = Tiled({1, 4, 1}, {4}, {0});
    proto.add_last_tile_dims(OpShardingProto::TYPE_REPLICATED);
    proto.add_last_tile_dims(kind);
    EXPECT_TRUE(Sharding::FromProto(proto, 4)->fully_replicated()) << kind;
  }
}

TEST(Sharding, WholeArrayKinds) {
  OpShardingProto unreduced;
  unreduced.set_type(OpShardingProto::TYPE_UNREDUCED);
  EXPECT_EQ(Sharding::FromProto(unreduced, 4)->ShardShape(Dims{3})->at(0), 3);
  EXPECT_EQ(Sharding::FromProto(unreduced, 4)->GlobalShape(Dims{3})->at(0), 3);
  EXPECT_FALSE(Sharding::FromProto(unreduced, 4)->fully_replicated());
  OpShardingProto manual;
  manual.set_type(OpShardingProto::TYPE_MANUAL);
  EXPECT_EQ(Sharding::FromProto(manual, 4)->ShardShape(Dims{3})->at(0), 3);
  EXPECT_FALSE(Sharding::FromProto(manual, 4)->fully_replicated());
  EXPECT_TRUE(Sharding::FromProto(OpShardingProto(), 4)->fully_replicated());
  EXPECT_EQ(Sharding::Replicated(4).Extent(4, Dims{3}).status().code(),
            absl::StatusCode::kOutOfRange);
}

OpShardingProto Maximal(Dims positions) {
  OpShardingProto proto = Listed({1}, std::move(positions));
  proto.set_type(OpShardingProto::TYPE_MAXIMAL);
  return proto;
}

TEST(Sharding, OnePositionHoldsAMaximalArray) {
  Sharding sharding = *Sharding::FromProto(Maximal({3}), 4);
  EXPECT_EQ(sharding.kind(), Sharding::Kind::kMaximal);
  EXPECT_THAT(*sharding.ShardShape(Dims{3, 5}), ElementsAre(3, 5));
  EXPECT_THAT(*sharding.GlobalShape(Dims{3, 5}), ElementsAre(3, 5));
  EXPECT_EQ(*sharding.Extent(1, Dims{3, 5}), (ShardExtent{{0, 0}, {3, 5}}));
  EXPECT_FALSE(sharding.fully_replicated()) << "the other positions hold nothing";
  EXPECT_TRUE(Sharding::FromProto(Maximal({7}), 1)->fully_replicated());
  for (const Dims& positions : {Dims{}, Dims{4}, Dims{-1}, Dims{0, 1}})
    EXPECT_FALSE(Sharding::FromProto(Maximal(positions), 4).ok());
}

TEST(Sharding, RefusesUneven) {
  Sharding sharding = *Sharding::FromProto(Tiled({4}, {4}, {0}), 4);
  absl::Status status = sharding.ShardShape(Dims{6}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("evenly in 4"));
  EXPECT_FALSE(sharding.ShardShape(Dims{4, 4}).ok());  // another rank
  EXPECT_FALSE(sharding.GlobalShape(Dims{int64_t{1} << 62}).ok());
}

TEST(Sharding, RefusesMalformed) {
  EXPECT_FALSE(Sharding::FromProto(Tiled({2, 2}, {8}, {0}), 4).ok());     // iota of another size
  EXPECT_FALSE(Sharding::FromProto(Tiled({8}, {2, 4}, {0, 0}), 8).ok());  // no permutation
  EXPECT_FALSE(Sharding::FromProto(Tiled({8}, {2, 4}, {0}), 8).ok());     // rank
  EXPECT_FALSE(Sharding::FromProto(Listed({2}, {0, 2}), 2).ok());         // out of range
  EXPECT_FALSE(Sharding::FromProto(Listed({2}, {1, 1}), 2).ok());         // repeated
  EXPECT_FALSE(Sharding::FromProto(Listed({2}, {0, 1}), 4).ok());         // other devices
  EXPECT_FALSE(Sharding::FromProto(Tiled({0, 4}, {4}, {0}), 4).ok());
  EXPECT_FALSE(Sharding::FromProto(Tiled({int64_t{1} << 40, int64_t{1} << 40}, {4}, {0}), 4).ok());
  EXPECT_FALSE(Sharding::FromProto(Tiled({}, {}, {}, true), 1).ok());
  EXPECT_FALSE(Sharding::FromProto(OpShardingProto(), 0).ok());
  EXPECT_FALSE(Sharding::FromProto(OpShardingProto(), -1).ok());
}

// Every element of the global array is in exactly one distinct tile, for random legal shardings.
TEST(Sharding, TilesPartitionTheArray) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Dims tiles, reshape = {1, 1, 1}, global;
    int64_t count = 1;
    for (int i = 0; i < 3; ++i) {
      tiles.push_back(1 << (random() % 3));
      count *= tiles.back();
      global.push_back(tiles.back() * (1 + random() % 3));
    }
    for (int64_t rest = count; rest > 1; rest /= 2) reshape[random() % 3] *= 2;
    std::vector<int> perm = {0, 1, 2};
    std::shuffle(perm.begin(), perm.end(), random);
    bool replicate_last = random() % 2;
    Sharding sharding = *Sharding::FromProto(Tiled(tiles, reshape, perm, replicate_last), count);
    Dims shape(global.begin(), global.begin() + (replicate_last ? 2 : 3));
    std::multiset<Dims> offsets;
    for (int64_t i = 0; i < count; ++i) offsets.insert(sharding.Extent(i, shape)->offset);
    const size_t copies = replicate_last ? tiles.back() : 1;
    std::set<Dims> distinct(offsets.begin(), offsets.end());
    EXPECT_EQ(distinct.size() * copies, static_cast<size_t>(count));
    for (const Dims& offset : distinct) EXPECT_EQ(offsets.count(offset), copies);
  }
}

TEST(Sharding, HostileBytesGiveStatus) {
  const std::string good = Tiled({4, 1, 2}, {2, 4}, {1, 0}, true).SerializeAsString();
  std::mt19937 random(11);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    OpShardingProto proto;
    if (!proto.ParseFromString(bytes)) continue;
    absl::StatusOr<Sharding> sharding = Sharding::FromProto(proto, 8);
    refused += !sharding.ok();
    if (sharding.ok()) (void)sharding->Extent(7, Dims{8, 8});
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace gangway::xla
