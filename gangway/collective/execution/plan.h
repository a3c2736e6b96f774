// What each position of a lowered program does in its collectives: whom it meets, in which pieces its operands travel,
// and where pieces of others belong in its results. Made once when a program is loaded, from the compiler's table, and
// read by all positions.
//
// A collective's operands travel as messages of at most kMessageBytes, the same number of them from each member, in the
// same order. Small operands share a message. A segment of a message covers a range of one operand's units: bytes of
// the smaller side of the collective, see Segment.
//
// Immutable, so thread-safe. The table is not trusted: what does not fit together is an error, never a wrong answer.
// The memory of a plan has a limit.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_PLAN_H_
#define GANGWAY_COLLECTIVE_EXECUTION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/xla/collectives.pb.h"

namespace gangway::collective {

inline constexpr size_t kMessageBytes = size_t{256} << 10;
// Segments begin at multiples of it, in a message.
inline constexpr size_t kSegmentAlignment = 64;
// Operands of a reduction up to this size are reduced by every member. Of larger ones each member reduces a part.
inline constexpr size_t kFlatBytes = size_t{16} << 10;
// In larger groups, members do not read all others where that can be helped: to wait for the few steps of a relay then
// costs less than the messages of all.
inline constexpr size_t kDirectMembersMax = 64;
// Of a program: its positions, the messages of one member in all collectives (256 GiB of large operands), and the roles
// in all different sets of groups and pairs.
inline constexpr size_t kPositionsMax = size_t{1} << 14;
inline constexpr size_t kMessagesMax = size_t{1} << 20;
inline constexpr size_t kRolesMax = size_t{1} << 21;

// Operands of a ragged exchange: its rows, what its result is where no row arrives, and four lists, of which the first
// three are sent (ragged.h).
inline constexpr size_t kRaggedRows = 0;
inline constexpr size_t kRaggedBefore = 1;
inline constexpr size_t kRaggedLists = 2;
inline constexpr size_t kRaggedOperands = 6;

// Units [begin, begin + bytes) of an operand. A unit is a byte of the operand or, where members send different bytes to
// different members (reduce-scatter, all-to-all, lists of a ragged exchange), a byte for each of them: then the message
// holds a block for each member, `stride` bytes apart.
struct Segment {
  size_t operand = 0;
  size_t begin = 0;
  size_t bytes = 0;
  size_t offset = 0;  // in the message
  size_t stride = 0;
};

struct Message {
  std::vector<Segment> segments;
  size_t bytes = 0;
  // Of a reduction: each member reduces a part of it, and sends the part's result in a second message.
  bool in_parts = false;
};

// Whether a member sends different bytes of the operand to different members.
bool SendsBlocks(xla::Collective::Kind kind, size_t operand);

using PositionList = std::shared_ptr<const std::vector<uint32_t>>;

// A position's part in a collective. Members of a group share its list.
struct Role {
  // The group's members in its order, which is the order of reductions. Of a permutation and a broadcast: the one that
  // this position reads. Null: none.
  PositionList sources;
  PositionList
      readers;  // positions that read what this one sends, perhaps itself; null: it sends nothing
  size_t rank = 0;  // of this position in the group
};

// By position. Collectives with the same groups or pairs share one list.
class Roles {
 public:
  Roles() = default;
  explicit Roles(std::vector<Role> roles)
      : list_(std::make_shared<const std::vector<Role>>(std::move(roles))) {}

  const Role& operator[](size_t position) const { return (*list_)[position]; }
  size_t size() const { return list_ == nullptr ? 0 : list_->size(); }

 private:
  std::shared_ptr<const std::vector<Role>> list_;
};

// How members get what others give.
enum class Route {
  kDirect,   // each reads its sources (exchange.h)
  kRelayed,  // others pass it on (relay.h)
};

struct PlannedCollective {
  xla::Collective meaning;
  Route route = Route::kDirect;
  size_t group_size = 0;              // of the largest group
  std::vector<size_t> units;          // by operand: of one member's range, in bytes; 0: not sent
  std::vector<size_t> operand_bytes;  // that the program passes
  std::vector<size_t> result_bytes;
  std::vector<Message> messages;
  Roles roles;
  std::string Name() const;  // for errors: what it is, and where
};

class Plan {
 public:
  // INVALID_ARGUMENT: the table does not fit together. UNIMPLEMENTED: a collective or an element type that cannot be
  // executed, named. RESOURCE_EXHAUSTED: a collective's operands or groups are over a limit above.
  static absl::StatusOr<std::shared_ptr<const Plan>> Make(const xla::CollectiveTable& table);

  uint32_t position_count() const { return position_count_; }
  size_t size() const { return collectives_.size(); }
  const PlannedCollective& at(size_t number) const { return collectives_[number]; }
  // By position: whether it exchanges messages with one of these.
  std::vector<bool> Met(std::span<const uint32_t> positions) const;
  // Whether a position may end well without reading all that others have sent to it.
  bool may_diverge() const { return may_diverge_; }

 private:
  Plan() = default;

  uint32_t position_count_ = 0;
  bool may_diverge_ = false;
  std::vector<PlannedCollective> collectives_;
};

// What a serialized LoweredExecutable says of its collectives (null: it has none), and the executable itself.
struct Unpacked {
  std::shared_ptr<const Plan> plan;
  std::string executable;
};
// INVALID_ARGUMENT: it is malformed, or not of so many positions; the errors of Plan::Make.
absl::StatusOr<Unpacked> Unpack(const std::string& serialized, size_t positions);

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_PLAN_H_
