// Bytes charged per device of one island, with the peak, and the part of each session in them. Upholds GS-2: the
// scheduler asks before it admits. Pure accounting; not thread-safe. No sum wraps: what is charged at a time stays
// below twice kSizeMax, because only what Fits is charged, and what donation saved, which was charged before.
//
// Each session has its own books, so a wrong sum in one of them is that session's alone: a credit that exceeds them is
// refused, and SetRight() makes the books, and with them the sums of the devices, what they should be.
#ifndef GANGWAY_SCHEDULER_CORE_LEDGER_H_
#define GANGWAY_SCHEDULER_CORE_LEDGER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/base/sizes.h"

namespace gangway::scheduler {

class Ledger {
 public:
  using DeviceBytes = std::vector<uint64_t>;  // bytes by device

  // `budget_bytes` per device, for all of them; 0 = no limit but their own.
  Ledger(size_t device_count, uint64_t budget_bytes)
      : budget_bytes_(budget_bytes),
        budgets_(device_count, budget_bytes),
        used_(device_count, 0),
        peak_(device_count, 0) {}

  // What the device itself can hold; 0 = no limit. The lower limit counts.
  void SetOwnBudget(IslandDevice device, uint64_t bytes) {
    const bool lower = bytes != 0 && (budget_bytes_ == 0 || bytes < budget_bytes_);
    budgets_[device.number()] = lower ? bytes : budget_bytes_;
  }
  // 0 = no limit.
  uint64_t budget_bytes(IslandDevice device) const { return budgets_[device.number()]; }
  // What the device can hold at most.
  uint64_t limit_bytes(IslandDevice device) const {
    const uint64_t budget = budget_bytes(device);
    return budget == 0 ? kSizeMax : budget;
  }
  // What each of `devices` can hold.
  uint64_t limit_bytes(const std::vector<IslandDevice>& devices) const {
    uint64_t least = kSizeMax;
    for (IslandDevice device : devices) least = std::min(least, limit_bytes(device));
    return least;
  }
  uint64_t used_bytes(IslandDevice device) const { return used_[device.number()]; }
  uint64_t peak_bytes(IslandDevice device) const { return peak_[device.number()]; }
  // Of one device or more, that of which most is used.
  IslandDevice Fullest(const std::vector<IslandDevice>& devices) const {
    return *std::ranges::max_element(devices, {},
                                     [this](IslandDevice each) { return used_bytes(each); });
  }

  uint64_t free_bytes(IslandDevice device) const {
    const uint64_t used = used_[device.number()];
    const uint64_t limit = limit_bytes(device);
    return used <= limit ? limit - used : 0;
  }
  bool Fits(IslandDevice device, uint64_t bytes) const { return bytes <= free_bytes(device); }

  // These bytes on each of the devices.
  void Charge(SessionId session, std::span<const IslandDevice> devices, uint64_t bytes) {
    if (bytes == 0 || devices.empty()) return;
    Account& account = sessions_[session];
    account.books.resize(used_.size());
    for (IslandDevice device : devices) {
      uint64_t& held = account.books[device.number()];
      account.devices += held == 0 ? 1 : 0;
      held += bytes;
      used_[device.number()] += bytes;
      peak_[device.number()] = std::max(peak_[device.number()], used_[device.number()]);
    }
  }

  // Likewise. Returns the first device where the session's books hold less, if any; nothing changes on such devices.
  [[nodiscard]] std::optional<IslandDevice> Credit(SessionId session,
                                                   std::span<const IslandDevice> devices,
                                                   uint64_t bytes) {
    if (bytes == 0 || devices.empty()) return std::nullopt;
    auto it = sessions_.find(session);
    if (it == sessions_.end()) return devices.front();
    std::optional<IslandDevice> broken;
    for (IslandDevice device : devices) {
      uint64_t& held = it->second.books[device.number()];
      if (held < bytes) {
        if (!broken) broken = device;
        continue;
      }
      held -= bytes;
      used_[device.number()] -= bytes;
      if (held == 0) --it->second.devices;
    }
    if (it->second.devices == 0) sessions_.erase(it);
    return broken;
  }

  void SetRight(SessionId session, DeviceBytes books) {
    sessions_.erase(session);
    const auto devices = static_cast<size_t>(
        std::ranges::count_if(books, [](uint64_t bytes) { return bytes != 0; }));
    if (devices != 0) sessions_[session] = {std::move(books), devices};
    std::fill(used_.begin(), used_.end(), 0);
    for (const auto& [each, account] : sessions_) {
      for (size_t device = 0; device < used_.size(); ++device)
        used_[device] += account.books[device];
    }
  }

  uint64_t HeldBy(SessionId session, IslandDevice device) const {
    auto it = sessions_.find(session);
    return it == sessions_.end() ? 0 : it->second.books[device.number()];
  }

  // The sessions that hold bytes of the device, and how many.
  std::vector<std::pair<SessionId, uint64_t>> HoldersOf(IslandDevice device) const {
    std::vector<std::pair<SessionId, uint64_t>> holders;
    for (const auto& [session, account] : sessions_) {
      const uint64_t bytes = account.books[device.number()];
      if (bytes != 0) holders.emplace_back(session, bytes);
    }
    return holders;
  }

 private:
  struct Account {
    DeviceBytes books;
    size_t devices = 0;  // on which it holds bytes; never 0
  };

  const uint64_t budget_bytes_;
  std::vector<uint64_t> budgets_;
  std::vector<uint64_t> used_;  // the sum of the sessions' books
  std::vector<uint64_t> peak_;
  std::map<SessionId, Account> sessions_;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_LEDGER_H_
