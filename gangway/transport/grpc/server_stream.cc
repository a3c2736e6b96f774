// Implementation of server_stream.h.
#include "gangway/transport/grpc/server_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/transport/grpc/client_stream.h"
#include "gangway/transport/grpc/peer_policy.h"

namespace gangway::transport {

ServerStream::ServerStream(std::shared_ptr<StreamSet> set, grpc::CompletionQueue* queue,
                           LinkOptions options, size_t message_bytes_max,
                           std::unique_ptr<ServerCall> call)
    : Stream(std::move(set), queue, options, message_bytes_max), call_(std::move(call)) {
  peer_.address = call_->context.peer();
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

absl::Status ServerStream::LostStatus() const {
  return absl::UnavailableError(
      absl::StrCat("the link from ", peer_.address, " was lost: its connection is gone"));
}

}  // namespace gangway::transport
