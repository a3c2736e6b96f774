// Tests of dtype.h.
#include "gangway/xla/dtype.h"

#include <vector>

#include "gtest/gtest.h"

namespace gangway::xla {
namespace {

TEST(DType, ExceptionsOfTheTwoNumberings) {
  EXPECT_EQ(*FromIfrt(IfrtDTypeProto::KIND_F4E2M1FN), TYPE_F4E2M1FN);
  EXPECT_EQ(*FromIfrt(IfrtDTypeProto::KIND_S1), TYPE_S1);
  EXPECT_EQ(*ToIfrt(TYPE_F8E8M0FNU), IfrtDTypeProto::KIND_F8E8M0FNU);
  EXPECT_NE(static_cast<int>(TYPE_S1), static_cast<int>(IfrtDTypeProto::KIND_S1));
}

TEST(DType, RoundTripsAndSizes) {
  int known = 0;
  for (int type = -2; type < 200; ++type) {
    if (!ElementBytes(type).ok()) {
      EXPECT_FALSE(ToIfrt(type).ok());
      continue;
    }
    ++known;
    EXPECT_EQ(*FromIfrt(*ToIfrt(type)), type);
  }
  EXPECT_EQ(known, 31);
  EXPECT_EQ(*ElementBytes(TYPE_BF16), 2);
  EXPECT_EQ(*ElementBytes(TYPE_S4), 1);
  EXPECT_EQ(*ElementBytes(TYPE_C128), 16);
  EXPECT_EQ(ElementName(TYPE_F32), "f32");
}

TEST(DType, RefusesWhatHasNoBytes) {
  EXPECT_FALSE(FromIfrt(IfrtDTypeProto::KIND_STRING).ok());
  EXPECT_FALSE(FromIfrt(IfrtDTypeProto::KIND_UNSPECIFIED).ok());
  EXPECT_FALSE(ElementBytes(TYPE_TUPLE).ok());
}

TEST(DType, DenseBytes) {
  using Dims = std::vector<int64_t>;
  EXPECT_EQ(*DenseBytes(TYPE_F32, Dims{}), 4);
  EXPECT_EQ(*DenseBytes(TYPE_F32, Dims{3, 5}), 60);
  EXPECT_EQ(*DenseBytes(TYPE_F32, Dims{int64_t{1} << 40, 0, int64_t{1} << 40}), 0);
  EXPECT_EQ(*DenseBytes(TYPE_F32, Dims{int64_t{1} << 61, 4, 0}), 0);
  EXPECT_FALSE(DenseBytes(TYPE_F32, Dims{int64_t{1} << 40, int64_t{1} << 40}).ok());
  EXPECT_FALSE(DenseBytes(TYPE_F64, Dims{int64_t{1} << 61}).ok());
  EXPECT_FALSE(DenseBytes(TYPE_F32, Dims{-1}).ok());
  EXPECT_FALSE(DenseBytes(TYPE_F32, Dims(65, 1)).ok());
}

}  // namespace
}  // namespace gangway::xla
