// The client's data streams: one link to each worker that the session has used and that is up. A link is opened,
// watched and opened again here. What waits for a worker is in push_queue.h, what belongs to an open link in
// worker_connection.h, and which bytes are known to have arrived in confirming_sender.h.
//
// The first workers count as used from the start, so that their first transfers find shared memory. Of the others, the
// first use opens the link, so that a session costs nothing on the workers of a large cluster that it does not use.
//
// Large shards of a worker on the same host travel through the worker's shared memory: the client
// requests a place from the worker and writes an upload there; it reads a fetched shard in place,
// until its last reference is dropped. The link then carries only small messages.
//
// Threading: everything runs on the client's event loop, except PushNow and Use. Ownership: the caller keeps the bytes
// of a push valid until `released` is called (on the loop).
//
// Failure: a lost link (bulk_link.h) ends the fetches that wait on it (`on_lost`) and the uploads of which it has taken
// bytes that are not known to have arrived (`on_upload_lost`). It is reopened, at growing intervals, while the
// controller reports the worker as up; what has not begun waits for that, for kDownMax. While anything is under way,
// Watch asks the worker on the link for a sign of life, and gives a silent link up.
#ifndef GANGWAY_CLIENT_DATA_LINKS_H_
#define GANGWAY_CLIENT_DATA_LINKS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/client/confirming_sender.h"
#include "gangway/client/push.h"
#include "gangway/client/push_queue.h"
#include "gangway/client/worker_connection.h"
#include "gangway/transport/bulk/bulk_link.h"
#include "gangway/transport/bulk/silence.h"
#include "gangway/transport/dialer.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class DataLinks {
 public:
  static constexpr size_t kChunkBytes = size_t{1} << 20;
  static constexpr size_t kQueueBytes = size_t{16} << 20;  // per link
  // Per turn of the loop, so that control messages are not delayed.
  static constexpr size_t kTurnBytes = size_t{4} << 20;
  // Of WorkerLink::dropped; the oldest is forgotten, and its bytes stay until the session ends.
  static constexpr size_t kDroppedMax = 65'536;
  static constexpr std::chrono::milliseconds kWatchInterval = transport::BulkLink::kAskInterval;
  // After a question. With the interval it stays below the 7 s that are promised.
  static constexpr std::chrono::milliseconds kSilenceMax{5000};
  static constexpr std::chrono::milliseconds kConnectMax{2000};
  static constexpr std::chrono::milliseconds kWelcomeMax{
      4000};  // after a Hello; a busy host is late
  // How long uploads that have not begun and fetches wait for a link. Like the silence, it ends below 7 s.
  static constexpr std::chrono::milliseconds kDownMax{5000};

  struct Options {
    transport::Transport* transport = nullptr;
    EventLoop* loop = nullptr;
    std::string name;
    uint64_t epoch = 0;
    SessionId session;
    std::string token;           // of the session, for the workers
    size_t used_from_start = 0;  // workers that count as used before the session uses them
    bool awaits_admission =
        false;  // links are opened to workers that have admitted the session only
    // A piece of a fetched shard, or its failure.
    std::function<void(const wire::Bulk& bulk)> on_shard;
    // All bytes of a fetched shard, in the worker's shared memory.
    std::function<void(FetchId fetch, uint32_t shard, std::shared_ptr<const char> bytes,
                       size_t size)>
        on_place;
    // The worker will not answer any request made until now.
    std::function<void(WorkerKey worker, const absl::Status& why)> on_lost;
    // A program calls a function of this process. `reply` may be called on any thread, also after Close; it is dropped
    // if the stream that brought the call is gone.
    std::function<void(wire::HostCallback callback,
                       std::function<void(wire::HostCallbackReply)> reply)>
        on_host_callback;
    // Not all bytes of the upload will arrive.
    std::function<void(UploadId upload, const absl::Status& why)> on_upload_lost;
    // What else may be wrong when a stream is lost, as a sentence; empty: nothing is known. May be null.
    std::function<std::string()> suspicion;
  };

  // Destroyed after Close(), and after the loop has stopped.
  explicit DataLinks(Options options);

  // Takes a worker's state from the controller. A new incarnation drops the old link and the pushes
  // queued for it. `why_down`: in what is told of a loss; empty: unknown.
  void SetWorker(const wire::Worker& worker, bool up, const std::string& why_down = "");

  // The worker takes the session's links.
  void Admit(WorkerKey worker);

  // Something is to come from the worker. Any thread.
  void Use(WorkerKey worker) GANGWAY_EXCLUDES(open_mutex_);

  // Sends as the link permits. Drops a push for a process that is gone: the cluster fails its
  // array. Keeps a push for the next process until that is up.
  void Add(WorkerKey worker, Push push);

  // Sends a small push whole, on the calling thread (any), which saves two rounds of the loop. False: the link is not
  // open or is busy, or the push is for another process; then Add it. `released` is left to the caller. Not for a shard
  // with a reservation.
  bool PushNow(WorkerKey worker, const Push& push) GANGWAY_EXCLUDES(open_mutex_);

  // Requests a place for the shard of `wish`, whose push will follow. `placed` is called if the
  // worker grants one.
  void Reserve(WorkerKey worker, const Push& wish,
               std::function<void(std::shared_ptr<char> place)> placed);

  // Drops the queued pushes and reservations of the upload.
  void Withdraw(UploadId upload);
  // The controller has refused the upload or reports it as failed: tells the workers, which may hold bytes of it.
  void TellDropped(UploadId upload);

  // To be called every kWatchInterval while an answer of a worker in `awaited` is awaited or Watch has returned true:
  // more is under way.
  bool Watch(const std::set<WorkerKey>& awaited);

  void Close(const absl::Status& reason);

 private:
  // Lets any thread post the release of a fetched place to the loop, until Close.
  struct Returns {
    Mutex mutex;
    EventLoop* loop GANGWAY_GUARDED_BY(mutex) = nullptr;
  };
  using ConnectionPtr = std::shared_ptr<WorkerConnection>;
  struct WorkerLink {
    wire::Worker worker;
    Incarnation previous;                       // the incarnation before this one
    std::shared_ptr<transport::BulkLink> link;  // to this incarnation; null: it is not up
    ConnectionPtr
        open;  // null: the link is not open; before, a rejected one would lose what it took
    bool is_used = false;
    bool admits = false;   // this session's links, if that is awaited
    absl::Status refusal;  // why the last attempt failed; OK: it did not, or was welcomed before
    bool pumping = false;  // a turn is posted
    PushQueue pushes;
    std::deque<UploadId>
        dropped;  // uploads whose bytes this incarnation is still to be told to free
  };

  static bool IsFor(const WorkerLink& worker, const Destination& to);
  bool MayDial(const WorkerLink& to) const { return to.admits || !options_.awaits_admission; }
  void UseOnLoop(WorkerKey key);
  std::shared_ptr<transport::BulkLink> LinkTo(const WorkerLink& to);
  void Dial(WorkerLink& to);
  void HangUp(WorkerLink& to, const absl::Status& reason);
  void OnFrame(WorkerKey key, wire::Frame frame);
  absl::Status StreamLost(const WorkerLink& to, const absl::Status& why) const;
  // The link is down, of which `was` tells how far it had come.
  void OnDown(WorkerKey key, const absl::Status& why, transport::BulkLink::State was);
  // It says nothing: so what has not begun does not wait for the next link either.
  void GiveUpSilent(WorkerKey key);
  void LoseSent(WorkerLink& to, const absl::Status& why);
  // What waits for a link to the worker waits no longer.
  void GiveUp(WorkerKey key, const absl::Status& why);
  static bool IsBusy(const WorkerLink& to);
  void Look(WorkerKey key, Clock::time_point now, Clock::duration stood_still);
  void SchedulePump(WorkerKey key);
  void Pump(WorkerKey key);
  void OnFetched(WorkerKey key, const ConnectionPtr& connection, const wire::Bulk& bulk);
  void Say(WorkerKey key, const ConnectionPtr& connection, wire::Bulk word);
  void OnHostCallback(WorkerKey key, wire::HostCallback callback);
  void OnBulk(WorkerKey key, const ConnectionPtr& connection, const wire::Bulk& bulk);
  void OnPlace(WorkerKey key, WorkerConnection& connection, const wire::ShardName& name,
               const wire::PlaceAnswer& answer);
  void OnOpen(WorkerKey key, const wire::HelloReply& reply);

  Options options_;
  bool closed_ = false;
  transport::Looks looks_;
  const std::shared_ptr<Returns> returns_ = std::make_shared<Returns>();
  std::map<WorkerKey, WorkerLink> workers_;
  Mutex open_mutex_;
  // Of the links that have been welcomed.
  std::map<WorkerKey, std::shared_ptr<ConfirmingSender>> open_ GANGWAY_GUARDED_BY(open_mutex_);
  std::set<WorkerKey> used_ GANGWAY_GUARDED_BY(open_mutex_);  // by Use
  transport::Dialer dialer_;
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_DATA_LINKS_H_
