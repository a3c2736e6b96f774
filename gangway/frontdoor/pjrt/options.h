// Where the cluster is, and with what token it is reached: from the options that the framework passes, else from the
// environment, else from the state folder of `gangway up` on this host.
//
//   option         environment        otherwise
//   address        GANGWAY_ADDRESS    the file `control` of the cluster's folder
//   tls            GANGWAY_TLS        without an address, the folder that the file `tls` of the cluster's folder names:
//                                     its controller's; else none. One that `gangway certs` made
//   token          GANGWAY_TOKEN      the file `token` of the TLS folder that is given, else of the cluster's folder
//   port           GANGWAY_PORT       38600: names the folder
//   state_dir      GANGWAY_STATE_DIR  ~/.gangway
//   session_name   GANGWAY_SESSION    the program's name
#ifndef GANGWAY_FRONTDOOR_PJRT_OPTIONS_H_
#define GANGWAY_FRONTDOOR_PJRT_OPTIONS_H_

#include <span>

#include "absl/status/statusor.h"
#include "pjrt_c_api.h"

#include "gangway/client/client.h"
#include "gangway/client/include/gangway/connect.h"

namespace gangway::pjrt {

// What JAX adds after jax.distributed.initialize is ignored where it has one process; FAILED_PRECONDITION: it has more.
// INVALID_ARGUMENT: an unknown option, or one of another type. NOT_FOUND: no cluster has left its address on this host,
// or the TLS folder has no token. PERMISSION_DENIED: other users can read that.
absl::StatusOr<ClusterOptions> ReadOptions(std::span<const PJRT_NamedValue> options);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_OPTIONS_H_
