// Counts the bytes that a worker's shards hold, current and peak, per device and per session. Pure
// accounting: it owns no memory. Thread-safe; calls out only as said below. A session without bytes has no
// entry, so an ended session leaves nothing behind.
//
// Each session has its own books. A refund that exceeds them is a bug of ours in that session's sums: its books are
// closed, the sums of devices are made from the other sessions' books, and `on_broken` is told once. What the session
// refunds later is ignored.
#ifndef GANGWAY_STORE_LEDGER_H_
#define GANGWAY_STORE_LEDGER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
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
  // Gets the session and what was found. On the thread that refunds, without the ledger's lock, perhaps with a slot's.
  using OnBroken = std::function<void(SessionId, const std::string&)>;

  explicit Ledger(int device_count, OnBroken on_broken = nullptr)
      : on_broken_(std::move(on_broken)), devices_(device_count) {}

  // `device` is a local index below device_count.
  void Charge(int device, SessionId session, uint64_t bytes) GANGWAY_EXCLUDES(mutex_);
  void Refund(int device, SessionId session, uint64_t bytes) GANGWAY_EXCLUDES(mutex_);

  Bytes Device(int device) const GANGWAY_EXCLUDES(mutex_);
  Bytes Session(SessionId session) const GANGWAY_EXCLUDES(mutex_);  // zeros if it holds nothing
  Bytes Total() const GANGWAY_EXCLUDES(mutex_);
  int device_count() const GANGWAY_EXCLUDES(mutex_);

 private:
  struct Books {
    Bytes all;
    std::vector<uint64_t> by_device;
  };

  void Subtract(int device, uint64_t bytes) GANGWAY_REQUIRES(mutex_);
  // False: the session's books hold less.
  bool TryRefund(int device, SessionId session, uint64_t bytes) GANGWAY_REQUIRES(mutex_);
  // Returns what was found.
  std::string Close(int device, SessionId session, uint64_t bytes) GANGWAY_REQUIRES(mutex_);

  const OnBroken on_broken_;
  mutable Mutex mutex_;
  std::vector<Bytes> devices_ GANGWAY_GUARDED_BY(mutex_);
  std::map<SessionId, Books> sessions_ GANGWAY_GUARDED_BY(mutex_);
  Bytes total_ GANGWAY_GUARDED_BY(mutex_);
  std::set<SessionId> closed_ GANGWAY_GUARDED_BY(mutex_);  // one for each bug that was found
};

}  // namespace gangway::store

#endif  // GANGWAY_STORE_LEDGER_H_
