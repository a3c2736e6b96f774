// What a client is told of the cluster when its session opens.
#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/controller/core/controller.h"

namespace gangway::controller {
namespace {

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
  return absl::StrCat("island", worker.island(), "/worker", worker.index(), " (",
                      worker.devices_size() == 1 ? "device " : "devices ",
                      absl::StrJoin(worker.devices(), ", "), ")");
}

}  // namespace

void Controller::FillTopology(wire::Topology& topology, const Owner& owner) const {
  if (std::string schedulers = AbsentSchedulers(); !schedulers.empty())
    topology.add_absent(std::move(schedulers));
  for (size_t i = 0; i < workers_.size(); ++i) {
    const WorkerInfo& worker = workers_[i];
    const Claims::Claim* foreign = worker.drained ? nullptr : claims_.Foreign(i, owner);
    if (foreign != nullptr) {
      *topology.add_absent() =
          absl::StrCat(Describe(worker.declared), ", claimed by ", ClaimText(*foreign));
    } else if (worker.absent()) {
      *topology.add_absent() = Describe(worker.declared);
    }
    if (foreign != nullptr || worker.absent() || worker.drained) continue;
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

}  // namespace gangway::controller
