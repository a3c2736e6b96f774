// What a worker is told to load: any bytes are refused or make a plan whose members meet, and whose messages stay in
// their slots, operands and results.
#include <algorithm>
#include <random>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/collective/execution/plan.h"
#include "gangway/collective/execution/reduce.h"
#include "gangway/xla/collectives.pb.h"
#include "gangway/xla/fuzz_message.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::fuzz {
namespace {

using collective::Message;
using collective::PlannedCollective;
using collective::PositionList;
using collective::Role;
using collective::Segment;
using xla::Collective;

// Of a larger program, only the first positions are looked at: every one of a group looks at all of it.
constexpr size_t kLookedAtMax = 64;

Collective& Add(xla::CollectiveTable& table, Collective::Kind kind, uint32_t groups,
                const std::vector<std::pair<uint64_t, uint64_t>>& extents) {
  Collective& collective = *table.add_collectives();
  collective.set_kind(kind);
  collective.set_reduction(Collective::SUM);
  collective.set_groups(groups);
  collective.set_name("it");
  for (auto [outer, bytes] : extents) {
    Collective::Operand& operand = *collective.add_operands();
    operand.set_element_type(xla::TYPE_F32);
    operand.set_outer(outer);
    operand.set_piece_bytes(bytes);
  }
  return collective;
}

// Groups 0: each replica's positions; groups 1: all.
xla::CollectiveTable Table(uint32_t replicas, uint32_t partitions) {
  xla::CollectiveTable table;
  table.set_replica_count(replicas);
  table.set_partition_count(partitions);
  xla::CollectiveGroups& rows = *table.add_groups();
  xla::CollectiveGroups& all = *table.add_groups();
  all.add_groups();
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    rows.add_groups();
    for (uint32_t partition = 0; partition < partitions; ++partition) {
      rows.mutable_groups(static_cast<int>(replica))
          ->add_positions(replica * partitions + partition);
      all.mutable_groups(0)->add_positions(replica * partitions + partition);
    }
  }
  Add(table, Collective::ALL_REDUCE, 0, {{1, 4}, {1, 16 << 10}, {1, 600 << 10}});
  Add(table, Collective::ALL_GATHER, 1, {{3, 400}});
  Add(table, Collective::REDUCE_SCATTER, 0, {{5, 100 << 10}, {1, 8}});
  Add(table, Collective::ALL_TO_ALL, 0, {{7, 60}, {1, 300 << 10}});
  Add(table, Collective::BROADCAST, 1, {{1, 4}});
  Collective& permute = Add(table, Collective::PERMUTE, 0, {{1, 300 << 10}, {2, 12}});
  for (uint32_t target = 1; target < replicas * partitions; ++target) {
    permute.add_sources(target - 1);
    permute.add_targets(target);
  }
  Add(table, Collective::ALL_TO_ALL_TUPLE, 0,
      std::vector<std::pair<uint64_t, uint64_t>>(partitions, {1, 90 << 10}));
  Collective& ragged = Add(table, Collective::RAGGED_ALL_TO_ALL, 0, {{900, 400}, {700, 400}});
  for (int list = 0; list < 4; ++list) {
    Collective::Operand& operand = *ragged.add_operands();
    operand.set_element_type(list == 0 ? xla::TYPE_S64 : xla::TYPE_S32);
    operand.set_outer(uint64_t{3} * partitions);
    operand.set_piece_bytes(list == 0 ? 8 : 4);
  }
  return table;
}

std::string Executable(xla::CollectiveTable table) {
  xla::LoweredExecutable lowered;
  lowered.set_executable("of the device runtime");
  *lowered.mutable_table() = std::move(table);
  return lowered.SerializeAsString();
}

bool Has(const PositionList& list, uint32_t position) {
  return list != nullptr && std::ranges::find(*list, position) != list->end();
}

// Each position that reads this one's messages is among its readers, and each reader reads them. Otherwise one waits.
void CheckRole(const PlannedCollective& planned, uint32_t position) {
  const Role& role = planned.roles[position];
  for (const PositionList* list : {&role.sources, &role.readers}) {
    if (*list == nullptr) continue;
    GANGWAY_CHECK(!(*list)->empty(), "a list of positions has some");
    for (uint32_t each : **list)
      GANGWAY_CHECK(each < planned.roles.size(), "members are positions of the program");
  }
  if (role.readers != nullptr) {
    for (uint32_t reader : *role.readers)
      GANGWAY_CHECK(Has(planned.roles[reader].sources, position), "a reader has this source");
  }
  if (role.sources == nullptr) return;
  GANGWAY_CHECK(role.sources->size() <= planned.group_size, "groups have a largest one");
  for (uint32_t source : *role.sources)
    GANGWAY_CHECK(Has(planned.roles[source].readers, position), "a source has this reader");
  if (role.sources->size() > 1) {
    GANGWAY_CHECK(role.rank < role.sources->size(), "a member has a rank in its group");
    GANGWAY_CHECK((*role.sources)[role.rank] == position, "the rank is that of the position");
  }
}

// Its lists are read by entry, and its rows by what they say.
void CheckRagged(const PlannedCollective& planned) {
  GANGWAY_CHECK(planned.units.size() == collective::kRaggedOperands, "it has six operands");
  GANGWAY_CHECK(planned.result_bytes.size() == 1 &&
                    planned.result_bytes[0] == planned.operand_bytes[collective::kRaggedBefore],
                "a ragged result is what it was before, but for rows");
  const auto at = [&](size_t i) -> const auto& {
    return planned.meaning.operands(static_cast<int>(i));
  };
  GANGWAY_CHECK(
      at(collective::kRaggedRows).piece_bytes() == at(collective::kRaggedBefore).piece_bytes(),
      "rows have one size");
  const uint64_t entries = at(collective::kRaggedLists).outer();
  GANGWAY_CHECK(entries > 0 && entries % planned.group_size == 0, "members have as many entries");
  for (size_t i = 0; i < planned.units.size(); ++i) {
    const size_t bytes = planned.operand_bytes[i];
    const bool is_list = i >= collective::kRaggedLists;
    GANGWAY_CHECK(bytes == at(i).outer() * at(i).piece_bytes(), "operands");
    GANGWAY_CHECK(!is_list || at(i).outer() == entries, "lists have one length");
    GANGWAY_CHECK(
        planned.units[i] == 0 || planned.units[i] * (is_list ? planned.group_size : 1) == bytes,
        "a member's entries, or all rows");
  }
}

// What members write into a message and read from it.
void CheckSegment(const PlannedCollective& planned, const Message& message,
                  const Segment& segment) {
  const Collective::Kind kind = planned.meaning.kind();
  const bool is_tuple = kind == Collective::ALL_TO_ALL_TUPLE;
  const bool in_blocks = collective::SendsBlocks(kind, segment.operand);
  const size_t members = planned.group_size;
  GANGWAY_CHECK(segment.operand < planned.units.size(), "a segment is of an operand");
  GANGWAY_CHECK(segment.bytes > 0 && segment.bytes <= segment.stride, "blocks do not overlap");
  GANGWAY_CHECK(segment.begin <= planned.units[segment.operand] &&
                    segment.bytes <= planned.units[segment.operand] - segment.begin,
                "a segment is in its operand's units");
  GANGWAY_CHECK(segment.offset + segment.stride * (in_blocks ? members : 1) <= message.bytes,
                "a segment is in its message");
  if (kind == Collective::RAGGED_ALL_TO_ALL) return CheckRagged(planned);
  for (size_t i = 0; i < planned.units.size(); ++i) {
    const size_t units = planned.units[i];
    const bool larger = kind == Collective::ALL_TO_ALL || kind == Collective::REDUCE_SCATTER;
    const bool gathers = kind == Collective::ALL_TO_ALL || kind == Collective::ALL_GATHER;
    GANGWAY_CHECK(planned.operand_bytes[i] == units * (larger ? members : 1), "operands");
    GANGWAY_CHECK(planned.result_bytes[i] == units * (gathers ? members : 1), "results");
    GANGWAY_CHECK(!is_tuple || units == planned.units[0], "all of a tuple have one size");
  }
  GANGWAY_CHECK(!is_tuple || planned.units.size() == members, "a tuple has one for each member");
  if (kind != Collective::ALL_REDUCE && kind != Collective::REDUCE_SCATTER) return;
  const auto& operand = planned.meaning.operands(static_cast<int>(segment.operand));
  const auto reduction =
      collective::FindReduction(planned.meaning.reduction(), operand.element_type());
  GANGWAY_CHECK(reduction.reducer != nullptr && segment.begin % reduction.element_bytes == 0 &&
                    segment.bytes % reduction.element_bytes == 0 &&
                    operand.piece_bytes() % reduction.element_bytes == 0,
                "whole elements are reduced");
}

void CheckMessages(const PlannedCollective& planned) {
  std::vector<size_t> covered(planned.units.size());
  for (const Message& message : planned.messages) {
    GANGWAY_CHECK(message.bytes <= collective::kMessageBytes, "a message is in its slot");
    GANGWAY_CHECK(!message.segments.empty(), "a message has something");
    GANGWAY_CHECK(!message.in_parts || (message.segments.size() == 1 &&
                                        planned.meaning.kind() == Collective::ALL_REDUCE),
                  "only one large operand of a reduction is reduced in parts");
    for (const Segment& segment : message.segments) {
      CheckSegment(planned, message, segment);
      GANGWAY_CHECK(segment.begin == covered[segment.operand], "units are sent once, in order");
      covered[segment.operand] += segment.bytes;
    }
  }
  const bool is_tuple = planned.meaning.kind() == Collective::ALL_TO_ALL_TUPLE;
  for (size_t i = 0; i < (is_tuple ? 1 : covered.size()); ++i)
    GANGWAY_CHECK(covered[i] == planned.units[i], "all units are sent");
}

}  // namespace

// Programs with one collective each, which a single change makes wrong, and with all.
std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (auto [replicas, partitions] : {std::pair(2u, 4u), {1u, 8u}, {3u, 1u}, {1u, 1u}}) {
    const xla::CollectiveTable all = Table(replicas, partitions);
    seeds.push_back(Executable(all));
    for (const Collective& each : all.collectives()) {
      xla::CollectiveTable one = all;
      one.clear_collectives();
      *one.add_collectives() = each;
      seeds.push_back(Executable(std::move(one)));
    }
  }
  return seeds;
}

}  // namespace gangway::fuzz

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  std::mt19937 random(seed);
  const std::string mutated = gangway::xla::MutatedMessage<gangway::xla::LoweredExecutable>(
      gangway::fuzz::View(data, size), random);
  return mutated.copy(reinterpret_cast<char*>(data), size_max);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(gangway::fuzz::View(data, size));
  gangway::xla::LoweredExecutable lowered;
  (void)lowered.ParseFromString(bytes);
  const auto& table = lowered.table();
  // Callers know how many devices they load for: here, the right number.
  auto unpacked = gangway::collective::Unpack(
      bytes, static_cast<size_t>(uint64_t{table.replica_count()} * table.partition_count()));
  if (!unpacked.ok() || unpacked->plan == nullptr) return 0;
  const gangway::collective::Plan& plan = *unpacked->plan;
  GANGWAY_CHECK(plan.size() == static_cast<size_t>(table.collectives_size()), "each has a number");
  for (size_t number = 0; number < plan.size(); ++number) {
    const auto& planned = plan.at(number);
    GANGWAY_CHECK(planned.roles.size() == plan.position_count(), "each position has a role");
    const auto looked_at =
        static_cast<uint32_t>(std::min(planned.roles.size(), gangway::fuzz::kLookedAtMax));
    for (uint32_t position = 0; position < looked_at; ++position)
      gangway::fuzz::CheckRole(planned, position);
    gangway::fuzz::CheckMessages(planned);
  }
  return 0;
}
