// Implementation of presence.h.
#include "gangway/controller/core/presence.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/controller/core/names.h"

namespace gangway::controller {
namespace {

constexpr size_t kAbsentWorkersNamed = 16;

bool IsNewer(const wire::PluginAttribute::Numbers& a, const wire::PluginAttribute::Numbers& b) {
  return std::lexicographical_compare(b.values().begin(), b.values().end(), a.values().begin(),
                                      a.values().end());
}

// What holds for both: of two versions the older one, of two oldest versions that are read the newer one. False: they
// disagree.
bool Merge(const wire::PluginAttribute& other, wire::PluginAttribute& attribute) {
  if (other.SerializeAsString() == attribute.SerializeAsString()) return true;
  if (!other.has_numbers() || !attribute.has_numbers()) return false;
  const bool keeps_newer = std::string_view(attribute.name()).ends_with("_minimum_version");
  if (IsNewer(other.numbers(), attribute.numbers()) == keeps_newer) attribute = other;
  return true;
}

// Keeps in `attributes` what the worker has too.
void KeepCommon(const wire::Worker& worker,
                google::protobuf::RepeatedPtrField<wire::PluginAttribute>& attributes) {
  auto differs = [&](wire::PluginAttribute& attribute) {
    const auto same =
        std::find_if(worker.attributes().begin(), worker.attributes().end(),
                     [&](const auto& each) { return each.name() == attribute.name(); });
    return same == worker.attributes().end() || !Merge(*same, attribute);
  };
  attributes.erase(std::remove_if(attributes.begin(), attributes.end(), differs), attributes.end());
}

// For people.
std::string Describe(const wire::Worker& worker) {
  return absl::StrCat(NameOf(worker), " (", worker.devices_size() == 1 ? "device " : "devices ",
                      absl::StrJoin(worker.devices(), ", "), ")");
}

}  // namespace

void FillTopology(const PresenceView& view, const Owner& owner, wire::Topology& topology) {
  if (std::string schedulers = view.outbox.AbsentSchedulers(); !schedulers.empty())
    topology.add_absent(std::move(schedulers));
  for (size_t i = 0; i < view.fleet.workers().size(); ++i) {
    const Fleet::Worker& worker = view.fleet.workers()[i];
    const bool is_foreign = !worker.drained && view.isolation.IsForeign(i, owner);
    if (is_foreign) {
      *topology.add_absent() =
          absl::StrCat(Describe(worker.declared), ", claimed by ", view.isolation.ClaimText(i));
    } else if (worker.absent()) {
      *topology.add_absent() = Describe(worker.declared);
    }
    if (is_foreign || worker.absent() || worker.drained) continue;
    *topology.add_workers() = worker.declared;
    wire::Worker& described = *topology.mutable_workers()->rbegin();
    if (topology.platform().empty()) {
      topology.set_platform(described.platform());
      topology.set_platform_version(described.platform_version());
      *topology.mutable_attributes() = described.attributes();
    } else {
      KeepCommon(described, *topology.mutable_attributes());
    }
    described.clear_attributes();
  }
}

std::string AbsentWorkers(const PresenceView& view, const Owner& owner) {
  std::string absent = view.outbox.AbsentSchedulers();
  for (size_t i = 0; i < view.fleet.workers().size(); ++i) {
    const Fleet::Worker& worker = view.fleet.workers()[i];
    if (worker.absent() && !view.isolation.IsForeign(i, owner))
      AppendName(NameOf(worker.declared), absent);
  }
  return absent;
}

std::string AbsentProcesses(const PresenceView& view, bool compiler_up) {
  std::string absent = view.outbox.AbsentSchedulers();
  size_t workers = 0;
  for (const Fleet::Worker& worker : view.fleet.workers()) {
    if (worker.up || ++workers > kAbsentWorkersNamed) continue;
    AppendName(NameOf(worker.declared), absent);
  }
  if (workers > kAbsentWorkersNamed)
    AppendName(absl::StrCat(workers - kAbsentWorkersNamed, " more workers"), absent);
  if (!compiler_up) AppendName("the compiler", absent);
  return absent;
}

}  // namespace gangway::controller
