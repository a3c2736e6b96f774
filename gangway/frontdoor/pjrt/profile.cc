// Implementation of profile.h.
#include "gangway/frontdoor/pjrt/profile.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"

namespace gangway::pjrt {
namespace {

constexpr int64_t kPicoseconds = 1000;  // of a nanosecond
constexpr int64_t kGangStat = 1;
constexpr char kLineName[] = "XLA Modules";  // by which viewers know lines of whole programs

// The number of a name in the plane, from 1.
int64_t MetadataOf(const std::string& program, std::map<std::string, int64_t>& known,
                   xla::XPlane& plane) {
  const auto [it, is_new] = known.emplace(program, static_cast<int64_t>(known.size()) + 1);
  if (is_new) {
    xla::XEventMetadata& metadata = (*plane.mutable_event_metadata())[it->second];
    metadata.set_id(it->second);
    metadata.set_name(program);
  }
  return it->second;
}

void AddEvent(const DeviceRun& run, const ProfileSpan& span, int64_t metadata, xla::XLine& line) {
  const int64_t begin = std::max(run.begin_ns, span.begin_ns);
  const int64_t end = std::min(run.end_ns, span.end_ns);
  xla::XEvent& event = *line.add_events();
  event.set_metadata_id(metadata);
  event.set_offset_ps((begin - span.begin_ns) * kPicoseconds);
  event.set_duration_ps((end - begin) * kPicoseconds);
  xla::XStat& gang = *event.add_stats();
  gang.set_metadata_id(kGangStat);
  gang.set_uint64_value(run.gang);
}

}  // namespace

void AddPlanes(const ClusterInfo& cluster, const SessionProfile& profile, const ProfileSpan& span,
               xla::XSpace& space) {
  for (const DeviceInfo& device : cluster.devices) {
    xla::XPlane& plane = *space.add_planes();
    plane.set_id(device.id);
    plane.set_name(absl::StrCat("/device:CUSTOM:Gangway:", device.id, " island", device.island,
                                "/worker", device.worker));
    xla::XStatMetadata& stat = (*plane.mutable_stat_metadata())[kGangStat];
    stat.set_id(kGangStat);
    stat.set_name("gang");
    xla::XLine& line = *plane.add_lines();
    line.set_id(1);
    line.set_name(kLineName);
    line.set_timestamp_ns(span.begin_ns + span.epoch_offset_ns);
    line.set_duration_ps((span.end_ns - span.begin_ns) * kPicoseconds);
    std::map<std::string, int64_t> known;
    for (const DeviceRun& run : profile.runs) {
      if (run.device != device.id || run.end_ns < span.begin_ns || run.begin_ns > span.end_ns)
        continue;
      AddEvent(run, span, MetadataOf(run.program, known, plane), line);
    }
  }
}

}  // namespace gangway::pjrt
