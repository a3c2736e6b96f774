// Meshes, shardings, and which bytes of an array their shards have.
#include "gangway/client/include/gangway/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "gangway/client/api/shard_runs.h"
#include "gangway/client/include/gangway/element_type.h"
#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/sharding.h"

namespace gangway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Mesh& Square() {
  static const auto& square = *new Mesh({4, 5, 6, 7}, {{"data", 2}, {"model", 2}});
  return square;
}

std::vector<std::vector<int64_t>> Offsets(const Sharding& sharding, const Shape& shape) {
  std::vector<std::vector<int64_t>> offsets;
  for (size_t i = 0; i < sharding.mesh().devices().size(); ++i)
    offsets.push_back(sharding.RangeOf(i, shape)->offset);
  return offsets;
}

TEST(MeshTest, SaysWhyItMakesNoSense) {
  EXPECT_TRUE(Square().status().ok());
  EXPECT_TRUE(Mesh({3}, {}).status().ok()) << "one device needs no axis";
  EXPECT_THAT(Mesh().status().message(), HasSubstr("no mesh"));
  EXPECT_THAT(Mesh({}, {}).status().message(), HasSubstr("without devices"));
  EXPECT_THAT(Mesh({1, 1}, {{"x", 2}}).status().message(), HasSubstr("device 1 is in it twice"));
  EXPECT_THAT(Mesh({0, 1}, {{"x", 0}}).status().message(), HasSubstr("'x' has no place"));
  EXPECT_THAT(Mesh({0, 1}, {{"x", 3}}).status().message(), HasSubstr("more places than"));
  EXPECT_THAT(Mesh({0, 1, 2}, {{"x", 2}}).status().message(), HasSubstr("2 places for 3 devices"));
  EXPECT_THAT(Mesh({0, 1}, {{"x", 2}, {"x", 1}}).status().message(), HasSubstr("named 'x'"));
  EXPECT_THAT(Mesh({0, 1}, {{"x", INT64_MAX}, {"y", INT64_MAX}}).status().message(),
              HasSubstr("more places than"));
}

TEST(ShardingTest, SplitsDimensionsByAxes) {
  EXPECT_THAT(
      Offsets(Sharding(Square(), {"data"}), {4, 6}),
      ElementsAre(ElementsAre(0, 0), ElementsAre(0, 0), ElementsAre(2, 0), ElementsAre(2, 0)));
  EXPECT_THAT(
      Offsets(Sharding(Square(), {{}, "model"}), {4, 6}),
      ElementsAre(ElementsAre(0, 0), ElementsAre(0, 3), ElementsAre(0, 0), ElementsAre(0, 3)));
  EXPECT_THAT(
      Offsets(Sharding(Square(), {"model", "data"}), {4, 6}),
      ElementsAre(ElementsAre(0, 0), ElementsAre(2, 0), ElementsAre(0, 3), ElementsAre(2, 3)));
  EXPECT_THAT(Offsets(Sharding(Square(), {{"data", "model"}}), {4}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(Offsets(Sharding(Square(), {{"model", "data"}}), {4}),
              ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(1), ElementsAre(3)));
  EXPECT_THAT(*Sharding(Square(), {"data"}).ShardShape(Shape{4, 6}), ElementsAre(2, 6));
  EXPECT_THAT(*Sharding(Square()).ShardShape(Shape{}), ElementsAre()) << "a scalar, on each device";
}

TEST(ShardingTest, SaysWhyItMakesNoSenseOrDoesNotFit) {
  EXPECT_THAT(Sharding().status().message(), HasSubstr("no mesh"));
  EXPECT_THAT(Sharding(Square(), {"rows"}).status().message(), HasSubstr("no axis 'rows'"));
  EXPECT_THAT(Sharding(Square(), {"data", "data"}).status().message(), HasSubstr("twice by"));
  EXPECT_THAT(Sharding(Mesh({0, 0}, {{"x", 2}}), {"x"}).status().message(),
              HasSubstr("in it twice"));
  const Sharding rows(Square(), {"data"});
  EXPECT_THAT(rows.ShardShape(Shape{3}).status().message(),
              HasSubstr("[3] cannot be split as (data) over data=2, model=2 on devices 4,5,6,7: "
                        "dimension 0 of size 3 is not divisible by 2"));
  EXPECT_THAT(rows.ShardShape(Shape{}).status().message(), HasSubstr("no dimension 0"));
  EXPECT_THAT(rows.ShardShape(Shape{-2}).status().message(), HasSubstr("negative size"));
  EXPECT_EQ(rows.RangeOf(4, Shape{2}).status().code(), StatusCode::kOutOfRange);
}

TEST(ShardingTest, ComparesWhatItIsMadeOf) {
  EXPECT_EQ(Sharding(Square(), {"data"}), Sharding(Square(), {"data"}));
  EXPECT_FALSE(Sharding(Square(), {"data"}) == Sharding(Square(), {"model"}));
  EXPECT_FALSE(Sharding(Square()) == Sharding(Mesh({0, 1, 2, 3}, {{"data", 2}, {"model", 2}})));
}

// The attribute says the same of each position, as XLA reads it.
TEST(ShardingTest, ItsAttributeIsWhatXlaReads) {
  EXPECT_EQ(Sharding(Square()).ToAttribute(2), "{replicated}");
  EXPECT_EQ(Sharding(Square(), {"data"}).ToAttribute(1),
            "{devices=[2,2]0,1,2,3 last_tile_dim_replicate}");
  EXPECT_EQ(Sharding(Square(), {"model"}).ToAttribute(2),
            "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}");
  EXPECT_EQ(Sharding(Square(), {"model", "data"}).ToAttribute(2), "{devices=[2,2]0,2,1,3}");
}

TEST(ShardRunsTest, GathersAndScattersEachSharding) {
  const Shape shape{4, 3, 2};
  std::vector<int32_t> values(24);
  std::iota(values.begin(), values.end(), 0);
  const auto bytes = std::as_bytes(std::span(values));
  for (const Sharding& sharding :
       {Sharding(Square()), Sharding(Square(), {"data"}), Sharding(Square(), {{}, {}, "model"}),
        Sharding(Square(), {"model", {}, "data"}), Sharding(Square(), {{"data", "model"}})}) {
    std::vector<int32_t> back(values.size(), -1);
    for (size_t i = 0; i < 4; ++i) {
      const ShardRange range = *sharding.RangeOf(i, shape);
      const api::ShardRuns runs(range, shape, sizeof(int32_t));
      std::vector<int32_t> shard(runs.shard_bytes() / sizeof(int32_t));
      runs.Gather(bytes, reinterpret_cast<std::byte*>(shard.data()));
      size_t next = 0;
      for (int64_t a = 0; a < range.shape[0]; ++a)
        for (int64_t b = 0; b < range.shape[1]; ++b)
          for (int64_t c = 0; c < range.shape[2]; ++c)
            EXPECT_EQ(shard.at(next++),
                      ((range.offset[0] + a) * 3 + range.offset[1] + b) * 2 + range.offset[2] + c)
                << sharding.ToText() << " at position " << i;
      EXPECT_EQ(next, shard.size());
      runs.Scatter(reinterpret_cast<const std::byte*>(shard.data()),
                   std::as_writable_bytes(std::span(back)));
    }
    EXPECT_EQ(back, values) << sharding.ToText();
  }
}

TEST(ShardRunsTest, KnowsWhatIsOneRun) {
  const Shape shape{4, 6};
  const auto runs = [&](const std::vector<Split>& splits) {
    return api::ShardRuns(*Sharding(Square(), splits).RangeOf(3, shape), shape, 2);
  };
  EXPECT_TRUE(runs({}).is_one_run());
  EXPECT_TRUE(runs({"data"}).is_one_run());
  EXPECT_EQ(runs({"data"}).first_offset(), 2 * 6 * 2u);
  EXPECT_FALSE(runs({{}, "data"}).is_one_run());
  EXPECT_TRUE(api::ShardRuns({.offset = {}, .shape = {}}, {}, 8).is_one_run()) << "a scalar";
  const Shape empty{0, 3};
  EXPECT_EQ(api::ShardRuns({.offset = {0, 0}, .shape = empty}, empty, 4).shard_bytes(), 0u);
}

TEST(ElementTypeTest, TypesOfCppHaveTheirSize) {
  EXPECT_EQ(ElementBytes(ElementTypeOf<float>::value), sizeof(float));
  EXPECT_EQ(ElementBytes(ElementTypeOf<std::complex<double>>::value), sizeof(std::complex<double>));
  EXPECT_EQ(ElementBytes(ElementTypeOf<BFloat16>::value), sizeof(BFloat16));
  EXPECT_EQ(ElementBytes(static_cast<ElementType>(99)), 0u);
  EXPECT_EQ(ToText(ElementType::kBF16), "bf16");
  EXPECT_EQ(static_cast<int>(ElementType::kC128), static_cast<int>(xla::TYPE_C128));
}

}  // namespace
}  // namespace gangway
