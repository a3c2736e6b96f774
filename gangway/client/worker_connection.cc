// Implementation of worker_connection.h.
#include "gangway/client/worker_connection.h"

#include <utility>

#include "gangway/transport/pieces.h"

namespace gangway::client {

WorkerConnection::WorkerConnection(SessionId session, std::shared_ptr<ConfirmingSender> sender,
                                   const wire::HelloReply& welcome)
    : session_(session), sender_(std::move(sender)) {
  segments_.Connect(welcome);
}

PlaceRequest WorkerConnection::RequestPlace(const Push& push, size_t bytes) {
  if (!segments_.IsConnected()) return PlaceRequest::kNoSharedMemory;
  wire::Frame frame;
  wire::Bulk& wish = *frame.mutable_bulk();
  wish.mutable_name()->set_session(session_.number());
  wish.mutable_name()->set_upload(NumberOf(push.upload));
  wish.mutable_name()->set_shard(push.shard);
  wish.mutable_place_request()->set_size(bytes);
  return sender_->Send(std::move(frame)).ok() ? PlaceRequest::kSent : PlaceRequest::kFull;
}

std::shared_ptr<std::byte> WorkerConnection::PlaceOf(const wire::PlaceAnswer& answer,
                                                     size_t bytes) {
  if (!answer.has_place() || answer.place().size() != bytes) return nullptr;
  return segments_.Find(answer.place());
}

void WorkerConnection::Reserve(const Push& wish,
                               std::function<void(std::shared_ptr<char> place)> placed) {
  if (RequestPlace(wish, wish.bytes) != PlaceRequest::kSent) return;
  reserved_[{wish.upload, wish.shard}] = {.bytes = wish.bytes, .placed = std::move(placed)};
}

bool WorkerConnection::TakeReservation(Pushing& pushing) {
  auto reserved = reserved_.extract({pushing.push.upload, pushing.push.shard});
  if (reserved.empty()) return false;
  pushing.shard.WriteInto(std::move(reserved.mapped().target));
  return pushing.shard.target() == nullptr;
}

bool WorkerConnection::OnReserved(PushName name, const wire::PlaceAnswer& answer) {
  auto entry = reserved_.find(name);
  if (entry == reserved_.end()) return false;
  Reservation& reserved = entry->second;
  if (auto target = PlaceOf(answer, reserved.bytes)) reserved.target = std::move(target);
  if (reserved.target == nullptr) {
    reserved_.erase(entry);
  } else if (reserved.placed) {
    std::exchange(reserved.placed, nullptr)(
        std::shared_ptr<char>(reserved.target, reinterpret_cast<char*>(reserved.target.get())));
  }
  return true;
}

void WorkerConnection::Withdraw(UploadId upload) {
  std::erase_if(reserved_,
                [upload](const auto& reserved) { return reserved.first.first == upload; });
}

void WorkerConnection::Reply(wire::HostCallbackReply reply) {
  wire::Frame frame;
  *frame.mutable_host_callback_reply() = std::move(reply);
  for (wire::Frame& part : transport::CutPieces(std::move(frame)))
    replies_.push_back(std::move(part));
}

bool WorkerConnection::SendWords(std::deque<UploadId>& dropped) {
  for (; !replies_.empty(); replies_.pop_front()) {
    if (!sender_->Send(replies_.front()).ok()) return false;
  }
  for (; !dropped.empty(); dropped.pop_front()) {
    wire::Frame frame;
    frame.mutable_bulk()->mutable_name()->set_session(session_.number());
    frame.mutable_bulk()->mutable_name()->set_upload(NumberOf(dropped.front()));
    frame.mutable_bulk()->mutable_dropped();
    if (!sender_->Send(std::move(frame)).ok()) return false;
  }
  for (; !words_.empty(); words_.pop_front()) {
    wire::Frame frame;
    *frame.mutable_bulk() = words_.front();
    if (!sender_->Send(std::move(frame)).ok()) return false;
  }
  return true;
}

}  // namespace gangway::client
