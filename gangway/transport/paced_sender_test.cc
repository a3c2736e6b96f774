// Batches of any size over a link with tiny limits: what arrives is what was sent, in its order, and never more than
// the stated bytes are in flight.
#include "gangway/transport/paced_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"

namespace gangway::transport {
namespace {

using ::testing::HasSubstr;

constexpr size_t kFrameMax = 2000, kQueueMax = 8000;

// A link whose network takes a frame when told to.
class SlowLink final : public Link {
 public:
  absl::Status Send(wire::Frame frame) override {
    const size_t bytes = frame.ByteSizeLong();
    EXPECT_LE(bytes, kFrameMax);
    if (bytes > kFrameMax) return absl::InvalidArgumentError("too large");
    if (queued_ >= kQueueMax) return absl::ResourceExhaustedError("full");
    queued_ += bytes;
    most_ = std::max(most_, queued_);
    frames_.push_back(std::move(frame));
    return absl::OkStatus();
  }
  size_t queued_bytes() const override { return queued_; }
  size_t writable_bytes() const override { return kQueueMax / 2; }
  size_t frame_bytes_max() const override { return kFrameMax; }
  void Close(const absl::Status&) override {}
  const Peer& peer() const override { return peer_; }

  // False: nothing is queued.
  bool Deliver(wire::Frame& frame) {
    if (frames_.empty()) return false;
    frame = std::move(frames_.front());
    frames_.pop_front();
    queued_ -= frame.ByteSizeLong();
    return true;
  }
  size_t most() const { return most_; }

 private:
  std::deque<wire::Frame> frames_;
  size_t queued_ = 0, most_ = 0;
  Peer peer_{"slow"};
};

class PacedSenderTest : public ::testing::Test {
 protected:
  // All that arrives until nothing more comes.
  std::vector<wire::Frame> Receive() {
    std::vector<wire::Frame> whole;
    wire::Frame frame;
    while (link_->Deliver(frame)) {
      pieces_ += frame.has_piece();
      auto joined = joiner_.Join(std::move(frame));
      EXPECT_TRUE(joined.ok()) << joined.status();
      if (joined.ok() && *joined) whole.push_back(**std::move(joined));
      EXPECT_TRUE(sender_.OnWritable().ok());
    }
    EXPECT_EQ(sender_.waiting_bytes(), 0u);
    EXPECT_LE(link_->most(), kQueueMax / 2 + kFrameMax);
    return whole;
  }
  static std::string Bytes(size_t size, char first) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(first + i % 101);
    return bytes;
  }

  std::shared_ptr<SlowLink> link_ = std::make_shared<SlowLink>();
  uint64_t sequence_ = 0;
  PacedSender sender_{link_,
                      [this](wire::Frame& frame) { frame.set_sequence(++sequence_); },
                      {.waiting_bytes_max = 100000, .fields_bytes_max = 50000}};
  PieceJoiner joiner_{50000};
  int pieces_ = 0;
};

TEST_F(PacedSenderTest, EveryKindOfBatchIsSplitByBytesInItsOrder) {
  constexpr uint64_t kItems = 3000;
  wire::Frame ops, events, items, reports;
  for (uint64_t i = 0; i < kItems; ++i) {
    ops.mutable_session_batch()->add_ops()->mutable_drop()->add_handles(i);
    events.mutable_session_events()->add_events()->mutable_progress()->set_ended(i);
    items.mutable_island_batch()->add_items()->set_probe(i);
    reports.mutable_report_batch()->add_reports()->mutable_done()->set_ordinal(i);
  }
  for (wire::Frame* frame : {&ops, &events, &items, &reports})
    ASSERT_TRUE(sender_.Send(*frame).ok());
  uint64_t next[4] = {};
  uint64_t sequence = 0;
  for (const wire::Frame& frame : Receive()) {
    EXPECT_EQ(frame.sequence(), ++sequence);
    for (const auto& op : frame.session_batch().ops()) EXPECT_EQ(op.drop().handles(0), next[0]++);
    for (const auto& event : frame.session_events().events())
      EXPECT_EQ(event.progress().ended(), next[1]++);
    for (const auto& item : frame.island_batch().items()) EXPECT_EQ(item.probe(), next[2]++);
    for (const auto& report : frame.report_batch().reports())
      EXPECT_EQ(report.done().ordinal(), next[3]++);
  }
  for (uint64_t count : next) EXPECT_EQ(count, kItems);
  EXPECT_EQ(pieces_, 0);
}

TEST_F(PacedSenderTest, PartsLeaveAsOneFrameOrAreCutAsAFrameIs) {
  const auto large = std::make_shared<const std::string>(Bytes(20000, 'l'));
  std::vector<FramePartRef> parts;
  for (uint64_t i = 0; i < 1000; ++i) {
    wire::Frame part;
    wire::IslandItem& item = *part.mutable_island_batch()->add_items();
    i == 700 ? item.mutable_load()->set_executable(i) : item.set_probe(i);
    parts.push_back(std::make_shared<const FramePart>(std::move(part)));
  }
  const auto program_of = [&](const wire::Load&) { return large; };
  const FrameParts all(parts);
  ASSERT_TRUE(sender_.SendParts(all.first(100), program_of).ok());
  ASSERT_TRUE(sender_.SendParts(all.subspan(100), program_of).ok());
  const std::vector<wire::Frame> frames = Receive();
  ASSERT_GT(frames.size(), 3u);
  EXPECT_EQ(frames[0].island_batch().items_size(), 100);
  EXPECT_EQ(frames[0].sequence(), 1u);
  uint64_t next = 0;
  for (const wire::Frame& frame : frames) {
    for (const wire::IslandItem& item : frame.island_batch().items()) {
      EXPECT_EQ(item.has_load() ? item.load().executable() : item.probe(), next++);
      if (item.has_load()) {
        EXPECT_EQ(item.load().serialized(), *large);
      }
    }
  }
  EXPECT_EQ(next, 1000u);
}

TEST_F(PacedSenderTest, LargeFieldsOfEveryKindComeInPieces) {
  const std::string program = Bytes(33333, 'p'), optimized = Bytes(5000, 'o');
  wire::Frame request, result, compile, compiled, load;
  request.mutable_compile_request()->set_program(program);
  result.mutable_compile_result()->set_serialized(program);
  result.mutable_compile_result()->mutable_info()->set_optimized_program(optimized);
  for (int i = 0; i < 2; ++i) {
    auto* op = compile.mutable_session_batch()->add_ops()->mutable_compile();
    op->set_executable(static_cast<uint64_t>(i));
    op->set_program(program);
    compiled.mutable_session_events()
        ->add_events()
        ->mutable_compiled()
        ->mutable_info()
        ->set_optimized_program(optimized);
    load.mutable_island_batch()->add_items()->mutable_load()->set_serialized(program);
  }
  std::vector<wire::Frame> came;
  for (wire::Frame* frame : {&request, &result, &compile, &compiled, &load}) {
    ASSERT_TRUE(sender_.Send(*frame).ok());
    for (wire::Frame& whole : Receive()) came.push_back(std::move(whole));
  }
  ASSERT_EQ(came.size(), 8u);
  EXPECT_EQ(came[0].compile_request().program(), program);
  EXPECT_EQ(came[1].compile_result().serialized(), program);
  EXPECT_EQ(came[1].compile_result().info().optimized_program(), optimized);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(came[2 + i].session_batch().ops(0).compile().program(), program);
    EXPECT_EQ(came[2 + i].session_batch().ops(0).compile().executable(), i);
    EXPECT_EQ(came[4 + i].session_events().events(0).compiled().info().optimized_program(),
              optimized);
    EXPECT_EQ(came[6 + i].island_batch().items(0).load().serialized(), program);
  }
  EXPECT_GT(pieces_, 100);
}

TEST_F(PacedSenderTest, SharedProgramsAreReadWhenTheyAreSent) {
  auto small = std::make_shared<const std::string>(Bytes(100, 's'));
  auto large = std::make_shared<const std::string>(Bytes(20000, 'l'));
  wire::Frame frame;
  frame.mutable_island_batch()->add_items()->set_probe(1);
  for (uint64_t id = 0; id < 6; ++id)
    frame.mutable_island_batch()->add_items()->mutable_load()->set_executable(id);
  frame.mutable_island_batch()->add_items()->set_probe(2);
  ASSERT_TRUE(
      sender_
          .Send(frame,
                [&](const wire::Load& load) { return load.executable() % 2 == 0 ? small : large; })
          .ok());
  EXPECT_LT(sender_.waiting_bytes(), 5000u);
  EXPECT_GT(large.use_count(), 1) << "kept until they are sent";
  uint64_t next = 0;
  for (const wire::Frame& came : Receive()) {
    for (const auto& item : came.island_batch().items()) {
      if (!item.has_load()) continue;
      EXPECT_EQ(item.load().executable(), next);
      EXPECT_EQ(item.load().serialized(), next++ % 2 == 0 ? *small : *large);
    }
  }
  EXPECT_EQ(next, 6u);
  EXPECT_EQ(large.use_count(), 1);
}

TEST_F(PacedSenderTest, AHeartbeatPassesWhatWaits) {
  wire::Frame load;
  load.mutable_island_batch()->add_items()->mutable_load()->set_serialized(Bytes(40000, 'l'));
  ASSERT_TRUE(sender_.Send(load).ok());
  wire::Frame beat;
  beat.mutable_heartbeat()->set_time_ns(1);
  ASSERT_TRUE(sender_.SendNow(beat).ok());
  const std::vector<wire::Frame> came = Receive();
  ASSERT_EQ(came.size(), 2u);
  EXPECT_TRUE(came[0].has_heartbeat());
  EXPECT_EQ(came[1].island_batch().items(0).load().serialized().size(), 40000u);
}

TEST_F(PacedSenderTest, WhatIsTooLargeIsRefusedWithItsSizeAndNothingIsSent) {
  wire::Frame frame;
  frame.mutable_compile_request()->set_program(Bytes(50001, 'x'));
  absl::Status sent = sender_.Send(frame);
  EXPECT_EQ(sent.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sent.message()), HasSubstr("50001 bytes is over the limit of 50000"));
  wire::Frame other;
  other.mutable_session_batch()->add_ops()->mutable_drop()->add_handles(1);
  other.mutable_session_batch()->add_ops()->mutable_compile()->set_options(Bytes(3000, 'x'));
  sent = sender_.Send(other);
  EXPECT_EQ(sent.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Receive().empty());
}

TEST_F(PacedSenderTest, WhatWaitsIsBounded) {
  wire::Frame frame;
  for (uint64_t i = 0; i < 100; ++i)
    frame.mutable_session_batch()->add_ops()->mutable_compile()->set_options(Bytes(500, 'x'));
  absl::Status sent;
  int count = 0;
  for (; count < 10 && sent.ok(); ++count) sent = sender_.Send(frame);
  EXPECT_EQ(sent.code(), absl::StatusCode::kResourceExhausted) << sent;
  EXPECT_EQ(count, 3);
}

// What a peer that does not read makes the sender keep: pieces count, and shared programs do not.
TEST_F(PacedSenderTest, PiecesThatWaitCountUnlessTheyAreShared) {
  wire::Frame result;
  result.mutable_compile_result()->set_serialized(Bytes(40000, 'x'));
  absl::Status sent;
  int count = 0;
  for (; count < 10 && sent.ok(); ++count) sent = sender_.Send(result);
  EXPECT_EQ(sent.code(), absl::StatusCode::kResourceExhausted) << sent;
  EXPECT_EQ(count, 4);
  EXPECT_EQ(Receive().size(), 3u);

  const auto shared = std::make_shared<const std::string>(Bytes(40000, 's'));
  wire::Frame load;
  load.mutable_island_batch()->add_items()->mutable_load();
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(sender_.Send(load, [&](const wire::Load&) { return shared; }).ok());
  EXPECT_EQ(Receive().size(), 10u);
}

TEST_F(PacedSenderTest, TheFieldsOfAFrameShareTheLimit) {
  wire::Frame frame;
  frame.mutable_compile_result()->set_serialized(Bytes(30000, 'x'));
  frame.mutable_compile_result()->mutable_info()->set_optimized_program(Bytes(20001, 'x'));
  EXPECT_EQ(sender_.Send(frame).code(), absl::StatusCode::kInvalidArgument);
  frame.mutable_compile_result()->mutable_info()->set_optimized_program(Bytes(20000, 'x'));
  EXPECT_TRUE(sender_.Send(frame).ok());
  EXPECT_EQ(Receive().size(), 1u);
}

class PieceJoinerTest : public ::testing::Test {
 protected:
  static wire::Frame Piece(uint32_t attachment, const std::string& data) {
    wire::Frame frame;
    frame.mutable_piece()->set_attachment(attachment);
    frame.mutable_piece()->set_data(data);
    return frame;
  }
  static wire::Frame Request(const std::string& program, uint32_t field = 0) {
    wire::Frame frame;
    frame.mutable_compile_request()->set_request(1);
    wire::Attachment& attachment = *frame.add_attachments();
    attachment.set_field(field);
    attachment.set_bytes(program.size());
    return frame;
  }
  PieceJoiner joiner_{100};
};

TEST_F(PieceJoinerTest, MissingAndForeignPiecesAreErrors) {
  EXPECT_EQ(joiner_.Join(Request("abc")).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(joiner_.Join(Piece(0, "ab")).ok());  // the last piece is missing
  EXPECT_EQ(joiner_.Join(Request("abc")).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(joiner_.Join(Piece(0, "abcd")).ok());
  EXPECT_EQ(joiner_.Join(Request("abc")).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(joiner_.Join(Piece(0, "abc")).ok());
  EXPECT_EQ(joiner_.Join(Request("abc", 1)).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(joiner_.Join(Piece(0, "abc")).ok());
  wire::Frame other = Request("abc");
  other.mutable_heartbeat();  // which has no large field
  EXPECT_EQ(joiner_.Join(other).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PieceJoinerTest, PiecesOutOfOrderAreErrors) {
  for (uint32_t first : {1u, 2u, UINT32_MAX}) {
    EXPECT_EQ(joiner_.Join(Piece(first, "a")).status().code(), absl::StatusCode::kInvalidArgument);
  }
  ASSERT_TRUE(joiner_.Join(Piece(0, "a")).ok());
  ASSERT_TRUE(joiner_.Join(Piece(1, "a")).ok());
  EXPECT_EQ(joiner_.Join(Piece(0, "a")).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(joiner_.Join(Piece(0, "a")).ok());
  ASSERT_TRUE(joiner_.Join(Piece(1, "a")).ok());
  EXPECT_EQ(joiner_.Join(Piece(3, "a")).status().code(), absl::StatusCode::kInvalidArgument)
      << "a field was left out";
}

TEST_F(PieceJoinerTest, OfTwoMessagesThatAreInterleavedNeitherArrives) {
  ASSERT_TRUE(joiner_.Join(Piece(0, "abc")).ok());
  ASSERT_TRUE(joiner_.Join(Piece(0, "xyz")).ok());
  EXPECT_EQ(joiner_.Join(Request("abc")).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(joiner_.Join(Request("xyz")).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(PieceJoinerTest, AllFieldsOfAFrameShareTheLimit) {
  ASSERT_TRUE(joiner_.Join(Piece(0, std::string(60, 'a'))).ok());
  ASSERT_TRUE(joiner_.Join(Piece(1, std::string(40, 'a'))).ok());
  EXPECT_EQ(joiner_.Join(Piece(1, "a")).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(joiner_.Join(Piece(0, std::string(100, 'a'))).ok()) << "the others were dropped";
}

TEST_F(PieceJoinerTest, ManyTinyPiecesAreAsGoodAsOne) {
  for (int i = 0; i < 10000; ++i) ASSERT_TRUE(joiner_.Join(Piece(0, "")).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(joiner_.Join(Piece(0, "a")).ok());
  const std::string program(100, 'a');
  auto joined = joiner_.Join(Request(program));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ((*joined)->compile_request().program(), program);
  EXPECT_TRUE((*joined)->attachments().empty());
}

TEST_F(PieceJoinerTest, LargeOperandsOfAHostCallbackAreCutAndJoined) {
  const std::string small = "small", large(3'000'000, 'l'), other(100'000, 'o');
  PieceJoiner joiner(kLargeFieldsBytesMax, kHostCallFieldsMax);
  wire::Frame callback, reply;
  for (const std::string& each : {large, small, std::string(), other})
    callback.mutable_host_callback()->add_operands(each);
  reply.mutable_host_callback_reply()->add_results(small);
  reply.mutable_host_callback_reply()->add_results(large);
  for (const wire::Frame& whole : {callback, reply}) {
    std::optional<wire::Frame> joined;
    for (wire::Frame& frame : CutPieces(whole)) {
      EXPECT_LT(frame.ByteSizeLong(), 1'100'000u);
      auto next = joiner.Join(std::move(frame));
      ASSERT_TRUE(next.ok()) << next.status();
      EXPECT_FALSE(joined.has_value()) << "something followed the frame";
      joined = *std::move(next);
    }
    ASSERT_TRUE(joined.has_value());
    EXPECT_EQ(joined->SerializeAsString(), whole.SerializeAsString());
  }
}

TEST_F(PieceJoinerTest, AfterAnErrorOnlyTheEndFollows) {
  int frames = 0, closed = 0;
  LinkEvents events = JoinPieces({.on_frame = [&](wire::Frame) { ++frames; },
                                  .on_closed = [&](const absl::Status&) { ++closed; }});
  events.on_frame(Request("abc"));
  events.on_frame(wire::Frame());
  events.on_closed(absl::CancelledError("the peer left"));
  EXPECT_EQ(frames, 0);
  EXPECT_EQ(closed, 1);
}

}  // namespace
}  // namespace gangway::transport
