// Implementation of ledger.h.
#include "gangway/store/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gangway::store {
namespace {

void Add(Bytes& entry, uint64_t bytes) {
  entry.current += bytes;
  entry.peak = std::max(entry.peak, entry.current);
}

}  // namespace

void Ledger::Charge(int device, SessionId session, uint64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(mutex_);
  if (closed_.contains(session)) return;
  Books& books = sessions_[session];
  books.by_device.resize(devices_.size());
  books.by_device.at(device) += bytes;
  Add(books.all, bytes);
  Add(devices_.at(device), bytes);
  Add(total_, bytes);
}

void Ledger::Refund(int device, SessionId session, uint64_t bytes) {
  if (bytes == 0) return;
  std::string found;
  {
    MutexLock lock(mutex_);
    if (closed_.contains(session) || TryRefund(device, session, bytes)) return;
    found = Close(device, session, bytes);
  }
  if (on_broken_) on_broken_(session, found);
}

void Ledger::Subtract(int device, uint64_t bytes) {
  devices_.at(device).current -= bytes;
  total_.current -= bytes;
}

bool Ledger::TryRefund(int device, SessionId session, uint64_t bytes) {
  auto entry = sessions_.find(session);
  if (entry == sessions_.end() || entry->second.by_device.at(device) < bytes) return false;
  entry->second.by_device.at(device) -= bytes;
  entry->second.all.current -= bytes;
  if (entry->second.all.current == 0) sessions_.erase(entry);
  Subtract(device, bytes);
  return true;
}

std::string Ledger::Close(int device, SessionId session, uint64_t bytes) {
  closed_.insert(session);
  uint64_t held = 0;
  if (auto entry = sessions_.find(session); entry != sessions_.end()) {
    held = entry->second.by_device.at(device);
    for (size_t each = 0; each < entry->second.by_device.size(); ++each)
      Subtract(static_cast<int>(each), entry->second.by_device[each]);
    sessions_.erase(entry);
  }
  return absl::StrCat("a release of ", bytes, " bytes on local device ", device,
                      ", of which its books held ", held);
}

Bytes Ledger::Device(int device) const {
  MutexLock lock(mutex_);
  return devices_.at(device);
}

Bytes Ledger::Session(SessionId session) const {
  MutexLock lock(mutex_);
  auto entry = sessions_.find(session);
  return entry == sessions_.end() ? Bytes{} : entry->second.all;
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
