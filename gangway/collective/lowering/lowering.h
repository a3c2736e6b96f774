// Takes the collectives out of a program, so that it can run on devices of several processes.
//
// The input is the optimized program of one device, after partitioning for N logical positions. In the output, which is
// for one position, each collective is a call of kCollectiveTarget with one number; what the number means is in the
// table. `partition-id` and `replica-id` are calls of kPositionTarget.
//
// The runtime starts an instruction as soon as its operands are there, in an order that differs between devices. So a
// value without meaning (s32[]) goes through all collectives, the chain: each takes it as its last operand and yields
// it as its last result, also into and out of every while, conditional and call that holds one. All positions then
// meet in the same order, one collective at a time. A loop calls the same number again: its rounds are counted.
//
// Integers of less than a byte go through a collective as bytes: they are converted before and after it.
//
// A call's operand and result may be the same memory, where the compiler had decided so for the collective.
//
// Pure functions on untrusted bytes. What is not known is refused by its name: a group or a reduction that is misread
// is a silently wrong answer.
#ifndef GANGWAY_COLLECTIVE_LOWERING_LOWERING_H_
#define GANGWAY_COLLECTIVE_LOWERING_LOWERING_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/xla/collectives.pb.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::collective {

// Typed-FFI targets. Attribute of the first: `number`, an index in the table. Of the second: `replica`, whether the
// replica is asked for, else the partition; its result is u32[].
inline constexpr std::string_view kCollectiveTarget = "gangway.collective";
inline constexpr std::string_view kPositionTarget = "gangway.position";

// Raised when another program or table is made of the same input: executables made before are not found in a cache.
inline constexpr uint32_t kLoweringVersion = 6;

struct Lowered {
  std::string program;  // a serialized HloModuleProto, scheduled, for run_backend_only
  xla::CollectiveTable table;
  xla::ProgramShapeProto shape;  // of what one position passes and gets, with layouts
  bool widens = false;           // integers of less than a byte go through a collective
};

// `hlo_with_config`: what PJRT_Executable_OptimizedProgram yields. Errors: INVALID_ARGUMENT: malformed, or a program
// that calls our targets itself; UNIMPLEMENTED: a form of communication that is not known, named with its instruction.
absl::StatusOr<Lowered> LowerCollectives(std::string_view hlo_with_config);

// INVALID_ARGUMENT, with the instruction: a program that was not lowered calls one of the targets.
absl::Status CheckNoOwnCalls(std::string_view hlo_with_config);

// For a program that keeps the runtime's own collectives, if it has some. INVALID_ARGUMENT, with the instruction: its
// groups overlap, miss positions or are out of range; or a pair is out of range, or a position has two sources or two
// targets. UNIMPLEMENTED: its elements have less than a byte (XLA CPU writes them past the end of the array). What is
// not known passes, since the runtime may know it: other forms of groups and of communication, and any reduction or
// layout.
absl::Status CheckKeptCollectives(std::string_view hlo_with_config);

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_LOWERING_LOWERING_H_
