// The names of processes in failures, statuses and logs. Pure.
#ifndef GANGWAY_CONTROLLER_CORE_NAMES_H_
#define GANGWAY_CONTROLLER_CORE_NAMES_H_

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

inline std::string NameOf(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

inline std::string SchedulerName(size_t island) {
  return absl::StrCat("island", island, "/scheduler");
}

// Adds a name to a list for people.
inline void AppendName(std::string_view name, std::string& list) {
  absl::StrAppend(&list, list.empty() ? "" : ", ", absl::string_view(name.data(), name.size()));
}

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_NAMES_H_
