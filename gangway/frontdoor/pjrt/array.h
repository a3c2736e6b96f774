// Array: one handle of the cluster, shared by the buffers that are its shards. Each shard is dropped with its buffer.
//
// Threading: any thread.
#ifndef GANGWAY_FRONTDOOR_PJRT_ARRAY_H_
#define GANGWAY_FRONTDOOR_PJRT_ARRAY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "pjrt_c_api.h"

#include "gangway/base/mutex.h"
#include "gangway/client/client.h"
#include "gangway/frontdoor/outcome.h"
#include "gangway/frontdoor/pjrt/drops.h"

namespace gangway::pjrt {

// Of one shard. Shared by all shards of an array.
struct Shape {
  int32_t element_type = 0;  // xla::PrimitiveType
  PJRT_Buffer_Type type = PJRT_Buffer_Type_INVALID;
  std::vector<int64_t> dims;
  // Dense. Row-major, unless a script asked for another order (layout.h).
  std::vector<int64_t> minor_to_major;
  uint64_t bytes = 0;
};

class Array {
 public:
  // Only its drop may come after `client`. `produced`: the end of the operation that makes it; null: the cluster is to
  // be asked.
  Array(Client* client, std::shared_ptr<Drops> drops, ArrayHandle handle, uint32_t shard_count,
        std::shared_ptr<Outcome> produced)
      : client_(client),
        drops_(std::move(drops)),
        handle_(handle),
        shard_count_(shard_count),
        produced_(std::move(produced)) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  Client& client() const { return *client_; }
  Drops& drops() const { return *drops_; }
  ArrayHandle handle() const { return handle_; }
  uint32_t shard_count() const { return shard_count_; }

  // Set when all shards are ready, or with the error that spoiled one. Asks the cluster only after it lost workers.
  std::shared_ptr<Outcome> Ready() GANGWAY_EXCLUDES(mutex_);

 private:
  Client* const client_;
  const std::shared_ptr<Drops> drops_;
  const ArrayHandle handle_;
  const uint32_t shard_count_;
  const std::shared_ptr<Outcome> produced_;
  Mutex mutex_;
  std::shared_ptr<Outcome> asked_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t losses_asked_ GANGWAY_GUARDED_BY(mutex_) = 0;  // as of the question
};

// One shard, which is dropped with its last owner: a buffer, or a call that names it.
class Shard {
 public:
  Shard(std::shared_ptr<Array> array, uint32_t index) : array_(std::move(array)), index_(index) {}
  ~Shard() { array_->drops().Shard(name(), array_->shard_count(), is_gathered_); }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  Array& array() const { return *array_; }
  uint32_t index() const { return index_; }
  ShardOf name() const { return {array_->handle(), index_}; }

  // An array of the cache has it from now on.
  void NoteGathered() { is_gathered_.store(true, std::memory_order_relaxed); }

 private:
  const std::shared_ptr<Array> array_;
  const uint32_t index_;
  std::atomic<bool> is_gathered_{false};
};

// Waits until the session has room for another operation (TM-2), so that a script which dispatches far ahead is slowed
// and not refused. Not in a callback of an event, which would wait for itself.
void AwaitRoom(Client* client);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_ARRAY_H_
