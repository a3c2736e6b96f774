// What a device has read of devices on other workers, as far as it has not told them. It tells them with its next
// message there, after some messages, before it waits, and at the end of its launch. The runtime says that a program
// has ended when the device's next one may have begun, so two members of a device may speak at once: a worker still
// hears of them in the order in which they were read, because this belongs to the device, and each word is given to the
// courier under one lock. Thread-safe.
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
