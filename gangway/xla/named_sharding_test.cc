// Tests of named_sharding.h.
#include "gangway/xla/named_sharding.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gangway/xla/sharding.h"

namespace gangway::xla {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An axis, or {axis, pre_size, size} of a part of it.
using Ref = std::vector<int64_t>;

void AddRef(const Ref& ref, AxisRefProto& proto) {
  proto.set_mesh_axis_index(ref[0]);
  if (ref.size() == 1) return;
  proto.mutable_sub_axis_info()->set_pre_size(ref[1]);
  proto.mutable_sub_axis_info()->set_size(ref[2]);
}

OpShardingProto Named(const std::vector<int64_t>& mesh, const std::vector<std::vector<Ref>>& dims,
                      const std::vector<int64_t>& ids = {}) {
  OpShardingProto proto;
  NamedShardingProto& named = *proto.mutable_named_sharding();
  for (int64_t size : mesh) named.mutable_mesh()->add_axes()->set_size(size);
  for (int64_t id : ids) named.mutable_mesh()->add_device_ids(id);
  for (const std::vector<Ref>& refs : dims) {
    auto& dimension = *named.add_dim_shardings();
    for (const Ref& ref : refs) AddRef(ref, *dimension.add_axes());
  }
  return proto;
}

// Where the shard of each position begins.
std::vector<std::vector<int64_t>> Offsets(const OpShardingProto& proto, int64_t positions,
                                          const std::vector<int64_t>& dims) {
  const auto sharding = Sharding::FromProto(proto, positions);
  EXPECT_TRUE(sharding.ok()) << sharding.status();
  std::vector<std::vector<int64_t>> offsets;
  for (int64_t i = 0; sharding.ok() && i < positions; ++i) {
    const auto extent = sharding->Extent(i, dims);
    EXPECT_TRUE(extent.ok()) << extent.status();
    if (extent.ok()) offsets.push_back(extent->offset);
  }
  return offsets;
}

TEST(NamedSharding, DimensionsAreCutAlongTheirAxesMajorToMinor) {
  const std::vector<int64_t> dims = {24, 24};
  EXPECT_THAT(
      Offsets(Named({2, 2}, {{{0}}, {{1}}}), 4, dims),
      ElementsAre(ElementsAre(0, 0), ElementsAre(0, 12), ElementsAre(12, 0), ElementsAre(12, 12)));
  EXPECT_THAT(
      Offsets(Named({2, 2}, {{{1}, {0}}, {}}), 4, dims),
      ElementsAre(ElementsAre(0, 0), ElementsAre(12, 0), ElementsAre(6, 0), ElementsAre(18, 0)));
  EXPECT_THAT(
      Offsets(Named({2, 2}, {{}, {{1}}}, {3, 2, 1, 0}), 4, dims),
      ElementsAre(ElementsAre(0, 12), ElementsAre(0, 0), ElementsAre(0, 12), ElementsAre(0, 0)));
  EXPECT_THAT(
      Offsets(Named({4}, {{{0, 2, 2}}, {{0, 1, 2}}}), 4, dims),
      ElementsAre(ElementsAre(0, 0), ElementsAre(12, 0), ElementsAre(0, 12), ElementsAre(12, 12)));
  OpShardingProto turned = Named({2, 2}, {{{0}}, {{1}}});
  auto& iota = *turned.mutable_named_sharding()->mutable_mesh()->mutable_iota_transform();
  for (int64_t axis : {1, 0}) {
    iota.add_reshape_dims(2);
    iota.add_transpose_perm(axis);
  }
  EXPECT_THAT(Offsets(turned, 4, dims), ElementsAre(ElementsAre(0, 0), ElementsAre(12, 0),
                                                    ElementsAre(0, 12), ElementsAre(12, 12)));
}

// Of random meshes: each device has the tile that its coordinates name.
TEST(NamedSharding, EveryDeviceHasTheTileOfItsCoordinates) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> mesh(1 + random() % 4);
    int64_t count = 1;
    for (int64_t& size : mesh) count *= size = 1 + static_cast<int64_t>(random() % 4);
    std::vector<int64_t> ids(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = i;
    std::shuffle(ids.begin(), ids.end(), random);
    std::vector<std::vector<Ref>> cuts(3);  // the last one: no dimension
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < mesh.size(); ++axis) axes.push_back(static_cast<int64_t>(axis));
    std::shuffle(axes.begin(), axes.end(), random);
    for (int64_t axis : axes) cuts[random() % 3].push_back({axis});
    const OpShardingProto proto = Named(mesh, {cuts[0], cuts[1]}, ids);
    const std::vector<int64_t> dims = {256, 256};
    bool divides = true;
    std::vector<int64_t> tiles;
    for (int d = 0; d < 2; ++d) {
      int64_t product = 1;
      for (const Ref& ref : cuts[d]) product *= mesh[static_cast<size_t>(ref[0])];
      tiles.push_back(product);
      divides &= 256 % product == 0;
    }
    if (!divides) continue;
    const auto offsets = Offsets(proto, count, dims);
    ASSERT_EQ(offsets.size(), ids.size());
    for (int64_t place = 0; place < count; ++place) {
      std::vector<int64_t> coordinates(mesh.size());
      int64_t rest = place;
      for (size_t axis = mesh.size(); axis-- > 0;) {
        coordinates[axis] = rest % mesh[axis];
        rest /= mesh[axis];
      }
      for (int d = 0; d < 2; ++d) {
        int64_t tile = 0;
        for (const Ref& ref : cuts[d])
          tile =
              tile * mesh[static_cast<size_t>(ref[0])] + coordinates[static_cast<size_t>(ref[0])];
        EXPECT_EQ(offsets[static_cast<size_t>(ids[static_cast<size_t>(place)])][d],
                  tile * 256 / tiles[d]);
      }
    }
  }
}

TEST(NamedSharding, OtherKinds) {
  EXPECT_EQ(AsTiles(Named({2, 4}, {{}, {}}))->type(), OpShardingProto::TYPE_REPLICATED);
  OpShardingProto manual = Named({2, 4}, {{}});
  for (int64_t axis : {0, 1}) AddRef({axis}, *manual.mutable_named_sharding()->add_manual_axes());
  EXPECT_EQ(AsTiles(manual)->type(), OpShardingProto::TYPE_MANUAL);
  OpShardingProto addends = Named({2, 4}, {{{0}}});
  AddRef({1}, *addends.mutable_named_sharding()->add_unreduced_axes());
  const auto tiles = AsTiles(addends);
  ASSERT_TRUE(tiles.ok()) << tiles.status();
  EXPECT_THAT(tiles->tile_assignment_dimensions(), ElementsAre(2, 4));
  EXPECT_THAT(tiles->last_tile_dims(), ElementsAre(OpShardingProto::TYPE_UNREDUCED));
  const auto maximal = AsTiles(Named({}, {}, {3}));
  ASSERT_TRUE(maximal.ok()) << maximal.status();
  EXPECT_EQ(maximal->type(), OpShardingProto::TYPE_MAXIMAL);
  EXPECT_THAT(maximal->tile_assignment_devices(), ElementsAre(3));
  OpShardingProto plain;
  plain.set_type(OpShardingProto::TYPE_MANUAL);
  EXPECT_EQ(AsTiles(plain)->SerializeAsString(), plain.SerializeAsString());
}

TEST(NamedSharding, WhatNoMeshHasIsRefused) {
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const std::pair<OpShardingProto, const char*> wrong[] = {
      {Named({2, 2}, {{{2}}}), "axis 2 of 2"},
      {Named({2, 2}, {{{-1}}}), "axis -1 of 2"},
      {Named({2, 2}, {{{0}}, {{0}}}), "twice"},
      {Named({4}, {{{0, 1, 2}}, {{0}}}), "twice"},
      {Named({4}, {{{0, 1, 3}}}), "divide"},
      {Named({4}, {{{0, 1, 8}}}), "beyond"},
      {Named({4}, {{{0, 0, 2}}}), "no size"},
      {Named({4}, {{{0, largest, largest}}}), "no size"},
      {Named({largest, largest}, {}), "do not fit"},
      {Named({0}, {}), "do not fit"},
      {Named({2, 2}, {}, {0, 1}), "do not fit"}};
  for (const auto& [proto, why] : wrong) {
    const auto tiles = AsTiles(proto);
    EXPECT_EQ(tiles.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tiles.status().message()), HasSubstr(why));
  }
  // Ids that are no positions are found when the tiles are read.
  EXPECT_FALSE(Sharding::FromProto(Named({2}, {{{0}}}, {0, 7}), 2).ok());
  EXPECT_FALSE(Sharding::FromProto(Named({2}, {{{0}}}), 4).ok());
}

}  // namespace
}  // namespace gangway::xla
