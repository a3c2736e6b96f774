// A push: the bytes of one shard of an upload, on their way from this client to a worker.
#ifndef GANGWAY_CLIENT_PUSH_H_
#define GANGWAY_CLIENT_PUSH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "gangway/base/ids.h"

namespace gangway::client {

using WorkerKey = std::pair<uint32_t, uint32_t>;  // island, index

inline constexpr size_t kPlacedBytesMin = size_t{64} << 10;  // smaller shards are sent

// Which process of a worker receives the bytes of an upload: the one with this incarnation or, if
// that was down when the upload was declared, the next one. If that process is gone, the cluster
// rejects the upload, so the bytes must never go to another process.
struct Destination {
  Incarnation incarnation;
  bool next = false;
};

// The bytes of one shard.
struct Push {
  UploadId upload{};
  Destination to;
  uint32_t shard = 0;
  std::string_view data;
  uint64_t bytes = 0;              // size of the shard, for Reserve
  std::function<void()> released;  // may be empty
};

using PushName = std::pair<UploadId, uint32_t>;  // and the number of the shard in it

// The caller may reuse the bytes.
inline void Release(Push& push) {
  if (push.released) std::exchange(push.released, nullptr)();
}

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_PUSH_H_
