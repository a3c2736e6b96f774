// Counts the bytes that a worker's shards hold, current and peak, per device and per session. Pure
// accounting: it owns no memory. Thread-safe; never calls out. A session without bytes has no
// entry, so an ended session leaves nothing behind.
#ifndef GANGWAY_STORE_LEDGER_H_
#define GANGWAY_STORE_LEDGER_H_

#include <cstdint>
#include <map>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"

namespace gangway::store {

struct Bytes {
  uint64_t current = 0;
  uint64_t peak = 0;

  bool operator==(const Bytes&) const = default;
};

class Ledger {
 public:
  explicit Ledger(int device_count) : devices_(device_count) {}

  // `device` is a local index below device_count.
  void Charge(int device, SessionId session, uint64_t bytes) GANGWAY_EXCLUDES(mutex_);
  void Refund(int device, SessionId session, uint64_t bytes) GANGWAY_EXCLUDES(mutex_);

  Bytes Device(int device) const GANGWAY_EXCLUDES(mutex_);
  Bytes Session(SessionId session) const GANGWAY_EXCLUDES(mutex_);  // zeros if it holds nothing
  Bytes Total() const GANGWAY_EXCLUDES(mutex_);
  int device_count() const GANGWAY_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::vector<Bytes> devices_ GANGWAY_GUARDED_BY(mutex_);
  std::map<SessionId, Bytes> sessions_ GANGWAY_GUARDED_BY(mutex_);
  Bytes total_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::store

#endif  // GANGWAY_STORE_LEDGER_H_
