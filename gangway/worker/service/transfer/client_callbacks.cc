// Implementation of client_callbacks.h.
#include "gangway/worker/service/transfer/client_callbacks.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"

namespace gangway::worker {

ClientCallbacks::ClientCallbacks(EventLoop* loop, Events events,
                                 std::chrono::milliseconds stream_wait_max)
    : loop_(loop), events_(std::move(events)), stream_wait_max_(stream_wait_max) {}

void ClientCallbacks::Attach(ClientStream& stream) {
  Session& session = sessions_[stream.session()];
  session.open.emplace(stream);
  SendWaiting(session);
}

void ClientCallbacks::Detach(SessionId session) {
  if (auto entry = sessions_.find(session); entry != sessions_.end()) entry->second.open.reset();
}

void ClientCallbacks::Send(SessionId session_id, wire::HostCallback callback) {
  Session& session = sessions_[session_id];
  wire::Frame frame;
  *frame.mutable_host_callback() = std::move(callback);
  for (wire::Frame& part : transport::CutPieces(std::move(frame)))
    session.waiting.push_back(std::move(part));
  if (session.open) return SendWaiting(session);
  AwaitStream(session_id);
}

void ClientCallbacks::SendWaiting(Session& session) {
  session.open->called |= !session.waiting.empty();
  for (wire::Frame& frame : std::exchange(session.waiting, {}))
    session.open->stream->Answer(std::move(frame));
}

void ClientCallbacks::AwaitStream(SessionId session_id) {
  const uint64_t wait = ++sessions_[session_id].waits;
  loop_->PostAt(Clock::now() + stream_wait_max_, [this, session_id, wait] {
    auto entry = sessions_.find(session_id);
    if (entry == sessions_.end() || entry->second.waits != wait || entry->second.open) return;
    Lose(session_id,
         absl::UnavailableError(absl::StrCat(
             "The client has had no data stream to this worker for ",
             stream_wait_max_ / std::chrono::seconds(1), " s, and a host callback needs one.")));
  });
}

absl::Status ClientCallbacks::OnReply(SessionId session, wire::Frame frame) {
  auto entry = sessions_.find(session);
  if (entry == sessions_.end() || !entry->second.open || !entry->second.open->called)
    return absl::InvalidArgumentError("A reply came without a host callback.");
  auto whole = entry->second.open->joiner.Join(std::move(frame));
  if (!whole.ok()) return whole.status();
  if (*whole) events_.on_reply(session, std::move(*(*whole)->mutable_host_callback_reply()));
  return absl::OkStatus();
}

void ClientCallbacks::Lose(SessionId session, const absl::Status& why) {
  if (auto entry = sessions_.find(session); entry != sessions_.end()) entry->second.waiting.clear();
  if (events_.on_lost) events_.on_lost(session, why);
}

void ClientCallbacks::EndSession(SessionId session, const absl::Status& why) {
  if (!sessions_.contains(session)) return;
  Lose(session, why);
  sessions_.erase(session);
}

}  // namespace gangway::worker
