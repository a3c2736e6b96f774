// Implementation of tool_link.h.
#include "gangway/cli/tool_link.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/transport/server_role.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::cli {
namespace {

// Shared by the asking thread and the loop of the link.
struct Question {
  std::function<bool(wire::Frame)> on_answer;  // on the loop, until `end` is set
  Mutex mutex;
  CondVar ended;
  std::optional<absl::Status> end GANGWAY_GUARDED_BY(mutex);

  void End(absl::Status status) {
    MutexLock lock(mutex);
    if (!end) end = std::move(status);
    ended.NotifyAll();
  }
};

void OnFrame(Question& question, wire::Frame frame) {
  {
    MutexLock lock(question.mutex);
    if (question.end) return;
  }
  if (frame.has_hello_reply()) {
    absl::Status refused = wire::ToStatus(frame.hello_reply().failure());
    if (!refused.ok()) return question.End(refused);
  }
  if (question.on_answer(std::move(frame))) {
    question.End(absl::OkStatus());
  }
}

wire::Frame ToolHello(wire::Role role, const std::string& name, const std::string& token) {
  wire::Frame frame;
  frame.mutable_hello()->set_protocol_version(wire::kProtocolVersion);
  frame.mutable_hello()->set_build_version(wire::kBuildVersion);
  frame.mutable_hello()->set_role(role);
  frame.mutable_hello()->set_name(name);
  frame.mutable_hello()->set_token(token);
  frame.mutable_hello()->set_process_id(ProcessId());
  return frame;
}

// Sends the frames and waits until `on_answer` returns true.
absl::Status Ask(transport::Transport& transport, const std::string& control_address,
                 std::vector<wire::Frame> frames, std::chrono::milliseconds limit,
                 std::function<bool(wire::Frame)> on_answer) {
  const auto deadline = Clock::now() + limit;
  auto question = std::make_shared<Question>();
  question->on_answer = std::move(on_answer);
  EventLoop loop("gw-tool");
  transport::LinkEvents events;
  events.executor = &loop;
  events.on_frame = [question](wire::Frame frame) { OnFrame(*question, std::move(frame)); };
  events.on_closed = [question](const absl::Status& why) {
    question->End(absl::UnavailableError(
        absl::StrCat("the controller closed the connection: ", std::string(why.message()))));
  };
  GANGWAY_ASSIGN_OR_RETURN(auto link, transport.Connect(control_address, std::move(events), limit));
  if (absl::Status controls = transport::CheckControls(link->peer(), control_address);
      !controls.ok()) {
    question->End(controls);
    frames.clear();
  }
  uint64_t sequence = 0;
  for (wire::Frame& frame : frames) {
    frame.set_sequence(++sequence);
    if (absl::Status sent = link->Send(std::move(frame)); !sent.ok()) question->End(sent);
  }
  absl::Status end;
  {
    MutexLock lock(question->mutex);
    question->ended.WaitUntil(question->mutex, deadline,
                              [&]() GANGWAY_NO_ANALYSIS { return question->end.has_value(); });
    if (!question->end) {  // from here on, no callback runs
      question->end = absl::DeadlineExceededError(absl::StrCat(
          "the controller at ", control_address, " did not answer within ", limit.count(), " ms"));
    }
    end = *question->end;
  }
  loop.Post([&link] { link->Close(absl::CancelledError("done")); });
  loop.Stop();
  return end;
}

}  // namespace

absl::Status AskTool(transport::Transport& transport, const std::string& control_address,
                     const std::string& token, const std::string& name, wire::Frame request,
                     std::chrono::milliseconds limit, std::function<bool(wire::Frame)> on_answer) {
  return Ask(transport, control_address,
             {ToolHello(wire::ROLE_TOOL, name, token), std::move(request)}, limit,
             std::move(on_answer));
}

absl::Status Probe(transport::Transport& transport, const std::string& address,
                   const std::string& token, const std::string& name,
                   std::chrono::milliseconds limit) {
  return Ask(transport, address, {ToolHello(wire::ROLE_PROBE, name, token)}, limit,
             [](const wire::Frame& frame) { return frame.has_hello_reply(); });
}

absl::StatusOr<wire::WorkerDeclaration> AskDeclaration(
    transport::Transport& transport, const std::string& control_address, const std::string& token,
    std::optional<uint32_t> island, uint32_t index, std::chrono::milliseconds limit) {
  const std::string name = island ? absl::StrCat("island", *island, "/worker", index)
                                  : absl::StrCat("the worker of index ", index);
  wire::Frame hello = ToolHello(wire::ROLE_WORKER, name, token);
  wire::DeclarationRequest& request = *hello.mutable_hello()->mutable_declaration_request();
  if (island) request.set_island(*island);
  request.set_index(index);
  wire::WorkerDeclaration declared;
  GANGWAY_RETURN_IF_ERROR(
      Ask(transport, control_address, {hello}, limit, [&declared](wire::Frame frame) {
        if (!frame.has_hello_reply()) return false;
        declared = std::move(*frame.mutable_hello_reply()->mutable_declaration());
        return true;
      }));
  return declared;
}

absl::StatusOr<wire::StatusReply> AskStatus(transport::Transport& transport,
                                            const std::string& control_address,
                                            const std::string& token,
                                            std::chrono::milliseconds limit,
                                            std::chrono::milliseconds ready_limit) {
  wire::Frame request;
  request.mutable_status_request()->set_ready_limit_ms(static_cast<uint64_t>(ready_limit.count()));
  wire::StatusReply reply;
  GANGWAY_RETURN_IF_ERROR(AskTool(transport, control_address, token, "gangway status",
                                  std::move(request), limit + ready_limit,
                                  [&reply](wire::Frame frame) {
                                    if (!frame.has_status_reply()) return false;
                                    reply = std::move(*frame.mutable_status_reply());
                                    return true;
                                  }));
  return reply;
}

}  // namespace gangway::cli
