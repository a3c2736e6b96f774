// The bytes of one shard on the way from its device to its client, in shared memory that the client
// maps or in private memory. Created on a device thread, sent on the event loop.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_FETCHED_SHARD_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_FETCHED_SHARD_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "gangway/base/aligned_bytes.h"
#include "gangway/transport/shm/shared_pool.h"
#include "gangway/worker/service/memory/staging_memory.h"

namespace gangway::worker {

// Limits the shared memory that fetched shards hold until their readers are done, which may be long after: of one
// session and, by `all`, of all sessions together. Thread-safe.
class FetchShare {
 public:
  // `all`: null: this is the limit of all, or there is none.
  explicit FetchShare(size_t bytes_max, std::shared_ptr<FetchShare> all = nullptr)
      : bytes_max_(bytes_max), all_(std::move(all)) {}

  bool Take(size_t bytes) {
    size_t used = used_;
    do {
      if (bytes > bytes_max_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    if (all_ == nullptr || all_->Take(bytes)) return true;
    used_ -= bytes;
    return false;
  }
  void Return(size_t bytes) {
    used_ -= bytes;
    if (all_ != nullptr) all_->Return(bytes);
  }
  size_t used() const { return used_; }

 private:
  const size_t bytes_max_;
  const std::shared_ptr<FetchShare> all_;
  std::atomic<size_t> used_ = 0;
};

class FetchedShard {
 public:
  // Where a session's shards get their memory.
  struct Source {
    std::shared_ptr<transport::SharedPool> pool;  // of shared memory; null: none is available
    std::shared_ptr<FetchShare> share;
    std::shared_ptr<StagingMemory> staging;  // all of it counts against this
    SessionId session;
  };

  // `charge`: `size` bytes of source.staging. Null: out of memory.
  static std::shared_ptr<FetchedShard> Make(const Source& source, StagingMemory::Charge charge,
                                            size_t size, size_t shared_min) {
    std::shared_ptr<FetchedShard> made(new FetchedShard());
    made->charge_ = std::move(charge);
    if (source.pool != nullptr && size >= shared_min && source.share->Take(size)) {
      made->block_ = source.pool->Allocate(size);
      if (made->block_ != nullptr) {
        made->share_ = source.share;
      } else {
        source.share->Return(size);
      }
    }
    if (made->block_ == nullptr && !made->own_.Resize(size)) return nullptr;
    return made;
  }
  ~FetchedShard() {
    if (share_ != nullptr) share_->Return(block_->bytes().size());
  }
  FetchedShard(const FetchedShard&) = delete;
  FetchedShard& operator=(const FetchedShard&) = delete;

  std::byte* data() { return block_ != nullptr ? block_->writable() : own_.data(); }
  std::span<const std::byte> bytes() const {
    return block_ != nullptr ? block_->bytes() : own_.span();
  }
  transport::SharedBlock* block() const { return block_.get(); }  // null: in private memory

 private:
  FetchedShard() = default;

  StagingMemory::Charge charge_;  // returned after the bytes are
  AlignedBytes own_;
  std::unique_ptr<transport::SharedBlock> block_;
  std::shared_ptr<FetchShare> share_;  // the block counts against it
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_FETCHED_SHARD_H_
