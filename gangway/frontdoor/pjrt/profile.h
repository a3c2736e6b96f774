// A session's runs as an XSpace, XLA's form of a profile: a plane per device, with one event per run. Pure.
#ifndef GANGWAY_FRONTDOOR_PJRT_PROFILE_H_
#define GANGWAY_FRONTDOOR_PJRT_PROFILE_H_

#include <cstdint>

#include "gangway/client/client.h"
#include "gangway/xla/xplane.pb.h"

namespace gangway::pjrt {

// A stretch of time, on this host's steady clock, and what is added to it for the time since 1970.
struct ProfileSpan {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t epoch_offset_ns = 0;
};

// Adds a plane for each device of the cluster, with the runs that fall into `span` at least partly.
void AddPlanes(const ClusterInfo& cluster, const SessionProfile& profile, const ProfileSpan& span,
               xla::XSpace& space);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_PROFILE_H_
