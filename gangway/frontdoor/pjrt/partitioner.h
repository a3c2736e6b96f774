// Calls that a function of the script partitions while the program is compiled: jax.custom_partitioning, and
// jax.debug.inspect_array_sharding, which only looks. The cluster's compiler asks how to partition them
// (xla/sharded_calls.proto), and is answered by the next compile of the same program, which has the answers in it.
//
// Threading: any thread, but not with Python's lock: the functions take it.
#ifndef GANGWAY_FRONTDOOR_PJRT_PARTITIONER_H_
#define GANGWAY_FRONTDOOR_PJRT_PARTITIONER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/frontdoor/pjrt/extensions.h"
#include "gangway/frontdoor/pjrt/stored_program.h"

namespace gangway::pjrt {

// Registers the functions for the calls of one target; later ones replace earlier ones. INVALID_ARGUMENT: there is no
// name, or there are no functions.
absl::Status RegisterPartitioner(RegisterPartitionerArgs& args);

// The program in a form that may ask; itself, if it cannot ask or is in that form.
StoredProgram AsAsking(StoredProgram program, size_t device_count);

// `program`, in that form, with the answers to `asks`: calls the script's functions. Errors: what they raise; INTERNAL
// if `asks` is malformed, or about calls that the program does not have.
absl::StatusOr<StoredProgram> Answer(const StoredProgram& program, const std::string& asks);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_PARTITIONER_H_
