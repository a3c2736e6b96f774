// Implementation of client_links.h.
#include "gangway/controller/service/client_links.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/trace.h"
#include "gangway/transport/handshake/data_token.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {

ClientLinks::ClientLinks(EventLoop* loop, const Controller& core, Options options, Events events)
    : loop_(loop), core_(core), options_(std::move(options)), events_(std::move(events)) {}

// --- Welcome ---

SessionId ClientLinks::Welcome(const std::shared_ptr<transport::Link>& link,
                               const wire::Hello& hello) {
  const SessionId session(next_++);
  const auto stamp = [epoch = options_.epoch](wire::Frame& frame) { frame.set_epoch(epoch); };
  clients_[session] = {.link = link,
                       .sender = std::make_unique<transport::PacedSender>(
                           link, stamp, transport::PacedSender::Options{}),
                       .name = hello.name(),
                       .wants_ends = hello.wants_ends(),
                       .owner = Owner(link->peer().certificate, session),
                       .since = Clock::now()};
  events_.say(absl::StrCat("session ", session, " opens for ", hello.name()));
  for (const auto wait : {options_.absent_max, options_.welcome_max}) {
    loop_->PostAt(Clock::now() + wait, [this, alive = alive_] {
      if (*alive) WelcomeAll();
    });
  }
  WelcomeAll();
  return session;
}

// How long a client waits for missing workers. A controller that has just started gives them the time to register.
std::chrono::milliseconds ClientLinks::AbsenceMax(Clock::time_point now, const Seen& seen) const {
  const bool is_starting = now - started_ < options_.welcome_max && core_.AwaitsFirstStart();
  if (seen.topology.workers().empty() || is_starting || seen.awaits_replacement)
    return options_.welcome_max;
  return std::min(options_.absent_max, options_.welcome_max);
}

ClientLinks::Seen ClientLinks::See(const Owner& owner) const {
  Seen seen;
  core_.FillTopology(seen.topology, owner);
  seen.absent = core_.AbsentWorkers(owner);
  seen.awaits_replacement = core_.AwaitsReplacement(owner, Clock::now() - options_.welcome_max);
  return seen;
}

// Why a client that sees no worker gets no session. `waits_no_more`: its time is over. Nullopt: it may wait.
std::optional<wire::Failure> ClientLinks::Refusal(const Owner& owner, const Seen& seen,
                                                  bool waits_no_more) const {
  const std::string claimed = core_.ClaimedByOthers(owner);
  if (seen.absent.empty() && claimed.empty()) {
    return wire::MakeFailure(absl::StatusCode::kUnavailable,
                             "all workers of the cluster are being drained",
                             "`gangway drain --undo` takes them back into use.");
  }
  if (!waits_no_more) return std::nullopt;
  const std::string waited = absl::StrCat(options_.welcome_max.count(), " ms");
  if (claimed.empty()) {
    return wire::MakeFailure(
        absl::StatusCode::kUnavailable,
        absl::StrCat("these declared workers have been missing for ", waited, ": ", seen.absent),
        "See `gangway status` and the workers' logs.");
  }
  return wire::MakeFailure(
      absl::StatusCode::kUnavailable,
      absl::StrCat("no worker was free for ", waited,
                   ", since this cluster isolates its sessions: ", "claimed are ", claimed,
                   seen.absent.empty() ? "" : "; missing are ", seen.absent),
      "Start again once one of these sessions has ended, or raise --session-wait.");
}

void ClientLinks::WelcomeAll() {
  std::optional<Seen> of_all;  // unless owners see different workers
  const auto now = Clock::now();
  std::vector<std::pair<SessionId, wire::Failure>> refused;
  for (auto& [session, client] : clients_) {
    if (client.welcomed) continue;
    if (!of_all || options_.isolates) of_all = See(client.owner);
    const Seen& seen = *of_all;
    const bool waits_no_more = now - client.since >= AbsenceMax(now, seen);
    if (seen.topology.workers().empty()) {
      auto failure = Refusal(client.owner, seen, waits_no_more);
      if (failure) refused.emplace_back(session, *std::move(failure));
    } else if (seen.absent.empty()) {
      SendWelcome(session, client);
    } else if (waits_no_more) {
      events_.say(absl::StrCat("session ", session, " starts without ",
                               absl::StrJoin(seen.topology.absent(), ", ")));
      SendWelcome(session, client);
    }
  }
  for (auto& [session, failure] : refused) Refuse(session, std::move(failure));
}

void ClientLinks::Refuse(SessionId session, wire::Failure failure) {
  const auto client = clients_.find(session);
  if (client == clients_.end()) return;
  const absl::Status why = wire::ToStatus(failure);
  wire::Frame frame;
  *frame.mutable_hello_reply()->mutable_failure() = std::move(failure);
  (void)client->second.link->Send(std::move(frame));  // closing either way
  client->second.link->Close(why);
  clients_.erase(client);
  events_.on_lost(session);
}

void ClientLinks::SendWelcome(SessionId session, Client& client) {
  client.welcomed = true;
  NameTrace(TraceNameOf::kSession, session.number(), client.name);
  events_.on_opened({session, client.name, client.wants_ends, client.link->peer().certificate});
  wire::Frame frame = events_.reply();
  wire::HelloReply* reply = frame.mutable_hello_reply();
  reply->set_session(session.number());
  reply->set_data_token(transport::DataToken(options_.data_key, session));
  core_.FillTopology(*reply->mutable_topology(), client.owner);
  reply->set_isolated(options_.isolates);
  (void)client.link->Send(std::move(frame));  // on_closed reports a closed link
}

ClientLinks::Client* ClientLinks::FindWelcome(SessionId session) {
  const auto client = clients_.find(session);
  return client == clients_.end() || !client->second.welcomed ? nullptr : &client->second;
}

bool ClientLinks::IsWelcome(SessionId session) const {
  const auto client = clients_.find(session);
  return client != clients_.end() && client->second.welcomed;
}

// --- What clients are sent ---

void ClientLinks::OnBeat(SessionId session, const wire::Heartbeat& beat) {
  if (!IsWelcome(session)) return;
  wire::Frame frame;
  frame.mutable_heartbeat()->set_time_ns(beat.time_ns());
  SendNow(session, std::move(frame));
}

void ClientLinks::Add(SessionId session, wire::SessionEvent event) {
  const auto client = clients_.find(session);
  if (client != clients_.end()) *client->second.batch.add_events() = std::move(event);
}

void ClientLinks::SendNow(SessionId session, wire::Frame frame) {
  if (Client* const client = FindWelcome(session))
    (void)client->sender->SendNow(std::move(frame));  // on_closed reports a closed link
}

void ClientLinks::Flush() {
  std::vector<SessionId> slow;
  for (auto& [session, client] : clients_) {
    if (client.batch.events().empty()) continue;
    wire::Frame frame;
    frame.mutable_session_events()->Swap(&client.batch);
    ++frames_.sent;
    if (!client.sender->Send(std::move(frame)).ok()) slow.push_back(session);
  }
  for (const SessionId session : slow) EndSlow(session);
  CloseEnded();
}

void ClientLinks::OnWritable(SessionId session) {
  const auto client = clients_.find(session);
  if (client != clients_.end() && !client->second.sender->OnWritable().ok()) EndSlow(session);
}

// --- Ends ---

void ClientLinks::EndSlow(SessionId session) {
  clients_.at(session).link->Close(
      absl::ResourceExhaustedError("the client does not read its events"));
  OnClosed(session, absl::ResourceExhaustedError("it does not read its events"));
}

void ClientLinks::OnClosed(SessionId session, const absl::Status& why) {
  if (clients_.erase(session) == 0) return;
  events_.say(absl::StrCat("session ", session, " ends: ", why.message()));
  events_.on_lost(session);
}

void ClientLinks::End(SessionId session, absl::Status why) {
  ended_.emplace_back(session, std::move(why));
}

// After they have been sent the reason.
void ClientLinks::CloseEnded() {
  for (const auto& [session, why] : std::exchange(ended_, {})) {
    const auto client = clients_.find(session);
    if (client == clients_.end()) continue;
    events_.say(absl::StrCat("session ", session, " is ended: ", why.message()));
    client->second.link->Close(why);
    clients_.erase(client);
    events_.on_ended(session);
  }
}

// --- Questions of tools ---

void ClientLinks::Explain(wire::WhyReply& reply) const {
  for (const auto& [session, client] : clients_) {
    if (client.welcomed) continue;
    wire::Wait& wait = *reply.add_waits();
    wait.set_kind(wire::Wait::KIND_CLIENT);
    wait.set_session(session.number());
    wait.set_program(client.name);
    wait.set_client(client.name);
    wait.set_reason(wire::Wait::REASON_WORKERS_ABSENT);
    wait.add_workers(core_.AbsentWorkers(client.owner));
    if (const std::string claimed = core_.ClaimedByOthers(client.owner); !claimed.empty())
      wait.add_workers(absl::StrCat("claimed by others: ", claimed));
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - client.since);
    wait.set_waited_ms(static_cast<uint64_t>(waited.count()));
    wait.set_limit_ms(static_cast<uint64_t>(options_.welcome_max.count()));
  }
}

}  // namespace gangway::controller
