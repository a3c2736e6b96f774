// PJRT_Plugin_Attributes: which programs the workers' plugin reads. The API asks the library and not a client, so it
// gets the answer of the newest client; none before there is one.
#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/mutex.h"
#include "gangway/frontdoor/pjrt/cluster.h"

namespace gangway::pjrt {
namespace {

constexpr const char* kNames[] = {"xla_version", "stablehlo_current_version",
                                  "stablehlo_minimum_version"};
constexpr size_t kNumbersMax = 16;

// A copy of what a cluster told, in the API's form.
struct Attribute {
  std::string name;
  std::vector<int64_t> numbers;
  bool is_list = false;
  bool operator==(const Attribute&) const = default;
};

// Callers keep pointers to what was told, so none of it is ever freed. Equal clusters share.
struct Told {
  std::vector<Attribute> attributes;
  std::vector<PJRT_NamedValue> named;
};

struct State {
  Mutex mutex;
  std::deque<Told> all GANGWAY_GUARDED_BY(mutex);
  const Told* newest GANGWAY_GUARDED_BY(mutex) = nullptr;
};

State& TheState() {
  static State& state = *new State;
  return state;
}

PJRT_NamedValue ToNamed(const Attribute& attribute) {
  PJRT_NamedValue named{};
  named.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  named.name = attribute.name.data();
  named.name_size = attribute.name.size();
  if (attribute.is_list) {
    named.type = PJRT_NamedValue_kInt64List;
    named.int64_array_value = attribute.numbers.data();
    named.value_size = attribute.numbers.size();
  } else {
    named.type = PJRT_NamedValue_kInt64;
    named.int64_value = attribute.numbers[0];
    named.value_size = 1;
  }
  return named;
}

std::vector<Attribute> Choose(const ClusterInfo& cluster) {
  std::vector<Attribute> chosen;
  for (const PluginAttribute& each : cluster.attributes) {
    if (std::find(std::begin(kNames), std::end(kNames), each.name) == std::end(kNames)) continue;
    if (const auto* number = std::get_if<int64_t>(&each.value)) {
      chosen.push_back({each.name, {*number}, false});
    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&each.value)) {
      if (list->size() <= kNumbersMax) chosen.push_back({each.name, *list, true});
    }
  }
  return chosen;
}

}  // namespace

void TellAttributes(const ClusterInfo& cluster) {
  std::vector<Attribute> chosen = Choose(cluster);
  State& state = TheState();
  MutexLock lock(state.mutex);
  for (const Told& told : state.all) {
    if (told.attributes != chosen) continue;
    state.newest = &told;
    return;
  }
  Told& told = state.all.emplace_back();
  told.attributes = std::move(chosen);
  for (const Attribute& attribute : told.attributes) told.named.push_back(ToNamed(attribute));
  state.newest = &told;
}

absl::Status PluginAttributes(PJRT_Plugin_Attributes_Args& args) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  args.attributes = state.newest == nullptr ? nullptr : state.newest->named.data();
  args.num_attributes = state.newest == nullptr ? 0 : state.newest->named.size();
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
