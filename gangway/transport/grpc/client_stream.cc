// Implementation of client_stream.h.
#include "gangway/transport/grpc/client_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/transport/grpc/peer_policy.h"

namespace gangway::transport {
namespace {

// gRPC gives a connection attempt up after 20 s.
constexpr std::chrono::seconds kConnectingMax{25};
constexpr std::chrono::seconds kConnectingLook{1};  // at the end of the transport

}  // namespace

ClientStream::ClientStream(std::shared_ptr<StreamSet> set, grpc::CompletionQueue* queue,
                           LinkOptions options, size_t message_bytes_max, std::string address,
                           std::shared_ptr<grpc::Channel> channel)
    : Stream(std::move(set), queue, options, message_bytes_max),
      queue_(queue),
      channel_(std::move(channel)),
      context_(std::make_unique<grpc::ClientContext>()) {
  peer_.address = std::move(address);
}

absl::Status ClientStream::Open(std::chrono::milliseconds limit) {
  context_->set_wait_for_ready(false);  // a refused connection fails at once
  CountOperation();
  call_ = grpc::GenericStub(channel_).PrepareCall(context_.get(), kMethod, queue_);
  call_->StartCall(TagOf(Operation::kStart));
  {
    MutexLock lock(opening_mutex_);
    if (opened_.WaitFor(opening_mutex_, limit,
                        [this]() GANGWAY_NO_ANALYSIS { return open_done_; })) {
      return open_status_;
    }
    open_done_ = true;
    open_status_ = absl::UnavailableError(absl::StrCat(
        "no process accepted a link at ", peer_.address, " within ", limit.count(), " ms"));
  }
  connecting_max_ = Clock::now() + kConnectingMax;
  CountOperation();
  AwaitConnection();
  Cancel();
  MutexLock lock(opening_mutex_);
  return open_status_;
}

void ClientStream::AwaitConnection() {
  channel_->NotifyOnStateChange(GRPC_CHANNEL_CONNECTING, WallClock::now() + kConnectingLook, queue_,
                                TagOf(Operation::kConnecting));
}

bool ClientStream::StillConnecting() {
  if (channel_->GetState(false) != GRPC_CHANNEL_CONNECTING || Clock::now() >= connecting_max_ ||
      IsShut()) {
    return false;
  }
  AwaitConnection();
  return true;
}

void ClientStream::OnOpened(Operation operation, bool ok) {
  if (ok && operation == Operation::kStart) {
    CountOperation();
    call_->ReadInitialMetadata(TagOf(Operation::kMetadata));
    return;
  }
  if (!ok || context_->GetServerInitialMetadata().count(kAcceptedKey) == 0) {
    BeginFinish();  // LostStatus says why
    return;
  }
  if (auto auth = context_->auth_context()) {
    peer_.authenticated = auth->IsPeerAuthenticated();
    SetCertificate(CertificateOf(*auth));
  }
  MutexLock lock(opening_mutex_);
  if (open_done_) return;  // too late: cancelled
  open_done_ = true;
  opened_.NotifyAll();
}

void ClientStream::ReleaseCall() {
  {
    MutexLock lock(opening_mutex_);
    if (!open_done_) {
      open_done_ = true;
      open_status_ = LostStatus();
      opened_.NotifyAll();
    }
  }
  call_.reset();
  context_.reset();
  channel_.reset();
}

absl::Status ClientStream::LostStatus() const {
  if (status_.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnavailableError(
        absl::StrCat("the process that listens at ", peer_.address, " is not Gangway"));
  }
  std::string text =
      absl::StrCat("the link to ", peer_.address, " was lost: ",
                   status_.ok() ? "the peer closed it without a reason" : status_.error_message());
  if (status_.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED)
    return absl::ResourceExhaustedError(text);
  if (status_.error_code() == grpc::StatusCode::PERMISSION_DENIED)
    return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

}  // namespace gangway::transport
