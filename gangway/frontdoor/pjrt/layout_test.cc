// Orders of dimensions: their text, and bytes in them.
#include "gangway/frontdoor/pjrt/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gangway/frontdoor/pjrt/buffer.h"
#include "gangway/xla/pjrt_type.h"

namespace gangway::pjrt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ReadOrders, OfParametersAndResults) {
  const auto read = ReadOrders("0,1;|1,0,2");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->parameters, ElementsAre(ElementsAre(0, 1), IsEmpty()));
  EXPECT_THAT(read->results, ElementsAre(ElementsAre(1, 0, 2)));
  EXPECT_THAT(ReadOrders("")->results, IsEmpty());
  EXPECT_THAT(ReadOrders("|")->parameters, IsEmpty());
}

TEST(ReadOrders, AnythingElseIsRefused) {
  for (const char* text : {"0,1", "0,x|", "|0,", "|,", "0|1|2", "99999999999999999999|"}) {
    EXPECT_EQ(ReadOrders(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(HideLayouts, KeepsTheLength) {
  std::string program = "a mhlo.layout_mode = \"auto\", mhlo.layout_mode";
  HideLayouts(program);
  EXPECT_EQ(program, "a mhlo.layout_hint = \"auto\", mhlo.layout_hint");
}

TEST(FullOrder, ListsEachDimensionOnce) {
  EXPECT_THAT(*FullOrder({}, 3), ElementsAre(2, 1, 0));
  EXPECT_THAT(*FullOrder({0, 2, 1}, 3), ElementsAre(0, 2, 1));
  for (const Order& wrong : {Order{0, 0}, Order{0}, Order{0, 2}, Order{-1, 0}, Order{0, 1, 2}})
    EXPECT_FALSE(FullOrder(wrong, 2).ok());
  EXPECT_THAT(FullOrder({0, 0}, 2).status().message(), HasSubstr("{0,0}"));
}

TEST(Arrange, PutsBytesInTheOrderOfTheShape) {
  Shape shape = **MakeShape(xla::FromPjrtType(PJRT_Buffer_Type_PRED), {2, 3});
  EXPECT_TRUE(IsRowMajor(shape));
  const std::string dense = "abcdef";
  std::string arranged(6, '?');
  ASSERT_TRUE(Arrange(dense, shape, arranged.data()).ok());
  EXPECT_EQ(arranged, "abcdef");
  shape.minor_to_major = {0, 1};
  EXPECT_FALSE(IsRowMajor(shape));
  ASSERT_TRUE(Arrange(dense, shape, arranged.data()).ok());
  EXPECT_EQ(arranged, "adbecf");
}

}  // namespace
}  // namespace gangway::pjrt
