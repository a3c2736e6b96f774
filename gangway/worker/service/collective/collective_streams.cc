// Implementation of collective_streams.h.
#include "gangway/worker/service/collective/collective_streams.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/transport/bulk/silence.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"
#include "gangway/worker/service/collective/collective_frames.h"

namespace gangway::worker {
namespace {

using collective::Mirror;
using collective::Published;
using collective::ReadUpTo;

// Of streams whose workers the scheduler has not named yet.
constexpr size_t kEarlyMax = collective::kWorkersMax;

std::string NameOf(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

}  // namespace

// The stream that a member has opened to this worker. Frames that the link does not take wait here.
class CollectiveStreams::StreamCourier final : public collective::Courier {
 public:
  StreamCourier(uint64_t id, std::shared_ptr<transport::Link> link, const wire::Hello& hello,
                Incarnation own, std::function<void()> begin)
      : id_(id), hello_(hello), own_(own), begin_(std::move(begin)), link_(std::move(link)) {}

  uint64_t id() const { return id_; }
  uint32_t worker() const { return hello_.worker().index(); }
  uint64_t incarnation() const { return hello_.worker().incarnation(); }

  absl::Status Send(const Published* message, std::span<const ReadUpTo> reads) override {
    wire::Frame frame;
    *frame.mutable_bulk() = ToBulk(message, reads);
    return Post(std::move(frame));
  }

  void SendLeft(std::span<const collective::LeftUpTo> lefts) override {
    wire::Frame frame;
    *frame.mutable_bulk() = ToBulk(lefts);
    Post(std::move(frame)).IgnoreError();  // a broken way is noticed by its end
  }

  void Begin() override { begin_(); }

  absl::Status Post(wire::Frame frame) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (link_ == nullptr) return absl::UnavailableError("the way to a member is broken");
    waiting_.push_back(std::move(frame));
    return Drain();
  }

  absl::Status OnWritable() GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return link_ == nullptr ? absl::OkStatus() : Drain();
  }

  void Close(const absl::Status& why) GANGWAY_EXCLUDES(mutex_) {
    std::shared_ptr<transport::Link> link;
    {
      MutexLock lock(mutex_);
      link = std::exchange(link_, nullptr);
      waiting_.clear();
    }
    if (link != nullptr) link->Close(why);
  }

 private:
  absl::Status Drain() GANGWAY_REQUIRES(mutex_) {
    for (; !waiting_.empty(); waiting_.pop_front()) {
      if (link_->queued_bytes() > link_->writable_bytes())
        return absl::OkStatus();  // OnWritable follows
      wire::Frame frame = std::move(waiting_.front());
      frame.set_incarnation(own_.number());
      frame.set_sequence(++sequence_);
      GANGWAY_RETURN_IF_ERROR(link_->Send(std::move(frame)));
    }
    return absl::OkStatus();
  }

  const uint64_t id_;
  const wire::Hello hello_;
  const Incarnation own_;
  const std::function<void()> begin_;
  Mutex mutex_;
  std::shared_ptr<transport::Link> link_ GANGWAY_GUARDED_BY(mutex_);  // null: closed
  uint64_t sequence_ GANGWAY_GUARDED_BY(mutex_) = 0;
  std::deque<wire::Frame> waiting_ GANGWAY_GUARDED_BY(mutex_);
};

// One attempt to open a stream to a member and, if it succeeds, the stream.
struct CollectiveStreams::Hearing {
  explicit Hearing(Mirror made) : mirror(std::move(made)) {}
  Mirror mirror;  // written on the receiving thread
  std::atomic<bool> is_greeted = false;
  std::atomic<Clock::time_point> heard{Clock::time_point()};  // the last frame
  transport::Silence silence;                                 // what the loop makes of it
  std::shared_ptr<transport::Link> link;                      // null: being opened
  uint64_t sequence = 0;
};

CollectiveStreams::CollectiveStreams(Options options)
    : options_(std::move(options)), dialer_(options_.loop, options_.transport) {}

CollectiveStreams::~CollectiveStreams() {
  *alive_ = false;
  if (own_receiver_ != nullptr) own_receiver_->Stop();
}

void CollectiveStreams::Open(const wire::Worker& worker,
                             const std::shared_ptr<collective::Arena>& own) {
  if (receiver_ == nullptr) {
    own_ = own;
    if (options_.receiver == nullptr) own_receiver_ = std::make_unique<EventLoop>("collectives");
    receiver_ = options_.receiver == nullptr ? own_receiver_.get() : options_.receiver;
  }
  Forget(worker.index());
  Way& way = ways_[worker.index()];
  way.worker = worker;
  way.promise = std::make_shared<PeerPromise>(NameOf(way.worker));
  if (auto early = early_.extract(worker.incarnation()); !early.empty())
    TakeCourier(way, std::move(early.mapped()));
}

void CollectiveStreams::Forget(uint32_t worker) {
  auto way = ways_.extract(worker);
  if (way.empty()) return;
  way.mapped().promise->SetGone();
  CloseBoth(way.mapped(), absl::CancelledError("the member is another process now"));
}

std::shared_ptr<PeerPromise> CollectiveStreams::PromiseOf(uint32_t worker) {
  Way& way = ways_.at(worker);
  if (!way.is_wanted) {
    Want(way);
  } else if (way.promise->has_failed()) {  // it was given up
    way.promise = std::make_shared<PeerPromise>(NameOf(way.worker));
    CloseBoth(way, absl::CancelledError("the way is opened anew"));
    Dial(way);
  }
  return way.promise;
}

void CollectiveStreams::Want(Way& way) {
  if (std::exchange(way.is_wanted, true)) return;
  Dial(way);
}

void CollectiveStreams::Dial(Way& way) {
  const uint32_t worker = way.worker.index();
  if (way.failures == 0) WatchOpening(worker, way.promise);
  auto mirror = Mirror::Create(worker, static_cast<uint32_t>(way.worker.devices_size()));
  if (!mirror.ok()) return GiveUp(way, mirror.status());
  auto hearing = way.hearing = std::make_shared<Hearing>(*std::move(mirror));
  transport::LinkEvents events;
  events.executor = receiver_;
  events.on_frame = [this, worker, hearing](const wire::Frame& frame) {
    OnFrame(worker, hearing, frame);
  };
  events.on_closed = [this, alive = alive_, worker, hearing](const absl::Status& why) {
    options_.loop->Post([this, alive, worker, hearing, why] {
      if (*alive) OnHearingClosed(worker, hearing, why);
    });
  };
  dialer_.Dial({.address = way.worker.data_address(),
                .events = std::move(events),
                .limit = options_.connect_limit,
                .wanted = [this, worker, hearing] { return Find(worker, hearing) != nullptr; },
                .dialed =
                    [this, worker, hearing](absl::StatusOr<std::shared_ptr<transport::Link>> link) {
                      OnDialed(worker, hearing, std::move(link));
                    }});
}

CollectiveStreams::Way* CollectiveStreams::Find(uint32_t worker,
                                                const std::shared_ptr<Hearing>& hearing) {
  auto way = ways_.find(worker);
  return way != ways_.end() && way->second.hearing == hearing ? &way->second : nullptr;
}

void CollectiveStreams::OnDialed(uint32_t worker, const std::shared_ptr<Hearing>& hearing,
                                 absl::StatusOr<std::shared_ptr<transport::Link>> link) {
  Way* const way = Find(worker, hearing);
  if (way == nullptr) {
    if (link.ok()) (*link)->Close(absl::CancelledError("no longer needed"));
    return;
  }
  if (!link.ok()) return Break(*way, link.status());
  hearing->link = *std::move(link);
  hearing->heard = Clock::now();
  SendHello(*hearing);
  OpenIfBoth(*way);  // one that is no worker may have answered already
}

void CollectiveStreams::SendHello(Hearing& hearing) {
  wire::Frame frame;
  wire::Hello& hello = *frame.mutable_hello();
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_build_version(wire::kBuildVersion);
  hello.set_role(wire::ROLE_MEMBER);
  hello.set_token(token_);
  hello.set_name(options_.identity.name);
  hello.set_process_id(ProcessId());
  hello.mutable_worker()->set_island(options_.island);
  hello.mutable_worker()->set_index(options_.index);
  hello.mutable_worker()->set_incarnation(options_.identity.incarnation.number());
  frame.set_sequence(++hearing.sequence);
  hearing.link->Send(std::move(frame)).IgnoreError();  // a closed link tells so itself
}

void CollectiveStreams::OnFrame(uint32_t worker, const std::shared_ptr<Hearing>& hearing,
                                const wire::Frame& frame) {
  hearing->heard.store(Clock::now(), std::memory_order_relaxed);
  absl::Status taken;
  if (frame.has_bulk() && hearing->is_greeted) {
    taken = Take(frame.bulk(), hearing->mirror, *own_, options_.index);
    if (taken.ok()) return;
  } else if (frame.has_hello_reply()) {
    if (frame.hello_reply().has_failure()) taken = wire::ToStatus(frame.hello_reply().failure());
    if (taken.ok()) hearing->is_greeted = true;
  } else {
    return;  // the echo of a heartbeat, or what comes before the greeting
  }
  options_.loop->Post([this, alive = alive_, worker, hearing, taken] {
    if (*alive) OnHeard(worker, hearing, taken);
  });
}

void CollectiveStreams::OnHeard(uint32_t worker, const std::shared_ptr<Hearing>& hearing,
                                const absl::Status& answer) {
  Way* const way = Find(worker, hearing);
  if (way == nullptr) return;
  if (!answer.ok()) return Break(*way, answer);
  OpenIfBoth(*way);
}

void CollectiveStreams::OnHearingClosed(uint32_t worker, const std::shared_ptr<Hearing>& hearing,
                                        const absl::Status& why) {
  if (Way* const way = Find(worker, hearing)) Break(*way, why);
}

void CollectiveStreams::AcceptPeer(uint64_t id, std::shared_ptr<transport::Link> link,
                                   const wire::Hello& hello) {
  auto courier =
      std::make_shared<StreamCourier>(id, std::move(link), hello, options_.identity.incarnation,
                                      [this, alive = alive_, watching = watching_] {
                                        if (watching->exchange(true)) return;
                                        options_.loop->Post([this, alive] {
                                          if (*alive) Watch();
                                        });
                                      });
  auto way = ways_.find(courier->worker());
  const bool known =
      way != ways_.end() && way->second.worker.incarnation() == courier->incarnation();
  // First what was, then the answer: what it sends after the answer belongs to the new way.
  if (known && way->second.courier != nullptr)
    Break(way->second, absl::UnavailableError("it has opened another stream"));
  if (!known && early_.size() >= kEarlyMax) {
    courier->Close(absl::ResourceExhaustedError("too many workers that are not known here"));
    return options_.on_refused(id);
  }
  accepted_[id] = courier;
  wire::Frame reply;
  reply.mutable_hello_reply()->set_build_version(wire::kBuildVersion);
  reply.mutable_hello_reply()->set_protocol_version(wire::kProtocolVersion);
  courier->Post(std::move(reply)).IgnoreError();  // OnPeerClosed follows
  if (known) return TakeCourier(way->second, std::move(courier));
  if (auto before = std::exchange(early_[courier->incarnation()], courier)) {
    before->Close(absl::CancelledError("replaced"));
    accepted_.erase(before->id());
    options_.on_refused(before->id());
  }
}

void CollectiveStreams::TakeCourier(Way& way, std::shared_ptr<StreamCourier> courier) {
  way.courier = std::move(courier);
  options_.couriers->Set(way.worker.index(), way.courier);
  Want(way);
  OpenIfBoth(way);
}

void CollectiveStreams::OpenIfBoth(Way& way) {
  if (way.courier == nullptr || way.hearing == nullptr || way.hearing->link == nullptr ||
      !way.hearing->is_greeted || way.peer != nullptr)
    return;
  way.failures = 0;
  way.why = absl::OkStatus();
  way.peer = std::make_shared<collective::Peer>(NameOf(way.worker), way.worker.index(),
                                                way.hearing->mirror.arena(), way.courier);
  const bool was_given_up = way.promise->has_failed();
  if (was_given_up) way.promise = std::make_shared<PeerPromise>(NameOf(way.worker));
  way.promise->Set(way.peer);
  if (was_given_up) options_.on_broken();
}

void CollectiveStreams::OnPeerFrame(uint64_t id, wire::Frame frame) {
  auto courier = accepted_.find(id);
  if (courier == accepted_.end() || !frame.has_heartbeat()) return;
  wire::Frame echo;
  *echo.mutable_heartbeat() = frame.heartbeat();
  courier->second->Post(std::move(echo)).IgnoreError();
}

void CollectiveStreams::OnPeerWritable(uint64_t id) {
  auto courier = accepted_.find(id);
  if (courier != accepted_.end()) courier->second->OnWritable().IgnoreError();
}

void CollectiveStreams::OnPeerClosed(uint64_t id) {
  auto found = accepted_.extract(id);
  if (found.empty()) return;
  const std::shared_ptr<StreamCourier> courier = std::move(found.mapped());
  courier->Close(absl::CancelledError("closed"));
  std::erase_if(early_, [&courier](const auto& early) { return early.second == courier; });
  auto way = ways_.find(courier->worker());
  if (way != ways_.end() && way->second.courier == courier)
    Break(way->second, absl::UnavailableError("it has closed its stream"));
}

void CollectiveStreams::CloseBoth(Way& way, const absl::Status& why) {
  options_.couriers->Set(way.worker.index(), nullptr);
  if (auto courier = std::exchange(way.courier, nullptr)) {
    courier->Close(why);
    if (accepted_.erase(courier->id()) != 0) options_.on_refused(courier->id());
  }
  // The link's events own the hearing, so that must release the link.
  if (auto hearing = std::exchange(way.hearing, nullptr))
    if (auto link = std::exchange(hearing->link, nullptr)) link->Close(why);
}

absl::Status CollectiveStreams::BrokenStatus(const Way& way, const absl::Status& why) const {
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kDataLoss,
      absl::StrCat("the collectives of ", options_.identity.name, " and ", NameOf(way.worker),
                   " have lost their way: ", std::string(why.message())),
      "See `gangway status`; run the program again.");
  failure.set_worker(NameOf(way.worker));
  failure.set_incarnation(way.worker.incarnation());
  return wire::ToStatus(failure);
}

void CollectiveStreams::Break(Way& way, const absl::Status& why) {
  CloseBoth(way, absl::CancelledError("the other way is broken"));
  const absl::Status status = BrokenStatus(way, why);
  if (auto peer = std::exchange(way.peer, nullptr)) {
    peer->SetGone();
    options_.loop->PostAt(Clock::now() + kReasonMax, [peer, status] { peer->Fail(status); });
    way.promise = std::make_shared<PeerPromise>(NameOf(way.worker));
    options_.on_broken();
  }
  TryAgain(way, status);
}

void CollectiveStreams::TryAgain(Way& way, const absl::Status& why) {
  if (closed_ || way.promise->has_failed()) return;
  if (way.failures == 0) WatchOpening(way.worker.index(), way.promise);
  const auto delay = std::min(kRetryMax, kRetryFirst * (1 << std::min(way.failures++, 10)));
  way.why = why;
  options_.loop->PostAt(Clock::now() + delay,
                        [this, alive = alive_, index = way.worker.index(), promise = way.promise] {
                          if (!*alive) return;
                          auto again = ways_.find(index);
                          if (again == ways_.end() || again->second.promise != promise ||
                              again->second.hearing != nullptr || promise->has_failed())
                            return;
                          Dial(again->second);
                        });
}

void CollectiveStreams::GiveUp(Way& way, const absl::Status& why) {
  way.failures = 0;
  way.promise->Set(why);
  options_.on_broken();
}

void CollectiveStreams::WatchOpening(uint32_t worker, const std::shared_ptr<PeerPromise>& promise) {
  options_.loop->PostAt(Clock::now() + options_.open_max, [this, alive = alive_, worker, promise] {
    if (!*alive) return;
    auto entry = ways_.find(worker);
    if (entry == ways_.end()) return;
    Way& way = entry->second;
    if (way.promise != promise || way.peer != nullptr) return;
    GiveUp(way, !way.why.ok() ? way.why
                              : BrokenStatus(way, absl::UnavailableError(absl::StrCat(
                                                      "it has opened no stream to this worker for ",
                                                      options_.open_max.count(), " ms"))));
  });
}

// While launches with members on other workers are under way; otherwise no timer runs.
void CollectiveStreams::Watch() {
  if (closed_) return;
  const Clock::time_point now = Clock::now();
  // A process that stood still has not read what came, and one that did not watch has not asked.
  const Clock::duration since = now - watched_;
  const Clock::duration stood_still = since > 2 * kBeatInterval ? since : Clock::duration();
  watched_ = now;
  *watching_ = false;  // a launch that begins from now on posts a Watch
  bool is_busy = false;
  std::vector<uint32_t> silent;
  for (auto& [worker, way] : ways_) {
    if (way.peer == nullptr) continue;
    Hearing& hearing = *way.hearing;
    if (!way.peer->is_busy()) {
      hearing.silence.Rest();
      continue;
    }
    is_busy = true;
    hearing.silence.Await(now);
    hearing.silence.Hear(hearing.heard.load());
    hearing.silence.Skip(stood_still, now);
    if (hearing.silence.IsTooLong(now, options_.silence_max)) {
      silent.push_back(worker);
      continue;
    }
    wire::Frame beat;
    beat.mutable_heartbeat()->set_time_ns(static_cast<uint64_t>(now.time_since_epoch().count()));
    beat.set_sequence(++hearing.sequence);
    hearing.link->Send(std::move(beat)).IgnoreError();  // a full queue is seen as silence
  }
  for (uint32_t worker : silent) {
    Break(ways_.at(worker), absl::DeadlineExceededError(absl::StrCat(
                                "it was silent for ", options_.silence_max.count(), " ms")));
  }
  if (!is_busy || watching_->exchange(true)) return;
  options_.loop->PostAt(now + kBeatInterval, [this, alive = alive_] {
    if (*alive) Watch();
  });
}

void CollectiveStreams::Close() {
  closed_ = true;
  for (auto& [worker, way] : ways_) {
    way.promise->SetGone();
    CloseBoth(way, absl::UnavailableError("The worker is shutting down."));
  }
  ways_.clear();
  early_.clear();
  accepted_.clear();
}

}  // namespace gangway::worker
