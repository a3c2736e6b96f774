// Implementation of outbox.h. A Batch is written by hand, field by field (protobuf's encoding
// allows fields in any order), so that frames can be appended as they come.
#include "gangway/transport/outbox.h"

#include <google/protobuf/io/coded_stream.h>

#include <utility>

#include "gangway/transport/batch.pb.h"

namespace gangway::transport {
namespace {

using ::google::protobuf::io::CodedOutputStream;

constexpr size_t kMessageBytes = 1 << 20;  // a frame that would exceed it starts a new message
constexpr size_t kBulkBytes = 16 << 10;    // from this size a separate piece is cheaper than a copy

constexpr uint32_t Tag(int field) {
  return (static_cast<uint32_t>(field) << 3) | 2;
}  // length-delimited

void AppendVarint(std::string& out, uint64_t value) {
  uint8_t buffer[10];
  uint8_t* end = CodedOutputStream::WriteVarint64ToArray(value, buffer);
  out.append(reinterpret_cast<char*>(buffer), end - buffer);
}

void AppendHeader(std::string& out, int field, size_t length) {
  AppendVarint(out, Tag(field));
  AppendVarint(out, length);
}

size_t HeaderBytes(int field, size_t length) {
  return CodedOutputStream::VarintSize32(Tag(field)) + CodedOutputStream::VarintSize64(length);
}

// The large bytes of a bulk message, and what goes around them: the other fields of the meaning that has them.
struct LargeBytes {
  std::string data, others;
  int data_field = 0, meaning_field = 0;
};

template <typename Meaning>
LargeBytes TakeLargeBytes(Meaning& meaning, int meaning_field) {
  LargeBytes large{.data = std::move(*meaning.mutable_data()),
                   .data_field = Meaning::kDataFieldNumber,
                   .meaning_field = meaning_field};
  meaning.clear_data();
  large.others = meaning.SerializeAsString();
  return large;
}

// Clears the meaning.
LargeBytes TakeLargeBytes(wire::Bulk& bulk) {
  LargeBytes large =
      bulk.has_bytes()
          ? TakeLargeBytes(*bulk.mutable_bytes(), wire::Bulk::kBytesFieldNumber)
          : TakeLargeBytes(*bulk.mutable_published(), wire::Bulk::kPublishedFieldNumber);
  bulk.clear_meaning();
  return large;
}

}  // namespace

Outbox::Waiting& Outbox::WaitingFor(size_t bytes) {
  if (messages_.empty() || messages_.back().message.bytes + bytes > kMessageBytes)
    messages_.emplace_back();
  messages_.back().message.bytes += bytes;
  return messages_.back();
}

void Outbox::FlushTail(Waiting& waiting) {
  if (waiting.tail.empty()) return;
  waiting.message.pieces.push_back({.own = std::exchange(waiting.tail, {}), .shared = nullptr});
}

void Outbox::Append(wire::Frame&& frame, FrameParts parts, size_t bytes) {
  const bool is_large = frame.bulk().bytes().data().size() >= kBulkBytes ||
                        frame.bulk().published().data().size() >= kBulkBytes;
  if (is_large && parts.empty()) return AppendBulk(std::move(frame), bytes);
  Waiting& waiting = WaitingFor(bytes);
  std::string& tail = waiting.tail;
  AppendHeader(tail, Batch::kFramesFieldNumber, bytes);
  const size_t at = tail.size();
  tail.resize(at + static_cast<size_t>(frame.GetCachedSize()));
  frame.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(tail.data() + at));
  for (const FramePartRef& part : parts) {
    if (part->bytes().size() < kBulkBytes) {
      tail += part->bytes();
      continue;
    }
    FlushTail(waiting);
    waiting.message.pieces.push_back({.own = {}, .shared = part});
  }
}

void Outbox::AppendBulk(wire::Frame&& frame, size_t bytes) {
  LargeBytes large = TakeLargeBytes(*frame.mutable_bulk());
  const std::string bulk = frame.bulk().SerializeAsString();
  frame.clear_bulk();
  const std::string head = frame.SerializeAsString();

  const size_t meaning_bytes =
      large.others.size() + HeaderBytes(large.data_field, large.data.size()) + large.data.size();
  const size_t bulk_bytes =
      bulk.size() + HeaderBytes(large.meaning_field, meaning_bytes) + meaning_bytes;
  const size_t frame_bytes =
      head.size() + HeaderBytes(wire::Frame::kBulkFieldNumber, bulk_bytes) + bulk_bytes;
  Waiting& waiting = WaitingFor(bytes);
  AppendHeader(waiting.tail, Batch::kFramesFieldNumber, frame_bytes);
  waiting.tail += head;
  AppendHeader(waiting.tail, wire::Frame::kBulkFieldNumber, bulk_bytes);
  waiting.tail += bulk;
  AppendHeader(waiting.tail, large.meaning_field, meaning_bytes);
  waiting.tail += large.others;
  AppendHeader(waiting.tail, large.data_field, large.data.size());
  FlushTail(waiting);
  waiting.message.pieces.push_back({.own = std::move(large.data), .shared = nullptr});
}

void Outbox::AppendClose(std::string_view reason) {
  Batch::Close close;
  close.set_reason(std::string(reason));
  std::string bytes = close.SerializeAsString();
  std::string& tail = WaitingFor(0).tail;  // does not count as queued
  AppendHeader(tail, Batch::kCloseFieldNumber, bytes.size());
  tail += bytes;
}

Outbox::Message Outbox::Take() {
  FlushTail(messages_.front());
  Message message = std::move(messages_.front().message);
  messages_.pop_front();
  return message;
}

}  // namespace gangway::transport
