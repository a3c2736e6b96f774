// The other workers with which this one runs collectives: it gives its arena and its heap to those of its host, and
// takes theirs; with all others it exchanges streams (collective_streams.h).
//
// Each worker has a socket of datagrams. When a scheduler names a member, this worker sends a descriptor of its own
// arena to the member's socket, and the member does the same. Nothing blocks: a launch waits for its members, with a
// deadline, on its device's thread.
//
// Threading: the event loop owns this; a PendingPeer is for any thread.
#ifndef GANGWAY_WORKER_SERVICE_COLLECTIVE_COLLECTIVE_PEERS_H_
#define GANGWAY_WORKER_SERVICE_COLLECTIVE_COLLECTIVE_PEERS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"
#include "gangway/base/poller.h"
#include "gangway/base/shared_heap.h"
#include "gangway/collective/execution/member.h"
#include "gangway/transport/shm/descriptor_mail.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/core/worker_core.h"
#include "gangway/worker/service/collective/arena_directory.h"
#include "gangway/worker/service/collective/collective_streams.h"
#include "gangway/worker/service/collective/pending_peer.h"
#include "gangway/worker/service/collective/pending_peers.h"

namespace gangway::worker {

class CollectivePeers {
 public:
  struct Options {
    Identity identity;
    uint32_t island = 0;
    uint32_t index = 0;  // in the island
    std::string host;
    EventLoop* loop = nullptr;                  // outlives this
    transport::Transport* transport = nullptr;  // to other workers; outlives this
    bool shared_memory = false;                 // with other processes
    SharedHeap heap;                            // then they may read it
    // Of simulated workers in one process, which share them; both outlive this. Null: each worker has its own process.
    EventLoop* receiver = nullptr;  // as of CollectiveStreams
    ArenaDirectory* arenas = nullptr;
    std::function<void(uint64_t id)> on_refused;      // as of CollectiveStreams
    std::function<void(uint64_t gang)> on_long_wait;  // as of LocalDevice
  };
  explicit CollectivePeers(Options options);
  ~CollectivePeers();

  // For the registration; no name: there is none. Any thread.
  const wire::DescriptorSocket& socket() const { return socket_; }

  // Of members that do not share memory with this worker.
  CollectiveStreams& streams() { return streams_; }

  // Creates this worker's arena and begins to listen, unless it has done so. RESOURCE_EXHAUSTED: there is no memory for
  // the arena; UNAVAILABLE: there are no descriptors; INVALID_ARGUMENT: there are too many devices. A later call tries
  // again.
  absl::Status Begin() GANGWAY_EXCLUDES(mutex_);
  // A worker that has members of a program here, or that it is down. Ignored before Begin has succeeded: then no
  // program here has members, and with the load of the first one all come that are known.
  void AddMember(const wire::Worker& member);
  // Likewise, if the worker is a member of a program that was loaded here.
  void UpdateMember(const wire::Worker& worker);

  // The devices of the positions, by their ids. Of a worker that is not known, waits for it end with an error. `met`:
  // by position, whether a member here exchanges messages with it. To other workers on other hosts no way is opened.
  std::shared_ptr<PendingPeers> PeersOf(std::span<const DeviceId> devices,
                                        const std::vector<bool>& met);
  // Changes when a member does: then PeersOf gives others.
  uint64_t version() const { return version_; }

  // No gang runs on this worker at this position in the island's order.
  void Skip(OrderPosition position) GANGWAY_EXCLUDES(mutex_);

  // This worker's devices. Null before Begin has succeeded.
  std::shared_ptr<collective::LocalDevice> local(int device) const GANGWAY_EXCLUDES(mutex_);
  void Close();
  // What members on this worker's devices sleep for, by device. Any thread.
  std::map<int, collective::Waiting> Waiting() const GANGWAY_EXCLUDES(mutex_);

 private:
  class Arrival;
  struct Member {
    wire::Worker worker;
    std::shared_ptr<PendingPeer> pending;  // null: it has a way in streams_
  };

  bool SharesMemory(const wire::Worker& worker) const;
  void SendArena(const wire::Worker& member, std::chrono::milliseconds pause);
  absl::StatusOr<std::shared_ptr<collective::Arena>> MakeArena() const;
  void Receive();
  void Take(Member& member, std::vector<FileDescriptor> descriptors);

  const Options options_;
  std::unique_ptr<transport::DescriptorMailbox> mailbox_;  // null: none
  wire::DescriptorSocket socket_;
  std::shared_ptr<Poller> poller_;
  uint64_t watch_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::shared_ptr<collective::Arena> arena_;  // null: Begin has not succeeded
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<collective::LocalDevice>> devices_ GANGWAY_GUARDED_BY(mutex_);
  std::map<uint32_t, Member> members_;  // by index
  // Arenas of workers that are not known yet, by incarnation, in the order in which they came.
  std::deque<std::pair<uint64_t, std::vector<FileDescriptor>>> early_;
  std::map<DeviceId, std::pair<uint32_t, uint32_t>> locations_;  // index, and its device
  uint64_t version_ = 0;
  const std::shared_ptr<collective::Couriers> couriers_ = std::make_shared<collective::Couriers>();
  CollectiveStreams streams_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_COLLECTIVE_COLLECTIVE_PEERS_H_
