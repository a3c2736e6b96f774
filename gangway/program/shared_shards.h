// Which shards of a program's values are the same, because views share them, and which of them calls have donated: each
// view answers for its own shards (OB-1). For Verify; takes time in proportion to what it is told. Pure.
#ifndef GANGWAY_PROGRAM_SHARED_SHARDS_H_
#define GANGWAY_PROGRAM_SHARED_SHARDS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"

#include "gangway/program/program.h"

namespace gangway::program {

class SharedShards {
 public:
  // `node` is a view, whose inputs are known. INVALID_ARGUMENT if a shard was donated, or is not there.
  absl::Status AddView(const Node& node);

  void Donate(ValueId value);

  // Whether a shard of it was donated as one of another value.
  bool IsSpoiled(ValueId value) const { return spoiled_.contains(value); }

 private:
  // The value whose node made it, and its number there.
  using Shard = std::pair<ValueId, uint32_t>;
  static constexpr uint32_t kSome =
      std::numeric_limits<uint32_t>::max();  // of a replica: not known

  // Of a list of views.
  struct Link {
    ValueId view = 0;
    std::optional<uint32_t> next;  // index in links_
  };
  // The lists, by the index of their first link: many are short.
  template <typename Key>
  using Lists = absl::flat_hash_map<Key, std::optional<uint32_t>>;

  absl::Status AddShard(ValueId input, uint32_t number, std::vector<Shard>& shards) const;
  template <typename Key>
  void AddLink(Lists<Key>& lists, const Key& key, ValueId view);
  // Takes a list away, and spoils its views but one.
  template <typename Key>
  void Spoil(Lists<Key>& lists, const Key& key, ValueId but);

  // Of views. A value that is not among them has shards of its own.
  absl::flat_hash_map<ValueId, std::vector<Shard>> shards_;
  std::vector<Link> links_;
  Lists<ValueId> views_of_value_;
  Lists<Shard> views_of_shard_;
  absl::flat_hash_set<ValueId> donated_values_, spoiled_;
  absl::flat_hash_set<Shard> donated_shards_;
};

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_SHARED_SHARDS_H_
