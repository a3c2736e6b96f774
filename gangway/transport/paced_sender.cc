// Implementation of paced_sender.h.
#include "gangway/transport/paced_sender.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::transport {
namespace {

constexpr size_t kItemOverhead = 16;  // of an item in its batch
constexpr size_t kStampBytes = 64;    // what a Stamp may add

// Moves the items of `all` to frames made by `make`, each of at most `bytes_max`. An item that is larger, or `alone`,
// gets a frame of its own.
template <typename Items, typename Make, typename Alone>
void SplitItems(Items& all, size_t bytes_max, const Make& make, const Alone& alone) {
  Items* part = nullptr;
  size_t bytes = 0;
  for (auto& item : all) {
    const size_t more = item.ByteSizeLong() + kItemOverhead;
    const bool own = alone(item);
    if (part == nullptr || own || bytes + more > bytes_max) {
      part = make();
      bytes = 0;
    }
    part->Add(std::move(item));
    bytes = own ? bytes_max : bytes + more;
  }
}

bool HasLoad(const wire::Frame& frame) {
  const auto& items = frame.island_batch().items();
  return std::any_of(items.begin(), items.end(), [](const auto& item) { return item.has_load(); });
}

}  // namespace

PacedSender::PacedSender(std::shared_ptr<Link> link, Stamp stamp, const Options& options)
    : link_(std::move(link)),
      stamp_(std::move(stamp)),
      options_(options),
      // A link inside a process moves frames, so that cutting them would only copy.
      frame_bytes_(link_->frame_bytes_max() == std::numeric_limits<size_t>::max()
                       ? link_->frame_bytes_max() / 2
                       : std::min(options.frame_bytes, link_->frame_bytes_max() / 2)) {}

// Loads whose programs are kept apart leave one by one: LargeFields finds none in a batch of several.
void PacedSender::Split(wire::Frame frame, bool loads_alone, std::vector<Waiting>& parts) const {
  auto add = [&parts]() -> wire::Frame& { return parts.emplace_back().frame; };
  auto never = [](const auto&) { return false; };
  if (frame.has_island_batch()) {
    SplitItems(
        *frame.mutable_island_batch()->mutable_items(), frame_bytes_,
        [&] { return add().mutable_island_batch()->mutable_items(); },
        [&](const wire::IslandItem& item) { return loads_alone && item.has_load(); });
  } else if (frame.has_session_batch()) {
    SplitItems(
        *frame.mutable_session_batch()->mutable_ops(), frame_bytes_,
        [&] { return add().mutable_session_batch()->mutable_ops(); }, never);
  } else if (frame.has_session_events()) {
    SplitItems(
        *frame.mutable_session_events()->mutable_events(), frame_bytes_,
        [&] { return add().mutable_session_events()->mutable_events(); }, never);
  } else if (frame.has_report_batch()) {
    SplitItems(
        *frame.mutable_report_batch()->mutable_reports(), frame_bytes_,
        [&] { return add().mutable_report_batch()->mutable_reports(); }, never);
  } else {
    add() = std::move(frame);
  }
}

// Takes the large fields out of the frame, and counts what waits with it.
absl::Status PacedSender::TakeFields(Waiting& part, const ProgramOf& program_of) const {
  const std::vector<std::string*> places = LargeFields(part.frame);
  uint64_t fields_bytes = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    Bytes field;
    if (program_of && part.frame.has_island_batch())
      field = program_of(part.frame.island_batch().items(0).load());
    const bool shared = field != nullptr;
    if ((shared ? *field : *places[i]).size() <= frame_bytes_ / 2) {
      part.program = std::move(field);
      continue;
    }
    if (!shared) field = std::make_shared<const std::string>(std::exchange(*places[i], {}));
    fields_bytes += field->size();
    if (!shared) part.bytes += field->size();
    wire::Attachment& attachment = *part.frame.add_attachments();
    attachment.set_field(static_cast<uint32_t>(i));
    attachment.set_bytes(field->size());
    part.fields.push_back(std::move(field));
  }
  if (fields_bytes > options_.fields_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("a program or executable of ", fields_bytes, " bytes is over the limit of ",
                     options_.fields_bytes_max, " bytes: pass large constants as arguments"));
  }
  const size_t bytes = part.frame.ByteSizeLong();
  part.bytes += bytes + sizeof(Waiting);  // which is most of a tiny frame
  if (bytes + kStampBytes <= link_->frame_bytes_max()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a message of ", bytes, " bytes to ",
                                                 link_->peer().address, " is over the limit of ",
                                                 link_->frame_bytes_max(), " bytes"));
}

bool PacedSender::GoesAtOnce() const {
  return waiting_.empty() && link_->queued_bytes() <= link_->writable_bytes();
}

// Where frames are moved, none is too large: its size need not be computed.
bool PacedSender::moves_frames() const {
  return link_->frame_bytes_max() == std::numeric_limits<size_t>::max();
}

bool PacedSender::GoesAsItIs(const wire::Frame& frame, const ProgramOf& program_of) const {
  if (!GoesAtOnce()) return false;
  if (!moves_frames() && frame.ByteSizeLong() > frame_bytes_ / 2) return false;
  return !program_of || !HasLoad(frame);
}

bool PacedSender::GoAsTheyAre(FrameParts parts, const ProgramOf& program_of) const {
  if (!GoesAtOnce()) return false;
  if (!moves_frames() && BytesOf(parts) > frame_bytes_ / 2) return false;
  return !program_of || std::none_of(parts.begin(), parts.end(), [](const FramePartRef& part) {
    return HasLoad(part->frame());
  });
}

absl::Status PacedSender::Send(wire::Frame frame, const ProgramOf& program_of) {
  if (GoesAsItIs(frame, program_of)) return SendNow(std::move(frame));
  if (waiting_bytes_ >= options_.waiting_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        waiting_bytes_, " bytes wait for ", link_->peer().address, ", which does not read them"));
  }
  std::vector<Waiting> parts;
  Split(std::move(frame), program_of != nullptr, parts);
  for (Waiting& part : parts) {
    absl::Status taken = TakeFields(part, program_of);
    if (!taken.ok()) return taken;
  }
  for (Waiting& part : parts) {
    waiting_bytes_ += part.bytes;
    waiting_.push_back(std::move(part));
  }
  return Pump();
}

absl::Status PacedSender::SendParts(FrameParts parts, const ProgramOf& program_of) {
  wire::Frame frame;
  if (GoAsTheyAre(parts, program_of)) {
    if (stamp_) stamp_(frame);
    return link_->SendParts(std::move(frame), parts);
  }
  for (const FramePartRef& part : parts) frame.MergeFrom(part->frame());
  return Send(std::move(frame), program_of);
}

absl::Status PacedSender::SendNow(wire::Frame frame) {
  if (stamp_) stamp_(frame);
  return link_->Send(std::move(frame));
}

absl::Status PacedSender::Pump() {
  while (!waiting_.empty() && link_->queued_bytes() <= link_->writable_bytes()) {
    Waiting& front = waiting_.front();
    wire::Frame next;
    if (front.field < front.fields.size()) {
      next = NextPiece(front);
    } else {
      if (front.program) *LargeFields(front.frame)[0] = *front.program;
      next = std::move(front.frame);
      waiting_bytes_ -= front.bytes;
      waiting_.pop_front();
    }
    absl::Status sent = SendNow(std::move(next));
    if (!sent.ok()) return sent;
  }
  return absl::OkStatus();
}

wire::Frame PacedSender::NextPiece(Waiting& part) const {
  const std::string& field = *part.fields[part.field];
  wire::Frame frame;
  wire::Piece& piece = *frame.mutable_piece();
  piece.set_attachment(static_cast<uint32_t>(part.field));
  *piece.mutable_data() = field.substr(part.offset, frame_bytes_);
  part.offset += piece.data().size();
  if (part.offset == field.size()) {
    part.fields[part.field++].reset();
    part.offset = 0;
  }
  return frame;
}

}  // namespace gangway::transport
