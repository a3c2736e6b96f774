// Implementation of status.h.
#include "gangway/frontdoor/ifrt/status.h"

#include <utility>

namespace gangway::ifrt {
namespace {

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
