// A transport inside one process: addresses are names in one hub, frames are moved and never
// serialized. Owns no thread: Accept runs on the thread that connects, events on the executors of
// the two ends.
#ifndef GANGWAY_TRANSPORT_INPROC_INPROC_H_
#define GANGWAY_TRANSPORT_INPROC_INPROC_H_

#include <memory>

#include "gangway/transport/transport.h"

namespace gangway::transport {

// A separate hub: links connect only within one transport. Destroying it closes its links.
std::unique_ptr<Transport> NewInprocTransport();

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_INPROC_INPROC_H_
