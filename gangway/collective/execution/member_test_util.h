// For tests of collectives: the devices of several workers as threads of one process, tables of collectives, and what
// each gives, computed one element at a time.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_MEMBER_TEST_UTIL_H_
#define GANGWAY_COLLECTIVE_EXECUTION_MEMBER_TEST_UTIL_H_

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/thread.h"
#include "gangway/collective/execution/member.h"

namespace gangway::collective {

using Bytes = std::vector<std::byte>;
using Arrays = std::vector<Bytes>;

inline constexpr int32_t kF32 = 11;
inline constexpr std::chrono::milliseconds kWaitMax{60'000};

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
      ++messages_;
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
  size_t messages() const { return messages_; }

 private:
  Mutex mutex_;
  Mirror mirror_;
  const Arena* const reader_;
  const uint32_t reader_index_;
  size_t bytes_ = 0;
  size_t messages_ = 0;
};

// How workers see one another: by messages in memory that they map; their heaps, too, or those of every second one; by
// couriers.
enum class Sight { kMapped, kHeaps, kSomeHeaps, kMirrored };
inline constexpr std::array<const char*, 4> kSightNames = {"", "heaps", "some_heaps", "mirrored"};

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

  // Makes the heap of `worker` the addresses from 1 to `addresses`.
  void SetHeap(uint32_t worker, uint64_t addresses) {
    own_[worker]->SetHeap(
        std::make_shared<ReadableHeap>(reinterpret_cast<std::byte*>(1), addresses));
  }

  // Sent to other workers by couriers so far.
  size_t carried_bytes() const {
    size_t all = 0;
    for (const auto& courier : direct_) all += courier->bytes();
    return all;
  }

  size_t carried_messages() const {
    size_t all = 0;
    for (const auto& courier : direct_) all += courier->messages();
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
      std::vector<PeerDevice> by_position;
      for (uint32_t i = 0; i < size(); ++i)
        by_position.push_back({seen[i / devices_], i % devices_});
      launches.push_back(Launch::Begin(plan,
                                       std::make_shared<const PeerDevices>(std::move(by_position)),
                                       GangName{gang_, gang_ + 100}, wait_max));
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
        local_[i]->Leave(launch->gang().order, statuses[i].ok() ? LocalDevice::Ending::kComplete
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
inline xla::CollectiveTable Table(uint32_t count,
                                  const std::vector<std::vector<uint32_t>>& groups) {
  xla::CollectiveTable table;
  table.set_replica_count(1);
  table.set_partition_count(count);
  xla::CollectiveGroups& all = *table.add_groups();
  for (const auto& positions : groups)
    all.add_groups()->mutable_positions()->Add(positions.begin(), positions.end());
  return table;
}

inline xla::Collective& Add(xla::CollectiveTable& table, xla::Collective::Kind kind,
                            const std::vector<std::pair<uint64_t, uint64_t>>& extents) {
  xla::Collective& collective = *table.add_collectives();
  collective.set_kind(kind);
  collective.set_reduction(xla::Collective::SUM);
  collective.set_name("it");
  for (auto [outer, floats] : extents) {
    xla::Collective::Operand& operand = *collective.add_operands();
    operand.set_element_type(kF32);
    operand.set_outer(outer);
    operand.set_piece_bytes(floats * sizeof(float));
  }
  return collective;
}

inline void Put(Bytes& bytes, size_t index, float value) {
  std::memcpy(bytes.data() + index * sizeof(float), &value, sizeof(float));
}

inline float InputAt(uint32_t position, size_t operand, size_t at, uint32_t seed) {
  return 0.1f * static_cast<float>((at * 31 + size_t{position} * 17 + operand * 7 + seed) % 1009);
}

inline Arrays Inputs(const PlannedCollective& planned, uint32_t position, uint32_t seed = 0) {
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
inline Arrays Expected(const PlannedCollective& planned, uint32_t position, uint32_t seed = 0) {
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
        case xla::Collective::ALL_REDUCE:
        case xla::Collective::REDUCE_SCATTER: {
          const bool scatters = planned.meaning.kind() == xla::Collective::REDUCE_SCATTER;
          const size_t source =
              scatters ? (at / piece * size + role.rank) * piece + at % piece : at;
          float sum = from(0, i, source);
          for (size_t other = 1; other < size; ++other) sum += from(other, i, source);
          Put(results[i], at, sum);
          break;
        }
        case xla::Collective::ALL_GATHER:
          Put(results[i], at, from(member, i, row * piece + at % piece));
          break;
        case xla::Collective::ALL_TO_ALL:
          Put(results[i], at, from(member, i, (row * size + role.rank) * piece + at % piece));
          break;
        case xla::Collective::ALL_TO_ALL_TUPLE:
          Put(results[i], at, from(i, role.rank, at));
          break;
        default:
          Put(results[i], at, from(0, i, at));
      }
    }
  }
  return results;
}

inline absl::Status RunOnce(Member& member, int64_t number, const Arrays& inputs, Arrays& results) {
  const std::vector<std::span<const std::byte>> operands(inputs.begin(), inputs.end());
  std::vector<std::span<std::byte>> into(results.begin(), results.end());
  return member.Run(number, operands, into);
}

inline Arrays Empty(const PlannedCollective& planned) {
  Arrays results;
  for (size_t bytes : planned.result_bytes) results.emplace_back(bytes, std::byte{0xee});
  return results;
}

// All collectives of the table, several rounds each, in two launches.
inline void ExpectDescribed(Host& host, const xla::CollectiveTable& table, uint32_t rounds = 2) {
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

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_MEMBER_TEST_UTIL_H_
