// Programs on the wire (wire/program.proto). Functions are named by the decimal numbers of their executables' handles.
#ifndef GANGWAY_PROGRAM_WIRE_FORM_H_
#define GANGWAY_PROGRAM_WIRE_FORM_H_

#include <cstdint>

#include "absl/status/statusor.h"

#include "gangway/program/program.h"
#include "gangway/wire/program.pb.h"

namespace gangway::program {

// Limits of one program (TM-2).
inline constexpr uint32_t kNodesMax =
    16384;  // of calls, transfers and views; and as many arguments, and as many results
inline constexpr uint32_t kValuesMax = 1 << 20;
inline constexpr size_t kInputsMax =
    size_t{1} << 21;  // of all nodes together, and of all device lists together

// A program that verifies, has no frees, and names its functions by numbers; kArgument and kResult nodes become the
// message's numbers of arguments and results. So the results come last, and they and the arguments have no sources.
// Shapes, what calls donate, and devices of other nodes than transfers, which Bind finds, are not part of the message.
void ToWire(const Program& program, wire::Program& message);

// INVALID_ARGUMENT or RESOURCE_EXHAUSTED, naming the node: indices outside of the tables, values that are not defined
// before, limits passed. The rest is for Verify. Takes time and memory in proportion to the message and to the numbers
// of arguments and outputs in it, which are refused beyond the limits before they are used.
absl::StatusOr<Program> FromWire(const wire::Program& message);

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_WIRE_FORM_H_
