// A transport over gRPC: a link is one bidirectional stream on a TCP connection of its own.
// Addresses: grpc/address.h. Threads: one per listener, one that accepts for it, and gRPC's own.
// Links that the transport opens share the first listener's thread; a transport that only connects
// has one thread. The peer is not trusted: bad input harms only its own link.
#ifndef GANGWAY_TRANSPORT_GRPC_GRPC_H_
#define GANGWAY_TRANSPORT_GRPC_GRPC_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/transport/grpc/peer_policy.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

struct GrpcOptions {
  // Both or neither. Without them, only loopback addresses are allowed (SE-1).
  std::shared_ptr<grpc::ServerCredentials> server_credentials;
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials;
  // The name that the certificates of all servers have; empty: that of the host which is connected to.
  std::string server_name;
  // Of peers that present a certificate; null: each that the credentials accept. A link whose peer
  // it rejects is closed, with its reason.
  std::shared_ptr<PeerPolicy> peers;
  size_t message_bytes_max = size_t{1} << 30;  // of one frame
  // The owners of its listeners call Link::Admit once a peer has presented a token, in a small first frame. So
  // connections without an admitted link are strangers, and bounded (base/strangers.h). False: every peer is welcome.
  bool admits_peers = false;
  // A peer that answers nothing for this long, because its host or the network is gone, is lost: its links close. At
  // least 2 s. Long by default, because a process that is stopped for as long, by a debugger or a closed laptop, is
  // lost as well. Workers and schedulers have their own heartbeats.
  std::chrono::milliseconds silence_max{60'000};
};

// The transport and its listeners are independent of each other; destroying one closes its own
// links, within seconds. Neither may be destroyed on a thread of the transport (inside Accept).
// INVALID_ARGUMENT: only one of the credentials, or message_bytes_max not from 1 byte to 1 GiB.
absl::StatusOr<std::unique_ptr<Transport>> NewGrpcTransport(GrpcOptions options = {});

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_GRPC_H_
