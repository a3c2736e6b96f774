// The custom call by which a program that was compiled for one position learns at which one it runs. The handler finds
// the position by XLA's RunId, which is the launch id of the execute, and by the device.
//
// Threading: any thread. A program that asks outside of a launch with a position fails.
#ifndef GANGWAY_DEVICE_PJRT_POSITION_CALL_H_
#define GANGWAY_DEVICE_PJRT_POSITION_CALL_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "gangway/device/handler_group.h"

namespace gangway::device {

// Its attribute `replica` says whether the replica is asked for, else the partition.
inline constexpr std::string_view kPositionCallTarget = "gangway.position";

struct LogicalPosition {
  uint32_t replica = 0;
  uint32_t partition = 0;
};

// Of the execute with this launch id on this local device, from now on; null: no longer. Launch ids are those of one
// worker: a process that runs several must not let them execute parts of one launch that ask.
void SetPosition(int32_t launch_id, int device, std::optional<LogicalPosition> position);

// Whether a serialized executable may ask.
bool MayAskPosition(std::string_view serialized);

HandlerGroup PositionHandlers();

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_POSITION_CALL_H_
