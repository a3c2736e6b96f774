// Tests of array_info.h.
#include "gangway/frontdoor/ifrt/array_info.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gangway/frontdoor/ifrt/status.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::ifrt {
namespace {

using ::testing::ElementsAre;

const DeviceSet kDevices = {4, 5, 6, 7};

xla::IfrtDTypeProto F32() {
  xla::IfrtDTypeProto dtype;
  dtype.set_kind(xla::IfrtDTypeProto::KIND_F32);
  return dtype;
}

xla::IfrtShapeProto Shape(std::vector<int64_t> dims) {
  xla::IfrtShapeProto shape;
  shape.mutable_dims()->Add(dims.begin(), dims.end());
  return shape;
}

// Splits rows over the listed devices.
xla::IfrtShardingProto Rows(std::vector<int> devices) {
  xla::IfrtHloShardingProto proto;
  for (int device : devices) proto.mutable_devices()->add_device_ids(device);
  proto.mutable_op_sharding()->set_type(xla::OpShardingProto::TYPE_OTHER);
  proto.mutable_op_sharding()->add_tile_assignment_dimensions(static_cast<int64_t>(devices.size()));
  proto.mutable_op_sharding()->add_tile_assignment_dimensions(1);
  proto.mutable_op_sharding()->add_iota_reshape_dims(static_cast<int64_t>(devices.size()));
  proto.mutable_op_sharding()->add_iota_transpose_perm(0);
  xla::IfrtShardingProto sharding;
  sharding.mutable_serialized()->set_type_name("xla::ifrt::HloSharding");
  sharding.mutable_serialized()->set_data(proto.SerializeAsString());
  return sharding;
}

TEST(ArrayInfo, TiledOverDevices) {
  ArrayInfoRef info = *ReadArrayInfo(F32(), Shape({8, 3}), Rows({7, 5}), kDevices);
  EXPECT_THAT(info->shard_dims, ElementsAre(4, 3));
  EXPECT_THAT(info->devices, ElementsAre(7u, 5u));
  EXPECT_EQ(info->shard_bytes, 48u);
  EXPECT_FALSE(info->fully_replicated);
  ArrayInfoRef shard = ShardInfo(*info, 1);
  EXPECT_THAT(shard->dims, ElementsAre(4, 3));
  EXPECT_THAT(shard->devices, ElementsAre(5u));
}

TEST(ArrayInfo, OnlyOneShardOfAMaximalArrayIsTheArray) {
  xla::IfrtHloShardingProto proto;
  for (int device : {7, 5}) proto.mutable_devices()->add_device_ids(device);
  proto.mutable_op_sharding()->set_type(xla::OpShardingProto::TYPE_MAXIMAL);
  proto.mutable_op_sharding()->add_tile_assignment_devices(1);
  xla::IfrtShardingProto sharding;
  sharding.mutable_serialized()->set_type_name("xla::ifrt::HloSharding");
  sharding.mutable_serialized()->set_data(proto.SerializeAsString());
  ArrayInfoRef info = *ReadArrayInfo(F32(), Shape({8, 3}), sharding, kDevices);
  EXPECT_THAT(info->shard_dims, ElementsAre(8, 3));
  EXPECT_TRUE(info->offsets.empty()) << "a reshard would take any of them";
  EXPECT_FALSE(info->fully_replicated);
}

// A sharding that is written for an execution's output is read back when the client uses the
// output.
TEST(ArrayInfo, ShardingRoundTrips) {
  ArrayInfoRef info = *ReadArrayInfo(F32(), Shape({8, 3}), Rows({7, 5}), kDevices);
  ArrayInfoRef again = *ReadArrayInfo(F32(), Shape({8, 3}), *WriteSharding(*info), kDevices);
  EXPECT_EQ(again->shard_dims, info->shard_dims);
  EXPECT_EQ(again->devices, info->devices);
  ArrayInfoRef single =
      *ReadArrayInfo(F32(), Shape({4, 3}), *WriteSharding(*ShardInfo(*info, 0)), kDevices);
  EXPECT_THAT(single->devices, ElementsAre(7u));
  EXPECT_TRUE(single->fully_replicated);
  EXPECT_EQ(single->memory_kind, "");
}

TEST(ArrayInfo, AShardingThatIsKnownIsWrittenSoThatTheClientCanPutItsShardsTogether) {
  ArrayInfo info = **ReadArrayInfo(F32(), Shape({8, 3}), Rows({7, 5}), kDevices);
  EXPECT_EQ(WriteSharding(info)->serialized().type_name(), "xla::ifrt::ConcreteEvenSharding");
  xla::OpShardingProto rows;
  rows.set_type(xla::OpShardingProto::TYPE_OTHER);
  for (int64_t count : {2, 1}) rows.add_tile_assignment_dimensions(count);
  for (int64_t device : {0, 1}) rows.add_tile_assignment_devices(device);
  info.hlo_sharding = std::make_shared<const xla::OpShardingProto>(rows);
  const auto written = WriteSharding(info);
  EXPECT_EQ(written->serialized().type_name(), "xla::ifrt::HloSharding");
  ArrayInfoRef again = *ReadArrayInfo(F32(), Shape({8, 3}), *written, kDevices);
  EXPECT_THAT(again->shard_dims, ElementsAre(4, 3));
  EXPECT_EQ(again->offsets, info.offsets);
  EXPECT_EQ(ShardInfo(info, 0)->hlo_sharding, nullptr);
}

TEST(ArrayInfo, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(ReadArrayInfo(F32(), Shape({8, 3}), Rows({3, 5}), kDevices).ok());  // no such device
  EXPECT_FALSE(ReadArrayInfo(F32(), Shape({7, 3}), Rows({4, 5}), kDevices).ok());  // uneven
  EXPECT_FALSE(ReadArrayInfo(F32(), Shape({-1, 3}), Rows({4, 5}), kDevices).ok());
  EXPECT_FALSE(ReadArrayInfo(xla::IfrtDTypeProto(), Shape({8, 3}), Rows({4, 5}), kDevices).ok());
  xla::IfrtArraySpecProto spec;
  *spec.mutable_dtype() = F32();
  *spec.mutable_shape() = Shape({8, 3});
  *spec.mutable_sharding() = Rows({7, 5});
  EXPECT_TRUE(ReadArrayInfo(spec, kDevices).ok());
  spec.set_layout("{1,0}");
  EXPECT_TRUE(ReadArrayInfo(spec, kDevices).ok());
  spec.set_layout("{0,1}");
  EXPECT_EQ(ReadArrayInfo(spec, kDevices).status().code(), absl::StatusCode::kUnimplemented);
  xla::IfrtShardingProto other;
  other.mutable_serialized()->set_type_name("xla::ifrt::OpaqueSharding");
  EXPECT_EQ(ReadArrayInfo(F32(), Shape({8}), other, kDevices).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(ArrayInfo, HostileBytesGiveStatus) {
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    xla::IfrtShardingProto sharding = Rows({4, 5, 6, 7});
    std::string& data = *sharding.mutable_serialized()->mutable_data();
    data[random() % data.size()] = static_cast<char>(random());
    if (round % 2) data.resize(random() % data.size());
    if (round % 5 == 0)
      sharding.mutable_serialized()->set_type_name("xla::ifrt::ConcreteEvenSharding");
    refused += !ReadArrayInfo(F32(), Shape({8, 3}), sharding, kDevices).ok();
  }
  EXPECT_GT(refused, 1000);
}

TEST(Status, TextsAreValidUtf8) {
  EXPECT_EQ(ValidUtf8("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(ValidUtf8("a\xff\xc3(\xed\xa0\x80\xc0\xaf\xe2\x82"), "a\?\?(" + std::string(7, '?'));
  EXPECT_EQ(FromProto(ToProto(absl::DataLossError("gone"))), absl::DataLossError("gone"));
  xla::StatusProto strange;
  strange.set_code(static_cast<xla::StatusCode>(77));
  EXPECT_EQ(FromProto(strange).code(), absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace gangway::ifrt
