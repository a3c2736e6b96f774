// Implementation of handshake.h.
#include "gangway/transport/handshake/handshake.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/base/shown_name.h"
#include "gangway/base/status.h"
#include "gangway/transport/pieces.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::transport {
namespace {

constexpr char kController[] = "controller";  // the role of its certificate
constexpr std::chrono::seconds kHelloLimit{10};
constexpr size_t kSilentMax = 1024;  // links of one listener that have not sent their Hello

// Of the roles that send programs or executables to a listener. Other roles send no pieces: what they send would only
// cost memory.
uint64_t PieceBytesMax(wire::Role role) {
  return role == wire::ROLE_CLIENT || role == wire::ROLE_COMPILER ? kLargeFieldsBytesMax : 0;
}

// Names of the peer's own choice, which logs, tables and errors repeat to others.
void ShowNames(wire::Hello& hello) {
  hello.set_name(ShownName(hello.name()));
  hello.set_build_version(ShownName(hello.build_version()));
  if (!hello.has_worker()) return;
  wire::WorkerRegistration& worker = *hello.mutable_worker();
  worker.set_host(ShownName(worker.host()));
  worker.set_device_kind(ShownName(worker.device_kind()));
}

class Greeter;

// The links of one listener that have not sent their Hello. Thread-safe.
class Lobby {
 public:
  // Returns the link that came first if there are too many; it has left the lobby.
  std::shared_ptr<Greeter> Enter(uint64_t& place, std::weak_ptr<Greeter> greeter) {
    MutexLock lock(mutex_);
    place = next_++;
    silent_.emplace(place, std::move(greeter));
    if (silent_.size() <= kSilentMax) return nullptr;
    return silent_.extract(silent_.begin()).mapped().lock();
  }
  void Leave(uint64_t place) {
    MutexLock lock(mutex_);
    silent_.erase(place);
  }

 private:
  Mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Greeter>> silent_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t next_ GANGWAY_GUARDED_BY(mutex_) = 1;
};

// The pieces that a link's next frame has sent so far, as the process counts them. Not thread-safe.
class PieceRoom {
 public:
  explicit PieceRoom(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}
  ~PieceRoom() { Empty(); }
  PieceRoom(const PieceRoom&) = delete;
  PieceRoom& operator=(const PieceRoom&) = delete;

  // False: there is no room for the frame, neither for this piece nor for those that came before it.
  bool Take(const wire::Piece& piece) {
    if (budget_ == nullptr) return true;
    const uint64_t bytes = piece.data().size();
    fits_ = fits_ && budget_->TryAcquire(MemoryBudget::Kind::kPieces, bytes).ok();
    if (fits_) {
      held_bytes_ += bytes;
    } else {
      Empty();
    }
    return fits_;
  }

  // The frame itself has come: returns whether its pieces are all there.
  bool End() {
    Empty();
    return std::exchange(fits_, true);
  }

 private:
  void Empty() {
    if (held_bytes_ != 0)
      budget_->Release(MemoryBudget::Kind::kPieces, std::exchange(held_bytes_, 0));
  }

  const std::shared_ptr<MemoryBudget> budget_;
  uint64_t held_bytes_ = 0;
  bool fits_ = true;
};

class Greeter : public std::enable_shared_from_this<Greeter> {
 public:
  Greeter(EventLoop* loop, std::shared_ptr<Link> link, std::shared_ptr<Lobby> lobby,
          Admission admission, Welcome welcome)
      : loop_(loop),
        link_(std::move(link)),
        lobby_(std::move(lobby)),
        admission_(std::move(admission)),
        welcome_(std::move(welcome)) {}
  ~Greeter() { lobby_->Leave(place_); }

  LinkEvents Events() {
    auto self = shared_from_this();
    std::weak_ptr<Greeter> weak = self;
    if (auto first = lobby_->Enter(place_, weak)) loop_->Post([first] { first->OnTooMany(); });
    loop_->PostAt(Clock::now() + kHelloLimit, [weak] {
      if (auto greeter = weak.lock()) greeter->OnHelloLimit();
    });
    return {.executor = loop_,
            .on_frame = [self](wire::Frame frame) { self->OnFrame(std::move(frame)); },
            .on_writable =
                [self] {
                  if (self->endpoint_) self->endpoint_->OnWritable();
                },
            .on_closed = [self](const absl::Status& why) { self->OnClosed(why); }};
  }

 private:
  void OnFrame(wire::Frame frame) {
    if (endpoint_) return OnEndpointFrame(std::move(frame));
    if (!link_) return;
    lobby_->Leave(place_);
    absl::Status refused = absl::InvalidArgumentError("the first frame on a link must be a Hello");
    if (frame.has_hello()) {
      ShowNames(*frame.mutable_hello());
      refused = Admit(frame.hello());
      if (refused.ok()) link_->Admit();
      if (refused.ok() && frame.hello().role() == wire::ROLE_PROBE) return AnswerProbe();
      if (refused.ok()) {
        auto endpoint = welcome_(link_, frame.hello());
        refused = endpoint.status();
        if (endpoint.ok()) endpoint_ = *std::move(endpoint);
      }
    }
    if (!refused.ok()) return Refuse(refused);
    piece_bytes_max_ = PieceBytesMax(frame.hello().role());
    joiner_.emplace(piece_bytes_max_);
    room_.emplace(frame.hello().role() == wire::ROLE_CLIENT ? admission_.memory : nullptr);
    endpoint_link_ = link_;
    link_.reset();  // the endpoint owns it now
  }

  void OnEndpointFrame(wire::Frame frame) {
    if (PieceJoiner::Passes(frame)) return endpoint_->OnFrame(std::move(frame));
    if (frame.has_piece() && !room_->Take(frame.piece())) {
      joiner_.emplace(piece_bytes_max_);  // drops those that came
      return;
    }
    if (!frame.has_piece() && !room_->End()) return endpoint_->OnFrame(std::move(frame));
    auto whole = joiner_->Join(std::move(frame));
    if (whole.ok()) {
      if (*whole) endpoint_->OnFrame(**std::move(whole));
      return;
    }
    if (auto link = endpoint_link_.lock()) link->Close(whole.status());
    OnClosed(whole.status());
  }

  absl::Status Admit(const wire::Hello& hello) const {
    GANGWAY_RETURN_IF_ERROR(CheckVersions(hello));
    GANGWAY_RETURN_IF_ERROR(CheckCertificate(link_->peer(), hello));
    if (!admission_.token_needed) return absl::OkStatus();
    return admission_.verifiers.Check(hello.role(), hello.token(), hello.name());
  }

  void AnswerProbe() {
    wire::Frame reply;
    reply.mutable_hello_reply()->set_build_version(wire::kBuildVersion);
    reply.mutable_hello_reply()->set_protocol_version(wire::kProtocolVersion);
    (void)link_->Send(std::move(reply));  // the link closes either way
    link_->Close(absl::CancelledError("the probe was answered"));
    link_.reset();
  }

  void OnHelloLimit() {
    if (!endpoint_ && link_) Refuse(absl::DeadlineExceededError("no Hello came within 10 s"));
  }

  void OnTooMany() {
    if (endpoint_ || !link_) return;
    Refuse(absl::ResourceExhaustedError(
        absl::StrCat("more than ", kSilentMax,
                     " connections have sent no Hello, the limit of one listener: this one, the "
                     "oldest, makes room; connect again, and end the processes that hold them")));
  }

  void Refuse(const absl::Status& why) {
    lobby_->Leave(place_);
    wire::Frame reply;
    *reply.mutable_hello_reply()->mutable_failure() = wire::ToFailure(why);
    reply.mutable_hello_reply()->set_build_version(wire::kBuildVersion);
    reply.mutable_hello_reply()->set_protocol_version(wire::kProtocolVersion);
    (void)link_->Send(std::move(reply));  // the link closes either way
    link_->Close(why);
    link_.reset();
  }

  void OnClosed(const absl::Status& why) {
    lobby_->Leave(place_);
    link_.reset();
    if (auto endpoint = std::move(endpoint_)) endpoint->OnClosed(why);
  }

  EventLoop* const loop_;
  std::shared_ptr<Link> link_;  // until the endpoint owns it or the link ends
  const std::shared_ptr<Lobby> lobby_;
  uint64_t place_ = 0;  // in the lobby; set before the first event
  const Admission admission_;
  const Welcome welcome_;
  std::unique_ptr<Endpoint> endpoint_;
  std::weak_ptr<Link> endpoint_link_;  // the link, once the endpoint owns it
  std::optional<PieceJoiner> joiner_;  // from then on
  std::optional<PieceRoom> room_;      // likewise
  uint64_t piece_bytes_max_ = 0;
};

}  // namespace

absl::Status CheckVersions(const wire::Hello& hello) {
  if (hello.protocol_version() == wire::kProtocolVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(hello.name(), " runs Gangway ", hello.build_version(), " (protocol ",
                   hello.protocol_version(), "), this side runs ", wire::kBuildVersion,
                   " (protocol ", wire::kProtocolVersion, "): install the same version on both."));
}

absl::Status CheckCertificate(const Peer& peer, const wire::Hello& hello) {
  const size_t slash = peer.certificate.find('/');
  if (slash == std::string::npos || hello.role() == wire::ROLE_PROBE) return absl::OkStatus();
  const std::string role = peer.certificate.substr(0, slash);
  wire::Role asked = hello.role();
  if (asked == wire::ROLE_PEER || asked == wire::ROLE_MEMBER) asked = wire::ROLE_WORKER;
  if (asked == wire::ROLE_DATA) asked = wire::ROLE_CLIENT;
  if (role == RoleName(asked)) return absl::OkStatus();
  if (role == kController && asked != wire::ROLE_WORKER && asked != wire::ROLE_SCHEDULER)
    return absl::OkStatus();  // its front door, compiler and tools
  return absl::PermissionDeniedError(
      absl::StrCat(hello.name(), " presented the certificate ", peer.certificate,
                   ", which does not open role ", RoleName(asked),
                   ": make one with `gangway certs DIR --add NAME --role ", RoleName(asked), "`"));
}

Accept Greet(EventLoop* loop, Admission admission, Welcome welcome) {
  return [loop, lobby = std::make_shared<Lobby>(), admission = std::move(admission),
          welcome = std::move(welcome)](std::shared_ptr<Link> link) {
    return std::make_shared<Greeter>(loop, std::move(link), lobby, admission, welcome)->Events();
  };
}

}  // namespace gangway::transport
