// How a local link reads its peer's bytes: however the bytes are cut, the written messages come
// out, and a length over the limit is an error.
#include <algorithm>
#include <cstring>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/transport/local/message_reader.h"

namespace gangway::transport {
namespace {

constexpr size_t kMessageBytesMax = 300'000;

struct Read {
  std::vector<std::string> messages;
  bool ok = true;
};

// Reads the stream in pieces of `piece_bytes`.
Read ReadAll(std::string_view stream, size_t piece_bytes) {
  Read read;
  MessageReader reader(kMessageBytesMax);
  while (!stream.empty() && read.ok) {
    auto space = reader.Space();
    GANGWAY_CHECK(!space.empty(), "there is room for more");
    const size_t count = std::min({piece_bytes, space.size(), stream.size()});
    std::memcpy(space.data(), stream.data(), count);
    stream.remove_prefix(count);
    read.ok =
        reader.Filled(count, [&read](auto message) { read.messages.emplace_back(message); }).ok();
  }
  return read;
}

void RunReader(std::string_view bytes) {
  const size_t piece_bytes = bytes.empty() ? 1 : 1 + static_cast<unsigned char>(bytes[0]) * 700;
  // The bytes as they are: the result does not depend on the cuts.
  const Read raw = ReadAll(bytes, piece_bytes), whole = ReadAll(bytes, bytes.size());
  GANGWAY_CHECK(raw.messages == whole.messages && raw.ok == whole.ok, "cuts make no difference");
  // The bytes as messages: small ones, and some larger than the buffer.
  std::vector<std::string> sent;
  std::string stream;
  for (std::string_view piece : fuzz::Split(bytes)) {
    std::string message(piece);
    if (piece.size() % 5 == 4) message.resize(piece.size() * 997 % kMessageBytesMax, 'x');
    const auto header = MessageHeader(message.size());
    stream.append(header.data(), header.size());
    stream += message;
    sent.push_back(std::move(message));
  }
  const Read read = ReadAll(stream, piece_bytes);
  GANGWAY_CHECK(read.ok && read.messages == sent, "sent messages are read");
  const auto header = MessageHeader(kMessageBytesMax + 1);
  stream.append(header.data(), header.size());
  const Read refused = ReadAll(stream, piece_bytes);
  GANGWAY_CHECK(!refused.ok && refused.messages == sent, "up to the one too long");
}

}  // namespace
}  // namespace gangway::transport

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  return {Join({"one", "", "three", std::string(994, 'y')}), Join({std::string(64, 'x')}),
          std::string("\x02\0\0\0ab\x01\0\0\0c\xff\xff\xff\xff", 15)};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gangway::transport::RunReader(gangway::fuzz::View(data, size));
  return 0;
}
