// MessageReader: cuts the bytes of a local link into messages: four bytes of length, little-endian,
// then as many bytes. Says where the next bytes are to be put, so that large messages are read into
// their place and small ones many at a time. Not thread-safe. It trusts nobody: a length over the
// limit is an error, and memory that is only announced is not touched.
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

  // The first `count` bytes of Space() are there now. `take` is given each message that is complete
  // with them, in order; the view ends with the call. INVALID_ARGUMENT: a length over the limit;
  // nothing after it is read.
  absl::Status Filled(size_t count, const std::function<void(std::string_view message)>& take);

 private:
  // Of messages that end in the buffer. Behind begin_ is what was taken.
  std::unique_ptr<char[]> buffer_;
  size_t begin_ = 0, end_ = 0;
  // The message that is longer than what the buffer holds of it, while it comes.
  std::unique_ptr<char[]> large_;
  size_t large_bytes_ = 0, large_have_ = 0;
  const size_t message_bytes_max_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_MESSAGE_READER_H_
