// Array: one handle of the cluster, shared by the buffers that are its shards. It is dropped with the last of them.
//
// Threading: any thread.
#ifndef GANGWAY_FRONTDOOR_PJRT_ARRAY_H_
#define GANGWAY_FRONTDOOR_PJRT_ARRAY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "pjrt_c_api.h"

#include "gangway/base/mutex.h"
#include "gangway/client/include/gangway/client.h"
#include "gangway/frontdoor/outcome.h"

namespace gangway::pjrt {

// Of one shard. Shared by all shards of an array.
struct Shape {
  int32_t element_type = 0;  // xla::PrimitiveType
  PJRT_Buffer_Type type = PJRT_Buffer_Type_INVALID;
  std::vector<int64_t> dims;
  std::vector<int64_t> minor_to_major;  // dense and row-major
  uint64_t bytes = 0;
};

class Array {
 public:
  // `client` outlives it.
  Array(Client* client, ArrayHandle handle, uint32_t shard_count)
      : client_(client), handle_(handle), shard_count_(shard_count) {}
  ~Array() { client_->Drop(std::span<const ArrayHandle>(&handle_, 1)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  ArrayHandle handle() const { return handle_; }
  uint32_t shard_count() const { return shard_count_; }

  // Set when all shards are ready, or with the error that spoiled one. The cluster is asked once, by the first call.
  std::shared_ptr<Outcome> Ready() GANGWAY_EXCLUDES(mutex_);

 private:
  Client* const client_;
  const ArrayHandle handle_;
  const uint32_t shard_count_;
  Mutex mutex_;
  std::shared_ptr<Outcome> ready_ GANGWAY_GUARDED_BY(mutex_);
};

// Waits until the session has room for another operation (TM-2), so that a script which dispatches far ahead is slowed
// and not refused. Not from a callback of the client, which would wait for itself.
void AwaitRoom(Client* client);

// A view of shards, possibly of several arrays: one handle, until it goes out of scope. Moves no bytes.
std::shared_ptr<Array> Gather(Client* client, std::vector<ShardOf> shards);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_ARRAY_H_
