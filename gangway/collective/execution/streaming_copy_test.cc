// Tests of streaming_copy.h: the bytes that are asked for, and no others.
#include "gangway/collective/execution/streaming_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace gangway::collective {
namespace {

TEST(StreamingCopyTest, CopiesFromAndToAnyPlace) {
  constexpr size_t kBytes = 500, kAround = 128;
  std::vector<std::byte> from(kBytes + kAround);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 256);
  for (size_t to_begin = 0; to_begin < 65; ++to_begin) {
    for (const size_t from_begin : {size_t{0}, size_t{1}, size_t{16}, size_t{63}}) {
      for (const size_t bytes :
           {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{200}, kBytes - 65}) {
        std::vector<std::byte> to(kBytes + kAround, std::byte{0xee});
        std::vector<std::byte> expected = to;
        std::copy_n(from.begin() + from_begin, bytes, expected.begin() + to_begin);
        StreamingCopy(to.data() + to_begin, from.data() + from_begin, bytes);
        ASSERT_EQ(to, expected) << bytes << " from " << from_begin << " to " << to_begin;
      }
    }
  }
}

}  // namespace
}  // namespace gangway::collective
