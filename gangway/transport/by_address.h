// The transport of a real process: links whose address is a unix socket's are local ones, all
// others go over gRPC. Threading and failures: theirs.
#ifndef GANGWAY_TRANSPORT_BY_ADDRESS_H_
#define GANGWAY_TRANSPORT_BY_ADDRESS_H_

#include <memory>

#include "absl/status/statusor.h"

#include "gangway/transport/grpc/grpc.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

// INVALID_ARGUMENT: as NewGrpcTransport. The credentials are for gRPC's links alone.
absl::StatusOr<std::unique_ptr<Transport>> NewTransportByAddress(GrpcOptions options = {});

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BY_ADDRESS_H_
