// Implementation of sim.h.
#include "gangway/transport/sim/sim.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/base/random.h"
#include "gangway/transport/event_queue.h"
#include "gangway/transport/link_set.h"

namespace gangway::transport {
namespace {

constexpr std::chrono::milliseconds kResetDelayMax{2};

absl::Status FromPeer(const absl::Status& reason) {
  return absl::CancelledError(reason.ok() ? "closed by the peer" : reason.message());
}

std::chrono::nanoseconds Below(std::chrono::nanoseconds limit) {
  return std::chrono::nanoseconds(RandomBits() % static_cast<uint64_t>(limit.count() + 1));
}

// One link. Side 0 is the client's, side 1 the server's; lane i carries what side i sends.
class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  Pipe(EventLoop* loop, const SimNetworkOptions& options, const SimNetwork::LinkState& state)
      : loop_(loop),
        options_(options),
        client_(state.client),
        server_(state.server),
        state_(state) {}

  void Open(const LinkOptions& client, const LinkOptions& server) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    lanes_[0].options = client;
    lanes_[1].options = server;
    for (int side : {0, 1}) {
      ends_[side] = std::make_shared<EventQueue>([weak = weak_from_this(), side] {
        if (auto pipe = weak.lock()) pipe->Schedule(1 - side);
      });
    }
  }

  EventQueue& end(int side) const { return *ends_[side]; }
  bool Is(const std::string& process) const { return client_ == process || server_ == process; }
  bool open() const { return ends_[0]->end().ok() || ends_[1]->end().ok(); }

  absl::Status Send(int side, const Peer& peer, wire::Frame frame) GANGWAY_EXCLUDES(mutex_) {
    if (absl::Status end = ends_[side]->end(); !end.ok()) return LinkClosed(peer, end);
    const size_t bytes = frame.ByteSizeLong();
    if (bytes > options_.message_bytes_max)
      return TooLarge(peer, bytes, options_.message_bytes_max);
    {
      MutexLock lock(mutex_);
      Lane& lane = lanes_[side];
      if (lane.cut || lane.last) return LinkClosed(peer, absl::OkStatus());
      if (lane.bytes >= lane.options.queue_bytes_max) {
        lane.above_writable = true;
        return QueueFull(peer, lane.bytes, lane.options.queue_bytes_max);
      }
      if (options_.on_send) options_.on_send(state_, side == 0, frame);
      lane.bytes += bytes;
      if (lane.bytes > lane.options.writable_bytes()) lane.above_writable = true;
      lane.frames.push_back({std::move(frame), bytes, ArrivalOf(lane, bytes)});
      ++(side == 0 ? state_.frames_to_server : state_.frames_to_client);
    }
    Schedule(side);
    return absl::OkStatus();
  }

  // The last thing that side `side` sends.
  void Close(int side, const absl::Status& reason) GANGWAY_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      Lane& lane = lanes_[side];
      if (!lane.cut && !lane.last) {
        lane.last = FromPeer(reason);
        lane.last_arrives = ArrivalOf(lane, 0);
      }
    }
    ends_[side]->Mute();
    Schedule(side);
  }

  size_t frame_bytes_max() const { return options_.message_bytes_max; }
  size_t writable_bytes(int side) const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return lanes_[side].options.writable_bytes();
  }
  size_t queued_bytes(int side) const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return lanes_[side].bytes;
  }

  // Nothing more passes. Each end learns it after a time of its own; `at_once`: now.
  void Cut(const absl::Status& why, bool at_once) GANGWAY_EXCLUDES(mutex_) {
    for (int side : {0, 1}) {
      {
        MutexLock lock(mutex_);
        lanes_[side].cut = true;
        lanes_[side].frames.clear();
        lanes_[side].bytes = 0;
      }
      if (at_once) {
        ends_[side]->Finish(why);
      } else {
        loop_->PostAt(Clock::now() + Below(kResetDelayMax),
                      [self = shared_from_this(), side, why] { self->ends_[side]->Finish(why); });
      }
    }
  }

  void Silence(bool to_server, bool to_client) GANGWAY_EXCLUDES(mutex_) {
    uint64_t silence;
    {
      MutexLock lock(mutex_);
      lanes_[0].silent |= to_server;
      lanes_[1].silent |= to_client;
      silence = ++silences_;
    }
    loop_->PostAt(Clock::now() + options_.silence_max, [self = shared_from_this(), silence] {
      {
        MutexLock lock(self->mutex_);
        if (self->silences_ != silence) return;
      }
      self->Cut(absl::UnavailableError("nothing came from the peer for too long"), false);
    });
  }

  void Restore() GANGWAY_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      ++silences_;
      for (Lane& lane : lanes_) lane.silent = false;
    }
    for (int side : {0, 1}) Schedule(side);
  }

  void Delay(std::chrono::microseconds more) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    more_delay_ += more;
  }

  SimNetwork::LinkState state() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return state_;
  }

 private:
  struct InFlight {
    wire::Frame frame;
    size_t bytes;
    Clock::time_point arrives;
  };
  struct Lane {
    LinkOptions options;
    std::deque<InFlight> frames;
    size_t bytes = 0;  // of `frames`
    bool above_writable = false;
    bool silent = false;
    bool cut = false;
    bool scheduled = false;  // a Deliver is posted
    Clock::time_point arrival{};
    std::optional<absl::Status> last;  // the sender's Close, behind the frames
    Clock::time_point last_arrives{};
  };

  Clock::time_point ArrivalOf(Lane& lane, size_t bytes) GANGWAY_REQUIRES(mutex_) {
    const auto now = Clock::now();
    const std::chrono::nanoseconds transfer(bytes * 1'000'000'000 / options_.bytes_per_second);
    const auto delay =
        options_.delay_min + Below(options_.delay_max - options_.delay_min) + more_delay_;
    lane.arrival = std::max(now + delay, lane.arrival) + transfer;
    return lane.arrival;
  }

  // Delivers what lane `side` has when it is due.
  void Schedule(int side) GANGWAY_EXCLUDES(mutex_) {
    Clock::time_point when;
    {
      MutexLock lock(mutex_);
      Lane& lane = lanes_[side];
      if (lane.scheduled || lane.cut || lane.silent) return;
      if (lane.frames.empty() && !lane.last) return;
      lane.scheduled = true;
      when = lane.frames.empty() ? lane.last_arrives : lane.frames.front().arrives;
    }
    loop_->PostAt(when, [self = shared_from_this(), side] { self->Deliver(side); });
  }

  void Deliver(int side) GANGWAY_EXCLUDES(mutex_) {
    EventQueue& to = *ends_[1 - side];
    // Checked first: below the limit again, it schedules the rest.
    const bool full = to.pending_bytes() >= options_.pending_bytes_max;
    std::optional<InFlight> frame;
    std::optional<absl::Status> last;
    bool writable = false;
    {
      MutexLock lock(mutex_);
      Lane& lane = lanes_[side];
      lane.scheduled = false;
      if (lane.cut || lane.silent) return;
      if (!full && !lane.frames.empty()) {
        frame = std::move(lane.frames.front());
        lane.frames.pop_front();
        lane.bytes -= frame->bytes;
        writable = lane.above_writable && lane.bytes <= lane.options.writable_bytes();
        if (writable) lane.above_writable = false;
      } else if (!full && lane.last) {
        last = lane.last;
        lane.cut = true;
      }
    }
    if (full) return to.NotifyBelow(options_.pending_bytes_max / 2 + 1);
    if (frame) to.Push(std::move(frame->frame), frame->bytes);
    if (last) {
      to.Finish(*last);
      MutexLock lock(mutex_);
      lanes_[1 - side].cut = true;
      lanes_[1 - side].frames.clear();
      lanes_[1 - side].bytes = 0;
    }
    if (writable) ends_[side]->PushWritable();
    Schedule(side);
  }

  EventLoop* const loop_;
  const SimNetworkOptions options_;
  const std::string client_, server_;  // processes
  std::shared_ptr<EventQueue> ends_[2];
  mutable Mutex mutex_;
  Lane lanes_[2] GANGWAY_GUARDED_BY(mutex_);
  uint64_t silences_ GANGWAY_GUARDED_BY(mutex_) = 0;
  std::chrono::microseconds more_delay_ GANGWAY_GUARDED_BY(mutex_){0};
  SimNetwork::LinkState state_ GANGWAY_GUARDED_BY(mutex_);
};

class SimLink final : public Link {
 public:
  SimLink(std::shared_ptr<Pipe> pipe, int side, std::string peer)
      : pipe_(std::move(pipe)), side_(side), peer_{std::move(peer), /*authenticated=*/true} {}
  ~SimLink() override { Close(absl::CancelledError("the peer dropped the link")); }
  absl::Status Send(wire::Frame frame) override {
    return pipe_->Send(side_, peer_, std::move(frame));
  }
  size_t queued_bytes() const override { return pipe_->queued_bytes(side_); }
  size_t writable_bytes() const override { return pipe_->writable_bytes(side_); }
  size_t frame_bytes_max() const override { return pipe_->frame_bytes_max(); }
  void Close(const absl::Status& reason) override { pipe_->Close(side_, reason); }
  const Peer& peer() const override { return peer_; }

 private:
  const std::shared_ptr<Pipe> pipe_;
  const int side_;
  const Peer peer_;
};

// One listening address. Its Accept does not run after Shut.
struct Door {
  std::string process;
  LinkOptions options;
  Mutex entering;
  Accept accept GANGWAY_GUARDED_BY(entering);
  std::vector<std::weak_ptr<Pipe>> pipes GANGWAY_GUARDED_BY(entering);

  void Shut(const std::string& address) GANGWAY_EXCLUDES(entering) {
    std::vector<std::weak_ptr<Pipe>> accepted;
    {
      MutexLock lock(entering);
      accept = nullptr;
      accepted.swap(pipes);
    }
    for (const auto& weak : accepted) {
      if (auto pipe = weak.lock())
        pipe->Cut(absl::CancelledError(absl::StrCat("the listener at ", address, " was closed")),
                  /*at_once=*/true);
    }
  }
};

}  // namespace

class SimNetwork::Impl {
 public:
  explicit Impl(const SimNetworkOptions& options) : options_(options) {}

  absl::StatusOr<std::string> Listen(const std::string& process, std::string address,
                                     std::shared_ptr<Door> door) GANGWAY_EXCLUDES(mutex_) {
    if (address.empty()) return absl::InvalidArgumentError("an address is a name, not empty");
    MutexLock lock(mutex_);
    if (killed_.contains(process)) return absl::UnavailableError("the process was killed");
    if (absl::EndsWith(address, ":0"))
      address.replace(address.size() - 1, 1, absl::StrCat(next_port_++));
    if (!doors_.emplace(address, std::move(door)).second)
      return absl::UnavailableError(absl::StrCat("the address ", address, " is in use"));
    return address;
  }

  void Unlisten(const std::string& address) GANGWAY_EXCLUDES(mutex_) {
    std::shared_ptr<Door> door;
    {
      MutexLock lock(mutex_);
      auto found = doors_.extract(address);
      if (found.empty()) return;
      door = std::move(found.mapped());
    }
    door->Shut(address);
  }

  absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& process,
                                                const std::string& address, LinkEvents events,
                                                std::chrono::milliseconds limit,
                                                LinkOptions options) {
    struct Attempt {
      Mutex entering;
      bool given_up GANGWAY_GUARDED_BY(entering) = false;  // the caller's events may be gone
      Answer<absl::StatusOr<std::shared_ptr<Link>>> answer;
    };
    auto attempt = std::make_shared<Attempt>();
    loop_.PostAt(Clock::now() + options_.delay_min + Below(options_.delay_max),
                 [this, attempt, process, address, events = std::move(events), options]() mutable {
                   MutexLock lock(attempt->entering);
                   if (attempt->given_up) return;
                   if (auto result = Enter(process, address, std::move(events), options))
                     attempt->answer.Set(*std::move(result));
                 });
    auto result = attempt->answer.WaitFor(limit);
    if (!result) {
      MutexLock lock(attempt->entering);
      attempt->given_up = true;
      result = attempt->answer.WaitFor({});  // it may have come just now
    }
    return result.value_or(absl::UnavailableError(
        absl::StrCat(address, " did not answer within ", limit.count(), " ms")));
  }

  std::vector<LinkState> Links() const GANGWAY_EXCLUDES(mutex_) {
    std::vector<LinkState> links;
    MutexLock lock(mutex_);
    for (const auto& [id, weak] : pipes_) {
      if (auto pipe = weak.lock(); pipe != nullptr && pipe->open()) links.push_back(pipe->state());
    }
    return links;
  }

  std::shared_ptr<Pipe> Find(uint64_t link) const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    auto found = pipes_.find(link);
    return found == pipes_.end() ? nullptr : found->second.lock();
  }

  void Leave(const std::string& process, bool killed) GANGWAY_EXCLUDES(mutex_) {
    std::vector<std::shared_ptr<Pipe>> pipes;
    std::vector<std::pair<std::string, std::shared_ptr<Door>>> doors;
    {
      MutexLock lock(mutex_);
      if (killed) killed_.insert(process);
      for (const auto& [id, weak] : pipes_) {
        if (auto pipe = weak.lock(); pipe != nullptr && pipe->Is(process))
          pipes.push_back(std::move(pipe));
      }
      std::erase_if(doors_, [&](auto& entry) {
        if (entry.second->process != process) return false;
        doors.emplace_back(entry.first, std::move(entry.second));
        return true;
      });
    }
    for (const auto& pipe : pipes)
      pipe->Cut(absl::UnavailableError("connection reset by peer"), !killed);
    for (auto& [address, door] : doors) door->Shut(address);
  }

  void Shield(const std::string& process, bool unreachable) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (unreachable) {
      unreachable_.insert(process);
    } else {
      unreachable_.erase(process);
    }
  }

  void Stop() { loop_.Stop(); }

 private:
  // On the loop. Null: the attempt gets no answer, so it ends at its limit.
  std::optional<absl::StatusOr<std::shared_ptr<Link>>> Enter(const std::string& process,
                                                             const std::string& address,
                                                             LinkEvents events,
                                                             LinkOptions options) {
    std::shared_ptr<Door> door;
    std::shared_ptr<Pipe> pipe;
    {
      MutexLock lock(mutex_);
      if (killed_.contains(process)) return std::nullopt;
      auto found = doors_.find(address);
      if (found == doors_.end())
        return absl::UnavailableError(absl::StrCat("no listener at ", address));
      door = found->second;
      if (unreachable_.contains(door->process)) return std::nullopt;
      std::erase_if(pipes_, [](const auto& entry) { return entry.second.expired(); });
      const uint64_t id = next_link_++;
      pipe = std::make_shared<Pipe>(
          &loop_, options_,
          LinkState{.id = id, .client = process, .server = door->process, .address = address});
      pipes_.emplace(id, pipe);
    }
    pipe->Open(options, door->options);
    auto link = std::make_shared<SimLink>(pipe, 0, address);
    pipe->end(0).Start(std::move(events));
    MutexLock lock(door->entering);
    if (door->accept == nullptr)
      return absl::UnavailableError(absl::StrCat("the listener at ", address, " was closed"));
    std::erase_if(door->pipes, [](const auto& weak) { return weak.expired(); });
    door->pipes.push_back(pipe);
    pipe->end(1).Start(door->accept(std::make_shared<SimLink>(pipe, 1, process)));
    return link;
  }

  const SimNetworkOptions options_;
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<Door>> doors_ GANGWAY_GUARDED_BY(mutex_);
  std::map<uint64_t, std::weak_ptr<Pipe>> pipes_ GANGWAY_GUARDED_BY(mutex_);
  std::set<std::string> killed_ GANGWAY_GUARDED_BY(mutex_);
  std::set<std::string> unreachable_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t next_link_ GANGWAY_GUARDED_BY(mutex_) = 1;
  int next_port_ GANGWAY_GUARDED_BY(mutex_) = 1;
  EventLoop loop_{"sim-network"};
};

class SimNetwork::ProcessTransport final : public Transport {
 public:
  ProcessTransport(std::shared_ptr<Impl> network, std::string process)
      : network_(std::move(network)), process_(std::move(process)) {}
  ~ProcessTransport() override { network_->Leave(process_, /*killed=*/false); }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Accept accept,
                                                   LinkOptions options) override {
    auto door = std::make_shared<Door>();
    door->process = process_;
    door->options = options;
    {
      MutexLock lock(door->entering);
      door->accept = std::move(accept);
    }
    absl::StatusOr<std::string> bound = network_->Listen(process_, address, std::move(door));
    if (!bound.ok()) return bound.status();
    return std::make_unique<SimListener>(network_, *std::move(bound));
  }

  absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address, LinkEvents events,
                                                std::chrono::milliseconds limit,
                                                LinkOptions options) override {
    return network_->Connect(process_, address, std::move(events), limit, options);
  }

 private:
  class SimListener final : public Listener {
   public:
    SimListener(std::shared_ptr<Impl> network, std::string address)
        : network_(std::move(network)), address_(std::move(address)) {}
    ~SimListener() override { network_->Unlisten(address_); }
    const std::string& address() const override { return address_; }

   private:
    const std::shared_ptr<Impl> network_;
    const std::string address_;
  };

  const std::shared_ptr<Impl> network_;
  const std::string process_;
};

SimNetwork::SimNetwork(const SimNetworkOptions& options) : impl_(std::make_shared<Impl>(options)) {}
SimNetwork::~SimNetwork() { impl_->Stop(); }

std::unique_ptr<Transport> SimNetwork::Join(const std::string& process) {
  return std::make_unique<ProcessTransport>(impl_, process);
}

std::vector<SimNetwork::LinkState> SimNetwork::Links() const { return impl_->Links(); }

void SimNetwork::Reset(uint64_t link) {
  if (auto pipe = impl_->Find(link))
    pipe->Cut(absl::UnavailableError("connection reset by peer"), /*at_once=*/false);
}

void SimNetwork::ResetOneEnd(uint64_t link, bool client) {
  auto pipe = impl_->Find(link);
  if (pipe == nullptr) return;
  pipe->Silence(true, true);
  pipe->end(client ? 0 : 1).Finish(absl::UnavailableError("connection reset by peer"));
}

void SimNetwork::Silence(uint64_t link, bool to_server, bool to_client) {
  if (auto pipe = impl_->Find(link)) pipe->Silence(to_server, to_client);
}

void SimNetwork::Restore(uint64_t link) {
  if (auto pipe = impl_->Find(link)) pipe->Restore();
}

void SimNetwork::Delay(uint64_t link, std::chrono::microseconds more) {
  if (auto pipe = impl_->Find(link)) pipe->Delay(more);
}

void SimNetwork::Kill(const std::string& process) { impl_->Leave(process, /*killed=*/true); }

void SimNetwork::Shield(const std::string& process, bool unreachable) {
  impl_->Shield(process, unreachable);
}

}  // namespace gangway::transport
