// The bytes of a buffer in this process, for callers who read them where they are: NumPy views, memoryviews, DLPack.
//
// A large shard of a worker on this host stays in the memory that the worker shares, as long as the worker lends it;
// anything else is copied.
//
// Threading: any thread. Failure: a stream that breaks is tried again; what remains is the cluster's error.
#ifndef GANGWAY_FRONTDOOR_PJRT_HOST_COPY_H_
#define GANGWAY_FRONTDOOR_PJRT_HOST_COPY_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "gangway/base/mutex.h"
#include "gangway/frontdoor/outcome.h"
#include "gangway/frontdoor/pjrt/array.h"

namespace gangway::pjrt {

class HostCopy {
 public:
  // Where the bytes will be. kKnown: in memory that is allocated now. kLent: the worker's, if it lends it.
  enum class Place { kKnown, kLent };

  // Requests the bytes of the shard, and returns at once. They lie as the shape's layout says.
  static std::shared_ptr<HostCopy> Begin(const std::shared_ptr<Shard>& shard,
                                         std::shared_ptr<const Shape> shape, Place place);

  explicit HostCopy(Client* client) : arrived_(std::make_shared<Outcome>(client)) {}

  bool is_known() const { return !may_lend_; }
  // Set when the bytes are here.
  const std::shared_ptr<Outcome>& arrived() const { return arrived_; }
  // At least one byte, as long as this lives. Null: not known yet.
  char* bytes() const GANGWAY_EXCLUDES(mutex_);

 private:
  static void Fetch(const std::shared_ptr<HostCopy>& copy, const std::shared_ptr<Shard>& shard,
                    int attempts, bool may_join);
  char* Target() GANGWAY_EXCLUDES(mutex_);
  char* Arriving() { return dense_.empty() ? Target() : dense_.data(); }
  absl::Status Finish();
  void Reject(size_t bytes);  // which have come, and are not as many as the shard has

  const std::shared_ptr<Outcome> arrived_;
  std::shared_ptr<const Shape> shape_;
  bool may_lend_ = false;
  std::string dense_;  // if the layout is another than row-major: the bytes as they come
  mutable Mutex mutex_;
  std::shared_ptr<char> bytes_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_HOST_COPY_H_
