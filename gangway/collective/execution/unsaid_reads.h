// Keeps for a device how far it has read the messages of devices on other workers, until these workers are told. A
// worker is told with the next message that goes there, after some messages, before the device waits, and at the end of
// its launch. The runtime says that a program has ended when the device's next one may have begun, so two members of a
// device may tell a worker at once. It still hears the numbers of a source in increasing order, because they are kept
// for the device, and taken and given to the courier under one lock. Thread-safe.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_UNSAID_READS_H_
#define GANGWAY_COLLECTIVE_EXECUTION_UNSAID_READS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/mutex.h"
#include "gangway/collective/execution/peer.h"

namespace gangway::collective {

class UnsaidReads {
 public:
  // `device`: on this worker.
  explicit UnsaidReads(uint32_t device) : device_(device) {}

  // Messages of the peer's device `source` have been read up to `sequence`. In the order of a source's messages.
  void Note(const std::shared_ptr<const Peer>& peer, uint32_t source, uint64_t sequence)
      GANGWAY_EXCLUDES(mutex_);
  // Sends a message of the device to the peer, and tells it what it has not been told. The errors of Courier::Send.
  absl::Status Send(const Peer& peer, const Published& message) GANGWAY_EXCLUDES(mutex_);
  // Tells all.
  void Say() GANGWAY_EXCLUDES(mutex_);

 private:
  struct Unsaid {
    std::shared_ptr<const Peer> peer;
    ReadUpTo read;
    uint32_t messages = 0;
  };
  std::vector<ReadUpTo> Take(const Peer& peer) GANGWAY_REQUIRES(mutex_);
  // If the way is broken, its end ends the launch.
  void Say(const Peer& peer) GANGWAY_REQUIRES(mutex_);

  const uint32_t device_;
  Mutex mutex_;
  std::vector<Unsaid> unsaid_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_UNSAID_READS_H_
