// Collectives of Gangway's own in sim programs: what they mean, and how a run calls them. Pure functions.
#ifndef GANGWAY_DEVICE_SIM_SIM_COLLECTIVES_H_
#define GANGWAY_DEVICE_SIM_SIM_COLLECTIVES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/device/device.h"
#include "gangway/device/sim/sim_program.h"
#include "gangway/device/sim/sim_timer.h"

namespace gangway::device {

// A serialized sim program with the table of its collectives, as a serialized xla::LoweredExecutable: it can be loaded
// on a part of its devices. UNIMPLEMENTED: the program has no collectives of Gangway's own. INVALID_ARGUMENT: it is
// malformed.
absl::StatusOr<std::string> LowerSim(std::string_view serialized);

// All collectives of a run on `device`, on the contents of its inputs. Blocks. The errors of `call`; INTERNAL: the
// program fails on this device, at the time that the message tells; FAILED_PRECONDITION: the program has several
// partitions and there is no call.
absl::Status RunCollectives(const SimProgram& program, int device, const SimTimer& timer,
                            const CollectiveCall& call,
                            std::vector<std::vector<std::byte>>& inputs);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_SIM_SIM_COLLECTIVES_H_
