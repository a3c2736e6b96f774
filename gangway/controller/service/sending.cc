// The part of controller_service.h that sends: batches at the end of each round, and the executables that they load.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/controller/service/controller_service.h"

namespace gangway::controller {

void ControllerService::Flush() {
  Exchange();
  for (IslandLink& island : islands_) {
    if (island.batch.items().empty() || !island.link) continue;
    wire::Frame frame;
    frame.mutable_island_batch()->Swap(&island.batch);
    AfterSend(island, island.sender->Send(std::move(frame), [this](const wire::Load& load) {
      return ProgramOf(load);
    }));
  }
  std::vector<SessionId> slow;
  for (auto& [session, client] : clients_) {
    if (client.batch.events().empty()) continue;
    wire::Frame frame;
    frame.mutable_session_events()->Swap(&client.batch);
    ++frames_sent_;
    if (!client.sender->Send(std::move(frame)).ok()) slow.push_back(session);
  }
  DropUnloaded();
  for (SessionId session : slow) EndSlowClient(session);
  CloseEnded();
  const bool left = std::any_of(islands_.begin(), islands_.end(), [](const IslandLink& island) {
    return island.is_up() && !island.batch.items().empty();
  });
  if (left) loop_->Post([] {});  // of a session that ended here: another round
}

// A client that does not read ends its session (TM-2).
void ControllerService::EndSlowClient(SessionId session) {
  clients_[session].link->Close(
      absl::ResourceExhaustedError("the client does not read its events"));
  OnClosed(wire::ROLE_CLIENT, session.number(),
           absl::ResourceExhaustedError("it does not read its events"));
}

// A scheduler that does not accept its messages is lost: missed items cannot be replayed.
void ControllerService::AfterSend(IslandLink& island, const absl::Status& sent) {
  if (sent.ok()) return;
  island.link->Close(sent);
  OnSchedulerClosed(static_cast<uint32_t>(&island - islands_.data()), sent);
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
    if (IslandLink* island = FindIsland(key)) AfterSend(*island, island->sender->OnWritable());
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

// A Load for a scheduler of this process gets its executable here; one for a link, when it is sent.
void ControllerService::PlaceProgram(uint32_t island, wire::IslandItem& item) {
  for (uint64_t executable : item.unload().executables()) unloaded_.emplace_back(executable);
  if (item.has_load() && !islands_[island].remote) item.mutable_load()->set_serialized(compiled_);
}

std::shared_ptr<const std::string> ControllerService::ProgramOf(const wire::Load& load) const {
  auto found = programs_.find(ExecutableId(load.executable()));
  return found == programs_.end() ? nullptr : found->second.bytes;
}

// At the end of a round: its Loads may be of executables that it unloads.
void ControllerService::DropUnloaded() {
  for (ExecutableId executable : std::exchange(unloaded_, {})) {
    auto found = programs_.find(executable);
    if (found != programs_.end() && --found->second.islands_left == 0) programs_.erase(found);
  }
}

}  // namespace gangway::controller
