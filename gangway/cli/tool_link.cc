// Implementation of tool_link.h.
#include "gangway/cli/tool_link.h"

#include <unistd.h>

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::cli {
namespace {

// Shared by the asking thread and the loop of the link.
struct Question {
  Mutex mutex;
  CondVar answered;
  std::optional<absl::StatusOr<wire::StatusReply>> answer GANGWAY_GUARDED_BY(mutex);

  void Answer(absl::StatusOr<wire::StatusReply> value) {
    MutexLock lock(mutex);
    if (!answer) answer = std::move(value);
    answered.NotifyAll();
  }
};

void OnFrame(Question& question, wire::Frame frame) {
  if (frame.has_hello_reply()) {
    absl::Status refused = wire::ToStatus(frame.hello_reply().failure());
    if (!refused.ok()) question.Answer(refused);
  } else if (frame.has_status_reply()) {
    question.Answer(std::move(*frame.mutable_status_reply()));
  }
}

}  // namespace

absl::StatusOr<wire::StatusReply> AskStatus(transport::Transport& transport,
                                            const std::string& control_address,
                                            std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  auto question = std::make_shared<Question>();
  EventLoop loop("gw-tool");
  transport::LinkEvents events;
  events.executor = &loop;
  events.on_frame = [question](wire::Frame frame) { OnFrame(*question, std::move(frame)); };
  events.on_closed = [question](const absl::Status& why) {
    question->Answer(
        absl::UnavailableError(absl::StrCat("the controller hung up: ", why.message())));
  };
  auto link = transport.Connect(control_address, std::move(events), limit);
  if (!link.ok()) return link.status();
  wire::Frame frame;
  frame.set_sequence(1);
  frame.mutable_hello()->set_protocol_version(wire::kProtocolVersion);
  frame.mutable_hello()->set_build_version(wire::kBuildVersion);
  frame.mutable_hello()->set_role(wire::ROLE_TOOL);
  frame.mutable_hello()->set_name("gangway status");
  frame.mutable_hello()->set_process_id(static_cast<uint64_t>(getpid()));
  absl::Status sent = (*link)->Send(std::move(frame));
  frame.Clear();
  frame.set_sequence(2);
  frame.mutable_status_request();
  if (sent.ok()) sent = (*link)->Send(std::move(frame));
  if (!sent.ok()) question->Answer(sent);
  absl::StatusOr<wire::StatusReply> answer = absl::DeadlineExceededError(absl::StrCat(
      "the controller at ", control_address, " did not answer within ", limit.count(), " ms"));
  {
    MutexLock lock(question->mutex);
    question->answered.WaitUntil(question->mutex, deadline, [&]() GANGWAY_NO_ANALYSIS {
      return question->answer.has_value();
    });
    if (question->answer) answer = *question->answer;
  }
  loop.Post([&link] { (*link)->Close(absl::CancelledError("done")); });
  loop.Stop();
  return answer;
}

}  // namespace gangway::cli
