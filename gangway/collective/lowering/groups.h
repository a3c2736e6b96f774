// Which logical positions meet in a collective instruction: its groups in any of the forms that plugins write, in any
// of XLA's modes, as explicit groups of positions. A form that is not known is refused, since a lost group is a
// silently wrong answer. Pure functions on untrusted protos.
#ifndef GANGWAY_COLLECTIVE_LOWERING_GROUPS_H_
#define GANGWAY_COLLECTIVE_LOWERING_GROUPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/xla/collectives.pb.h"
#include "gangway/xla/hlo_edit.pb.h"

namespace gangway::collective {

// Position = replica x partitions + partition.
struct Positions {
  int64_t replicas = 1;
  int64_t partitions = 1;
  int64_t count() const { return replicas * partitions; }
};

// Errors: INVALID_ARGUMENT: groups that overlap, are out of range or are said twice; UNIMPLEMENTED: another form.
absl::StatusOr<xla::CollectiveGroups> GroupsOf(const xla::HloInstructionEditProto& instruction,
                                               const Positions& positions);

// INVALID_ARGUMENT: a position is in no group.
absl::Status CheckComplete(const xla::CollectiveGroups& groups, const Positions& positions);

// The members of each group. INVALID_ARGUMENT: not the same number.
absl::StatusOr<int64_t> GroupSize(const xla::CollectiveGroups& groups);

// Fills sources and targets. INVALID_ARGUMENT: a pair is out of range, or a position has two sources or two targets.
absl::Status AddPairs(const xla::HloInstructionEditProto& instruction, const Positions& positions,
                      xla::Collective& permute);

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_LOWERING_GROUPS_H_
