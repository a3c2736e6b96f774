// The links of clients, each with a session of its own. A client's welcome waits for the declared workers, but not long
// for some that are missing: its session then starts without their devices and is told their names. Without any worker
// it is rejected at the deadline. A welcomed client gets what a round has for it as one batch, which PacedSender cuts
// where it is large; one that does not read its events loses its session (TM-2).
//
// Threading: everything runs on the given event loop, which outlives this object, as does the core. Destroyed there, or
// after it has stopped. Events are called from Welcome, WelcomeAll, OnWritable, OnClosed and Flush.
#ifndef GANGWAY_CONTROLLER_SERVICE_CLIENT_LINKS_H_
#define GANGWAY_CONTROLLER_SERVICE_CLIENT_LINKS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/controller/core/controller.h"
#include "gangway/controller/core/owner.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class ClientLinks {
 public:
  struct Options {
    uint64_t epoch = 0;
    bool isolates = false;  // ControllerConfig::isolates
    // At a client's Hello, for a worker to be up and, in this time after the start, for all workers.
    std::chrono::milliseconds welcome_max{15000};
    std::chrono::milliseconds absent_max{2000};  // at most that, for workers that were up before
    std::string data_key;                        // makes clients' data tokens
  };
  struct Events {
    std::function<wire::Frame()> reply;  // to a Hello
    std::function<void(SessionOpened opened)> on_opened;
    std::function<void(SessionId session)> on_lost;
    std::function<void(SessionId session)> on_ended;    // after End(): its link is closed
    std::function<void(const std::string& event)> say;  // for people
  };
  struct Frames {
    uint64_t received = 0;  // with operations
    uint64_t sent = 0;      // with events
  };

  ClientLinks(EventLoop* loop, const Controller& core, Options options, Events events);
  ~ClientLinks() { *alive_ = false; }

  // A link of ROLE_CLIENT. Returns its session, which names it in the following calls; they ignore links that are gone.
  SessionId Welcome(const std::shared_ptr<transport::Link>& link, const wire::Hello& hello);
  // Of clients that wait: workers have come or gone, or a deadline has passed.
  void WelcomeAll();
  bool IsWelcome(SessionId session) const;

  // A client asks for a sign of life: it gets its question back.
  void OnBeat(SessionId session, const wire::Heartbeat& beat);
  void OnWritable(SessionId session);
  void OnClosed(SessionId session, const absl::Status& why);
  void NoteReceived() { ++frames_.received; }

  void Add(SessionId session, wire::SessionEvent event);  // sent at the end of this round
  void SendNow(SessionId session, wire::Frame frame);     // ahead of what waits
  // The core has ended the session: its link is closed once it has the reason, at the end of this round.
  void End(SessionId session, absl::Status why);
  void Flush();  // at the end of a round

  bool empty() const { return clients_.empty(); }
  const Frames& frames() const { return frames_; }
  // Adds those that wait for their welcome.
  void Explain(wire::WhyReply& reply) const;

 private:
  struct Client {
    std::shared_ptr<transport::Link> link;
    std::unique_ptr<transport::PacedSender> sender;  // on `link`
    std::string name;
    bool wants_ends = false;
    Owner owner;
    bool welcomed = false;
    Clock::time_point since;
    wire::SessionEvents batch;  // of this round
  };
  // What sessions of one owner may use now.
  struct Seen {
    wire::Topology topology;
    std::string absent;
    bool awaits_replacement = false;  // of what is absent
  };

  Client* FindWelcome(SessionId session);
  Seen See(const Owner& owner) const;
  std::chrono::milliseconds AbsenceMax(Clock::time_point now, const Seen& seen) const;
  std::optional<wire::Failure> Refusal(const Owner& owner, const Seen& seen,
                                       bool waits_no_more) const;
  void Refuse(SessionId session, wire::Failure failure);
  void SendWelcome(SessionId session, Client& client);
  void EndSlow(SessionId session);
  void CloseEnded();

  EventLoop* const loop_;
  const Controller& core_;
  const Options options_;
  const Events events_;
  const Clock::time_point started_ = Clock::now();
  std::map<SessionId, Client> clients_;
  uint64_t next_ = 1;  // without gaps, so that sessions which have ended are few runs of numbers
  std::vector<std::pair<SessionId, absl::Status>> ended_;  // in this round, and why
  Frames frames_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_SERVICE_CLIENT_LINKS_H_
