// SegmentExchange: what the two ends of one link know of each other's shared memory. The owner of segments hands each
// descriptor over once, before the message that names a block in it, and says later that the segment is gone. The other
// end maps the segments and finds blocks in them. An end may do both.
//
// Descriptors pass over a unix socket beside the link: one end listens and names its socket in its answer to the Hello,
// the other connects. Ends that cannot connect are on different hosts, and their bytes come on the link.
//
// Nothing here blocks or fails the link. The other end is not trusted: a block outside its segment is not found.
// Threading: one thread at a time. A result of Find is for any thread and keeps its mapping.
#ifndef GANGWAY_TRANSPORT_BULK_SEGMENT_EXCHANGE_H_
#define GANGWAY_TRANSPORT_BULK_SEGMENT_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/transport/shm/descriptor_socket.h"
#include "gangway/transport/shm/mapped_segments.h"
#include "gangway/transport/shm/shared_pool.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

class SegmentExchange {
 public:
  SegmentExchange() = default;
  ~SegmentExchange();  // closes a connection that came and was never used
  SegmentExchange(const SegmentExchange&) = delete;
  SegmentExchange& operator=(const SegmentExchange&) = delete;

  // This end listens: names the socket in its answer. `listener` outlives this; null: no shared memory.
  void Listen(DescriptorListener* listener, wire::HelloReply& answer);
  // The other end listens, if its answer names a socket that can be reached.
  void Connect(const wire::HelloReply& answer);
  // Descriptors can pass: the other end is on this host.
  bool IsConnected();

  // Has the other end map the block's segment, unless it was handed over before. False: it cannot.
  bool HandOver(const SharedBlock& block);
  // Of the segments that this process has dropped, those that the other end maps and is to be told of.
  std::vector<uint64_t> TakeGone(std::span<const uint64_t> dropped);

  // The memory of a block that the other end names, after taking the descriptors that have come. Null: it is not inside
  // a segment that was handed over. `unmapped` is called with the reason for each segment that cannot be mapped.
  std::shared_ptr<std::byte> Find(const wire::SharedBlock& block,
                                  const std::function<void(const absl::Status&)>& unmapped = {});
  // The other end has dropped this segment, whose descriptor has come before. What Find has returned stays mapped.
  void Forget(uint64_t segment);

 private:
  void TakeDescriptors(const std::function<void(const absl::Status&)>& unmapped);

  DescriptorListener* listener_ = nullptr;
  std::string secret_;     // of the connection to the listener
  FileDescriptor socket_;  // invalid: not connected
  std::set<uint64_t> handed_over_;
  MappedSegments mapped_;
};

// The first `bytes` of a block, as a message names them.
wire::SharedBlock NameOf(const SharedBlock& block, size_t bytes);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_SEGMENT_EXCHANGE_H_
