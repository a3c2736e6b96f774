// Describes one collective instruction for the table of a program: its kind, reduction, extents, pairs. Pure functions
// on untrusted protos.
#ifndef GANGWAY_COLLECTIVE_LOWERING_DESCRIBE_H_
#define GANGWAY_COLLECTIVE_LOWERING_DESCRIBE_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/collective/lowering/groups.h"
#include "gangway/xla/collectives.pb.h"
#include "gangway/xla/hlo_edit.pb.h"

namespace gangway::collective {

// One that LowerCollectives takes out.
bool IsCollective(std::string_view opcode);
// Devices wait for one another in it, but it is of another form: half of an asynchronous pair, a send, a receive.
bool IsOtherCommunication(std::string_view opcode);
// False: a serialized program has neither. Reads the bytes, not the program.
bool MayCommunicate(std::string_view program);

// `operands`: its operands' shapes. `reducer`: the computation that it calls; null: none. `groups`: empty for PERMUTE.
// Name, source and the groups' index are left to the caller.
// Errors: UNIMPLEMENTED: a reduction, a type or a layout that is not known; INVALID_ARGUMENT: what contradicts itself.
absl::StatusOr<xla::Collective> Describe(const xla::HloInstructionEditProto& instruction,
                                         const std::vector<const xla::ShapeProto*>& operands,
                                         const xla::HloComputationEditProto* reducer,
                                         const xla::CollectiveGroups& groups,
                                         const Positions& positions);

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_LOWERING_DESCRIBE_H_
