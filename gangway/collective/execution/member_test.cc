// Collectives between threads that stand for the devices of several workers, each of which maps the arenas of the
// others, or has mirrors of them: every kind gives what its description says, with the same bits however the devices
// are spread; a slow, a failed and a missing member delay others no longer than the contract says.
#include "gangway/collective/execution/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/nightly_test_util.h"
#include "gangway/collective/execution/member_test_util.h"
#include "gangway/collective/execution/streaming_copy.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::collective {
namespace {

using xla::Collective;

const std::vector<std::vector<uint32_t>> kAll = {{0, 1, 2, 3, 4, 5, 6, 7}};
const std::vector<std::vector<uint32_t>> kFours = {{6, 0, 2, 4}, {7, 5, 3, 1}};

struct Layout {
  uint32_t workers, devices;
  Sight sight = Sight::kMapped;
};

class MemberTest : public ::testing::TestWithParam<Layout> {
 protected:
  static bool has_heaps() {
    return GetParam().sight == Sight::kHeaps || GetParam().sight == Sight::kSomeHeaps;
  }
  // The size of an operand; of more than a message if that is when it stays in the heap.
  static uint64_t Floats(uint64_t otherwise) {
    return has_heaps() ? kMessageBytes / sizeof(float) + 1 : otherwise;
  }

  Host host_{GetParam().workers, GetParam().devices, GetParam().sight};
};

void AddEveryKind(xla::CollectiveTable& table, uint64_t size, uint64_t floats) {
  Add(table, Collective::ALL_REDUCE, {{1, floats}});
  Add(table, Collective::ALL_GATHER, {{3, floats}});
  Add(table, Collective::REDUCE_SCATTER, {{2, floats}});
  Add(table, Collective::ALL_TO_ALL, {{2, floats}});
  Add(table, Collective::ALL_TO_ALL_TUPLE, {size, {1, floats}});
  Add(table, Collective::BROADCAST, {{1, floats}});
  Collective& permute = Add(table, Collective::PERMUTE, {{1, floats}});
  for (uint32_t i = 0; i < 6; ++i) {
    permute.add_sources(i);
    permute.add_targets((i + 3) % 8);
  }
}

TEST_P(MemberTest, EveryKindGivesWhatItsDescriptionSays) {
  for (const auto& groups : {kAll, kFours}) {
    xla::CollectiveTable table = Table(8, groups);
    for (uint64_t floats : {1u, 100u, 5000u}) AddEveryKind(table, groups[0].size(), floats);
    ExpectDescribed(host_, table);
  }
}

TEST_P(MemberTest, OperandsMayTakeSeveralMessagesOrShareOne) {
  xla::CollectiveTable table = Table(8, kAll);
  AddEveryKind(table, 8, 9'001);
  if (has_heaps()) {  // what is only one message above
    Add(table, Collective::ALL_GATHER, {{2, 33'000}});
    Add(table, Collective::BROADCAST, {{1, 66'000}});
  }
  Add(table, Collective::ALL_REDUCE, {{1, 3}, {1, 140'000}, {0, 0}, {1, 40}, {1, 4'500}, {1, 2}});
  Add(table, Collective::ALL_REDUCE, {{1, 330'001}, {1, 8'000}});
  Add(table, Collective::ALL_GATHER, {{1, 3}, {5, 15'000}, {2, 40}});
  Add(table, Collective::REDUCE_SCATTER, {{1, 3}, {5, 2'000}, {2, 40}});
  ExpectDescribed(host_, table, 1);
}

// Of 4, 12 and 280 bytes; the last ones, of 200, take several messages, which end within a piece.
TEST_P(MemberTest, PiecesMayBeSmallAndMany) {
  xla::CollectiveTable table = Table(8, kFours);
  for (const auto& [pieces, floats] :
       std::vector<std::pair<uint64_t, uint64_t>>{{5'001, 1}, {1'701, 3}, {80, 70}, {1'501, 50}}) {
    Add(table, Collective::ALL_TO_ALL, {{pieces, floats}});
    Add(table, Collective::ALL_GATHER, {{pieces, floats}});
  }
  ExpectDescribed(host_, table, 1);
}

TEST_P(MemberTest, GroupsMayGoRoundALoopAtTheirOwnPace) {
  xla::CollectiveTable table = Table(8, kFours);
  Add(table, Collective::ALL_REDUCE, {{1, 5000}});
  xla::CollectiveGroups& all = *table.add_groups();
  auto& everyone = *all.add_groups();
  for (uint32_t i = 0; i < 8; ++i) everyone.add_positions(i);
  Add(table, Collective::ALL_REDUCE, {{1, 10}}).set_groups(1);
  auto plan = *Plan::Make(table);
  const auto statuses =
      host_.Run(host_.Begin(plan), [&](Member& member, uint32_t position) -> absl::Status {
        for (uint32_t seed = 0; seed < (position % 2 == 0 ? 30u : 3u); ++seed) {
          Arrays results = Empty(plan->at(0));
          const absl::Status status =
              RunOnce(member, 0, Inputs(plan->at(0), position, seed), results);
          if (!status.ok()) return status;
          if (results != Expected(plan->at(0), position, seed)) return absl::DataLossError("wrong");
        }
        Arrays results = Empty(plan->at(1));
        const absl::Status status = RunOnce(member, 1, Inputs(plan->at(1), position), results);
        if (!status.ok()) return status;
        return results == Expected(plan->at(1), position) ? absl::OkStatus()
                                                          : absl::DataLossError("wrong after");
      });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// Runs each collective with results in the memory of the operands, the last one first if `is_reversed`.
using CheckInPlace = std::function<absl::Status(size_t number, uint32_t position,
                                                const absl::Status& status, const Arrays& memory)>;
void RunInPlace(Host& host, const std::shared_ptr<const Plan>& plan, bool is_reversed,
                const CheckInPlace& check) {
  const auto statuses =
      host.Run(host.Begin(plan), [&](Member& member, uint32_t position) -> absl::Status {
        for (size_t number = 0; number < plan->size(); ++number) {
          Arrays memory = Inputs(plan->at(number), position);
          std::vector<std::span<const std::byte>> operands(memory.begin(), memory.end());
          std::vector<std::span<std::byte>> results(memory.begin(), memory.end());
          if (is_reversed) std::ranges::reverse(results);
          const absl::Status status = member.Run(static_cast<int64_t>(number), operands, results);
          const absl::Status found = check(number, position, status, memory);
          if (!found.ok()) return found;
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST_P(MemberTest, AnAllReduceMayBeInPlace) {
  xla::CollectiveTable table = Table(8, kAll);
  for (uint64_t floats : {8u, 9'000u}) {
    Add(table, Collective::ALL_REDUCE, {{1, floats == 8 ? floats : Floats(floats)}});
    Add(table, Collective::ALL_REDUCE, {{1, floats}, {1, floats}});
  }
  auto plan = *Plan::Make(table);
  RunInPlace(
      host_, plan, false,
      [&](size_t number, uint32_t position, const absl::Status& status, const Arrays& memory) {
        if (!status.ok() || memory == Expected(plan->at(number), position)) return status;
        return absl::DataLossError(absl::StrCat("collective ", number));
      });
}

TEST_P(MemberTest, AResultThatOverlapsAnotherOperandIsRefused) {
  xla::CollectiveTable table = Table(8, kAll);
  for (uint64_t floats : {8u, 9'000u}) {
    Add(table, Collective::ALL_TO_ALL, {{3, floats}});
    Add(table, Collective::ALL_REDUCE, {{1, floats}, {1, floats}});
    Collective& permute = Add(table, Collective::PERMUTE, {{1, floats}});
    for (uint32_t i = 0; i < 8; ++i) {
      permute.add_sources(i);
      permute.add_targets((i + 1) % 8);
    }
  }
  auto plan = *Plan::Make(table);
  RunInPlace(
      host_, plan, true,
      [&](size_t number, uint32_t position, const absl::Status& status, const Arrays& memory) {
        if (!absl::IsInternal(status) || !absl::StrContains(status.message(), "overlaps operand"))
          return absl::UnknownError(absl::StrCat("collective ", number, ": ", status.message()));
        if (memory != Inputs(plan->at(number), position)) return absl::DataLossError("written");
        return absl::OkStatus();
      });
}

// Eight gangs of many small collectives, with other groups in each: slots are written again by the next gang.
TEST_P(MemberTest, GangsFollowOneAnotherOnTheSameMemory) {
  for (int gang = 0; gang < 8; ++gang) {
    xla::CollectiveTable table = Table(8, gang % 2 == 0 ? kAll : kFours);
    for (int i = 0; i < 20; ++i) Add(table, Collective::ALL_REDUCE, {{1, 64}});
    ExpectDescribed(host_, table, 1);
  }
}

TEST_P(MemberTest, AnAbortEndsAllThatWaitAndTheNextGangRuns) {
  xla::CollectiveTable table = Table(8, kAll);
  Add(table, Collective::ALL_REDUCE, {{1, Floats(5'000)}});
  auto plan = *Plan::Make(table);
  for (int round = 0; round < 3; ++round) {
    const auto launches = host_.Begin(plan);
    const auto begun = Clock::now();
    const auto statuses =
        host_.Run(launches, [&](Member& member, uint32_t position) -> absl::Status {
          if (position == 5) {  // as its worker's scheduler would do
            for (const auto& launch : launches) launch->Abort(absl::AbortedError("position 5"));
            return absl::AbortedError("position 5");
          }
          Arrays results = Empty(plan->at(0));
          return RunOnce(member, 0, Inputs(plan->at(0), position), results);
        });
    for (const absl::Status& status : statuses) {
      EXPECT_TRUE(absl::IsAborted(status)) << status;
      EXPECT_EQ(status.message(), "position 5");
    }
    EXPECT_LT(Clock::now() - begun, std::chrono::seconds(5));
    ExpectDescribed(host_, table, 1);
  }
}

TEST_P(MemberTest, AMissingMemberIsNamedAfterTheLimit) {
  xla::CollectiveTable table = Table(8, kAll);
  Add(table, Collective::ALL_REDUCE, {{1, 4}}).set_source("train.py:7");
  auto plan = *Plan::Make(table);
  std::atomic<int> ended = 0;
  const FutexWord clock{0};  // for waits of 1 ms, which no wake ends
  const auto statuses =
      host_.Run(host_.Begin(plan, std::chrono::milliseconds(200)),
                [&](Member& member, uint32_t position) -> absl::Status {
                  while (position == 5 && ended < 7)  // before that it does not leave the gang
                    FutexWait(clock, 0, std::chrono::milliseconds(1));
                  if (position == 5) return absl::OkStatus();
                  Arrays results = Empty(plan->at(0));
                  auto status = RunOnce(member, 0, Inputs(plan->at(0), position), results);
                  ++ended;
                  return status;
                });
  const std::string device = absl::StrCat("worker", 5 / GetParam().devices, ", local device ",
                                          5 % GetParam().devices, ", for 200 ms");
  for (uint32_t i = 0; i < 8; ++i) {
    if (i == 5) continue;
    EXPECT_EQ(statuses[i].code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_NE(statuses[i].message().find("it at train.py:7"), std::string::npos) << statuses[i];
    EXPECT_NE(statuses[i].message().find(device), std::string::npos) << statuses[i];
  }
}

// Who has ended well will not come any more. Who has failed will be the reason of an abort, which is waited for.
TEST(Member, NamesAnotherOneThatHasEndedWithoutTheCollective) {
  using Ending = LocalDevice::Ending;
  xla::CollectiveTable table = Table(2, {{0, 1}});
  Add(table, Collective::ALL_REDUCE, {{1, 4}}).set_source("train.py:7");
  const auto plan = *Plan::Make(table);
  const std::pair<uint32_t, Sight> layouts[] = {
      {1, Sight::kMapped}, {2, Sight::kMapped}, {2, Sight::kMirrored}};
  for (const auto& [workers, sight] : layouts) {
    Host host(workers, 2 / workers, sight);
    const auto end = [&](Ending ending, std::chrono::milliseconds wait_max) {
      const auto launches = host.Begin(plan, wait_max);
      const uint64_t gang = launches[0]->gang().order;
      host.local(1).Leave(gang, ending);
      Member member(launches[0], host.shared(0), 0);
      Arrays results = Empty(plan->at(0));
      const absl::Status status = RunOnce(member, 0, Inputs(plan->at(0), 0), results);
      host.local(0).Leave(gang, Ending::kEarly);
      return status;
    };
    EXPECT_TRUE(absl::IsDeadlineExceeded(end(Ending::kEarly, std::chrono::milliseconds(300))));
    const absl::Status status = end(Ending::kUnread, std::chrono::seconds(10));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("it at train.py:7: worker"));
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("without it"));
  }
}

// A ragged exchange of rows of floats, with lists of both widths.
struct RaggedShape {
  uint64_t rows = 0;
  uint64_t room = 0;    // rows of the result
  uint64_t floats = 0;  // of a row
  uint64_t updates = 1;
};

void AddRagged(xla::CollectiveTable& table, const RaggedShape& shape) {
  const uint64_t entries =
      shape.updates * static_cast<uint64_t>(table.groups(0).groups(0).positions_size());
  Collective& ragged = Add(table, Collective::RAGGED_ALL_TO_ALL,
                           {{shape.rows, shape.floats}, {shape.room, shape.floats}});
  for (const int32_t type : {xla::TYPE_S32, xla::TYPE_S64, xla::TYPE_U32, xla::TYPE_S32}) {
    Collective::Operand& list = *ragged.add_operands();
    list.set_element_type(type);
    list.set_outer(entries);
    list.set_piece_bytes(type == xla::TYPE_S64 ? sizeof(int64_t) : sizeof(int32_t));
  }
}

// What one member passes in its lists.
struct RaggedLists {
  std::array<std::vector<int64_t>, 4> lists;
};

// Of all members of a group, by rank: random runs of rows, which do not overlap in a result.
std::vector<RaggedLists> RandomLists(const PlannedCollective& planned, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, std::max<int64_t>(limit, 0))(random);
  };
  const auto rows = static_cast<int64_t>(planned.meaning.operands(0).outer());
  const auto room = static_cast<int64_t>(planned.meaning.operands(1).outer());
  const size_t entries = planned.meaning.operands(2).outer();
  const size_t members = planned.group_size, updates = entries / members;
  std::vector<RaggedLists> all(members);
  for (RaggedLists& each : all)
    for (auto& list : each.lists) list.resize(entries);
  for (size_t to = 0; to < members; ++to) {
    std::vector<size_t> order(entries);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    int64_t into = 0;
    for (const size_t entry : order) {
      const size_t from = entry / updates, at = to * updates + entry % updates;
      const int64_t count = std::min({below(rows), below(room / 4), room - into});
      into += below(room - into - count) / static_cast<int64_t>(entries);
      all[from].lists[0][at] = below(rows - count);
      all[from].lists[1][at] = count;
      all[from].lists[2][at] = into;
      all[to].lists[3][from * updates + entry % updates] = count;
      into += count;
    }
  }
  return all;
}

Bytes ListBytes(const Collective::Operand& operand, const std::vector<int64_t>& list) {
  Bytes bytes(operand.outer() * operand.piece_bytes());
  for (size_t i = 0; i < list.size(); ++i)  // of these machines, the lower bytes come first
    std::memcpy(bytes.data() + i * operand.piece_bytes(), &list[i], operand.piece_bytes());
  return bytes;
}

Arrays RaggedInputs(const PlannedCollective& planned, uint32_t position, uint32_t seed,
                    const RaggedLists& own) {
  Arrays inputs = Inputs(planned, position, seed);
  for (int i = 0; i < 4; ++i)
    inputs[i + 2] = ListBytes(planned.meaning.operands(i + 2), own.lists[i]);
  return inputs;
}

Bytes RaggedExpected(const PlannedCollective& planned, uint32_t position, uint32_t seed,
                     const std::vector<RaggedLists>& all) {
  const Role& role = planned.roles[position];
  const size_t row = planned.meaning.operands(0).piece_bytes();
  const size_t updates = planned.meaning.operands(2).outer() / planned.group_size;
  Bytes result = Inputs(planned, position, seed)[1];
  for (size_t from = 0; from < all.size(); ++from) {
    const Bytes rows = Inputs(planned, (*role.sources)[from], seed)[0];
    for (size_t at = role.rank * updates; at < (role.rank + 1) * updates; ++at) {
      const auto& lists = all[from].lists;
      for (int64_t i = 0; i < lists[1][at]; ++i)
        std::copy_n(rows.begin() + (lists[0][at] + i) * static_cast<int64_t>(row), row,
                    result.begin() + (lists[2][at] + i) * static_cast<int64_t>(row));
    }
  }
  return result;
}

std::vector<RaggedLists> ListsFor(const PlannedCollective& planned, uint32_t position,
                                  uint32_t seed) {
  return RandomLists(planned, seed * 100 + (*planned.roles[position].sources)[0]);
}

// What the result lies in: memory of its own, or what it is before.
enum class ResultIs { kApart, kBefore };

absl::Status RunRagged(Member& member, const PlannedCollective& planned, int64_t number,
                       uint32_t position, uint32_t seed, ResultIs where) {
  const std::vector<RaggedLists> all = ListsFor(planned, position, seed);
  Arrays inputs = RaggedInputs(planned, position, seed, all[planned.roles[position].rank]);
  Bytes apart(planned.result_bytes[0], std::byte{0xee});
  Bytes& result = where == ResultIs::kApart ? apart : inputs[1];
  const std::vector<std::span<const std::byte>> operands(inputs.begin(), inputs.end());
  const std::vector<std::span<std::byte>> results = {result};
  if (auto status = member.Run(number, operands, results); !status.ok()) return status;
  if (result != RaggedExpected(planned, position, seed, all))
    return absl::DataLossError(absl::StrCat("collective ", number, " of position ", position));
  return absl::OkStatus();
}

TEST_P(MemberTest, ARaggedExchangeMovesTheRowsOfItsLists) {
  for (const auto& groups : {kAll, kFours}) {
    xla::CollectiveTable table = Table(8, groups);
    for (const RaggedShape& shape : {RaggedShape{7, 9, 3},
                                     {40, 30, 1, 3},
                                     {500, 700, 16, 2},
                                     {900, 700, 100},
                                     {0, 5, 4},
                                     {5, 0, 4},
                                     {9, 9, 0}})
      AddRagged(table, shape);
    Add(table, Collective::ALL_REDUCE, {{1, 10}});
    auto plan = *Plan::Make(table);
    for (uint32_t seed = 0; seed < 2; ++seed) {
      const auto statuses =
          host_.Run(host_.Begin(plan), [&](Member& member, uint32_t position) -> absl::Status {
            for (size_t number = 0; number + 1 < plan->size(); ++number) {
              auto status = RunRagged(member, plan->at(number), static_cast<int64_t>(number),
                                      position, seed, ResultIs::kApart);
              if (!status.ok()) return status;
            }
            return absl::OkStatus();
          });
      for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST_P(MemberTest, ARaggedResultMayLieWhereItWasBefore) {
  xla::CollectiveTable table = Table(8, kFours);
  for (const RaggedShape& shape : {RaggedShape{9, 9, 3}, {900, 900, 50, 2}})
    AddRagged(table, shape);
  auto plan = *Plan::Make(table);
  const auto statuses =
      host_.Run(host_.Begin(plan), [&](Member& member, uint32_t position) -> absl::Status {
        for (size_t number = 0; number < plan->size(); ++number) {
          auto status = RunRagged(member, plan->at(number), static_cast<int64_t>(number), position,
                                  3, ResultIs::kBefore);
          if (!status.ok()) return status;
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// Entry 9 of position 5, which is of its second update for member 4, or its expectation of member 4.
struct Hostile {
  int list;
  int64_t entry;
  std::string what;
};

TEST_P(MemberTest, ARaggedExchangeOutOfBoundsFailsByNameOnEveryMember) {
  constexpr int64_t kMax32 = 0x7fffffff, kMax64 = 0x7fffffffffffffff;
  const std::vector<Hostile> hostile = {
      {0, -1, "rows from row -1 on to position 4, and has 40"},
      {0, 40, "rows from row 40 on to position 4, and has 40"},
      {0, kMax32, "rows from row 2147483647 on to position 4, and has 40"},
      {1, -1, "position 5 sends -1 rows"},
      {1, 41, "position 5 sends 41 rows"},
      {1, kMax64, "position 5 sends 9223372036854775807 rows"},
      {1, -kMax64 - 1, "position 5 sends -9223372036854775808 rows"},
      {2, 30, "to row 30 of position 4, whose result has 30"},
      {2, 0xffffffff, "to row 4294967295 of position 4, whose result has 30"},
      {3, 2, "sends 1 rows to position 5, which expects 2"},
      {3, -1, "sends 1 rows to position 5, which expects -1"},
  };
  xla::CollectiveTable table = Table(8, kAll);
  AddRagged(table, {40, 30, 2'000, 2});
  table.mutable_collectives(0)->set_source("train.py:7");
  Add(table, Collective::ALL_REDUCE, {{1, 10}});
  auto plan = *Plan::Make(table);
  const PlannedCollective& planned = plan->at(0);
  for (const Hostile& each : hostile) {
    const auto launches = host_.Begin(plan);
    std::array<Arrays, 8> kept;  // members may read them after their owner has failed
    const auto statuses =
        host_.Run(launches, [&](Member& member, uint32_t position) -> absl::Status {
          RaggedLists own;
          for (auto& list : own.lists) list.assign(16, 0);
          own.lists[1].assign(16, 1);
          own.lists[3].assign(16, 1);
          if (position == 5) own.lists[each.list][9] = each.entry;
          const Arrays& inputs = kept[position] = RaggedInputs(planned, position, 0, own);
          Bytes guarded(planned.result_bytes[0] + 128, std::byte{0x55});
          const std::vector<std::span<const std::byte>> operands(inputs.begin(), inputs.end());
          const std::vector<std::span<std::byte>> results = {
              std::span(guarded).subspan(64, planned.result_bytes[0])};
          absl::Status status = member.Run(0, operands, results);
          for (size_t i = 0; i < 64; ++i) {
            if (guarded[i] != std::byte{0x55} || guarded[guarded.size() - 1 - i] != std::byte{0x55})
              return absl::DataLossError("it has written outside of its result");
          }
          if (status.ok()) {  // it has not heard of the failure
            Arrays sums = Empty(plan->at(1));
            status = RunOnce(member, 1, Inputs(plan->at(1), position), sums);
          }
          // As the scheduler does.
          for (const auto& launch : launches) launch->Abort(status);
          return status;
        });
    for (const absl::Status& status : statuses) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << each.what << ": " << status;
      EXPECT_NE(status.message().find(each.what), std::string::npos) << status;
      EXPECT_NE(status.message().find("it at train.py:7"), std::string::npos) << status;
    }
    xla::CollectiveTable next = Table(8, kAll);
    Add(next, Collective::ALL_REDUCE, {{1, 5'000}});
    ExpectDescribed(host_, next, 1);
  }
}

// One layout for each way in which members see one another's memory, and those in which all devices are on one worker,
// or each is on another. The nightly run has the rest.
std::vector<Layout> Layouts() {
  std::vector<Layout> layouts = {{2, 4}, {4, 2, Sight::kHeaps}, {4, 2, Sight::kMirrored}};
  if (!kIsThreadSanitized || IsNightly())
    layouts.insert(layouts.end(), {{4, 2, Sight::kSomeHeaps}, {1, 8}, {8, 1, Sight::kMirrored}});
  if (IsNightly())
    layouts.insert(
        layouts.end(),
        {{4, 2}, {8, 1}, {2, 4, Sight::kHeaps}, {8, 1, Sight::kHeaps}, {2, 4, Sight::kMirrored}});
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Layouts, MemberTest, ::testing::ValuesIn(Layouts()), [](const auto& each) {
  return absl::StrCat(each.param.workers, "x", each.param.devices,
                      kSightNames[static_cast<size_t>(each.param.sight)]);
});

TEST(Exchange, OfMembersOnOneWorkerSendsNoMessage) {
  for (const uint64_t floats : {4'500u, 66'000u}) {
    xla::CollectiveTable table = Table(8, {{6, 0, 2, 4}, {7, 5, 3, 1}});
    AddEveryKind(table, 4, floats);
    table.mutable_collectives(0)->mutable_operands(0)->set_piece_bytes(20'000);  // in parts
    Host host(1, 8);
    ExpectDescribed(host, table, 1);
    for (uint32_t device = 0; device < 8; ++device) {
      for (const Region::Header& header : host.arena(0).region(device).headers)
        EXPECT_EQ(header.sequence, 0u) << "of device " << device << ", " << floats << " floats";
    }
  }
}

TEST(Exchange, MovesMoreThanTheCachesHold) {
  std::vector<uint32_t> counts = {2};
  if (!kIsThreadSanitized || IsNightly()) counts.push_back(1);
  for (const uint32_t hosts : counts) {
    const size_t floats = kBeyondCaches / (2 / hosts) / sizeof(float) + 3;
    xla::CollectiveTable table = Table(2, {{1, 0}});
    Add(table, Collective::ALL_REDUCE, {{1, floats}});
    Add(table, Collective::ALL_TO_ALL, {{2, floats / 2 + 1}});
    Host host(hosts, 2 / hosts, Sight::kMirrored);
    ExpectDescribed(host, table, 1);
  }
}

// Of a large reduction each worker is sent what its members reduce, and their results.
TEST(Couriers, CarryWhatTheOtherWorkerNeeds) {
  Host host(4, 1, Sight::kMirrored);
  constexpr size_t kFloats = 64'000;
  xla::CollectiveTable table = Table(4, {{0, 1, 2, 3}});
  Add(table, Collective::ALL_REDUCE, {{1, kFloats}});
  ExpectDescribed(host, table, 1);  // two launches
  // A quarter to each of three others, and a quarter's result to each of them, from four members.
  const size_t least = size_t{2} * 4 * 3 * 2 * kFloats * sizeof(float) / 4;
  EXPECT_GE(host.carried_bytes(), least);
  EXPECT_LE(host.carried_bytes(), least + least / 50);
}

// Of a ragged exchange each worker is sent the rows that go there, once, and little else.
TEST(Couriers, CarryTheRowsThatGoToTheOtherWorker) {
  Host host(2, 1, Sight::kMirrored);
  xla::CollectiveTable table = Table(2, {{0, 1}});
  constexpr uint64_t kRows = 1'000, kFloats = 250, kSent = 100;
  AddRagged(table, {kRows, kRows, kFloats});
  auto plan = *Plan::Make(table);
  const auto statuses =
      host.Run(host.Begin(plan), [&](Member& member, uint32_t position) -> absl::Status {
        RaggedLists own;
        own.lists = {{{0, 500}, {kSent, kSent}, {100, 500}, {kSent, kSent}}};
        if (position == 1) own.lists[0] = {700, 100};
        const Arrays inputs = RaggedInputs(plan->at(0), position, 0, own);
        Arrays results = Empty(plan->at(0));
        return RunOnce(member, 0, inputs, results);
      });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  const size_t least = 2 * kSent * kFloats * sizeof(float);
  EXPECT_GE(host.carried_bytes(), least);
  EXPECT_LE(host.carried_bytes(), least + 1'000);
}

// One member is late for each round, until the other one sleeps. That one is woken by what it waits for; otherwise it
// would oversleep, and a sender, which has four messages ahead, in every fourth round. A busy machine may delay a wake.
TEST(Member, IsWokenByWhatItWaitsFor) {
  static constexpr int kRounds = 24;
  static constexpr uint32_t kOversleptMax = 3;
  const auto run = [](Host& host, Collective::Kind kind, uint64_t floats, uint32_t late) {
    const auto overslept = [&] { return host.local(0).overslept() + host.local(1).overslept(); };
    const uint32_t before = overslept();
    xla::CollectiveTable table = Table(2, {{0, 1}});
    Collective& collective = Add(table, kind, {{1, floats}});
    if (kind == Collective::PERMUTE) {
      collective.add_sources(0);
      collective.add_targets(1);
    }
    const auto plan = *Plan::Make(table);
    std::array<std::atomic<int>, 2> done{};
    const FutexWord clock{0};  // for waits of 1 ms, which no wake ends
    const auto statuses =
        host.Run(host.Begin(plan), [&](Member& member, uint32_t position) -> absl::Status {
          const Arrays inputs = Inputs(plan->at(0), position);
          Arrays results = Empty(plan->at(0));
          absl::Status status;
          for (int round = 0; round < kRounds && status.ok(); ++round) {
            while (position == late && !host.local(1 - late).waiting() && done[1 - late] != kRounds)
              FutexWait(clock, 0, std::chrono::milliseconds(1));
            status = RunOnce(member, 0, inputs, results);
            ++done[position];
          }
          return status;
        });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    EXPECT_LE(overslept() - before, kOversleptMax) << Collective::Kind_Name(kind) << " " << floats;
  };
  const std::pair<uint32_t, Sight> layouts[] = {
      {1, Sight::kMapped}, {2, Sight::kMapped}, {2, Sight::kHeaps}, {2, Sight::kMirrored}};
  for (const auto& [workers, sight] : layouts) {
    for (const uint32_t late : {0u, 1u}) {
      SCOPED_TRACE(absl::StrCat(workers, " workers ", kSightNames[static_cast<size_t>(sight)],
                                ", late: ", late));
      Host host(workers, 2 / workers, sight);
      run(host, Collective::PERMUTE, 1, late);
      run(host, Collective::PERMUTE, 2 * kMessageBytes / sizeof(float), late);
      run(host, Collective::ALL_REDUCE, 1, late);
      run(host, Collective::ALL_REDUCE, 2 * kMessageBytes / sizeof(float), late);
    }
  }
}

TEST(Member, RefusesACallThatIsNotAsDescribed) {
  Host host(1, 1);
  xla::CollectiveTable table = Table(1, {{0}});
  Add(table, Collective::ALL_REDUCE, {{1, 4}});
  auto plan = *Plan::Make(table);
  const auto statuses = host.Run(host.Begin(plan), [&](Member& member, uint32_t) -> absl::Status {
    Bytes memory(16), small(12);
    const std::vector<std::span<const std::byte>> good = {memory}, bad = {small}, none;
    const std::vector<std::span<std::byte>> results = {memory}, bad_results = {small};
    for (int64_t number : {-1, 1, 1 << 20})
      EXPECT_TRUE(absl::IsInvalidArgument(member.Run(number, good, results)));
    EXPECT_TRUE(absl::IsInvalidArgument(member.Run(0, bad, results)));
    EXPECT_TRUE(absl::IsInvalidArgument(member.Run(0, none, results)));
    EXPECT_TRUE(absl::IsInvalidArgument(member.Run(0, good, bad_results)));
    return member.Run(0, good, results);
  });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
}

}  // namespace
}  // namespace gangway::collective
