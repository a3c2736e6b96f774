// One call of a collective by one member: which of its operands' bytes go into which message, and how its results are
// made of what others have sent.
//
// Large operands of members on the same worker are not sent: each shows its operands and results (shown.h), and the
// others read them there. A member then ends its call when they have. Writing a result may not change what another
// member has yet to read. So an all-reduce may be in place (a member writes a part only when the member that reduces it
// has read it), and a ragged exchange may write over what its result was before. Any other overlap of a result and an
// operand is refused: XLA gives the results of these calls memory of their own.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_EXCHANGE_H_
#define GANGWAY_COLLECTIVE_EXECUTION_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "gangway/collective/execution/member.h"
#include "gangway/collective/execution/pieces.h"
#include "gangway/collective/execution/ragged.h"

namespace gangway::collective {

class Exchange {
 public:
  Exchange(Member& member, uint32_t number, uint32_t round,
           std::span<const std::span<const std::byte>> operands,
           std::span<const std::span<std::byte>> results);

  // Once no member here reads what this one shows.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // The errors of Member::Run.
  absl::Status Run();

 private:
  // Where the bytes of one source are: in a message, where a member of this worker has them, or where one of another
  // worker of this host shows them in its heap.
  struct Source {
    uint32_t position = 0;
    Shown* shown = nullptr;  // of another member here, which this one has entered
    bool is_self = false;
    std::shared_ptr<const ReadableHeap> heap;         // of its worker, which shows them there
    std::vector<const std::byte*> operands, results;  // in `heap`
    Member::Found found;  // none of these: the message; with `heap`: the one that shows them
    bool is_far() const { return heap != nullptr; }
    bool is_direct() const { return is_self || shown != nullptr || is_far(); }
  };
  // The bytes of a source of this rank, from some place on.
  using BytesOf = absl::FunctionRef<const std::byte*(size_t rank)>;

  xla::Collective::Kind kind() const { return planned_.meaning.kind(); }
  size_t piece(size_t operand) const {
    return planned_.meaning.operands(static_cast<int>(operand)).piece_bytes();
  }
  size_t members() const { return planned_.group_size; }
  MessageKey Key(size_t message, bool is_result) const;
  bool IsRead(const Message& message) const;
  Reach ReachOf(const Message& message) const {
    return IsRead(message) ? Reach::kElsewhere : Reach::kAll;
  }
  bool IsSent(size_t index) const {
    if (shows_) return index == 0;
    return !IsRead(planned_.messages[index]) || has_readers_elsewhere_;
  }
  const std::byte* operand(const Source& source, size_t index) const {
    if (source.is_self) return operands_[index].data();
    return source.is_far() ? source.operands[index] : source.shown->operand(index);
  }
  const std::byte* result(const Source& source, size_t index) const {
    return source.is_far() ? source.results[index] : source.shown->result(index);
  }

  void FindMembersHere();
  // INTERNAL: a result overlaps an operand that others may not have read yet.
  absl::Status CheckOverlaps() const;
  absl::Status ExchangeAll();
  absl::Status SendAndReceive();
  void LeaveSources();
  // Whether all other members may read this one's operands and results where they are, if these are in a heap.
  bool MayShow() const;
  // Also notes in the launch the operands that are not.
  bool AreInHeap() const;
  absl::Status ShowInHeap();
  // Of a message that shows where a source's operands and results are. INTERNAL: not in its worker's heap.
  absl::Status FindInHeap(Source& source);
  // A source that showed its operands need not keep them any longer.
  absl::Status ConsumeShown();
  // Until the members here have read what this one shows.
  absl::Status AwaitReadersHere();
  Shown& own_shown() const;

  absl::Status Send(size_t index);
  ByteRange NeedOf(const Message& message, const Segment& segment, size_t rank) const;
  // Not what only members here need of a message that they read where it is.
  void Pack(const Message& message, const Segment& segment, std::byte* into) const;
  bool IsPackedFor(const Message& message, size_t rank) const {
    return !IsRead(message) || is_elsewhere_[rank];
  }
  absl::Status Receive(size_t index);
  absl::Status ReceiveRagged(const Message& message);
  absl::Status ReceiveInParts(size_t index, const Message& message);
  absl::Status SendPart(size_t index, const Segment& segment, const ByteRange& own);
  // Whether the message is the last one of a round: those that read this member's parts where they are learn only then
  // that it has reduced them.
  bool EndsRound(size_t index) const;
  absl::Status GatherSent(size_t index);
  absl::Status GatherShown(size_t last);
  void CopyPart(size_t index, size_t rank, const std::byte* from) const;
  void CopyResult(std::byte* to, const std::byte* from, size_t bytes) const;
  void CopyResults(const Spaced<std::byte>& to, const Spaced<const std::byte>& from,
                   const PieceRuns& runs) const;
  // Finds the bytes of each source.
  absl::Status ReceiveFrom(size_t index, const Message& message);
  absl::Status FindBytes(Source& source, size_t index, const Message& message);
  absl::Status ConsumeAll(const Message& message);
  void Unpack(const Message& message, const Segment& segment) const;
  void UnpackBlocks(const Message& message, const Segment& segment) const;
  // What source `rank` has of a segment that all members get whole.
  const std::byte* Whole(const Message& message, const Segment& segment, size_t rank) const;
  // What it has for this member of a segment in blocks: of the piece at unit `at`, which is at `place` of its operand.
  const std::byte* Block(const Message& message, const Segment& segment, size_t rank, size_t at,
                         size_t place) const;
  void Reduce(const Segment& segment, size_t bytes, std::byte* into, BytesOf bytes_of) const;
  ByteRange PartOf(const Segment& segment, size_t rank) const;

  Member& member_;
  const PlannedCollective& planned_;
  const Role& role_;
  const MessageKey key_;
  const std::span<const std::span<const std::byte>> operands_;
  const std::span<const std::span<std::byte>> results_;
  const bool is_beyond_caches_;         // the results of this host's members together
  bool has_large_ = false;              // messages that members here read where they are
  bool has_readers_elsewhere_ = false;  // on other workers
  // Of this worker, if other workers may read there. Null: they may not.
  std::shared_ptr<const ReadableHeap> heap_;
  bool shows_ = false;                  // operands and results, to other workers
  bool is_open_ = false;                // this device shows its operands
  bool is_over_ = false;                // Run has come to its end
  std::vector<uint32_t> readers_here_;  // positions, without this one
  std::vector<bool> is_elsewhere_;      // by rank of the readers
  std::vector<Source> sources_;
  std::optional<RaggedPart> ragged_;  // of a ragged exchange
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_EXCHANGE_H_
