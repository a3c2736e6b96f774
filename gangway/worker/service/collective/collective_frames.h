// Converts between the collective messages of wire/bulk.proto and collective/execution/peer.h: to frames for another
// worker, and from its frames into its mirror.
#ifndef GANGWAY_WORKER_SERVICE_COLLECTIVE_COLLECTIVE_FRAMES_H_
#define GANGWAY_WORKER_SERVICE_COLLECTIVE_COLLECTIVE_FRAMES_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "gangway/collective/execution/peer.h"
#include "gangway/wire/bulk.pb.h"

namespace gangway::worker {

// `message` null: reads only.
wire::Bulk ToBulk(const collective::Published* message,
                  std::span<const collective::ReadUpTo> reads);
wire::Bulk ToBulk(std::span<const collective::LeftUpTo> lefts);

// `own`: this worker's arena; `local`: its index. INVALID_ARGUMENT: it is not about collectives, or see Mirror.
absl::Status Take(const wire::Bulk& bulk, collective::Mirror& mirror, const collective::Arena& own,
                  uint32_t local);

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_COLLECTIVE_COLLECTIVE_FRAMES_H_
