// Implementation of byte_ranges.h.
#include "gangway/transport/bulk/byte_ranges.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace gangway::transport {

std::string Gather(const std::byte* block, std::span<const ByteRange> ranges) {
  size_t all = 0;
  for (const ByteRange& range : ranges) all += range.bytes;
  std::string bytes;
  bytes.reserve(all);
  for (const ByteRange& range : ranges)
    bytes.append(reinterpret_cast<const char*>(block) + range.offset, range.bytes);
  return bytes;
}

absl::Status CheckRanges(std::span<const ByteRange> ranges, size_t block, size_t bytes) {
  size_t end = 0, all = 0;
  for (const ByteRange& range : ranges) {
    if (range.offset < end || range.offset > block || range.bytes > block - range.offset) {
      return absl::InvalidArgumentError(absl::StrCat("a range of ", range.bytes, " bytes at ",
                                                     range.offset, " overlaps another one, or is ",
                                                     "not in a block of ", block));
    }
    end = range.offset + range.bytes;
    all += range.bytes;  // at most `block`, since they do not overlap
  }
  if (all == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ranges of ", all, " bytes together came with ", bytes, " bytes"));
}

void Scatter(std::span<const std::byte> bytes, std::span<const ByteRange> ranges,
             std::byte* block) {
  for (const ByteRange& range : ranges) {
    std::memcpy(block + range.offset, bytes.data(), range.bytes);
    bytes = bytes.subspan(range.bytes);
  }
}

}  // namespace gangway::transport
