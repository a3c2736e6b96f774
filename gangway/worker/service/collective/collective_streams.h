// The ways to workers of the island that do not share memory with this one: on other hosts, or without shared memory.
//
// A worker opens a stream to each such member that its programs meet, and on it hears what the member's devices
// publish; on the stream that the member opens to this worker, it tells what its own devices publish. A member that
// opens its stream first is answered with the other one. Both streams together are the way to the member, until
// either breaks or the member is silent while launches are under way. Then both are closed, launches with members
// there fail, and a new way is opened, with a new mirror: what was sent on an old way never counts on a new one. A
// worker that opens its stream again is taken at its word: the old way is broken first, then it is answered.
//
// A way that cannot be opened within a limit makes launches fail; the next launch tries again.
//
// Threading: belongs to the worker's event loop. What devices publish is taken in by a thread of its own, so that other
// work of the loop delays no collective.
#ifndef GANGWAY_WORKER_SERVICE_COLLECTIVE_COLLECTIVE_STREAMS_H_
#define GANGWAY_WORKER_SERVICE_COLLECTIVE_COLLECTIVE_STREAMS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/collective/execution/peer.h"
#include "gangway/transport/bulk/bulk_link.h"
#include "gangway/transport/bulk/silence.h"
#include "gangway/transport/dialer.h"
#include "gangway/transport/transport.h"
#include "gangway/worker/core/worker_core.h"
#include "gangway/worker/service/collective/pending_peer.h"
#include "gangway/worker/service/transfer/peer_streams.h"

namespace gangway::worker {

class CollectiveStreams final : public PeerStreams {
 public:
  // For the word of the scheduler, which knows why a member's process has ended (ER-1), before launches fail for the
  // broken way.
  static constexpr std::chrono::milliseconds kReasonMax{300};

  struct Options {
    Identity identity;
    uint32_t island = 0;
    uint32_t index = 0;             // in the island
    EventLoop* loop = nullptr;      // outlives this
    EventLoop* receiver = nullptr;  // what messages wake; outlives this; null: one of its own
    transport::Transport* transport = nullptr;  // outlives this
    std::shared_ptr<collective::Couriers> couriers;
    std::chrono::milliseconds open_max{15'000};  // until a way that is not open makes launches fail
    std::chrono::milliseconds silence_max{5000};  // of a member, while launches are under way
    std::function<void(uint64_t id)> on_refused;  // this side has closed an incoming stream
    std::function<void()> on_broken;              // PendingPeerOf now gives another one
  };
  explicit CollectiveStreams(Options options);
  ~CollectiveStreams() override;  // after Close, and the loop has stopped

  void SetToken(std::string token) { token_ = std::move(token); }  // for the Hello

  // An incarnation that is up, instead of an earlier one. Its way is opened when it is asked for, here or there. `own`:
  // this worker's arena.
  void Open(const wire::Worker& worker, const std::shared_ptr<collective::Arena>& own);
  // It is down.
  void Forget(uint32_t worker);
  // Of a worker that was given to Open. Opens the way.
  std::shared_ptr<PendingPeer> PendingPeerOf(uint32_t worker);

  // PeerStreams: of members that want to hear what this worker's devices publish.
  void AcceptPeer(uint64_t id, std::shared_ptr<transport::Link> link,
                  const wire::Hello& hello) override;
  void OnPeerFrame(uint64_t id, wire::Frame frame) override;
  void OnPeerWritable(uint64_t id) override;
  void OnPeerClosed(uint64_t id) override;

  void Close();

 private:
  class StreamCourier;
  struct Way {
    wire::Worker worker;
    std::shared_ptr<PendingPeer> pending;
    std::shared_ptr<transport::BulkLink> link;  // on which the member is heard; null: is not wanted
    std::shared_ptr<collective::Mirror> mirror;  // of what is heard on the link's connection
    std::shared_ptr<StreamCourier> courier;      // null: it has not opened its stream
    std::shared_ptr<collective::Peer> peer;      // set once both are open
    absl::Status why;                            // of the last failure
  };

  void Want(Way& way);
  std::shared_ptr<transport::BulkLink> LinkTo(const wire::Worker& worker);
  void Dial(Way& way);
  void Redial(Way& way);
  void RenewPending(Way& way);
  void TakeCourier(Way& way, std::shared_ptr<StreamCourier> courier);
  void OpenIfBoth(Way& way);
  // Closes both streams. Launches under way fail with the reason, and a new way is opened.
  void Break(Way& way, const absl::Status& why);
  void CloseBoth(Way& way, const absl::Status& why);
  void GiveUp(Way& way, const absl::Status& why);
  void WatchOpening(uint32_t worker, const std::shared_ptr<PendingPeer>& pending);
  void Watch();
  absl::Status BrokenStatus(const Way& way, const absl::Status& why) const;

  const Options options_;
  std::string token_;
  std::shared_ptr<collective::Arena> own_;
  std::map<uint32_t, Way> ways_;  // by the worker's index
  // Streams of incarnations that are not known yet, by incarnation.
  std::map<uint64_t, std::shared_ptr<StreamCourier>> early_;
  std::map<uint64_t, std::shared_ptr<StreamCourier>> accepted_;  // all that are open, by stream
  bool closed_ = false;
  // A Watch is posted.
  const std::shared_ptr<std::atomic<bool>> watching_ = std::make_shared<std::atomic<bool>>(false);
  transport::Looks looks_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  // Null before the first Open. Its tasks use the other members, so the destructor stops it first; a link that is being
  // opened then still posts to it, so it outlives the dialer.
  std::unique_ptr<EventLoop> own_receiver_;
  EventLoop* receiver_ = nullptr;  // null: no stream was opened
  transport::Dialer dialer_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_COLLECTIVE_COLLECTIVE_STREAMS_H_
