// Implementation of ledger.h.
#include "gangway/store/ledger.h"

#include <algorithm>

#include "gangway/base/check.h"

namespace gangway::store {
namespace {

void Add(Bytes& entry, uint64_t bytes) {
  entry.current += bytes;
  entry.peak = std::max(entry.peak, entry.current);
}

void Subtract(Bytes& entry, uint64_t bytes) {
  GANGWAY_CHECK(entry.current >= bytes, "the ledger refunds more bytes than it charged");
  entry.current -= bytes;
}

}  // namespace

void Ledger::Charge(int device, SessionId session, uint64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(mutex_);
  Add(devices_.at(device), bytes);
  Add(sessions_[session], bytes);
  Add(total_, bytes);
}

void Ledger::Refund(int device, SessionId session, uint64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(mutex_);
  Subtract(devices_.at(device), bytes);
  Subtract(total_, bytes);
  auto entry = sessions_.find(session);
  GANGWAY_CHECK(entry != sessions_.end(), "the ledger refunds a session that holds nothing");
  Subtract(entry->second, bytes);
  if (entry->second.current == 0) sessions_.erase(entry);
}

Bytes Ledger::Device(int device) const {
  MutexLock lock(mutex_);
  return devices_.at(device);
}

Bytes Ledger::Session(SessionId session) const {
  MutexLock lock(mutex_);
  auto entry = sessions_.find(session);
  return entry == sessions_.end() ? Bytes{} : entry->second;
}

Bytes Ledger::Total() const {
  MutexLock lock(mutex_);
  return total_;
}

int Ledger::device_count() const {
  MutexLock lock(mutex_);
  return static_cast<int>(devices_.size());
}

}  // namespace gangway::store
