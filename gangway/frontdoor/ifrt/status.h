// Converts absl::Status to the protocol's form, and for gRPC. Texts are made valid UTF-8, since the
// client's parser rejects a whole response with any other text.
#ifndef GANGWAY_FRONTDOOR_IFRT_STATUS_H_
#define GANGWAY_FRONTDOOR_IFRT_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

#include "gangway/base/utf8.h"
#include "gangway/xla/ifrt_types.pb.h"

namespace gangway::ifrt {

xla::StatusProto ToProto(const absl::Status& status);
absl::Status FromProto(const xla::StatusProto& proto);
// Cuts a message that would not fit into the header in which gRPC carries it.
grpc::Status ToGrpc(const absl::Status& status);

using gangway::ValidUtf8;

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_STATUS_H_
