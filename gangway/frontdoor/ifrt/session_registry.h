// The host buffers of the open sessions, by session id. Ids are random, since a host buffer call
// proves its session by the id alone (OB-3). Thread-safe.
#ifndef GANGWAY_FRONTDOOR_IFRT_SESSION_REGISTRY_H_
#define GANGWAY_FRONTDOOR_IFRT_SESSION_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/mutex.h"
#include "gangway/base/random.h"
#include "gangway/frontdoor/ifrt/host_buffers.h"

namespace gangway::ifrt {

class SessionRegistry {
 public:
  uint64_t Add(std::shared_ptr<HostBuffers> buffers) {
    MutexLock lock(mutex_);
    uint64_t id = 0;
    do {
      id = RandomBits();
    } while (id == 0 || !sessions_.try_emplace(id, buffers).second);
    return id;
  }
  void Remove(uint64_t id) {
    MutexLock lock(mutex_);
    sessions_.erase(id);
  }
  absl::StatusOr<std::shared_ptr<HostBuffers>> Find(uint64_t id) const {
    MutexLock lock(mutex_);
    auto found = sessions_.find(id);
    if (found == sessions_.end())
      return absl::NotFoundError("the session of this host buffer does not exist, or has ended");
    return found->second;
  }
  std::vector<std::shared_ptr<HostBuffers>> All() const {
    MutexLock lock(mutex_);
    std::vector<std::shared_ptr<HostBuffers>> all;
    for (const auto& [id, buffers] : sessions_) all.push_back(buffers);
    return all;
  }

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<HostBuffers>> sessions_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_SESSION_REGISTRY_H_
