// Segments of another process that this process maps (shared_pool.h is the owner's side), by the
// owner's numbers. The other process is not trusted: a descriptor that is not sealed memory of the
// claimed size, or a place outside its segment, is rejected.
//
// Threading: one thread at a time. A result of Find is for any thread and keeps its mapping.
#ifndef GANGWAY_TRANSPORT_SHM_MAPPED_SEGMENTS_H_
#define GANGWAY_TRANSPORT_SHM_MAPPED_SEGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"

#include "gangway/transport/shm/descriptor_socket.h"

namespace gangway::transport {

class MappedSegments {
 public:
  // INVALID_ARGUMENT: not such a descriptor, or already added. RESOURCE_EXHAUSTED: too many
  // segments, or the system cannot map it.
  absl::Status Add(const ReceivedDescriptor& received);
  void Remove(uint64_t segment) { segments_.erase(segment); }

  // The memory of a place; null: the segment is unknown or the place is not inside it.
  std::shared_ptr<std::byte> Find(uint64_t segment, size_t offset, size_t bytes) const;

 private:
  struct Mapping {
    std::byte* base = nullptr;
    size_t bytes = 0;
    Mapping(std::byte* base, size_t bytes) : base(base), bytes(bytes) {}
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();
  };
  std::map<uint64_t, std::shared_ptr<Mapping>> segments_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_SHM_MAPPED_SEGMENTS_H_
