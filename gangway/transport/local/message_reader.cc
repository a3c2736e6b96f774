// Implementation of message_reader.h.
#include "gangway/transport/local/message_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace gangway::transport {
namespace {

constexpr size_t kBufferBytes = 64 << 10;

size_t LengthAt(const char* bytes) {
  const auto* raw = reinterpret_cast<const unsigned char*>(bytes);
  return size_t{raw[0]} | size_t{raw[1]} << 8 | size_t{raw[2]} << 16 | size_t{raw[3]} << 24;
}

}  // namespace

std::array<char, kMessageHeaderBytes> MessageHeader(size_t message_bytes) {
  return {static_cast<char>(message_bytes), static_cast<char>(message_bytes >> 8),
          static_cast<char>(message_bytes >> 16), static_cast<char>(message_bytes >> 24)};
}

std::span<char> MessageReader::Space() {
  if (large_bytes_ > 0) return {large_.get() + large_have_, large_bytes_ - large_have_};
  if (buffer_ == nullptr) buffer_ = std::make_unique_for_overwrite<char[]>(kBufferBytes);
  return {buffer_.get() + end_, kBufferBytes - end_};
}

absl::Status MessageReader::Filled(size_t count,
                                   const std::function<void(std::string_view message)>& take) {
  if (large_bytes_ > 0) {
    large_have_ += count;
    if (large_have_ < large_bytes_) return absl::OkStatus();
    take({large_.get(), large_bytes_});
    large_.reset();
    large_bytes_ = large_have_ = 0;
    return absl::OkStatus();
  }
  end_ += count;
  while (end_ - begin_ >= kMessageHeaderBytes) {
    const size_t bytes = LengthAt(buffer_.get() + begin_);
    if (bytes > message_bytes_max_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a message of ", bytes, " bytes is over the limit of ", message_bytes_max_));
    }
    const size_t have = end_ - begin_ - kMessageHeaderBytes;
    const char* body = buffer_.get() + begin_ + kMessageHeaderBytes;
    if (bytes > have && bytes + kMessageHeaderBytes > kBufferBytes) {
      large_ = std::make_unique_for_overwrite<char[]>(bytes);
      large_bytes_ = bytes;
      large_have_ = have;
      std::memcpy(large_.get(), body, have);
      begin_ = end_ = 0;
      return absl::OkStatus();
    }
    if (bytes > have) break;
    begin_ += kMessageHeaderBytes + bytes;
    take({body, bytes});
  }
  // The remainder moves to the start of the buffer, to make room for the rest of its message.
  if (begin_ > 0) std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  return absl::OkStatus();
}

}  // namespace gangway::transport
