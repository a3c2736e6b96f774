// A block of shared memory whose place another process knows. That process may access the block until it says that it
// is done: then Return gives the block back for reuse. A block that is destroyed without it is retired, because a
// reader or writer that has not acknowledged may still access it (OB-3).
//
// Not thread-safe. Lendings keeps those of one link: the end of the link retires them all.
#ifndef GANGWAY_TRANSPORT_BULK_LENT_BLOCK_H_
#define GANGWAY_TRANSPORT_BULK_LENT_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "gangway/base/ids.h"
#include "gangway/transport/shm/shared_pool.h"

namespace gangway::transport {

class LentBlock {
 public:
  LentBlock() = default;
  explicit LentBlock(std::shared_ptr<SharedBlock> block) : block_(std::move(block)) {}
  LentBlock(LentBlock&&) = default;
  LentBlock& operator=(LentBlock&& other) noexcept {
    if (this != &other) {
      Retire();
      block_ = std::move(other.block_);
    }
    return *this;
  }
  ~LentBlock() { Retire(); }

  explicit operator bool() const { return block_ != nullptr; }
  const SharedBlock* operator->() const { return block_.get(); }

  // The other process is done with it.
  std::shared_ptr<SharedBlock> Return() { return std::exchange(block_, nullptr); }

 private:
  void Retire() {
    if (block_ != nullptr) block_->Retire();
  }

  std::shared_ptr<SharedBlock> block_;
};

// The blocks that are lent over one link, by the shard in them.
class Lendings {
 public:
  using Name = std::pair<FetchId, uint32_t>;  // and the number of the shard in it

  // A reader that chose the same name twice gives only the later block back.
  void Lend(Name name, std::shared_ptr<SharedBlock> block) {
    lent_.insert_or_assign(name, LentBlock(std::move(block)));
  }
  // Null: it is not lent, or was taken back already.
  std::shared_ptr<SharedBlock> TakeBack(Name name) {
    auto lent = lent_.extract(name);
    return lent.empty() ? nullptr : lent.mapped().Return();
  }
  size_t size() const { return lent_.size(); }

 private:
  std::map<Name, LentBlock> lent_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_LENT_BLOCK_H_
