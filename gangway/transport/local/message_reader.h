// MessageReader: cuts the bytes of a local link into messages. A message is a little-endian length
// of four bytes and that many bytes. The reader says where the next bytes go, so that a large
// message is read in place and many small ones at once. Not thread-safe. The peer is not trusted: a
// length over the limit is an error, and announced memory is not touched before its bytes arrive.
#ifndef GANGWAY_TRANSPORT_LOCAL_MESSAGE_READER_H_
#define GANGWAY_TRANSPORT_LOCAL_MESSAGE_READER_H_

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace gangway::transport {

inline constexpr size_t kMessageHeaderBytes = 4;
std::array<char, kMessageHeaderBytes> MessageHeader(size_t message_bytes);

class MessageReader {
 public:
  explicit MessageReader(size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}

  // Where the next bytes of the stream go; never empty.
  std::span<char> Space();

  // Reports that the first `count` bytes of Space() are filled. Calls `take` with each message that
  // they complete, in order; the view is valid during the call only. INVALID_ARGUMENT: a length
  // over the limit; nothing after it is read.
  absl::Status Filled(size_t count, const std::function<void(std::string_view message)>& take);

 private:
  // For messages that fit in the buffer. The bytes in [begin_, end_) are not taken yet.
  std::unique_ptr<char[]> buffer_;
  size_t begin_ = 0, end_ = 0;
  // A message too large for the buffer, while it arrives.
  std::unique_ptr<char[]> large_;
  size_t large_bytes_ = 0, large_have_ = 0;
  const size_t message_bytes_max_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_MESSAGE_READER_H_
