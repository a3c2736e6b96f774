// Implementation of client_stream.h.
#include "gangway/worker/service/transfer/client_stream.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gangway::worker {

ClientStream::ClientStream(SessionId session, std::string client,
                           std::shared_ptr<transport::BulkLink> link)
    : session_(session), client_(std::move(client)), link_(std::move(link)) {}

void ClientStream::Open(transport::DescriptorListener* listener) {
  wire::HelloReply answer;
  answer.set_session(session_.number());
  segments_.Listen(listener, answer);
  link_->Answer(std::move(answer));
}

void ClientStream::Answer(wire::Frame frame) {
  if (!answers_.empty() || !link_->Send(frame).ok()) answers_.push_back(std::move(frame));
}

// It is moved on. NOLINTNEXTLINE(performance-unnecessary-value-param)
bool ClientStream::Send(wire::Frame frame) { return link_->Send(std::move(frame)).ok(); }

void ClientStream::OnWritable() {
  for (wire::Frame& frame : std::exchange(answers_, {})) Answer(std::move(frame));
}

absl::Status ClientStream::CheckRead() const {
  if (answers_.size() < kAnswersMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("The client does not read the ", kAnswersMax, " answers to it."));
}

void ClientStream::Forget(std::span<const uint64_t> dropped) {
  const std::vector<uint64_t> gone = segments_.TakeGone(dropped);
  if (gone.empty()) return;
  wire::Frame frame;
  frame.mutable_bulk()->mutable_gone()->mutable_segments()->Add(gone.begin(), gone.end());
  Answer(std::move(frame));
}

}  // namespace gangway::worker
