// The optimized programs of plugins: any bytes are lowered or refused, and a lowered program is consistent.
#include <random>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/collective/lowering/lowering.h"
#include "gangway/collective/lowering/module_test_util.h"
#include "gangway/xla/fuzz_message.h"

namespace gangway::fuzz {

using collective::F32;

std::vector<std::string> Seeds() {
  collective::ModuleBuilder nested(2, 4);
  const int64_t sum = nested.Reducer("add");
  const int64_t body = nested.Begin("body");
  auto& reduce = nested.Add("all-reduce", F32({8}), {nested.Parameter(F32({8}))}, {sum});
  reduce.set_channel_id(1);
  reduce.set_use_global_device_ids(true);
  auto& devices = *reduce.mutable_collective_device_list();
  collective::FillIota(*devices.mutable_iota_replica_group_list(), 4, 2, {2, 4}, {1, 0});
  const int64_t condition = nested.Begin("condition");
  nested.Parameter(F32({8}));
  nested.Add("constant", F32({}));
  const int64_t branch = nested.Begin("branch");
  nested.Parameter(F32({8}));
  nested.Begin("main");
  const int64_t parameter = nested.Parameter(F32({8}));
  const int64_t loop = nested.Add("while", F32({8}), {parameter}, {body, condition}).id();
  const int64_t index = nested.Add("partition-id", F32({})).id();
  const int64_t chosen =
      nested.Add("conditional", F32({8}), {index, loop, loop}, {branch, branch}).id();
  auto& gather = nested.Add("all-gather", F32({32}), {chosen});
  gather.set_channel_id(2);
  gather.set_use_global_device_ids(true);
  for (int64_t first : {0, 4})
    collective::AddGroup(gather, {first, first + 1, first + 2, first + 3});
  gather.add_dimensions(0);

  collective::ModuleBuilder flat(4, 1);
  const int64_t callee = flat.Begin("callee");
  auto& permute = flat.Add("collective-permute", F32({8}), {flat.Parameter(F32({8}))});
  permute.add_source_target_pairs()->set_target(1);
  flat.Begin("main");
  const int64_t called = flat.Add("call", F32({8}), {flat.Parameter(F32({8}))}, {callee}).id();
  flat.Add("all-to-all", F32({8}), {called}).add_dimensions(0);

  collective::ModuleBuilder packed(4, 1);
  xla::ShapeProto narrow = F32({8});
  narrow.set_element_type(xla::TYPE_S2);
  packed.Begin("main");
  const int64_t a = packed.Parameter(narrow), b = packed.Parameter(F32({8}));
  const auto both = collective::TupleOf({narrow, F32({8})});
  auto& pairs = packed.Add("collective-permute", both, {a, b});
  pairs.add_source_target_pairs()->set_target(1);
  packed.Part(narrow, pairs.id(), 0);
  return {nested.Bytes(), flat.Bytes(), packed.Bytes()};
}

}  // namespace gangway::fuzz

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  std::mt19937 random(seed);
  const std::string mutated = gangway::xla::MutatedMessage<gangway::xla::HloWithConfigEditProto>(
      gangway::fuzz::View(data, size), random);
  return mutated.copy(reinterpret_cast<char*>(data), size_max);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto lowered = gangway::collective::LowerCollectives(gangway::fuzz::View(data, size));
  if (!lowered.ok()) return 0;
  gangway::xla::HloModuleEditProto module;
  GANGWAY_CHECK(module.ParseFromString(lowered->program), "a lowered program is a module");
  const auto& table = lowered->table;
  for (const auto& collective : table.collectives()) {
    if (collective.kind() == gangway::xla::Collective::PERMUTE) {
      GANGWAY_CHECK(collective.sources_size() == collective.targets_size(), "pairs are pairs");
    } else {
      GANGWAY_CHECK(collective.groups() < static_cast<uint32_t>(table.groups_size()),
                    "its groups are in the table");
    }
  }
  const uint64_t positions = uint64_t{table.replica_count()} * table.partition_count();
  for (const auto& groups : table.groups()) {
    for (const auto& group : groups.groups()) {
      for (uint32_t position : group.positions())
        GANGWAY_CHECK(position < positions, "members are positions of the program");
    }
  }
  return 0;
}
