// The part of controller_service.h that sends: what a round has for each link, at its end.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/controller/service/controller_service.h"

namespace gangway::controller {

void ControllerService::Flush() {
  schedulers_.Exchange();
  schedulers_.Flush();
  std::vector<SessionId> slow;
  for (auto& [session, client] : clients_) {
    if (client.batch.events().empty()) continue;
    wire::Frame frame;
    frame.mutable_session_events()->Swap(&client.batch);
    ++frames_sent_;
    if (!client.sender->Send(std::move(frame)).ok()) slow.push_back(session);
  }
  for (SessionId session : slow) EndSlowClient(session);
  CloseEnded();
  if (schedulers_.has_items()) loop_->Post([] {});  // of a session that ended here: another round
}

// A client that does not read ends its session (TM-2).
void ControllerService::EndSlowClient(SessionId session) {
  clients_[session].link->Close(
      absl::ResourceExhaustedError("the client does not read its events"));
  OnClosed(wire::ROLE_CLIENT, session.number(),
           absl::ResourceExhaustedError("it does not read its events"));
}

std::unique_ptr<transport::PacedSender> ControllerService::NewSender(
    const std::shared_ptr<transport::Link>& link, const transport::PacedSender::Options& options) {
  return std::make_unique<transport::PacedSender>(
      link, [this](wire::Frame& frame) { frame.set_epoch(options_.core.epoch); }, options);
}

void ControllerService::OnWritable(wire::Role role, uint64_t key) {
  if (role == wire::ROLE_CLIENT) {
    auto it = clients_.find(SessionId(key));
    if (it != clients_.end() && !it->second.sender->OnWritable().ok())
      EndSlowClient(SessionId(key));
  } else if (role == wire::ROLE_SCHEDULER) {
    schedulers_.OnWritable(key);
  } else if (CompilerLink* const compiler =
                 role == wire::ROLE_COMPILER ? FindCompiler(key) : nullptr) {
    const absl::Status sent = compiler->sender->OnWritable();
    if (!sent.ok())
      EndCompiler({.compiler = static_cast<uint32_t>(compiler - compilers_.data()),
                   .why = std::string(sent.message())});
  }
}

// After Flush() has sent them the reason.
void ControllerService::CloseEnded() {
  for (const auto& [session, why] : std::exchange(ended_, {})) {
    auto it = clients_.find(session);
    if (it == clients_.end()) continue;
    Say(absl::StrCat("session ", session, " is ended: ", why.message()));
    it->second.link->Close(why);
    clients_.erase(it);
    held_programs_.EndSession(session);
  }
}

}  // namespace gangway::controller
