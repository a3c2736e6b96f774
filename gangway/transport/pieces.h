// Large fields of frames cross a link as pieces, ahead of their frame: programs and executables, which may be larger
// than a frame may be. PacedSender cuts them, PieceJoiner joins them.
#ifndef GANGWAY_TRANSPORT_PIECES_H_
#define GANGWAY_TRANSPORT_PIECES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/transport/transport.h"

namespace gangway::transport {

// The large fields of one frame, all together: a program, or a compiled executable and its optimized program.
inline constexpr uint64_t kLargeFieldsBytesMax = uint64_t{512} << 20;
inline constexpr size_t kLargeFieldsMax = 2;  // of a frame between roles
inline constexpr size_t kHostCallFieldsMax =
    1024;  // of a host callback or its reply, on a data stream

// The fields of a frame that may cross the link as pieces, in a fixed order. Empty for frames without such fields, and
// for batches of more than one item.
std::vector<std::string*> LargeFields(wire::Frame& frame);

// The frame, ahead of it its large fields in pieces of 1 MiB, if it has any: for links without a PacedSender. Another
// frame with pieces must not come between these.
std::vector<wire::Frame> CutPieces(wire::Frame frame);

// The receiving end of one link. Frames without pieces may come between the pieces of another frame.
//
// Not thread-safe. Holds the bytes of the pieces that came, of one frame at most, and never more than its limit. They
// go with the link: a peer that sends the first half of a program and no more costs this much until its link ends.
class PieceJoiner {
 public:
  // `bytes_max` 0: no pieces are expected on this link. `fields_max`: of one frame.
  explicit PieceJoiner(uint64_t bytes_max = kLargeFieldsBytesMax,
                       size_t fields_max = kLargeFieldsMax)
      : bytes_max_(bytes_max), fields_max_(fields_max) {}

  // Whether Join would return the frame as it is. Almost all frames of a link are such.
  static bool Passes(const wire::Frame& frame) {
    return !frame.has_piece() && frame.attachments().empty();
  }

  // A whole frame; nothing if `frame` was a piece. After an error the link must be closed, and the pieces that came
  // are dropped. INVALID_ARGUMENT: pieces out of order, over the limit, or of no such field. DATA_LOSS: more or fewer
  // bytes than were announced.
  absl::StatusOr<std::optional<wire::Frame>> Join(wire::Frame frame);

 private:
  absl::Status Take(const wire::Piece& piece);
  static absl::Status Place(const wire::Frame& frame, std::vector<std::string> fields,
                            const std::vector<std::string*>& places);

  const uint64_t bytes_max_;
  const size_t fields_max_;
  uint64_t bytes_ = 0;               // of fields_
  std::vector<std::string> fields_;  // of the frame that is to come
};

// The same events, with whole frames only. After pieces that cannot be joined, the only further event is on_closed,
// upon which the owner drops the link, as after any other.
LinkEvents JoinPieces(LinkEvents events, size_t fields_max = kLargeFieldsMax);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_PIECES_H_
