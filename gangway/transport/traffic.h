// Counts what the links of this process have sent to other processes, and received from them, over unix sockets and
// over a network. Links inside a process are not among them, nor are heartbeats that are sent.
//
// Threading: any thread, without locks. The counts begin with the process.
#ifndef GANGWAY_TRANSPORT_TRAFFIC_H_
#define GANGWAY_TRANSPORT_TRAFFIC_H_

#include <cstddef>
#include <cstdint>

#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

struct Traffic {
  uint64_t frames_sent = 0;
  uint64_t bytes_sent = 0;  // of these frames, without what a batch adds to them
  uint64_t frames_received = 0;
  uint64_t bytes_received = 0;  // of the batches
};

// Called by a link for each frame that it takes, of this many bytes.
void CountSent(const wire::Frame& frame, size_t bytes);
// Called by a link for each batch that has arrived.
void CountReceived(size_t frames, size_t bytes);

Traffic TrafficOfProcess();

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_TRAFFIC_H_
