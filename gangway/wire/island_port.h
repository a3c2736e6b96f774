// How a controller runs the scheduler of an island in its own process: by calls, where a scheduler in another process
// has a link. Both say the same in the same frames, but calls need no Hello, epochs or heartbeats: neither can lose the
// other.
//
// Threading: both ends and all calls are on one event loop. Take never calls back, so that neither end is entered while
// it runs: what it causes waits for Give.
#ifndef GANGWAY_WIRE_ISLAND_PORT_H_
#define GANGWAY_WIRE_ISLAND_PORT_H_

#include <vector>

#include "gangway/wire/wire.pb.h"

namespace gangway::wire {

class IslandPort {
 public:
  virtual ~IslandPort() = default;
  // From the controller: a batch of items, or a question.
  virtual void Take(Frame frame) = 0;
  // To the controller: reports and answers since the last call, in order.
  virtual std::vector<Frame> Give() = 0;
};

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_ISLAND_PORT_H_
