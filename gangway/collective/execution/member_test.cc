// Collectives between threads that stand for the devices of several workers, each of which maps the arenas of the
// others, or has mirrors of them: every kind gives what its description says, with the same bits however the devices
// are spread; a slow, a failed and a missing member delay others no longer than the contract says.
#include "gangway/collective/execution/member.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

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

#include "absl/strings/str_cat.h"

#include "gangway/base/thread.h"
#include "gangway/collective/execution/streaming_copy.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::collective {
namespace {

using ::testing::HasSubstr;
using xla::Collective;
using Bytes = std::vector<std::byte>;
using Arrays = std::vector<Bytes>;

constexpr int32_t kF32 = 11;
constexpr std::chrono::milliseconds kWaitMax{60'000};

// Passes what one worker publishes to another one's mirror, at once.
class DirectCourier final : public Courier {
 public:
  DirectCourier(Mirror mirror, const Arena* reader, uint32_t reader_index)
      : mirror_(std::move(mirror)), reader_(reader), reader_index_(reader_index) {}

  absl::Status Send(const Published* message, std::span<const ReadUpTo> reads) override {
    MutexLock lock(mutex_);
    if (message != nullptr) {
      Bytes ranges;
      for (const ByteRange& range : message->ranges)
        ranges.insert(ranges.end(), message->data + range.offset,
                      message->data + range.offset + range.bytes);
      bytes_ += ranges.size();
      EXPECT_TRUE(mirror_.Take(*message, ranges, *reader_).ok());
    }
    for (const ReadUpTo& read : reads)
      EXPECT_TRUE(mirror_.Take(read, *reader_, reader_index_).ok());
    return absl::OkStatus();
  }
  void SendLeft(std::span<const LeftUpTo> lefts) override {
    MutexLock lock(mutex_);
    for (const LeftUpTo& left : lefts) EXPECT_TRUE(mirror_.Take(left, *reader_).ok());
  }
  void Begin() override {}

  size_t bytes() const { return bytes_; }

 private:
  Mutex mutex_;
  Mirror mirror_;
  const Arena* const reader_;
  const uint32_t reader_index_;
  size_t bytes_ = 0;
};

// How workers see one another: by messages in memory that they map; their heaps, too, or those of every second one; by
// couriers.
enum class Sight { kMapped, kHeaps, kSomeHeaps, kMirrored };
constexpr std::array<const char*, 4> kSightNames = {"", "heaps", "some_heaps", "mirrored"};

// Devices of `workers` workers, in the order of the positions.
class Host {
 public:
  Host(uint32_t workers, uint32_t devices, Sight sight = Sight::kMapped)
      : devices_(devices), sight_(sight) {
    for (uint32_t w = 0; w < workers; ++w) own_.push_back(WithHeap(w, *Arena::Create(devices)));
    peers_.resize(workers);
    for (uint32_t w = 0; w < workers; ++w) {
      auto couriers = std::make_shared<Couriers>();
      for (uint32_t other = 0; other < workers; ++other)
        peers_[w].push_back(sight != Sight::kMirrored || other == w ? Mapped(w, other) : nullptr);
      couriers_.push_back(std::move(couriers));
    }
    if (sight == Sight::kMirrored) MakeMirrors();
    for (uint32_t w = 0; w < workers; ++w) {
      for (uint32_t d = 0; d < devices; ++d)
        local_.push_back(std::make_shared<LocalDevice>(own_[w], w, d, couriers_[w]));
    }
  }

  // Of `worker`: all its devices are new, as after a restart; the others keep what they know.
  void Restart(uint32_t worker) {
    own_[worker] = WithHeap(worker, *Arena::Create(devices_));
    for (uint32_t d = 0; d < devices_; ++d) {
      local_[worker * devices_ + d] =
          std::make_shared<LocalDevice>(own_[worker], worker, d, couriers_[worker]);
    }
    for (uint32_t w = 0; w < peers_.size(); ++w) peers_[w][worker] = Mapped(w, worker);
    for (uint32_t other = 0; other < peers_.size(); ++other)
      peers_[worker][other] = Mapped(worker, other);
  }

  // From now on `worker` sees a heap of the other one with as many addresses.
  void SeeHeap(uint32_t worker, uint32_t other, uint64_t addresses) {
    const int copy = fcntl(own_[other]->descriptor(), F_DUPFD_CLOEXEC, 0);
    auto arena = *Arena::Map(FileDescriptor(copy), devices_);
    arena->SetHeap(std::make_shared<ReadableHeap>(nullptr, addresses));
    peers_[worker][other] =
        std::make_shared<Peer>(absl::StrCat("worker", other), other, std::move(arena));
  }

  // Sent to other workers by couriers so far.
  size_t carried_bytes() const {
    size_t all = 0;
    for (const auto& courier : direct_) all += courier->bytes();
    return all;
  }

  const Arena& arena(uint32_t worker) const { return *own_[worker]; }
  LocalDevice& local(uint32_t position) { return *local_[position]; }
  const std::shared_ptr<LocalDevice>& shared(uint32_t position) { return local_[position]; }
  size_t size() const { return local_.size(); }
  Peer& peer(uint32_t worker, uint32_t other) { return *peers_[worker][other]; }

  // A launch of positions on these devices: one Launch for each worker.
  std::vector<std::shared_ptr<Launch>> Begin(const std::shared_ptr<const Plan>& plan,
                                             std::chrono::milliseconds wait_max = kWaitMax) {
    std::vector<std::shared_ptr<Launch>> launches;
    ++gang_;
    for (auto& seen : peers_) {
      auto places = std::make_shared<Places>();
      for (uint32_t i = 0; i < size(); ++i) places->push_back({seen[i / devices_], i % devices_});
      launches.push_back(
          Launch::Begin(plan, std::move(places), GangName{gang_, gang_ + 100}, wait_max));
    }
    for (auto& device : local_) device->Enter(gang_);
    return launches;
  }

  using Body = std::function<absl::Status(Member&, uint32_t position)>;
  // Each position's member on a thread of its own.
  std::vector<absl::Status> Run(const std::vector<std::shared_ptr<Launch>>& launches,
                                const Body& body) {
    std::vector<absl::Status> statuses(size());
    std::vector<Thread> threads;
    for (uint32_t i = 0; i < size(); ++i) {
      threads.emplace_back("member", [&, i] {
        const std::shared_ptr<Launch>& launch = launches[i / devices_];
        {
          Member member(launch, local_[i], i);
          statuses[i] = body(member, i);
        }
        local_[i]->Leave(launch->gang().place, statuses[i].ok() ? LocalDevice::Ending::kComplete
                                                                : LocalDevice::Ending::kEarly);
      });
    }
    for (Thread& thread : threads) thread.Join();
    return statuses;
  }

 private:
  // All workers are this process, so the heap of each is all that has an address.
  std::shared_ptr<Arena> WithHeap(uint32_t worker, std::shared_ptr<Arena> arena) const {
    if (sight_ == Sight::kHeaps || (sight_ == Sight::kSomeHeaps && worker % 2 == 0))
      arena->SetHeap(std::make_shared<ReadableHeap>(reinterpret_cast<std::byte*>(1), kAddresses));
    return arena;
  }

  // With heaps, all workers see an arena at the same address. Otherwise ThreadSanitizer, which does not know that two
  // addresses may be one memory, would find that nothing orders the accesses to a heap.
  std::shared_ptr<Peer> Mapped(uint32_t worker, uint32_t other) const {
    const bool has_heaps = sight_ == Sight::kHeaps || sight_ == Sight::kSomeHeaps;
    const int copy = fcntl(own_[other]->descriptor(), F_DUPFD_CLOEXEC, 0);
    auto mapped = *Arena::Map(FileDescriptor(copy), devices_);
    return std::make_shared<Peer>(absl::StrCat("worker", other), other,
                                  other == worker || has_heaps ? own_[other] : std::move(mapped));
  }

  // The mirror that `to` has of `from` is written by the courier of `from` to `to`.
  void MakeMirrors() {
    const auto workers = static_cast<uint32_t>(own_.size());
    for (uint32_t to = 0; to < workers; ++to) {
      for (uint32_t from = 0; from < workers; ++from) {
        if (from == to) continue;
        Mirror mirror = *Mirror::Create(from, devices_);
        mirrors_[{to, from}] = mirror.arena();
        direct_.push_back(std::make_shared<DirectCourier>(std::move(mirror), own_[to].get(), to));
        couriers_[from]->Set(to, direct_.back());
        by_way_[{from, to}] = direct_.back();
      }
    }
    for (const auto& [way, courier] : by_way_) {
      const auto [worker, other] = way;
      peers_[worker][other] = std::make_shared<Peer>(absl::StrCat("worker", other), other,
                                                     mirrors_.at({worker, other}), courier);
    }
  }

  static constexpr uint64_t kAddresses = uint64_t{1} << 47;

  const uint32_t devices_;
  const Sight sight_;
  std::vector<std::shared_ptr<Arena>> own_;
  std::vector<std::shared_ptr<Couriers>> couriers_;  // by worker
  std::vector<std::shared_ptr<DirectCourier>> direct_;
  std::map<std::pair<uint32_t, uint32_t>, std::shared_ptr<DirectCourier>> by_way_;  // from, to
  std::map<std::pair<uint32_t, uint32_t>, std::shared_ptr<Arena>> mirrors_;         // of whom
  std::vector<std::shared_ptr<LocalDevice>> local_;                                 // by position
  std::vector<std::vector<std::shared_ptr<Peer>>> peers_;  // by the worker that sees them
  uint64_t gang_ = 0;
};

// A table for positions 0 .. count-1, with these groups for all its collectives.
xla::CollectiveTable Table(uint32_t count, const std::vector<std::vector<uint32_t>>& groups) {
  xla::CollectiveTable table;
  table.set_replica_count(1);
  table.set_partition_count(count);
  xla::CollectiveGroups& all = *table.add_groups();
  for (const auto& positions : groups)
    all.add_groups()->mutable_positions()->Add(positions.begin(), positions.end());
  return table;
}

Collective& Add(xla::CollectiveTable& table, Collective::Kind kind,
                const std::vector<std::pair<uint64_t, uint64_t>>& extents) {
  Collective& collective = *table.add_collectives();
  collective.set_kind(kind);
  collective.set_reduction(Collective::SUM);
  collective.set_name("it");
  for (auto [outer, floats] : extents) {
    Collective::Operand& operand = *collective.add_operands();
    operand.set_element_type(kF32);
    operand.set_outer(outer);
    operand.set_piece_bytes(floats * sizeof(float));
  }
  return collective;
}

void Put(Bytes& bytes, size_t index, float value) {
  std::memcpy(bytes.data() + index * sizeof(float), &value, sizeof(float));
}

float InputAt(uint32_t position, size_t operand, size_t at, uint32_t seed) {
  return 0.1f * static_cast<float>((at * 31 + size_t{position} * 17 + operand * 7 + seed) % 1009);
}

Arrays Inputs(const PlannedCollective& planned, uint32_t position, uint32_t seed = 0) {
  Arrays inputs;
  for (size_t i = 0; i < planned.operand_bytes.size(); ++i) {
    Bytes bytes(planned.operand_bytes[i]);
    for (size_t at = 0; at < bytes.size() / sizeof(float); ++at)
      Put(bytes, at, InputAt(position, i, at, seed));
    inputs.push_back(std::move(bytes));
  }
  return inputs;
}

// What the collective's description says, one element at a time.
Arrays Expected(const PlannedCollective& planned, uint32_t position, uint32_t seed = 0) {
  const Role& role = planned.roles[position];
  Arrays results;
  for (size_t bytes : planned.result_bytes) results.emplace_back(bytes);
  if (role.sources == nullptr) return results;
  const size_t size = role.sources->size();
  const auto from = [&](size_t rank, size_t operand, size_t at) {
    return InputAt((*role.sources)[rank], operand, at, seed);
  };
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t piece =
        planned.meaning.operands(static_cast<int>(i)).piece_bytes() / sizeof(float);
    for (size_t at = 0; at < results[i].size() / sizeof(float); ++at) {
      const size_t row = at / (piece * size), member = at / piece % size;
      switch (planned.meaning.kind()) {
        case Collective::ALL_REDUCE:
        case Collective::REDUCE_SCATTER: {
          const bool scatters = planned.meaning.kind() == Collective::REDUCE_SCATTER;
          const size_t source =
              scatters ? (at / piece * size + role.rank) * piece + at % piece : at;
          float sum = from(0, i, source);
          for (size_t other = 1; other < size; ++other) sum += from(other, i, source);
          Put(results[i], at, sum);
          break;
        }
        case Collective::ALL_GATHER:
          Put(results[i], at, from(member, i, row * piece + at % piece));
          break;
        case Collective::ALL_TO_ALL:
          Put(results[i], at, from(member, i, (row * size + role.rank) * piece + at % piece));
          break;
        case Collective::ALL_TO_ALL_TUPLE:
          Put(results[i], at, from(i, role.rank, at));
          break;
        default:
          Put(results[i], at, from(0, i, at));
      }
    }
  }
  return results;
}

absl::Status RunOnce(Member& member, int64_t number, const Arrays& inputs, Arrays& results) {
  const std::vector<std::span<const std::byte>> operands(inputs.begin(), inputs.end());
  std::vector<std::span<std::byte>> places(results.begin(), results.end());
  return member.Run(number, operands, places);
}

Arrays Empty(const PlannedCollective& planned) {
  Arrays results;
  for (size_t bytes : planned.result_bytes) results.emplace_back(bytes, std::byte{0xee});
  return results;
}

// All collectives of the table, several rounds each, in two launches.
void ExpectDescribed(Host& host, const xla::CollectiveTable& table, uint32_t rounds = 2) {
  auto plan = Plan::Make(table);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (uint32_t launch = 0; launch < 2; ++launch) {
    const auto statuses =
        host.Run(host.Begin(*plan), [&](Member& member, uint32_t position) -> absl::Status {
          for (uint32_t seed = 0; seed < rounds; ++seed) {
            for (size_t number = 0; number < (*plan)->size(); ++number) {
              const PlannedCollective& planned = (*plan)->at(number);
              Arrays results = Empty(planned);
              const Arrays inputs = Inputs(planned, position, seed);
              if (auto status = RunOnce(member, static_cast<int64_t>(number), inputs, results);
                  !status.ok())
                return status;
              if (results != Expected(planned, position, seed))
                return absl::DataLossError(absl::StrCat("collective ", number, " of position ",
                                                        position, " in round ", seed));
            }
          }
          return absl::OkStatus();
        });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }
}

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

TEST_P(MemberTest, AResultMayLieWhereItsOperandOrAnotherOneDoes) {
  xla::CollectiveTable table = Table(8, kAll);
  for (uint64_t floats : {8u, 9'000u}) {
    Add(table, Collective::ALL_REDUCE, {{1, floats == 8 ? floats : Floats(floats)}});
    Add(table, Collective::ALL_TO_ALL, {{3, floats}});
    Add(table, Collective::ALL_REDUCE, {{1, floats}, {1, floats}});
    Collective& permute = Add(table, Collective::PERMUTE, {{1, floats}});
    for (uint32_t i = 0; i < 8; ++i) {
      permute.add_sources(i);
      permute.add_targets((i + 1) % 8);
    }
  }
  auto plan = *Plan::Make(table);
  const auto statuses =
      host_.Run(host_.Begin(plan), [&](Member& member, uint32_t position) -> absl::Status {
        for (size_t number = 0; number < plan->size(); ++number) {
          Arrays memory = Inputs(plan->at(number), position);
          std::vector<std::span<const std::byte>> operands(memory.begin(), memory.end());
          std::vector<std::span<std::byte>> results(memory.rbegin(), memory.rend());
          const absl::Status status = member.Run(static_cast<int64_t>(number), operands, results);
          if (!status.ok()) return status;
          std::reverse(memory.begin(), memory.end());
          if (memory != Expected(plan->at(number), position))
            return absl::DataLossError(absl::StrCat("collective ", number));
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
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
  const auto statuses =
      host_.Run(host_.Begin(plan, std::chrono::milliseconds(200)),
                [&](Member& member, uint32_t position) -> absl::Status {
                  Arrays results = Empty(plan->at(0));
                  if (position == 5) return absl::OkStatus();
                  return RunOnce(member, 0, Inputs(plan->at(0), position), results);
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

// A ragged exchange of rows of floats, with lists of both widths.
struct RaggedShape {
  uint64_t rows = 0;
  uint64_t places = 0;  // rows of the result
  uint64_t floats = 0;  // of a row
  uint64_t updates = 1;
};

void AddRagged(xla::CollectiveTable& table, const RaggedShape& shape) {
  const uint64_t entries =
      shape.updates * static_cast<uint64_t>(table.groups(0).groups(0).positions_size());
  Collective& ragged = Add(table, Collective::RAGGED_ALL_TO_ALL,
                           {{shape.rows, shape.floats}, {shape.places, shape.floats}});
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
  const auto places = static_cast<int64_t>(planned.meaning.operands(1).outer());
  const size_t entries = planned.meaning.operands(2).outer();
  const size_t members = planned.group_size, updates = entries / members;
  std::vector<RaggedLists> all(members);
  for (RaggedLists& each : all)
    for (auto& list : each.lists) list.resize(entries);
  for (size_t to = 0; to < members; ++to) {
    std::vector<size_t> order(entries);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    int64_t place = 0;
    for (const size_t entry : order) {
      const size_t from = entry / updates, at = to * updates + entry % updates;
      const int64_t count = std::min({below(rows), below(places / 4), places - place});
      place += below(places - place - count) / static_cast<int64_t>(entries);
      all[from].lists[0][at] = below(rows - count);
      all[from].lists[1][at] = count;
      all[from].lists[2][at] = place;
      all[to].lists[3][from * updates + entry % updates] = count;
      place += count;
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

// What the result lies in: memory of its own, what it is before, or the rows.
enum class ResultIs { kApart, kBefore, kRows };

absl::Status RunRagged(Member& member, const PlannedCollective& planned, int64_t number,
                       uint32_t position, uint32_t seed, ResultIs where) {
  const std::vector<RaggedLists> all = ListsFor(planned, position, seed);
  Arrays inputs = RaggedInputs(planned, position, seed, all[planned.roles[position].rank]);
  Bytes apart(planned.result_bytes[0], std::byte{0xee});
  Bytes& result = where == ResultIs::kApart ? apart : inputs[where == ResultIs::kBefore ? 1 : 0];
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

TEST_P(MemberTest, ARaggedResultMayLieWhereAnOperandDoes) {
  xla::CollectiveTable table = Table(8, kFours);
  for (const RaggedShape& shape : {RaggedShape{9, 9, 3}, {900, 900, 50, 2}})
    AddRagged(table, shape);
  auto plan = *Plan::Make(table);
  const auto statuses =
      host_.Run(host_.Begin(plan), [&](Member& member, uint32_t position) -> absl::Status {
        for (size_t number = 0; number < plan->size(); ++number) {
          for (const ResultIs where : {ResultIs::kBefore, ResultIs::kRows}) {
            auto status = RunRagged(member, plan->at(number), static_cast<int64_t>(number),
                                    position, 3, where);
            if (!status.ok()) return status;
          }
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

INSTANTIATE_TEST_SUITE_P(Layouts, MemberTest,
                         ::testing::Values(Layout{1, 8}, Layout{2, 4}, Layout{4, 2}, Layout{8, 1},
                                           Layout{2, 4, Sight::kHeaps}, Layout{4, 2, Sight::kHeaps},
                                           Layout{8, 1, Sight::kHeaps},
                                           Layout{4, 2, Sight::kSomeHeaps},
                                           Layout{2, 4, Sight::kMirrored},
                                           Layout{4, 2, Sight::kMirrored},
                                           Layout{8, 1, Sight::kMirrored}),
                         [](const auto& each) {
                           return absl::StrCat(each.param.workers, "x", each.param.devices,
                                               kSightNames[static_cast<size_t>(each.param.sight)]);
                         });

// A sender is ahead of its reader by as many messages as there are slots, and then waits for it.
TEST(MemberSlots, AreWrittenAgainOnlyWhenTheyAreReadOrTheReaderIsGone) {
  Host host(2, 1);
  xla::CollectiveTable table = Table(2, {{0, 1}});
  for (size_t i = 0; i < kSlots + 1; ++i) {
    Collective& permute = Add(table, Collective::PERMUTE, {{1, 4}});
    permute.add_sources(0);
    permute.add_targets(1);
  }
  auto plan = *Plan::Make(table);
  auto send = [&](Member& member, uint32_t position) -> absl::Status {
    if (position == 1) return absl::OkStatus();  // it leaves without reading
    for (size_t i = 0; i < plan->size(); ++i) {
      Arrays results = Empty(plan->at(i));
      const absl::Status status =
          RunOnce(member, static_cast<int64_t>(i), Inputs(plan->at(i), position), results);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  };
  for (const absl::Status& status : host.Run(host.Begin(plan), send))
    EXPECT_TRUE(status.ok()) << status;

  auto launches = host.Begin(plan, std::chrono::milliseconds(100));
  Member sender(launches[0], std::make_shared<LocalDevice>(*Arena::Create(1), 7, 0, nullptr), 0);
  EXPECT_EQ(send(sender, 0).code(), absl::StatusCode::kDeadlineExceeded);
  host.peer(0, 1).SetGone();
  Member again(launches[0], std::make_shared<LocalDevice>(*Arena::Create(1), 7, 0, nullptr), 0);
  EXPECT_EQ(send(again, 0), absl::OkStatus());
}

// Position 0 sends `count` messages to position 1.
xla::CollectiveTable Chain(size_t count) {
  xla::CollectiveTable table = Table(2, {{0, 1}});
  for (size_t i = 0; i < count; ++i) {
    Collective& permute = Add(table, Collective::PERMUTE, {{1, 4}});
    permute.add_sources(0);
    permute.add_targets(1);
  }
  return table;
}

// What a device has read of an earlier process says nothing of the messages of the next one.
TEST(MemberSlots, AreNotWrittenAgainForWhatAnEarlierProcessSent) {
  Host host(2, 1);
  ExpectDescribed(host, Chain(50), 1);
  host.Restart(0);
  auto plan = *Plan::Make(Chain(kSlots + 2));
  std::atomic<size_t> sent = 0;
  const auto statuses =
      host.Run(host.Begin(plan), [&](Member& member, uint32_t position) -> absl::Status {
        while (position == 1 && sent < kSlots) YieldCore();  // it is late
        for (size_t i = 0; i < plan->size(); ++i) {
          Arrays results = Empty(plan->at(i));
          const Arrays inputs = Inputs(plan->at(i), position);
          const absl::Status status = RunOnce(member, static_cast<int64_t>(i), inputs, results);
          if (!status.ok()) return status;
          if (position == 0) ++sent;
          if (results != Expected(plan->at(i), position)) return absl::DataLossError("wrong");
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// The runtime says that a program has ended when the device's next one may have begun. The couriers take no word of
// reads that goes back.
TEST(MemberTest, MayEndAfterItsDevicesNextMemberHasRead) {
  Host host(2, 1, Sight::kMirrored);
  auto plan = *Plan::Make(Chain(1));
  const auto run = [&](Member& member, uint32_t position) {
    Arrays results = Empty(plan->at(0));
    return RunOnce(member, 0, Inputs(plan->at(0), position), results);
  };
  Mutex mutex;
  std::vector<std::unique_ptr<Member>> ended;
  const auto first = host.Begin(plan), second = host.Begin(plan);
  for (const auto& launches : {first, second}) {
    std::vector<std::unique_ptr<Member>> members;
    const auto statuses = host.Run(launches, [&](Member&, uint32_t position) {
      auto member = std::make_unique<Member>(launches[position], host.shared(position), position);
      const absl::Status status = run(*member, position);
      MutexLock lock(mutex);
      members.push_back(std::move(member));
      return status;
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    for (auto& member : members) ended.push_back(std::move(member));
  }
  while (!ended.empty()) ended.pop_back();  // the second launch's before the first's
}

TEST(MemberTest, TellsWhatItHasReadBeforeItWaits) {
  Host host(3, 1, Sight::kMirrored);
  xla::CollectiveTable table = Table(3, {{0, 1, 2}});
  for (const uint32_t source : {0u, 2u}) {
    Collective& permute = Add(table, Collective::PERMUTE, {{1, 4}});
    permute.add_sources(source);
    permute.add_targets(1);
  }
  const auto plan = *Plan::Make(table);
  const auto& told = host.peer(0, 1).arena().region(0).consumed[PeerNumber(0, 0)];
  constexpr std::chrono::milliseconds kMax{10'000};
  const auto statuses = host.Run(host.Begin(plan, kMax), [&](Member& member, uint32_t position) {
    absl::Status status;
    for (int64_t number = 0; number < 2 && status.ok(); ++number) {
      const auto deadline = Clock::now() + kMax;
      while (position == 2 && number == 1 && told == 0) {  // it comes once the first has been told
        if (Clock::now() > deadline) return absl::DeadlineExceededError("nothing was told");
        YieldCore();
      }
      Arrays results = Empty(plan->at(number));
      status = RunOnce(member, number, Inputs(plan->at(number), position), results);
    }
    return status;
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST(SkipTest, OtherWorkersHearItOnceForAllDevices) {
  class Listener final : public Courier {
   public:
    absl::Status Send(const Published*, std::span<const ReadUpTo>) override {
      return absl::OkStatus();
    }
    void SendLeft(std::span<const LeftUpTo> lefts) override {
      heard.emplace_back();
      for (const LeftUpTo& left : lefts) heard.back().emplace_back(left.device, left.place);
    }
    void Begin() override {}

    std::vector<std::vector<std::pair<uint32_t, uint64_t>>> heard;
  };
  const auto listener = std::make_shared<Listener>();
  const auto couriers = std::make_shared<Couriers>();
  couriers->Set(1, listener);
  const auto arena = *Arena::Create(3);
  const auto first = std::make_shared<LocalDevice>(arena, 0, 0, couriers);
  const auto last = std::make_shared<LocalDevice>(arena, 0, 2, couriers);
  last->Enter(5);  // and is still in it
  LocalDevice::Skip(std::vector<std::shared_ptr<LocalDevice>>{first, nullptr, last}, 7);
  LocalDevice::Skip({}, 8);
  last->Leave(5, LocalDevice::Ending::kComplete);  // and now it has left 7, too
  last->Enter(9);
  last->Leave(9, LocalDevice::Ending::kComplete);  // which is known by what it has read
  using Lefts = std::vector<std::pair<uint32_t, uint64_t>>;
  EXPECT_EQ(listener->heard, (std::vector<Lefts>{{{0, 7}, {2, 4}}, {{2, 7}}}));
  EXPECT_EQ(arena->region(0).left.load(), 7u);
}

// A gang that a worker never had: its device neither entered nor left it, and is in a later one.
TEST(MemberSlots, DoNotWaitForAReaderThatNeverHadTheGang) {
  Host host(2, 1);
  auto plan = *Plan::Make(Chain(kSlots));
  auto launches = host.Begin(plan);
  host.local(1).Leave(launches[0]->gang().place, LocalDevice::Ending::kEarly);
  {
    Member sender(launches[0], host.shared(0), 0);
    for (size_t i = 0; i < kSlots; ++i) {
      Arrays results = Empty(plan->at(i));
      EXPECT_TRUE(RunOnce(sender, static_cast<int64_t>(i), Inputs(plan->at(i), 0), results).ok());
    }
  }
  host.local(0).Leave(launches[0]->gang().place, LocalDevice::Ending::kComplete);
  ExpectDescribed(host, Chain(kSlots), 1);
}

TEST(MemberSlots, AreFreeAtOnceWhenTheirReaderLeaves) {
  constexpr int kRounds = 8;
  constexpr uint32_t kOversleptMax = 2;  // a busy machine may delay a wake
  Host host(2, 1);
  auto plan = *Plan::Make(Chain(kSlots + 1));
  for (int round = 0; round < kRounds; ++round) {
    auto launches = host.Begin(plan);
    const uint64_t place = launches[0]->gang().place;
    Thread sender("sender", [&] {
      Member member(launches[0], host.shared(0), 0);
      for (size_t i = 0; i < plan->size(); ++i) {
        Arrays results = Empty(plan->at(i));
        EXPECT_TRUE(RunOnce(member, static_cast<int64_t>(i), Inputs(plan->at(i), 0), results).ok());
      }
    });
    while (!host.local(0).waiting()) YieldCore();
    host.local(1).Leave(place, LocalDevice::Ending::kComplete);
    sender.Join();
    host.local(0).Leave(place, LocalDevice::Ending::kComplete);
  }
  EXPECT_LE(host.local(0).overslept(), kOversleptMax);
}

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
  for (const uint32_t hosts : {1u, 2u}) {
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

TEST(Mirror, RefusesWhatNoWorkerSays) {
  const auto own = *Arena::Create(2);
  Mirror mirror = *Mirror::Create(3, 2);
  const Bytes data(64);
  const auto take = [&](uint32_t device, std::vector<ByteRange> ranges, size_t bytes) {
    return mirror.Take(Published{.device = device, .sequence = 5, .ranges = std::move(ranges)},
                       std::span(data).first(bytes), *own);
  };
  EXPECT_TRUE(take(1, {{0, 16}, {64, 16}}, 32).ok());
  EXPECT_TRUE(take(1, {{kMessageBytes - 16, 16}}, 16).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(take(2, {{0, 16}}, 16)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{0, 16}}, 15)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{64, 16}, {0, 16}}, 32)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{0, 16}, {8, 16}}, 32)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{kMessageBytes - 8, 16}}, 16)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{SIZE_MAX - 7, 16}}, 16)));
  EXPECT_TRUE(absl::IsInvalidArgument(take(0, {{16, SIZE_MAX - 7}}, 16)));
  EXPECT_TRUE(mirror.Take(ReadUpTo{1, 1, 5}, *own, 0).ok());
  EXPECT_TRUE(mirror.Take(ReadUpTo{1, 1, 5}, *own, 0).ok()) << "again";
  EXPECT_TRUE(absl::IsInvalidArgument(mirror.Take(ReadUpTo{1, 1, 4}, *own, 0)));
  EXPECT_EQ(mirror.arena()->region(1).consumed[PeerNumber(0, 1)].load(), 5u);
  EXPECT_TRUE(absl::IsInvalidArgument(mirror.Take(ReadUpTo{2, 0, 5}, *own, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(mirror.Take(ReadUpTo{0, 2, 5}, *own, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(mirror.Take(LeftUpTo{2, 5}, *own)));
  EXPECT_TRUE(mirror.Take(LeftUpTo{0, 7}, *own).ok());
  EXPECT_TRUE(mirror.Take(LeftUpTo{0, 4}, *own).ok()) << "said before 7, and came after it";
  EXPECT_EQ(mirror.arena()->region(0).left.load(), 7u);
}

// One member is late for each round, until the other one sleeps. That one is woken by what it waits for; otherwise it
// would oversleep, and a sender, which has four messages ahead, in every fourth round. A busy machine may delay a wake.
TEST(Member, IsWokenByWhatItWaitsFor) {
  static constexpr int kRounds = 24;
  static constexpr uint32_t kOversleptMax = 3;
  const auto run = [](Host& host, Collective::Kind kind, uint64_t floats, uint32_t late) {
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
      EXPECT_LE(host.local(0).overslept() + host.local(1).overslept(), kOversleptMax);
    }
  }
}

TEST(Peer, FailsTheLaunchesThatHaveMembersThere) {
  Host host(2, 1, Sight::kMirrored);
  xla::CollectiveTable table = Table(2, {{0, 1}});
  Add(table, Collective::ALL_REDUCE, {{1, 4}});
  auto plan = *Plan::Make(table);
  const auto before = host.Begin(plan);
  host.peer(0, 1).Fail(absl::DataLossError("its way is broken"));
  EXPECT_EQ(before[0]->reason().message(), "its way is broken");
  EXPECT_TRUE(before[1]->reason().ok());
  const auto after = host.Begin(plan);
  EXPECT_EQ(after[0]->reason().message(), "its way is broken");
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

// Position 0 of two workers sends 280 kB to position 1, which is late.
class HeapTest : public ::testing::Test {
 protected:
  HeapTest() {
    xla::CollectiveTable table = Table(2, {{0, 1}});
    Collective& permute = Add(table, Collective::PERMUTE, {{1, 70'000}});
    permute.add_sources(0);
    permute.add_targets(1);
    plan_ = *Plan::Make(table);
  }

  // Both members' ends. The sender's memory is something else by the time that the reader looks.
  std::array<absl::Status, 2> SendThenReceive() {
    const auto launches = host_.Begin(plan_, std::chrono::milliseconds(100));
    std::array<absl::Status, 2> ends;
    std::array<Arrays, 2> inputs, results;
    for (uint32_t position : {0u, 1u}) {
      inputs[position] = Inputs(plan_->at(0), position);
      results[position] = Empty(plan_->at(0));
      {
        Member member(launches[position], host_.shared(position), position);
        ends[position] = RunOnce(member, 0, inputs[position], results[position]);
      }
      for (Bytes& bytes : inputs[position]) std::ranges::fill(bytes, std::byte{0xff});
      host_.local(position).Leave(launches[position]->gang().place, LocalDevice::Ending::kEarly);
    }
    return ends;
  }

  Host host_{2, 1, Sight::kHeaps};
  std::shared_ptr<const Plan> plan_;
};

TEST_F(HeapTest, WhatAMemberShowedIsNoResultOnceItHasFailed) {
  const auto ends = SendThenReceive();
  EXPECT_TRUE(absl::IsDeadlineExceeded(ends[0])) << "it keeps what it shows: " << ends[0];
  EXPECT_TRUE(absl::IsUnavailable(ends[1])) << ends[1];
  EXPECT_THAT(ends[1].message(), HasSubstr("worker0, local device 0, has left the gang"));
  const Region& region = host_.arena(0).region(0);
  EXPECT_TRUE(
      std::ranges::any_of(region.headers, [](const auto& each) { return each.shows == 1; }));
}

TEST_F(HeapTest, AMemberThatShowsMemoryOutsideOfItsHeapIsNamed) {
  for (uint64_t bytes : {uint64_t{0}, uint64_t{4096}}) {
    host_.SeeHeap(1, 0, bytes);
    const auto ends = SendThenReceive();
    EXPECT_TRUE(absl::IsInternal(ends[1])) << ends[1];
    EXPECT_THAT(ends[1].message(),
                HasSubstr("worker0, local device 0, shows memory that is not in"));
  }
}

// A heap takes memory for as long as it is mapped, and a device keeps its last launches, which know their members.
TEST_F(HeapTest, OfAWorkerThatIsGoneIsDropped) {
  host_.SeeHeap(1, 0, 4096);
  const std::weak_ptr<const ReadableHeap> heap = host_.peer(1, 0).arena().heap();
  const auto launches = host_.Begin(plan_);
  ASSERT_FALSE(heap.expired());
  host_.peer(1, 0).SetGone();
  EXPECT_TRUE(heap.expired());
}

TEST_F(HeapTest, OfAWorkerThatIsGoneIsNotLookedFor) {
  host_.SeeHeap(1, 0, 0);
  host_.peer(1, 0).SetGone();
  const auto ends = SendThenReceive();
  EXPECT_TRUE(absl::IsUnavailable(ends[1])) << ends[1];
  EXPECT_THAT(ends[1].message(), HasSubstr("worker0, local device 0, has left the gang"));
}

TEST(ReadableHeap, IsASealedFileWhoseBoundsHold) {
  constexpr uint64_t kBytes = 8192;
  FileDescriptor file(memfd_create("heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadableHeap::Map(file).status())) << "it could shrink";
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  ASSERT_EQ(pwrite(file.get(), "x", 1, 5000), 1);
  const auto heap = *ReadableHeap::Map(file);
  const std::byte* const there = heap->At(5000, 1);
  ASSERT_NE(there, nullptr);
  EXPECT_EQ(*there, std::byte{'x'});
  EXPECT_NE(heap->At(0, kBytes), nullptr);
  for (uint64_t offset : {uint64_t{1}, kBytes, ~uint64_t{0}, ~uint64_t{0} - kBytes + 1})
    EXPECT_EQ(heap->At(offset, kBytes), nullptr) << offset;
  EXPECT_EQ(heap->OffsetOf({there, 10}), 5000u);
  EXPECT_FALSE(heap->OffsetOf({there, kBytes}).has_value());
  const std::byte here{};
  EXPECT_FALSE(heap->OffsetOf({&here, 1}).has_value());
  EXPECT_TRUE(absl::IsInvalidArgument(ReadableHeap::Map(FileDescriptor()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadableHeap::Map(FileDescriptor(open("/dev/zero", O_RDWR | O_CLOEXEC))).status()));
}

TEST(Arena, RejectsWhatIsNotOne) {
  auto arena = *Arena::Create(2);
  auto copy = [&] { return FileDescriptor(fcntl(arena->descriptor(), F_DUPFD_CLOEXEC, 0)); };
  EXPECT_TRUE(Arena::Map(copy(), 2).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Arena::Map(copy(), 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Arena::Map(copy(), 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Arena::Map(FileDescriptor(), 2).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Arena::Map(FileDescriptor(open("/dev/zero", O_RDWR | O_CLOEXEC)), 2).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Arena::Create(kDevicesMax + 1).status()));
}

}  // namespace
}  // namespace gangway::collective
