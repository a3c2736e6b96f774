// Tests of layout.h.
#include "gangway/xla/layout.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace gangway::xla {
namespace {

LayoutProto MinorToMajor(std::initializer_list<int64_t> order) {
  LayoutProto layout;
  for (int64_t dimension : order) layout.add_minor_to_major(dimension);
  return layout;
}

template <typename Proto>
SerializedProto Serialized(const char* type, const Proto& proto) {
  SerializedProto serialized;
  serialized.set_type_name(type);
  serialized.set_data(proto.SerializeAsString());
  return serialized;
}

TEST(Layout, RowMajorIsMinorToMajorFromTheLastDimension) {
  EXPECT_EQ(RowMajorText(0), "{}");
  EXPECT_EQ(RowMajorText(3), "{2,1,0}");
  EXPECT_TRUE(CheckRowMajor(RowMajor(3), 3).ok());
}

TEST(Layout, AnyOtherOrderOrTilingIsRefusedWithBoth) {
  const absl::Status status = CheckRowMajor(MinorToMajor({0, 1}), 2);
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_NE(status.message().find("{0,1}"), status.message().npos) << status;
  EXPECT_NE(status.message().find("{1,0}"), status.message().npos) << status;
  EXPECT_FALSE(CheckRowMajor(RowMajor(2), 3).ok());  // of another rank
  LayoutProto tiled = RowMajor(2);
  tiled.add_tiles()->add_dimensions(8);
  EXPECT_FALSE(CheckRowMajor(tiled, 2).ok());
  LayoutProto packed = RowMajor(2);
  packed.set_element_size_in_bits(4);  // an int4
  EXPECT_TRUE(CheckRowMajor(packed, 2).ok());
}

TEST(Layout, TheTextFormIsReadAsXlaWritesIt) {
  for (const char* text : {"", "{1,0}", "{1,0:E(4)}"}) EXPECT_TRUE(CheckRowMajor(text, 2).ok());
  for (const char* text : {"{0,1}", "{1,0:T(8,128)}", "{1}", "{2,1,0}", "?"})
    EXPECT_TRUE(absl::IsUnimplemented(CheckRowMajor(text, 2))) << text;
}

TEST(Layout, RequestsCarryEitherOfTwoForms) {
  EXPECT_TRUE(CheckRowMajor(SerializedProto(), 2).ok());
  IfrtPjRtLayoutProto pjrt;
  *pjrt.mutable_layout() = RowMajor(2);
  EXPECT_TRUE(CheckRowMajor(Serialized("xla::ifrt::PjRtLayout", pjrt), 2).ok());
  *pjrt.mutable_layout() = MinorToMajor({0, 1});
  EXPECT_FALSE(CheckRowMajor(Serialized("xla::ifrt::PjRtLayout", pjrt), 2).ok());
  IfrtCompactLayoutProto compact;
  compact.add_major_to_minor(0);
  compact.add_major_to_minor(1);
  EXPECT_TRUE(CheckRowMajor(Serialized("xla::ifrt::CompactLayout", compact), 2).ok());
  EXPECT_FALSE(CheckRowMajor(Serialized("xla::ifrt::CompactLayout", compact), 3).ok());
  EXPECT_FALSE(CheckRowMajor(Serialized("xla::ifrt::AnotherLayout", compact), 2).ok());
  SerializedProto malformed = Serialized("xla::ifrt::PjRtLayout", pjrt);
  malformed.set_data("\x0a\xff");
  EXPECT_TRUE(absl::IsInvalidArgument(CheckRowMajor(malformed, 2)));
}

}  // namespace
}  // namespace gangway::xla
