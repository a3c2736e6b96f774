// For fuzz targets: mutates a protobuf message field by field, because random bytes rarely form a
// message that passes the first checks. Deterministic in the random source.
#ifndef GANGWAY_XLA_FUZZ_MESSAGE_H_
#define GANGWAY_XLA_FUZZ_MESSAGE_H_

#include <google/protobuf/message.h>

#include <random>
#include <string>

namespace gangway::xla {

// Makes one change in `message`: a field is set, cleared, repeated, removed or changed inside.
void MutateMessage(google::protobuf::Message& message, std::mt19937& random, int depth = 0);

// Parses `bytes` as a `Message`, mutates it and returns the new bytes. Bytes that do not parse
// count as an empty message.
template <typename Message>
std::string MutatedMessage(std::string_view bytes, std::mt19937& random) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) message.Clear();
  MutateMessage(message, random);
  return message.SerializePartialAsString();
}

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_FUZZ_MESSAGE_H_
