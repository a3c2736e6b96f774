// Fields that operations of several parts of a session have in common. Pure.
#ifndef GANGWAY_CLIENT_OP_FIELDS_H_
#define GANGWAY_CLIENT_OP_FIELDS_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <span>

#include "gangway/base/ids.h"
#include "gangway/client/client.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

template <typename From, typename To>
void AddAll(std::span<const From> from, To* to) {
  to->Add(from.begin(), from.end());
}

template <PublicId T>
void AddNumbers(std::span<const T> ids, google::protobuf::RepeatedField<uint64_t>& to) {
  to.Reserve(to.size() + static_cast<int>(ids.size()));
  for (const T id : ids) to.Add(NumberOf(id));
}

inline void AddGathered(std::span<const GatheredArgument> gathered,
                        google::protobuf::RepeatedPtrField<wire::GatheredArgument>& to) {
  for (const GatheredArgument& argument : gathered) {
    wire::GatheredArgument& list = *to.Add();
    list.set_argument(argument.index);
    for (const ShardOf& shard : argument.shards) {
      list.add_arrays(NumberOf(shard.array));
      list.add_shards(shard.shard);
    }
  }
}

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_OP_FIELDS_H_
