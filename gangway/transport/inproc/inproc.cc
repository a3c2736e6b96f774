// Implementation of inproc.h. A link's two ends are two EventQueues; Send pushes into the other
// end's queue.
#include "gangway/transport/inproc/inproc.h"

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/mutex.h"
#include "gangway/transport/event_queue.h"

namespace gangway::transport {
namespace {

constexpr std::chrono::seconds kAcceptLimit{10};

absl::Status FromPeer(const absl::Status& reason) {
  return absl::CancelledError(reason.ok() ? "closed by the peer" : reason.message());
}

// The two directions of one link; `ends[i]` brings events to side i.
struct Pipe {
  std::shared_ptr<EventQueue> ends[2];
  LinkOptions options[2];  // for what side i sends
  std::atomic<bool> above_writable[2] = {false, false};

  void Break(const absl::Status& status) {
    for (auto& end : ends) end->Finish(status);
  }
};

std::shared_ptr<Pipe> MakePipe(const LinkOptions& client, const LinkOptions& server) {
  auto pipe = std::make_shared<Pipe>();
  pipe->options[0] = client;
  pipe->options[1] = server;
  for (int side : {0, 1}) {
    // Frames pending for `side` are the send queue of the other side.
    pipe->ends[side] = std::make_shared<EventQueue>([weak = std::weak_ptr(pipe), side] {
      auto pipe = weak.lock();
      if (pipe == nullptr) return;
      pipe->above_writable[1 - side] = false;
      pipe->ends[1 - side]->PushWritable();
    });
  }
  return pipe;
}

class InprocLink final : public Link {
 public:
  InprocLink(std::shared_ptr<Pipe> pipe, int side, std::string peer)
      : pipe_(std::move(pipe)), side_(side), peer_{std::move(peer), /*authenticated=*/true} {}
  ~InprocLink() override { Close(absl::CancelledError("the peer dropped the link")); }

  absl::Status Send(wire::Frame frame) override {
    if (absl::Status end = mine().end(); !end.ok()) return Ended(end);
    const size_t max = pipe_->options[side_].queue_bytes_max;
    const size_t above = writable_bytes() + 1;
    size_t queued = queued_bytes();
    if (queued >= max) {
      theirs().NotifyBelow(above);
      return absl::ResourceExhaustedError(absl::StrCat("the queue to ", peer_.address, " holds ",
                                                       queued, " of ", max,
                                                       " bytes: wait until it is writable"));
    }
    size_t bytes = frame.ByteSizeLong();
    if (!theirs().Push(std::move(frame), bytes)) return Ended(theirs().end());
    if (queued + bytes >= above && !pipe_->above_writable[side_].exchange(true))
      theirs().NotifyBelow(above);
    return absl::OkStatus();
  }

  size_t queued_bytes() const override { return theirs().pending_bytes(); }
  size_t writable_bytes() const override { return pipe_->options[side_].writable_bytes(); }
  size_t frame_bytes_max() const override { return SIZE_MAX; }

  void Close(const absl::Status& reason) override {
    theirs().Finish(FromPeer(reason));
    mine().Mute();
  }

  const Peer& peer() const override { return peer_; }

 private:
  absl::Status Ended(const absl::Status& end) const {
    return absl::UnavailableError(
        absl::StrCat("the link to ", peer_.address, " is closed: ", end.message()));
  }
  EventQueue& mine() const { return *pipe_->ends[side_]; }
  EventQueue& theirs() const { return *pipe_->ends[1 - side_]; }

  const std::shared_ptr<Pipe> pipe_;
  const int side_;
  const Peer peer_;
};

// One listening name. Outlives its Listener while a Connect is inside it.
class Door {
 public:
  Door(Accept accept, LinkOptions options) : accept_(std::move(accept)), options_(options) {}

  absl::StatusOr<std::shared_ptr<Link>> Enter(const std::string& address, LinkEvents events,
                                              LinkOptions options) {
    auto pipe = MakePipe(options, options_);
    {
      MutexLock lock(mutex_);
      if (shut_)
        return absl::UnavailableError(absl::StrCat("the listener at ", address, " was closed"));
      ++entering_;
      std::erase_if(pipes_, [](const auto& weak) { return weak.expired(); });
      pipes_.push_back(pipe);
    }
    auto link = std::make_shared<InprocLink>(pipe, 0, address);
    pipe->ends[0]->Start(std::move(events));
    pipe->ends[1]->Start(
        accept_(std::make_shared<InprocLink>(pipe, 1, absl::StrCat(address, "#client"))));
    MutexLock lock(mutex_);
    --entering_;
    left_.NotifyAll();
    return link;
  }

  void Shut(const absl::Status& status) {
    std::vector<std::weak_ptr<Pipe>> pipes;
    {
      MutexLock lock(mutex_);
      shut_ = true;
      left_.WaitFor(mutex_, kAcceptLimit, [this]() GANGWAY_NO_ANALYSIS { return entering_ == 0; });
      pipes.swap(pipes_);
    }
    for (auto& weak : pipes) {
      if (auto pipe = weak.lock()) pipe->Break(status);
    }
  }

 private:
  const Accept accept_;
  const LinkOptions options_;
  Mutex mutex_;
  CondVar left_;
  bool shut_ GANGWAY_GUARDED_BY(mutex_) = false;
  int entering_ GANGWAY_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<Pipe>> pipes_ GANGWAY_GUARDED_BY(mutex_);
};

struct Hub {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Door>> doors GANGWAY_GUARDED_BY(mutex);
};

class InprocListener final : public Listener {
 public:
  InprocListener(std::shared_ptr<Hub> hub, std::string address)
      : hub_(std::move(hub)), address_(std::move(address)) {}
  ~InprocListener() override {
    std::shared_ptr<Door> door;
    {
      MutexLock lock(hub_->mutex);
      auto found = hub_->doors.find(address_);
      if (found == hub_->doors.end()) return;
      door = std::move(found->second);
      hub_->doors.erase(found);
    }
    door->Shut(absl::CancelledError(absl::StrCat("the listener at ", address_, " was closed")));
  }
  const std::string& address() const override { return address_; }

 private:
  const std::shared_ptr<Hub> hub_;
  const std::string address_;
};

class InprocTransport final : public Transport {
 public:
  ~InprocTransport() override {
    std::map<std::string, std::shared_ptr<Door>> doors;
    {
      MutexLock lock(hub_->mutex);
      doors.swap(hub_->doors);
    }
    for (auto& [name, door] : doors)
      door->Shut(absl::CancelledError("the in-process transport was closed"));
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Accept accept,
                                                   LinkOptions options) override {
    if (address.empty())
      return absl::InvalidArgumentError("an in-process address is a name that is not empty");
    auto door = std::make_shared<Door>(std::move(accept), options);
    MutexLock lock(hub_->mutex);
    if (!hub_->doors.emplace(address, door).second) {
      return absl::UnavailableError(absl::StrCat("the in-process address ", address, " is in use"));
    }
    return std::make_unique<InprocListener>(hub_, address);
  }

  absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address, LinkEvents events,
                                                std::chrono::milliseconds limit,
                                                LinkOptions options) override {
    std::shared_ptr<Door> door;
    {
      MutexLock lock(hub_->mutex);
      auto found = hub_->doors.find(address);
      if (found != hub_->doors.end()) door = found->second;
    }
    if (door == nullptr) return absl::UnavailableError(absl::StrCat("no listener at ", address));
    return door->Enter(address, std::move(events), options);
  }

 private:
  const std::shared_ptr<Hub> hub_ = std::make_shared<Hub>();
};

}  // namespace

std::unique_ptr<Transport> NewInprocTransport() { return std::make_unique<InprocTransport>(); }

}  // namespace gangway::transport
