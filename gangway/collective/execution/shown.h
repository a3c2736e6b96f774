// What a device shows to the members on its own worker while it runs a collective: its operands and its results, which
// they read where they are.
//
// Threading: the device's member opens and closes; members of the same worker's other devices enter, read and leave.
// What is shown stays valid until Close returns, which waits for those that have entered. A member that has entered
// leaves soon: when it has read, or when its launch is aborted.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_SHOWN_H_
#define GANGWAY_COLLECTIVE_EXECUTION_SHOWN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gangway/base/futex.h"

namespace gangway::collective {

struct MessageKey {
  uint64_t gang = 0;
  uint32_t number = 0;
  uint32_t round = 0;
  uint32_t part = 0;
};

class Shown {
 public:
  // Of the call with this key, whatever its part.
  void Open(const MessageKey& key, std::vector<std::span<const std::byte>> operands,
            std::vector<std::span<const std::byte>> results) {
    operands_ = std::move(operands);
    results_ = std::move(results);
    reduced_.store(0, std::memory_order_relaxed);
    read_.store(0, std::memory_order_relaxed);
    gang_.store(key.gang, std::memory_order_relaxed);
    number_.store(key.number, std::memory_order_relaxed);
    round_.store(key.round, std::memory_order_relaxed);
    sequence_.store(++last_sequence_, std::memory_order_release);
  }
  // The device's part of the results of so many messages is complete.
  void SetReduced(size_t messages) { reduced_.store(messages, std::memory_order_release); }
  bool IsReadBy(uint32_t device) const {
    return (read_.load(std::memory_order_acquire) >> device & 1) != 0;
  }
  void Close() {
    sequence_.store(0, std::memory_order_seq_cst);
    while (reading_.load(std::memory_order_seq_cst) != 0) YieldCore();
  }

  // Whether the call is open. Then it stays so until this device leaves.
  bool Enter(const MessageKey& key, uint32_t device) {
    const uint64_t sequence = sequence_.load(std::memory_order_acquire);
    if (sequence == 0 || gang_.load(std::memory_order_relaxed) != key.gang ||
        number_.load(std::memory_order_relaxed) != key.number ||
        round_.load(std::memory_order_relaxed) != key.round)
      return false;
    reading_.fetch_or(uint64_t{1} << device, std::memory_order_seq_cst);
    if (sequence_.load(std::memory_order_seq_cst) == sequence) return true;
    reading_.fetch_and(~(uint64_t{1} << device), std::memory_order_seq_cst);
    return false;
  }
  void Leave(uint32_t device) {
    read_.fetch_or(uint64_t{1} << device, std::memory_order_release);
    reading_.fetch_and(~(uint64_t{1} << device), std::memory_order_seq_cst);
  }
  const std::byte* operand(size_t index) const { return operands_[index].data(); }
  const std::byte* result(size_t index) const { return results_[index].data(); }
  size_t reduced() const { return reduced_.load(std::memory_order_acquire); }

 private:
  uint64_t last_sequence_ = 0;
  std::vector<std::span<const std::byte>> operands_, results_;
  std::atomic<uint64_t> sequence_ = 0;  // 0: closed
  std::atomic<uint64_t> gang_ = 0;
  std::atomic<uint32_t> number_ = 0, round_ = 0;
  std::atomic<size_t> reduced_ = 0;
  std::atomic<uint64_t> reading_ = 0, read_ = 0;  // a bit for each device of the worker
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_SHOWN_H_
