// Implementation of segment_exchange.h.
#include "gangway/transport/bulk/segment_exchange.h"

#include <utility>

namespace gangway::transport {

SegmentExchange::~SegmentExchange() {
  if (listener_ != nullptr && !socket_.valid()) (void)listener_->Take(secret_);
}

void SegmentExchange::Listen(DescriptorListener* listener, wire::HelloReply& answer) {
  listener_ = listener;
  if (listener == nullptr) return;
  secret_ = NewDescriptorSecret();
  answer.mutable_descriptors()->set_name(listener->name());
  answer.mutable_descriptors()->set_secret(secret_);
}

void SegmentExchange::Connect(const wire::HelloReply& answer) {
  if (!answer.has_descriptors()) return;
  auto socket = ConnectDescriptors(answer.descriptors().name(), answer.descriptors().secret());
  if (socket.ok()) socket_ = *std::move(socket);  // else it is on another host
}

bool SegmentExchange::IsConnected() {
  if (!socket_.valid() && listener_ != nullptr) socket_ = listener_->Take(secret_);
  return socket_.valid();
}

bool SegmentExchange::HandOver(const SharedBlock& block) {
  if (handed_over_.contains(block.segment())) return true;
  if (!IsConnected()) return false;
  absl::Status sent =
      SendDescriptor(socket_, {block.segment(), block.segment_bytes()}, block.descriptor());
  if (!sent.ok()) return false;
  handed_over_.insert(block.segment());
  return true;
}

std::vector<uint64_t> SegmentExchange::TakeGone(std::span<const uint64_t> dropped) {
  std::vector<uint64_t> gone;
  for (uint64_t segment : dropped) {
    if (handed_over_.erase(segment) != 0) gone.push_back(segment);
  }
  return gone;
}

void SegmentExchange::TakeDescriptors(const std::function<void(const absl::Status&)>& unmapped) {
  while (IsConnected()) {
    auto received = ReceiveDescriptor(socket_);
    if (!received) break;
    absl::Status added = mapped_.Add(*received);  // on failure the link carries the bytes
    if (!added.ok() && unmapped) unmapped(added);
  }
}

void SegmentExchange::Forget(uint64_t segment) {
  TakeDescriptors({});
  mapped_.Remove(segment);
}

std::shared_ptr<std::byte> SegmentExchange::Find(
    const wire::SharedBlock& block, const std::function<void(const absl::Status&)>& unmapped) {
  TakeDescriptors(unmapped);
  return mapped_.Find(block.segment(), block.offset(), block.size());
}

wire::SharedBlock NameOf(const SharedBlock& block, size_t bytes) {
  wire::SharedBlock name;
  name.set_segment(block.segment());
  name.set_offset(block.offset());
  name.set_size(bytes);
  return name;
}

}  // namespace gangway::transport
