// Ranges of a block of memory that cross a link together, one behind the other: of what it publishes, an end sends
// only what the other end reads. A piece of a shard is the case of one range (incoming_shard.h).
#ifndef GANGWAY_TRANSPORT_BULK_BYTE_RANGES_H_
#define GANGWAY_TRANSPORT_BULK_BYTE_RANGES_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace gangway::transport {

struct ByteRange {
  size_t offset = 0;  // in the block
  size_t bytes = 0;
};

// The bytes of the ranges, all of which lie in `block`.
std::string Gather(const std::byte* block, std::span<const ByteRange> ranges);

// Of ranges that the other end has named, which is not trusted. INVALID_ARGUMENT: they are not in increasing order, or
// overlap, or are not all in a block of `block` bytes, or do not have `bytes` bytes together. No sum wraps.
absl::Status CheckRanges(std::span<const ByteRange> ranges, size_t block, size_t bytes);

// Puts `bytes` where the ranges say. Requires CheckRanges.
void Scatter(std::span<const std::byte> bytes, std::span<const ByteRange> ranges, std::byte* block);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_BYTE_RANGES_H_
