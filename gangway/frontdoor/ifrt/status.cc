// Implementation of status.h.
#include "gangway/frontdoor/ifrt/status.h"

#include <utility>

namespace gangway::ifrt {
namespace {

// Length of the valid sequence that starts at `text`, 0 if there is none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                        : first >> 4 == 0xE              ? 3
                        : first >= 0xF0 && first <= 0xF4 ? 4
                                                         : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and values beyond the last code point.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

// The header in which gRPC carries a message may have 8 KiB, and all but printable ASCII takes three bytes there.
constexpr size_t kHeaderBytesMax = 6000;
constexpr std::string_view kCut = " [cut]";

std::string CutForHeader(std::string message) {
  size_t encoded = 0;
  for (size_t i = 0; i < message.size(); ++i) {
    const bool plain = message[i] >= ' ' && message[i] <= '~' && message[i] != '%';
    encoded += plain ? 1 : 3;
    if (encoded > kHeaderBytesMax) return ValidUtf8(message.substr(0, i)).append(kCut);
  }
  return message;
}

}  // namespace

std::string ValidUtf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) {
      result += '?';
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

xla::StatusProto ToProto(const absl::Status& status) {
  xla::StatusProto proto;
  proto.set_code(static_cast<xla::StatusCode>(status.code()));
  proto.set_message(ValidUtf8(std::string_view(status.message().data(), status.message().size())));
  return proto;
}

absl::Status FromProto(const xla::StatusProto& proto) {
  const int code = proto.code();
  if (code == 0) return absl::OkStatus();
  return absl::Status(code > 16 ? absl::StatusCode::kUnknown : static_cast<absl::StatusCode>(code),
                      proto.message());
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(
      static_cast<grpc::StatusCode>(status.code()),
      CutForHeader(ValidUtf8(std::string_view(status.message().data(), status.message().size()))));
}

}  // namespace gangway::ifrt
