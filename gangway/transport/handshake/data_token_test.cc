// A data token opens one session under one key.
#include "gangway/transport/handshake/data_token.h"

#include <gtest/gtest.h>

namespace gangway::transport {
namespace {

TEST(DataTokenTest, OpensItsOwnSessionOnly_OB3) {
  const std::string key = NewDataKey();
  const std::string token = DataToken(key, SessionId(7));
  EXPECT_TRUE(IsDataToken(key, SessionId(7), token));
  EXPECT_FALSE(IsDataToken(key, SessionId(8), token));
  EXPECT_FALSE(IsDataToken(NewDataKey(), SessionId(7), token));
  EXPECT_FALSE(IsDataToken(key, SessionId(7), ""));
  EXPECT_FALSE(IsDataToken(key, SessionId(7), token.substr(1)));
}

TEST(DataTokenTest, WithoutAKeyNothingMatches) {
  EXPECT_FALSE(IsDataToken("", SessionId(7), DataToken("", SessionId(7))));
}

}  // namespace
}  // namespace gangway::transport
