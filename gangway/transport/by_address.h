// The transport of a real process: addresses of unix sockets use the local transport, all others
// gRPC. Threading and failures are those of the two transports.
#ifndef GANGWAY_TRANSPORT_BY_ADDRESS_H_
#define GANGWAY_TRANSPORT_BY_ADDRESS_H_

#include <memory>

#include "absl/status/statusor.h"

#include "gangway/transport/grpc/grpc.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

// INVALID_ARGUMENT: as NewGrpcTransport. The credentials apply to gRPC links only. The owners of its listeners admit
// peers (GrpcOptions::admits_peers).
absl::StatusOr<std::unique_ptr<Transport>> NewTransportByAddress(GrpcOptions options = {});

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BY_ADDRESS_H_
