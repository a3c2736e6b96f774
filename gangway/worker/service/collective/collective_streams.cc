// Implementation of collective_streams.h.
#include "gangway/worker/service/collective/collective_streams.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/wire/failure.h"
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
      : id_(id),
        hello_(hello),
        begin_(std::move(begin)),
        link_(std::move(link), {.incarnation = own}),
        sender_(link_.sender()) {}

  uint64_t id() const { return id_; }
  uint32_t worker() const { return hello_.worker().index(); }
  uint64_t incarnation() const { return hello_.worker().incarnation(); }
  transport::BulkLink& link() { return link_; }  // on the loop

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
    if (is_closed_) return absl::UnavailableError("the way to a member is broken");
    waiting_.push_back(std::move(frame));
    return Drain();
  }

  absl::Status OnWritable() GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return is_closed_ ? absl::OkStatus() : Drain();
  }

  void Close(const absl::Status& why) GANGWAY_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      is_closed_ = true;
      waiting_.clear();
    }
    link_.Close(why);
  }

 private:
  absl::Status Drain() GANGWAY_REQUIRES(mutex_) {
    for (; !waiting_.empty(); waiting_.pop_front()) {
      if (sender_->is_full()) return absl::OkStatus();  // OnWritable follows
      GANGWAY_RETURN_IF_ERROR(sender_->Send(std::move(waiting_.front())));
    }
    return absl::OkStatus();
  }

  const uint64_t id_;
  const wire::Hello hello_;
  const std::function<void()> begin_;
  transport::BulkLink link_;  // used on the loop
  const std::shared_ptr<transport::FrameSender> sender_;
  Mutex mutex_;
  bool is_closed_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::deque<wire::Frame> waiting_ GANGWAY_GUARDED_BY(mutex_);
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
  way.pending = std::make_shared<PendingPeer>(NameOf(way.worker));
  if (auto early = early_.extract(worker.incarnation()); !early.empty())
    TakeCourier(way, std::move(early.mapped()));
}

void CollectiveStreams::Forget(uint32_t worker) {
  auto way = ways_.extract(worker);
  if (way.empty()) return;
  way.mapped().pending->SetGone();
  CloseBoth(way.mapped(), absl::CancelledError("the member is another process now"));
}

std::shared_ptr<PendingPeer> CollectiveStreams::PendingPeerOf(uint32_t worker) {
  Way& way = ways_.at(worker);
  if (way.link == nullptr) {
    Want(way);
  } else if (way.pending->has_failed()) {  // it was given up
    RenewPending(way);
    CloseBoth(way, absl::CancelledError("the way is opened anew"));
    Dial(way);
  }
  return way.pending;
}

void CollectiveStreams::Want(Way& way) {
  if (way.link != nullptr) return;
  way.link = LinkTo(way.worker);
  WatchOpening(way.worker.index(), way.pending);
  Dial(way);
}

std::shared_ptr<transport::BulkLink> CollectiveStreams::LinkTo(const wire::Worker& worker) {
  transport::BulkLink::Options options;
  options.loop = options_.loop;
  options.receiver = receiver_;
  options.dialer = &dialer_;
  options.address = worker.data_address();
  options.stamp.incarnation = Incarnation(worker.incarnation());
  // The way is there: without it, its link is closed and has no events.
  transport::BulkLink::Events events;
  events.on_open = [this, index = worker.index()](const wire::HelloReply&) {
    OpenIfBoth(ways_.at(index));
  };
  events.on_lost = [this, index = worker.index()](const absl::Status& why,
                                                  transport::BulkLink::State) {
    Break(ways_.at(index), why);
  };
  events.on_redial = [this, index = worker.index()] { Redial(ways_.at(index)); };
  return std::make_shared<transport::BulkLink>(std::move(options), std::move(events));
}

void CollectiveStreams::Dial(Way& way) {
  auto mirror =
      Mirror::Create(way.worker.index(), static_cast<uint32_t>(way.worker.devices_size()));
  if (!mirror.ok()) return GiveUp(way, mirror.status());
  way.mirror = std::make_shared<Mirror>(*std::move(mirror));
  wire::Hello hello;
  hello.set_role(wire::ROLE_MEMBER);
  hello.set_token(token_);
  hello.set_name(options_.identity.name);
  hello.mutable_worker()->set_island(options_.island);
  hello.mutable_worker()->set_index(options_.index);
  hello.mutable_worker()->set_incarnation(options_.identity.incarnation.number());
  way.link->Dial(std::move(hello), [mirror = way.mirror, own = own_,
                                    index = options_.index](const wire::Frame& frame) {
    if (!frame.has_bulk()) return absl::OkStatus();  // a reply, which is a sign of life
    return Take(frame.bulk(), *mirror, *own, index);
  });
}

void CollectiveStreams::Redial(Way& way) {
  if (!way.pending->has_failed()) Dial(way);
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
    courier->link().Refuse(
        absl::ResourceExhaustedError("too many workers that are not known here"));
    return options_.on_refused(id);
  }
  accepted_[id] = courier;
  courier->link().Answer();
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
  if (way.courier == nullptr || !way.link->is_open() || way.peer != nullptr) return;
  way.link->Settle();
  way.why = absl::OkStatus();
  way.peer = std::make_shared<collective::Peer>(NameOf(way.worker), way.worker.index(),
                                                way.mirror->arena(), way.courier);
  const bool was_given_up = way.pending->has_failed();
  if (was_given_up) way.pending = std::make_shared<PendingPeer>(NameOf(way.worker));
  way.pending->Set(way.peer);
  if (was_given_up) options_.on_broken();
}

void CollectiveStreams::OnPeerFrame(uint64_t id, wire::Frame frame) {
  auto courier = accepted_.find(id);
  if (courier == accepted_.end() || !frame.has_heartbeat()) return;
  courier->second->Post(transport::BulkLink::ReplyTo(frame)).IgnoreError();
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
  if (way.link != nullptr) way.link->Close(why);
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
    RenewPending(way);
    options_.on_broken();
  }
  if (way.pending->has_failed()) return;
  way.why = status;
  way.link->Redial();
}

void CollectiveStreams::RenewPending(Way& way) {
  way.pending = std::make_shared<PendingPeer>(NameOf(way.worker));
  WatchOpening(way.worker.index(), way.pending);
}

void CollectiveStreams::GiveUp(Way& way, const absl::Status& why) {
  way.link->Settle();
  way.pending->Set(why);
  options_.on_broken();
}

void CollectiveStreams::WatchOpening(uint32_t worker, const std::shared_ptr<PendingPeer>& pending) {
  options_.loop->PostAt(Clock::now() + options_.open_max, [this, alive = alive_, worker, pending] {
    if (!*alive) return;
    auto entry = ways_.find(worker);
    if (entry == ways_.end()) return;
    Way& way = entry->second;
    if (way.pending != pending || way.peer != nullptr) return;
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
  const Clock::duration stood_still = looks_.StoodStill(now, transport::BulkLink::kAskInterval);
  *watching_ = false;  // a launch that begins from now on posts a Watch
  bool is_busy = false;
  std::vector<uint32_t> silent;
  for (auto& [worker, way] : ways_) {
    if (way.peer == nullptr) continue;
    if (!way.peer->is_busy()) {
      way.link->Rest();
      continue;
    }
    is_busy = true;
    way.link->Await(now);
    way.link->Skip(stood_still, now);
    if (way.link->IsSilent(now, options_.silence_max)) {
      silent.push_back(worker);
    } else {
      way.link->Ask();
    }
  }
  for (uint32_t worker : silent) {
    Break(ways_.at(worker), absl::DeadlineExceededError(absl::StrCat(
                                "it was silent for ", options_.silence_max.count(), " ms")));
  }
  if (!is_busy || watching_->exchange(true)) return;
  options_.loop->PostAt(now + transport::BulkLink::kAskInterval, [this, alive = alive_] {
    if (*alive) Watch();
  });
}

void CollectiveStreams::Close() {
  closed_ = true;
  for (auto& [worker, way] : ways_) {
    way.pending->SetGone();
    CloseBoth(way, absl::UnavailableError("The worker is shutting down."));
  }
  ways_.clear();
  early_.clear();
  accepted_.clear();
}

}  // namespace gangway::worker
