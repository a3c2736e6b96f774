// Implementation of shared_shards.h.
#include "gangway/program/shared_shards.h"

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::program {

absl::Status SharedShards::AddShard(ValueId input, uint32_t number,
                                    std::vector<Shard>& shards) const {
  Shard shard = {input, number};
  if (auto view = shards_.find(input); view != shards_.end()) {
    if (number >= view->second.size()) {
      return absl::InvalidArgumentError(absl::StrCat("takes shard ", number, " of %", input,
                                                     ", which has ", view->second.size()));
    }
    shard = view->second[number];
  }
  if (donated_values_.contains(input) || donated_values_.contains(shard.first) ||
      donated_shards_.contains(shard)) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes shard ", number, " of %", input, ", which was donated before"));
  }
  shards.push_back(shard);
  return absl::OkStatus();
}

absl::Status SharedShards::AddView(const Node& node) {
  std::vector<Shard> shards;
  if (node.shards.empty()) shards.emplace_back(node.inputs[0], kSome);
  for (size_t i = 0; i < node.shards.size(); ++i)
    GANGWAY_RETURN_IF_ERROR(AddShard(node.inputs[i], node.shards[i], shards));
  const ValueId view = node.first_output;
  ValueId last = view;
  for (const Shard& shard : shards) {
    if (shard.first != last) AddLink(views_of_value_, shard.first, view);
    if (shard.second != kSome) AddLink(views_of_shard_, shard, view);
    last = shard.first;
  }
  shards_[view] = std::move(shards);
  return absl::OkStatus();
}

template <typename Key>
void SharedShards::AddLink(Lists<Key>& lists, const Key& key, ValueId view) {
  std::optional<uint32_t>& first = lists[key];
  links_.push_back({.view = view, .next = first});
  first = static_cast<uint32_t>(links_.size() - 1);
}

template <typename Key>
void SharedShards::Spoil(Lists<Key>& lists, const Key& key, ValueId but) {
  auto list = lists.find(key);
  if (list == lists.end()) return;
  for (std::optional<uint32_t> link = list->second; link; link = links_[*link].next)
    if (links_[*link].view != but) spoiled_.insert(links_[*link].view);
  lists.erase(list);
}

void SharedShards::Donate(ValueId value) {
  donated_values_.insert(value);
  Spoil(views_of_value_, value, value);
  auto view = shards_.find(value);
  if (view == shards_.end()) return;
  for (const Shard& shard : view->second) {
    spoiled_.insert(shard.first);
    if (shard.second == kSome) continue;
    donated_shards_.insert(shard);
    Spoil(views_of_shard_, shard, value);
  }
}

}  // namespace gangway::program
