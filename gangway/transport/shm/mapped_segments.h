// Segments of another process that this one may write (shared_pool.h is their owner's side), by the
// owner's numbers. What the other process says is checked: a descriptor that is no sealed memory of
// the size that it claims, or a place outside, is refused.
//
// Threading: for one thread at a time; what Find returns is for any, and keeps its mapping.
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
  // INVALID_ARGUMENT: not such a descriptor, or known already; RESOURCE_EXHAUSTED: too many, or no
  // room to map it.
  absl::Status Add(const ReceivedDescriptor& received);
  void Remove(uint64_t segment) { segments_.erase(segment); }

  // Where to write; null: not known, or not inside.
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
