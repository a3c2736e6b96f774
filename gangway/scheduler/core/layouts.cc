// Implementation of layouts.h.
#include "gangway/scheduler/core/layouts.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gangway::scheduler {

std::optional<size_t> Layout::IndexOf(uint32_t shard) const {
  if (shards.empty()) return shard < devices.size() ? std::optional<size_t>(shard) : std::nullopt;
  auto it = std::lower_bound(shards.begin(), shards.end(), shard);
  if (it == shards.end() || *it != shard) return std::nullopt;
  return static_cast<size_t>(it - shards.begin());
}

const LayoutRef& Layouts::Empty() {
  static const auto* const kEmpty = new LayoutRef(std::make_shared<const Layout>());
  return *kEmpty;
}

LayoutRef Layouts::Of(std::span<const uint32_t> ids) const {
  if (ids.empty()) return Empty();
  if (auto known = layouts_.find(ids); known != layouts_.end()) return known->second.lock();
  const LayoutRef layout(Make(ids).release(), [this](const Layout* unused) {
    layouts_.erase(unused);
    delete unused;
  });
  layouts_.emplace(layout.get(), layout);
  return layout;
}

std::unique_ptr<Layout> Layouts::Make(std::span<const uint32_t> ids) const {
  auto layout = std::make_unique<Layout>();
  layout->number = ++latest_;
  layout->ids.assign(ids.begin(), ids.end());
  layout->devices.reserve(ids.size());
  std::vector<bool> seen(fleet_.device_count());
  for (uint32_t shard = 0; shard < ids.size(); ++shard) {
    const auto device = fleet_.Find(DeviceId(ids[shard]));
    if (!device) layout->spans = true;
    if (!device || seen[device->number()]) continue;
    seen[device->number()] = true;
    if (layout->shards.empty() && shard != layout->devices.size()) {
      layout->shards.resize(layout->devices.size());
      std::iota(layout->shards.begin(), layout->shards.end(), 0u);
      layout->shards.push_back(shard);
    } else if (!layout->shards.empty()) {
      layout->shards.push_back(shard);
    }
    layout->devices.push_back(*device);
  }
  layout->sorted = layout->devices;
  if (!std::ranges::is_sorted(layout->sorted)) std::ranges::sort(layout->sorted);
  layout->workers = fleet_.WorkersOf(layout->devices);
  return layout;
}

}  // namespace gangway::scheduler
