// Implementation of pieces.h.
#include "gangway/transport/pieces.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::transport {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kWholeBytesMax = size_t{64}
                                  << 10;  // of a field that CutPieces leaves in its frame

std::vector<std::string*> Pointers(google::protobuf::RepeatedPtrField<std::string>& fields) {
  return {fields.pointer_begin(), fields.pointer_end()};
}

}  // namespace

std::vector<std::string*> LargeFields(wire::Frame& frame) {
  switch (frame.body_case()) {
    case wire::Frame::kCompileRequest:
      return {frame.mutable_compile_request()->mutable_program()};
    case wire::Frame::kCompileResult: {
      auto* result = frame.mutable_compile_result();
      if (!result->has_info()) return {result->mutable_serialized()};
      return {result->mutable_serialized(), result->mutable_info()->mutable_optimized_program()};
    }
    case wire::Frame::kSessionBatch:
      if (frame.session_batch().ops_size() != 1 || !frame.session_batch().ops(0).has_compile())
        return {};
      return {frame.mutable_session_batch()->mutable_ops(0)->mutable_compile()->mutable_program()};
    case wire::Frame::kSessionEvents: {
      auto* batch = frame.mutable_session_events();
      if (batch->events_size() != 1 || !batch->events(0).has_compiled()) return {};
      auto* compiled = batch->mutable_events(0)->mutable_compiled();
      if (!compiled->has_info()) return {};
      return {compiled->mutable_info()->mutable_optimized_program()};
    }
    case wire::Frame::kIslandBatch:
      if (frame.island_batch().items_size() != 1 || !frame.island_batch().items(0).has_load())
        return {};
      return {frame.mutable_island_batch()->mutable_items(0)->mutable_load()->mutable_serialized()};
    case wire::Frame::kHostCallback:
      return Pointers(*frame.mutable_host_callback()->mutable_operands());
    case wire::Frame::kHostCallbackReply:
      return Pointers(*frame.mutable_host_callback_reply()->mutable_results());
    default:
      return {};
  }
}

std::vector<wire::Frame> CutPieces(wire::Frame frame) {
  std::vector<wire::Frame> frames;
  uint32_t field = 0, attachment = 0;
  for (std::string* each : LargeFields(frame)) {
    const uint32_t number = field++;
    if (each->size() <= kWholeBytesMax) continue;
    const std::string bytes = std::exchange(*each, {});
    for (size_t offset = 0; offset < bytes.size(); offset += kPieceBytes) {
      wire::Piece& piece = *frames.emplace_back().mutable_piece();
      piece.set_attachment(attachment);
      piece.set_data(bytes.substr(offset, kPieceBytes));
    }
    wire::Attachment& announced = *frame.add_attachments();
    announced.set_field(number);
    announced.set_bytes(bytes.size());
    ++attachment;
  }
  frames.push_back(std::move(frame));
  return frames;
}

absl::Status PieceJoiner::Take(const wire::Piece& piece) {
  const uint64_t next = fields_.size();
  if (piece.attachment() == next && next < fields_max_) {
    fields_.emplace_back();
  } else if (piece.attachment() + uint64_t{1} != next) {
    return absl::InvalidArgumentError(absl::StrCat("a piece of field ", piece.attachment(),
                                                   " came after ", next,
                                                   " fields: pieces must come in order"));
  }
  bytes_ += piece.data().size();
  if (bytes_ > bytes_max_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the pieces of a message exceed the limit of ", bytes_max_,
                     " bytes on this link: pass large constants as arguments"));
  }
  fields_.back() += piece.data();
  return absl::OkStatus();
}

// Moves the fields that came as pieces to their places in the frame.
absl::Status PieceJoiner::Place(const wire::Frame& frame, std::vector<std::string> fields,
                                const std::vector<std::string*>& places) {
  if (static_cast<size_t>(frame.attachments_size()) != fields.size()) {
    return absl::DataLossError(absl::StrCat("a frame with ", frame.attachments_size(),
                                            " fields in pieces came after the pieces of ",
                                            fields.size()));
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    const wire::Attachment& announced = frame.attachments(static_cast<int>(i));
    if (announced.field() >= places.size())
      return absl::InvalidArgumentError("pieces came for a field that comes whole");
    if (announced.bytes() != fields[i].size()) {
      return absl::DataLossError(absl::StrCat("a field came in pieces with ", fields[i].size(),
                                              " bytes, but ", announced.bytes(),
                                              " were announced"));
    }
    *places[announced.field()] = std::move(fields[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<wire::Frame>> PieceJoiner::Join(wire::Frame frame) {
  absl::Status joined;
  if (frame.has_piece()) {
    joined = Take(frame.piece());
    if (joined.ok()) return std::optional<wire::Frame>();
  } else if (!frame.attachments().empty()) {
    joined = Place(frame, std::exchange(fields_, {}), LargeFields(frame));
    bytes_ = 0;
    frame.clear_attachments();
  }
  if (joined.ok()) return std::optional(std::move(frame));
  fields_ = {};
  bytes_ = 0;
  return joined;
}

LinkEvents JoinPieces(LinkEvents events, size_t fields_max) {
  struct State {
    explicit State(size_t fields_max) : joiner(kLargeFieldsBytesMax, fields_max) {}
    PieceJoiner joiner;
    bool closed = false;
    LinkEvents events;
  };
  auto state = std::make_shared<State>(fields_max);
  LinkEvents joined = events;
  state->events = std::move(events);
  joined.on_frame = [state](wire::Frame frame) {
    if (state->closed) return;
    if (PieceJoiner::Passes(frame)) return state->events.on_frame(std::move(frame));
    auto whole = state->joiner.Join(std::move(frame));
    if (!whole.ok()) {
      state->closed = true;
      return state->events.on_closed(whole.status());
    }
    if (*whole) state->events.on_frame(**std::move(whole));
  };
  joined.on_closed = [state](const absl::Status& why) {
    if (!std::exchange(state->closed, true)) state->events.on_closed(why);
  };
  return joined;
}

}  // namespace gangway::transport
