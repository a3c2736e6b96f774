// Where a member finds the bytes of one source of a collective: in messages in the slots of the source's device, or of
// a mirror of it; or in the source's operands and results themselves, which the source shows to members of its worker,
// or in its worker's heap.
//
// A source's messages are awaited, read and ended in their order. Where operands are reduced in parts, a source reports
// its part of the results once it has reduced it: with each message, or once for a round of them.
//
// Threading: the member's thread. What a source gives is valid until the end of the message or part, or until Leave.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_SOURCE_H_
#define GANGWAY_COLLECTIVE_EXECUTION_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/collective/execution/arena.h"
#include "gangway/collective/execution/call.h"
#include "gangway/collective/execution/waiter.h"

namespace gangway::collective {

class Source {
 public:
  // When a source says that its part of the results is reduced.
  enum class Reports { kEachMessage, kEachRound, kNever };

  virtual ~Source() = default;

  // Waits until a message of the call can be read. The errors of Waiter::Await; INTERNAL: the source shows memory that
  // it does not have.
  virtual absl::Status Await(size_t message) = 0;
  // Of the awaited message: a segment that all readers get whole.
  virtual const std::byte* Whole(const Segment& segment) const = 0;
  // Of a segment in blocks: what is for this member, from unit `at` of the segment on. In the operand, that is at
  // `offset`.
  virtual const std::byte* Block(const Segment& segment, size_t at, size_t offset) const = 0;
  // How far apart the pieces of a block are, which are `piece` bytes long.
  virtual size_t PieceDistance(size_t piece) const = 0;
  // This member has read the message, and what it read is what the source wrote. UNAVAILABLE: the source has left the
  // gang; the reason of an abort; INVALID_ARGUMENT: a later message of the source was read before.
  virtual absl::Status EndMessage() = 0;
  // The same after the last one of a collective that is not reduced in parts.
  virtual absl::Status EndMessages() { return absl::OkStatus(); }

  virtual Reports reports() const = 0;
  // Waits until the source has reduced its part of the message; with kEachRound, of the round that the message ends.
  virtual absl::Status AwaitPart(size_t message) = 0;
  // The part of a message whose report has come; `part`: its range in the segment.
  virtual const std::byte* Part(const Segment& segment, const ByteRange& part) const = 0;
  // As EndMessage.
  virtual absl::Status EndPart() = 0;

  // The call has ended, well or not: this member reads the source no more. True: the source may wait for that.
  virtual bool Leave() { return false; }
};

// What a member has read of the messages in the slots of other devices.
class MessageReader {
 public:
  MessageReader(Waiter& waiter, const Call& call) : waiter_(waiter), call_(call) {}

  // Where a message is.
  struct Found {
    const std::byte* data = nullptr;
    const Region::Header* header = nullptr;
    uint64_t sequence = 0;
    bool shows = false;
  };
  absl::StatusOr<Found> Receive(uint32_t source, const MessageKey& key);
  // What was read was the message.
  absl::Status CheckStays(uint32_t source, const Found& found);
  // The same, and its sender may write over it. INVALID_ARGUMENT: a later message of the sender was read before.
  absl::Status Consume(uint32_t source, const Found& found);
  // Wakes the sources that wait for what has been consumed since the last time.
  void TellReads();

  Waiter& waiter() const { return waiter_; }
  const Call& call() const { return call_; }

 private:
  absl::Status OutOfOrder(uint32_t source) const;

  Waiter& waiter_;
  const Call& call_;
  bool has_consumed_ = false;
};

// Messages in the slots of a device of this host.
class SlotSource : public Source {
 public:
  SlotSource(MessageReader& reader, uint32_t position) : reader_(&reader), position_(position) {}

  absl::Status Await(size_t message) override;
  const std::byte* Whole(const Segment& segment) const override;
  const std::byte* Block(const Segment& segment, size_t at, size_t offset) const override;
  size_t PieceDistance(size_t piece) const override { return piece; }
  absl::Status EndMessage() override { return Consume(); }
  Reports reports() const override { return Reports::kEachMessage; }
  absl::Status AwaitPart(size_t message) override;
  const std::byte* Part(const Segment& segment, const ByteRange& part) const override;
  absl::Status EndPart() override { return Consume(); }

  // The last message that was awaited.
  const MessageReader::Found& found() const { return found_; }
  uint32_t position() const { return position_; }
  MessageReader& reader() const { return *reader_; }

 protected:
  virtual absl::Status Consume() { return reader_->Consume(position_, found_); }

 private:
  MessageReader* reader_;
  uint32_t position_;
  MessageReader::Found found_;
};

// Messages of a device on another host, in the mirror of it. That worker is told what has been read.
class MirrorSource final : public SlotSource {
 public:
  using SlotSource::SlotSource;

 protected:
  absl::Status Consume() override;
};

// Operands and results where they are.
class DirectSource : public Source {
 public:
  explicit DirectSource(const Call& call) : call_(call) {}

  const std::byte* Whole(const Segment& segment) const override {
    return operand(segment.operand) + segment.begin;
  }
  const std::byte* Block(const Segment& segment, size_t at, size_t offset) const override;
  size_t PieceDistance(size_t piece) const override { return piece * call_.members(); }
  const std::byte* Part(const Segment& segment, const ByteRange& part) const override {
    return result(segment.operand) + segment.begin + part.offset;
  }

 protected:
  virtual const std::byte* operand(size_t index) const = 0;
  virtual const std::byte* result(size_t index) const = 0;
  const Call& call() const { return call_; }

 private:
  const Call& call_;
};

// This member itself. Its part of a result is where it belongs.
class OwnSource final : public DirectSource {
 public:
  using DirectSource::DirectSource;

  absl::Status Await(size_t /*message*/) override { return absl::OkStatus(); }
  absl::Status EndMessage() override { return absl::OkStatus(); }
  Reports reports() const override { return Reports::kNever; }
  absl::Status AwaitPart(size_t /*message*/) override { return absl::OkStatus(); }
  absl::Status EndPart() override { return absl::OkStatus(); }

 protected:
  const std::byte* operand(size_t index) const override { return call().operands[index].data(); }
  const std::byte* result(size_t index) const override { return call().results[index].data(); }
};

// Another member on this worker (shown.h).
class ShownSource final : public DirectSource {
 public:
  ShownSource(Waiter& waiter, const Call& call, uint32_t position);
  ~ShownSource() override { Leave(); }
  ShownSource(const ShownSource&) = delete;
  ShownSource& operator=(const ShownSource&) = delete;

  absl::Status Await(size_t message) override;
  absl::Status EndMessage() override { return absl::OkStatus(); }
  Reports reports() const override { return Reports::kEachRound; }
  absl::Status AwaitPart(size_t message) override;
  absl::Status EndPart() override { return absl::OkStatus(); }
  bool Leave() override;

 protected:
  const std::byte* operand(size_t index) const override { return shown_.operand(index); }
  const std::byte* result(size_t index) const override { return shown_.result(index); }

 private:
  Waiter& waiter_;
  const PeerDevice& device_;
  Shown& shown_;
  bool has_entered_ = false;
};

// A member on another worker of this host, whose first message says where its operands and results are in that worker's
// heap. Its reports are messages.
class HeapSource final : public DirectSource {
 public:
  // From the message that `slot` has found. INTERNAL: it shows memory that is not in the worker's heap; as EndMessage.
  static absl::StatusOr<std::unique_ptr<HeapSource>> Make(const SlotSource& slot);

  absl::Status Await(size_t /*message*/) override { return absl::OkStatus(); }
  absl::Status EndMessage() override { return CheckShown(); }
  absl::Status EndMessages() override;
  Reports reports() const override { return Reports::kEachRound; }
  absl::Status AwaitPart(size_t message) override { return reports_.AwaitPart(message); }
  absl::Status EndPart() override;

 protected:
  const std::byte* operand(size_t index) const override { return operands_[index]; }
  const std::byte* result(size_t index) const override { return results_[index]; }

 private:
  explicit HeapSource(const SlotSource& slot)
      : DirectSource(slot.reader().call()), shows_(slot), reports_(slot) {}
  // What was read in the source's heap was what it showed.
  absl::Status CheckShown();

  SlotSource shows_, reports_;                // the message that shows them, and those of parts
  std::shared_ptr<const ReadableHeap> heap_;  // of its worker
  std::vector<const std::byte*> operands_, results_;  // there
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_SOURCE_H_
