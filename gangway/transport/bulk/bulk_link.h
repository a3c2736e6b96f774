// BulkLink: the life of one end of a bulk link, between a client and a worker or between two workers. The end that
// dials connects, sends a Hello, and is open once the other end has answered; after a loss it dials again at growing
// intervals, if its owner wants that. The end that was dialed answers the Hello or refuses it. On both, frames are
// stamped and numbered (frame_sender.h), and a peer of which something is awaited may not be silent for too long. What
// crosses on the link, and what its loss means for it, is the owner's.
//
//     dials:     kDown -Dial-> kDialing -connected, Hello sent-> kGreeting -answer-> kOpen
//     dialed:                                                   kGreeting -Answer-> kOpen
//
// Close, a refusal, an error of `take` and the end of the connection lead to kDown from any state. Then the connection
// counts for nothing: what comes of it later is dropped.
//
// Threading: belongs to one event loop. A receiver of its own may take the frames, so that the loop's work does not
// delay them; an error of it reaches the loop. What sender() points to is for any thread. Made by std::make_shared
// where it dials.
//
// Failure: `on_lost` is the last event of a connection, and does not follow a Close by the owner. A Hello that is
// answered with a failure loses the link with that failure.
#ifndef GANGWAY_TRANSPORT_BULK_BULK_LINK_H_
#define GANGWAY_TRANSPORT_BULK_BULK_LINK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/transport/bulk/frame_sender.h"
#include "gangway/transport/bulk/silence.h"
#include "gangway/transport/dialer.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

class BulkLink : public std::enable_shared_from_this<BulkLink> {
 public:
  static constexpr std::chrono::milliseconds kRedialFirst{20};  // doubled with each failure
  static constexpr std::chrono::milliseconds kRedialMax{1000};
  // At which an owner that awaits something asks its peer, and looks whether it is silent.
  static constexpr std::chrono::milliseconds kAskInterval{1000};

  enum class State : uint8_t { kDown, kDialing, kGreeting, kOpen };

  // Takes a frame that came after the answer, in order, on the receiver. An error loses the link.
  using Take = std::function<absl::Status(wire::Frame frame)>;

  struct Options {
    EventLoop* loop = nullptr;     // outlives this
    Executor* receiver = nullptr;  // of frames; outlives the connections; null: the loop
    Dialer* dialer = nullptr;      // of the loop; outlives this
    std::string address;
    std::chrono::milliseconds connect_limit{5000};
    LinkOptions link;
    size_t piece_fields_max = 0;  // of frames that come in pieces (pieces.h); 0: none does
    FrameSender::Stamp stamp;
  };
  // On the loop.
  struct Events {
    std::function<void(const wire::HelloReply& answer)> on_open;
    std::function<void()> on_writable;  // may be empty
    // `was`: the state until then. The link is down, and may be dialed again.
    std::function<void(const absl::Status& why, State was)> on_lost;
    std::function<void()> on_redial;  // it is time to Dial; may be empty without Redial
  };

  BulkLink(Options options, Events events);                               // dials
  BulkLink(std::shared_ptr<Link> link, const FrameSender::Stamp& stamp);  // was dialed
  ~BulkLink();
  BulkLink(const BulkLink&) = delete;
  BulkLink& operator=(const BulkLink&) = delete;

  State state() const { return state_; }
  bool is_open() const { return state_ == State::kOpen; }
  // Null: there is no connection. Of the end that was dialed, the same until Close.
  std::shared_ptr<FrameSender> sender() const { return sender_; }
  // The errors of FrameSender::Send; UNAVAILABLE without a connection.
  [[nodiscard]] absl::Status Send(wire::Frame frame);

  // Connects and says `hello`, to which the versions and this process are added. Gives up what was there before.
  void Dial(wire::Hello hello, Take take);
  // Calls on_redial after an interval that grows with each call since Settle, unless Dial or Close come first.
  void Redial();
  // The link has served its purpose: the next interval is the first one.
  void Settle() { failures_ = 0; }
  // The Hellos sent so far. Where there are several, the peer may have acted on an earlier connection.
  int hellos() const { return hellos_; }
  // For how long the end that dials has wanted an open link in vain; 0: it has one, or has not dialed.
  Clock::duration DownFor(Clock::time_point now) const;

  // To a Hello; the versions are added. The end of a closed link is reported by the transport.
  void Answer(wire::HelloReply answer = {});
  // Says why, as the answer to a Hello or at any time after it, and closes.
  void Refuse(const absl::Status& why);
  // The reply to a question, which the peer awaits behind all that was sent before.
  static wire::Frame ReplyTo(const wire::Frame& question);

  void Close(const absl::Status& why);
  // Closes, and on_lost follows, as if the connection had ended.
  void Lose(const absl::Status& why);

  // Silence (silence.h). The end that dials awaits the answer to its Hello, and hears each frame; the owner of the
  // other one reports them.
  void Hear(Clock::time_point now) { silence_.Hear(now); }
  void Await(Clock::time_point now) { silence_.Await(now); }
  void Rest() { silence_.Rest(); }
  void Skip(Clock::duration stood_still, Clock::time_point now);
  // Nothing has come for `limit` of what is awaited, and (at the end that dials, whose questions wait behind its own
  // frames) nothing of what is queued has left.
  bool IsSilent(Clock::time_point now, Clock::duration limit);
  // Sends a question, to which the peer replies with its number. Absent: the link takes no more for now.
  std::optional<uint64_t> Ask();

 private:
  struct Connection;
  using ConnectionPtr = std::shared_ptr<Connection>;

  LinkEvents EventsOf(const ConnectionPtr& connection) const;
  static void OnFrame(const ConnectionPtr& connection, wire::Frame frame);
  template <typename Task>
  static void OnLoop(const ConnectionPtr& connection, Task task);
  void OnDialed(const absl::StatusOr<std::shared_ptr<Link>>& link);
  void OnAnswer(wire::HelloReply answer);
  void Open();
  void NoteHeard();
  void NoteProgress(Clock::time_point now);

  const Options options_;
  const Events events_;
  State state_ = State::kDown;
  ConnectionPtr connection_;  // of the end that dials; null: kDown
  std::shared_ptr<FrameSender> sender_;
  uint64_t attempt_ = 0;  // counts Dial and Close
  int failures_ = 0;      // calls of Redial since Settle
  int hellos_ = 0;
  std::optional<Clock::time_point> down_since_;
  uint64_t questions_ = 0;
  Silence greeting_;   // until the answer to the Hello
  Silence silence_;    // then, of what the owner awaits
  size_t queued_ = 0;  // at the last look
  uint64_t gone_ = 0;  // bytes that had left the queue by then
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_BULK_LINK_H_
