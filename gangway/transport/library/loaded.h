// The transport over gRPC for code that is linked without it: its functions are in a library of their own, which is
// loaded from the folder of the calling library.
//
// Threading and failure: those of transport.h. The library stays loaded until the process ends.
#ifndef GANGWAY_TRANSPORT_LIBRARY_LOADED_H_
#define GANGWAY_TRANSPORT_LIBRARY_LOADED_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/transport/library/table.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

inline constexpr char kGrpcLibrary[] = "libgangway_pjrt_grpc.so";

// NOT_FOUND: the library is not there, or its files cannot be used. FAILED_PRECONDITION: it is of another version.
absl::StatusOr<const GangwayLinks*> LoadGrpcLibrary();

// Connects only: Listen is UNIMPLEMENTED. Errors: those of OpenTransport (tls/tls.h).
absl::StatusOr<std::unique_ptr<Transport>> NewLoadedTransport(const GangwayLinks& links,
                                                              const std::string& tls);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LIBRARY_LOADED_H_
