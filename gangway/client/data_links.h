// The client's data streams: one link to each worker that is up, the bytes that wait to be pushed
// to it, and the chunks that come from it.
//
// A large shard for a worker of the same host is written into that worker's shared memory, at a
// place that it is asked for; one that is fetched from there is read in its memory, until the last
// reference to it goes. The link then carries words only.
//
// Threading: everything runs on the client's event loop; connecting, which blocks, runs on a thread
// of its own that posts its outcome back. Ownership: bytes of a push are the caller's until
// `released` is called (always on the loop). Failure: a lost link ends what waits on it (`on_lost`)
// and is opened again, in growing intervals, while the controller says that the worker is up.
#ifndef GANGWAY_CLIENT_DATA_LINKS_H_
#define GANGWAY_CLIENT_DATA_LINKS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/executor.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/shm/mapped_segments.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

using WorkerKey = std::pair<uint32_t, uint32_t>;  // island, index

// Which process of a worker gets the bytes of an upload: the one of this incarnation or, where that
// was down when the upload was declared, the next one. The cluster refuses the upload where that
// process is gone, so bytes must never go to another one.
struct Destination {
  uint64_t incarnation = 0;
  bool next = false;
};

// The bytes of one shard, or why they will never come.
struct Push {
  uint64_t upload = 0;
  Destination to;
  uint32_t shard = 0;
  std::string_view data;
  uint64_t bytes = 0;              // of the shard, where only a place is wanted
  wire::Failure failure;           // code != 0: instead of data
  std::function<void()> released;  // may be empty
};

class DataLinks {
 public:
  static constexpr size_t kChunkBytes = size_t{1} << 20;
  static constexpr size_t kPlacedBytesMin = size_t{64} << 10;  // smaller shards are sent
  static constexpr size_t kQueueBytes = size_t{16} << 20;      // per link
  static constexpr size_t kTurnBytes =
      size_t{4} << 20;                       // per turn of the loop, so that control is not held up
  static constexpr size_t kInterleaved = 4;  // pushes of one worker that take turns

  struct Options {
    transport::Transport* transport = nullptr;
    EventLoop* loop = nullptr;
    std::string name;
    uint64_t epoch = 0;
    uint64_t session = 0;
    std::string token;  // of the session, for the workers
    std::chrono::milliseconds connect_limit{2000};
    std::chrono::milliseconds retry_first{20};  // doubled each time
    int attempts = 8;  // in a row: then what waits on the worker ends, and retries grow no rarer
    std::function<void(wire::DataChunk chunk)> on_chunk;
    // All bytes of a fetched shard, in memory of its worker's.
    std::function<void(uint64_t fetch, uint32_t shard, std::shared_ptr<const char> bytes,
                       size_t size)>
        on_place;
    // Nothing more comes from this worker for what was asked of it until now.
    std::function<void(WorkerKey worker, const absl::Status& why)> on_lost;
  };

  explicit DataLinks(Options options);
  ~DataLinks();  // after Close()

  // What the controller says of a worker. A new incarnation drops the old link and what waited for
  // it.
  void SetWorker(const wire::Worker& worker, bool up);

  // Sends as the link permits. Drops what is for a process that is gone: the cluster fails the
  // array. What is for the next one is kept until that is up.
  void Add(WorkerKey worker, Push push);

  // Asks for a place for `wish`'s shard, whose push will follow. `placed` is called if there is
  // one.
  void Reserve(WorkerKey worker, const Push& wish,
               std::function<void(std::shared_ptr<char> place)> placed);

  // Its bytes need not be sent any more.
  void Forget(uint64_t upload);

  void Close(const absl::Status& reason);

 private:
  struct Pushing {
    Push push;
    size_t offset = 0;
    std::shared_ptr<std::byte> target;  // in the worker's memory; null: it is sent
    bool unplaceable = false;           // the worker gave no place
  };
  using ShardKey = std::pair<uint64_t, uint32_t>;  // upload, shard
  // A place that was asked for ahead of its push.
  struct Reservation {
    uint64_t bytes = 0;
    std::function<void(std::shared_ptr<char> place)> placed;
    std::shared_ptr<std::byte> target;  // null: not answered yet
  };
  // Brings the end of a place's use to the loop for as long as there is one. Any thread.
  struct Returns {
    Mutex mutex;
    EventLoop* loop GANGWAY_GUARDED_BY(mutex) = nullptr;
  };
  // One attempt to connect and, if it succeeds, the link. Events of an abandoned one are ignored.
  struct Attempt {
    bool closed = false;
    absl::Status why;
    std::shared_ptr<transport::Link> link;
    bool welcomed = false;  // until then nothing is pushed: what a refused link took is lost
    uint64_t sequence = 0;
    FileDescriptor descriptors;  // from it, on this host
    transport::MappedSegments segments;
    std::deque<wire::ShardRequest> words;  // of fetched places, that the link has not taken
    std::map<ShardKey, Reservation> reserved;
  };
  struct WorkerLink {
    wire::Worker worker;
    uint64_t previous = 0;  // the incarnation before this one
    bool up = false;
    int failures = 0;                  // in a row
    std::shared_ptr<Attempt> attempt;  // null: none under way
    bool pumping = false;              // a turn is posted
    std::deque<Pushing> active;        // take turns
    std::deque<Pushing> placing;       // asked for a place
    std::deque<Pushing> waiting;
  };

  static bool IsFor(const WorkerLink& worker, const Destination& to);
  void Dial(WorkerKey key);
  void HangUp(WorkerLink& to, const absl::Status& reason);
  void Dialed(WorkerKey key, const std::shared_ptr<Attempt>& attempt,
              absl::StatusOr<std::shared_ptr<transport::Link>> link);
  void OnFrame(WorkerKey key, const std::shared_ptr<Attempt>& attempt, wire::Frame frame);
  void Lost(WorkerKey key, const std::shared_ptr<Attempt>& attempt, absl::Status why);
  void SchedulePump(WorkerKey key);
  void Pump(WorkerKey key);
  bool SendChunk(WorkerLink& to, Pushing& pushing);
  bool WritePiece(WorkerLink& to, Pushing& pushing);
  bool Activate(WorkerLink& to);
  bool AskForPlace(WorkerLink& to, const Push& push, size_t bytes);
  bool TakeReservation(WorkerLink& to, Pushing& pushing);
  bool OnReserved(Attempt& attempt, ShardKey shard, const wire::ShardRequest& answer);
  void OnFetched(WorkerKey key, const std::shared_ptr<Attempt>& attempt,
                 const wire::DataChunk& chunk);
  void Say(WorkerKey key, const std::shared_ptr<Attempt>& attempt, wire::ShardRequest word);
  bool SendWords(WorkerLink& to);
  static void TakeSegments(Attempt& attempt);
  void OnPlace(WorkerKey key, Attempt& attempt, const wire::ShardRequest& answer);
  void OnGreeted(WorkerLink& to, Attempt& attempt, const wire::HelloReply& reply);
  void DropPushes(WorkerLink& of);
  wire::Frame NewFrame(WorkerLink& to, Attempt& attempt);

  Options options_;
  bool closed_ = false;
  const std::shared_ptr<Returns> returns_ = std::make_shared<Returns>();
  std::map<WorkerKey, WorkerLink> workers_;
  EventLoop dialer_;
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_DATA_LINKS_H_
