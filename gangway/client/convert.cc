// Implementation of convert.h.
#include "gangway/client/convert.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::client {
namespace {

TensorSpec ToTensorSpec(const wire::TensorSpec& from) {
  TensorSpec to;
  to.element_type = from.element_type();
  to.shard_dims.assign(from.shard_dims().begin(), from.shard_dims().end());
  to.shard_bytes = from.shard_bytes();
  to.memory_kind = from.memory_kind();
  return to;
}

PluginAttribute ToAttribute(const wire::PluginAttribute& from) {
  PluginAttribute to{.name = from.name(), .value = from.text()};
  if (from.has_number()) to.value = from.number();
  if (from.has_real()) to.value = from.real();
  if (from.has_flag()) to.value = from.flag();
  if (from.has_numbers()) {
    to.value = std::vector<int64_t>(from.numbers().values().begin(), from.numbers().values().end());
  }
  return to;
}

}  // namespace

std::string WorkerName(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

ClusterInfo ToClusterInfo(const wire::HelloReply& reply) {
  ClusterInfo info;
  info.platform = reply.topology().platform();
  info.platform_version = reply.topology().platform_version();
  info.epoch = reply.epoch();
  info.session = reply.session();
  for (const wire::PluginAttribute& attribute : reply.topology().attributes())
    info.attributes.push_back(ToAttribute(attribute));
  for (const wire::Worker& worker : reply.topology().workers()) {
    std::vector<PluginAttribute> attributes;
    for (const wire::PluginAttribute& attribute : worker.device_attributes())
      attributes.push_back(ToAttribute(attribute));
    for (int i = 0; i < worker.devices_size(); ++i) {
      info.devices.push_back({.id = worker.devices(i),
                              .island = worker.island(),
                              .worker = worker.index(),
                              .index = static_cast<uint32_t>(i),
                              .kind = worker.device_kind(),
                              .attributes = attributes});
    }
  }
  info.absent.assign(reply.topology().absent().begin(), reply.topology().absent().end());
  std::sort(info.devices.begin(), info.devices.end(),
            [](const DeviceInfo& a, const DeviceInfo& b) { return a.id < b.id; });
  return info;
}

void ToWire(const ArraySpec& spec, wire::ArraySpec* to) {
  to->set_element_type(spec.element_type);
  to->mutable_shard_dims()->Add(spec.shard_dims.begin(), spec.shard_dims.end());
  to->mutable_devices()->Add(spec.devices.begin(), spec.devices.end());
  to->set_memory_kind(spec.memory_kind);
  to->set_shard_bytes(spec.shard_bytes);
}

std::shared_ptr<const ExecutableInfo> ToExecutableInfo(wire::ExecutableInfo from) {
  auto to = std::make_shared<ExecutableInfo>();
  to->name = from.name();
  to->fingerprint = from.fingerprint();
  for (const auto& parameter : from.parameters()) to->parameters.push_back(ToTensorSpec(parameter));
  for (const auto& result : from.results()) to->results.push_back(ToTensorSpec(result));
  to->donated.assign(from.donated().begin(), from.donated().end());
  to->argument_bytes = from.memory().argument_bytes();
  to->output_bytes = from.memory().output_bytes();
  to->temp_bytes = from.memory().temp_bytes();
  to->alias_bytes = from.memory().alias_bytes();
  to->code_bytes = from.memory().code_bytes();
  to->cost.assign(from.cost().begin(), from.cost().end());
  std::sort(to->cost.begin(), to->cost.end());
  to->calls_host = from.calls_host();
  to->asks = std::move(*from.mutable_asks());
  to->optimized_program = std::move(*from.mutable_optimized_program());
  return to;
}

}  // namespace gangway::client
