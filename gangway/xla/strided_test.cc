// Tests of strided.h.
#include "gangway/xla/strided.h"

#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace gangway::xla {
namespace {

using Dims = std::vector<int64_t>;

TEST(Strided, DenseIsPassedThrough) {
  StridedRegion region = *Region(4, Dims{2, 3}, Dims{12, 4});
  EXPECT_TRUE(region.dense);
  EXPECT_EQ(region.bytes, 24);
  EXPECT_TRUE(Region(4, Dims{2, 1, 3}, Dims{12, 999, 4})->dense);  // size 1: any stride will do
  EXPECT_TRUE(Region(4, Dims{}, Dims{})->dense);
  EXPECT_EQ(Region(4, Dims{0, 3}, Dims{-8, 400})->bytes, 0);
}

TEST(Strided, Transposed) {
  EXPECT_EQ(*ToDense("acebdf", 1, Dims{3, 2}, Dims{1, 3}), "abcdef");
  EXPECT_EQ(*FromDense("abcdef", 1, Dims{3, 2}, Dims{1, 3}), "acebdf");
}

TEST(Strided, Reversed) {
  StridedRegion region = *Region(2, Dims{3}, Dims{-2});
  EXPECT_EQ(region.bytes, 6);
  EXPECT_EQ(region.zero_offset, 4);
  EXPECT_EQ(*ToDense("ccbbaa", 2, Dims{3}, Dims{-2}), "aabbcc");
}

TEST(Strided, GapsAndRepeats) {
  EXPECT_EQ(*ToDense("a.b.c", 1, Dims{3}, Dims{2}), "abc");
  EXPECT_EQ(*FromDense("abc", 1, Dims{3}, Dims{2}), std::string("a\0b\0c", 5));
  EXPECT_EQ(*ToDense("ab", 1, Dims{2, 2}, Dims{0, 1}), "abab");
}

TEST(Strided, RandomRoundTrips) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const int64_t element = std::vector<int64_t>{1, 2, 4, 8, 16, 3}[random() % 6];
    const int rank = 1 + random() % 4;
    Dims dims, order(rank), strides(rank);
    for (int i = 0; i < rank; ++i) dims.push_back(1 + random() % 4);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    int64_t stride = element;
    for (int64_t axis : order) {
      strides[axis] = random() % 2 ? stride : -stride;
      stride *= dims[axis] + random() % 2;
    }
    std::string dense(
        element * std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()), '\0');
    for (char& c : dense) c = static_cast<char>(random());
    std::string region = *FromDense(dense, element, dims, strides);
    EXPECT_EQ(static_cast<int64_t>(region.size()), Region(element, dims, strides)->bytes);
    EXPECT_EQ(*ToDense(region, element, dims, strides), dense);
  }
}

TEST(Strided, HostileArgumentsGiveStatus) {
  EXPECT_FALSE(ToDense("abc", 1, Dims{2}, Dims{1}).ok());  // too long
  EXPECT_FALSE(ToDense("a", 1, Dims{2}, Dims{1}).ok());    // too short
  EXPECT_FALSE(Region(1, Dims{2}, Dims{}).ok());
  EXPECT_FALSE(Region(0, Dims{2}, Dims{1}).ok());
  EXPECT_FALSE(Region(1, Dims{-2}, Dims{1}).ok());
  EXPECT_FALSE(Region(1, Dims{3, 3}, Dims{INT64_MAX / 2, INT64_MAX / 2}).ok());
  EXPECT_FALSE(Region(1, Dims{3, 3}, Dims{INT64_MIN / 2, INT64_MIN / 2}).ok());
  EXPECT_FALSE(Region(1, Dims{3}, Dims{INT64_MIN}).ok());
  EXPECT_FALSE(ToDense("a", 1, Dims{int64_t{1} << 50}, Dims{0}).ok());  // dense form too large
  EXPECT_FALSE(FromDense("ab", 1, Dims{2}, Dims{int64_t{1} << 50}).ok());
}

}  // namespace
}  // namespace gangway::xla
