// Tests the hash against the published values, whole and in pieces.
#include "gangway/base/sha256.h"

#include <gtest/gtest.h>

namespace gangway {
namespace {

TEST(Sha256Test, IsTheStandards) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256Test, ItsPiecesAreTheWhole) {
  Sha256 whole, pieces;
  whole.Add("a large program");
  for (std::string_view piece : {"a ", "", "large", " program"}) pieces.Add(piece);
  EXPECT_EQ(whole.Finish(), pieces.Finish());
}

TEST(Sha256Test, ABorderBetweenPartsCounts) {
  EXPECT_NE(JoinForHash({"ab", "c"}), JoinForHash({"a", "bc"}));
}

}  // namespace
}  // namespace gangway
