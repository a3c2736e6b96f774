// Implementation of server_stream.h.
#include "gangway/transport/grpc/server_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/transport/grpc/client_stream.h"
#include "gangway/transport/grpc/peer_policy.h"

namespace gangway::transport {

ServerStream::ServerStream(std::shared_ptr<StreamSet> set, grpc::CompletionQueue* queue,
                           LinkOptions options, size_t message_bytes_max,
                           std::unique_ptr<ServerCall> call, std::shared_ptr<Strangers> strangers)
    : Stream(std::move(set), queue, options, message_bytes_max),
      call_(std::move(call)),
      strangers_(std::move(strangers)) {
  peer_.address = call_->context.peer();
  if (strangers_ != nullptr) connection_ = strangers_->Enter(peer_.address).connection;
  if (auto auth = call_->context.auth_context()) {
    peer_.authenticated = auth->IsPeerAuthenticated();
    SetCertificate(CertificateOf(*auth));
  }
}

void ServerStream::Accept() {
  CountOperation();
  call_->context.AddInitialMetadata(kAcceptedKey, "1");
  call_->call.SendInitialMetadata(TagOf(Operation::kMetadata));
}

void ServerStream::Refuse(const grpc::Status& status) {
  status_ = status;
  BeginFinish();
}

void ServerStream::Admit() {
  MutexLock lock(strangers_mutex_);
  if (connection_ != nullptr && !std::exchange(is_admitted_, true)) strangers_->Admit(*connection_);
}

void ServerStream::LeaveStrangers() {
  MutexLock lock(strangers_mutex_);
  const auto connection = std::move(connection_);
  if (connection == nullptr) return;
  if (is_admitted_) strangers_->Withdraw(*connection);
  strangers_->Leave(*connection);
}

absl::Status ServerStream::LostStatus() const {
  return absl::UnavailableError(
      absl::StrCat("the link from ", peer_.address, " was lost: its connection is gone"));
}

}  // namespace gangway::transport
