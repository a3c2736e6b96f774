// Opens the transport of a process by its TLS folder, which `gangway certs` made.
//
// Threading: functions without state. Failure: a status that names the file and says what to do.
#ifndef GANGWAY_TRANSPORT_TLS_TLS_H_
#define GANGWAY_TRANSPORT_TLS_TLS_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/transport/grpc/grpc.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

// Unix socket addresses use local links, all others gRPC. With a TLS folder, both ends of a gRPC
// link present its certificate and require one from its CA. `silence_max`: see GrpcOptions.
absl::StatusOr<std::unique_ptr<Transport>> OpenTransport(
    const std::string& tls, std::chrono::milliseconds silence_max = GrpcOptions().silence_max);

// Adds the likely causes, and what to do, to a failed connection. TLS itself does not report them; they are not its own
// where no process was reached.
absl::Status ExplainConnection(const absl::Status& status, const std::string& address,
                               const std::string& tls);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_TLS_TLS_H_
