// Rings of waits, and whether a ring that all its members confirm is always a deadlock, and every deadlock such a ring:
// members that run collectives in random orders, with reports, questions, answers and messages delayed at random.
#include "gangway/scheduler/core/gang_waits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace gangway::scheduler {
namespace {

GangWaits::Wait WaitOf(uint32_t device, uint64_t number, uint32_t awaited) {
  return {.device = IslandDevice(device), .number = number, .awaited = IslandDevice(awaited)};
}

std::vector<uint32_t> DevicesOf(const GangWaits::Ring& ring) {
  std::vector<uint32_t> devices;
  for (const auto& each : ring) devices.push_back(each.device.number());
  return devices;
}

TEST(GangWaits, TheLastWaitOfARingClosesIt) {
  GangWaits waits;
  EXPECT_TRUE(waits.Note(WaitOf(0, 1, 1), 1).empty());
  EXPECT_TRUE(waits.Note(WaitOf(1, 1, 2), 2).empty());
  EXPECT_TRUE(waits.Note(WaitOf(3, 1, 0), 3).empty()) << "it only leads to the others";
  EXPECT_EQ(DevicesOf(waits.Note(WaitOf(2, 1, 0), 4)), (std::vector<uint32_t>{2, 0, 1}));
  EXPECT_TRUE(waits.Note(WaitOf(4, 1, 3), 5).empty()) << "the ring is known";
  EXPECT_TRUE(waits.Note(WaitOf(2, 1, 0), 6).empty()) << "a report that comes again";
}

TEST(GangWaits, AllMembersOfTheRingConfirmIt) {
  GangWaits waits;
  waits.Note(WaitOf(0, 1, 1), 1);
  waits.Note(WaitOf(5, 1, 0), 2);
  ASSERT_FALSE(waits.Note(WaitOf(1, 7, 0), 3).empty());
  EXPECT_TRUE(waits.Confirm(3, IslandDevice(0)).empty());
  EXPECT_TRUE(waits.Confirm(3, IslandDevice(0)).empty()) << "twice";
  EXPECT_TRUE(waits.Confirm(3, IslandDevice(5)).empty()) << "not in the ring";
  EXPECT_TRUE(waits.Confirm(2, IslandDevice(1)).empty()) << "another check";
  EXPECT_EQ(DevicesOf(waits.Confirm(3, IslandDevice(1))), (std::vector<uint32_t>{1, 0}));
}

TEST(GangWaits, ALaterWaitOfAMemberEndsTheCheck) {
  GangWaits waits;
  waits.Note(WaitOf(0, 1, 1), 1);
  waits.Note(WaitOf(1, 1, 0), 2);
  waits.Confirm(2, IslandDevice(0));
  EXPECT_FALSE(waits.Note(WaitOf(1, 2, 0), 3).empty()) << "the new wait closes a ring again";
  EXPECT_TRUE(waits.Confirm(2, IslandDevice(1)).empty());
  EXPECT_TRUE(waits.Confirm(3, IslandDevice(1)).empty()) << "0 confirmed another check";
  EXPECT_FALSE(waits.Confirm(3, IslandDevice(0)).empty());
}

TEST(GangWaits, RingsAreCheckedSideBySide) {
  GangWaits waits;
  waits.Note(WaitOf(0, 1, 1), 1);
  waits.Note(WaitOf(1, 1, 0), 2);
  waits.Note(WaitOf(2, 1, 3), 3);
  waits.Note(WaitOf(3, 1, 2), 4);
  waits.Note(WaitOf(3, 2, 2), 5);  // the first ring's check goes on
  waits.Confirm(2, IslandDevice(0));
  EXPECT_FALSE(waits.Confirm(2, IslandDevice(1)).empty());
}

// Members that each run a list of collectives. In a collective a member publishes a message and awaits those of the
// others in its group. Between workers, messages arrive later than they are published. A message that all have read is
// overwritten when its member publishes the next one: while it waits, its messages stay.
class Model {
 public:
  explicit Model(uint32_t seed) : random_(seed) {
    members_.resize(Pick(2, 6));
    workers_ = Pick(1, 3);
    up_.resize(workers_);
    down_.resize(workers_);
    const uint32_t count = static_cast<uint32_t>(members_.size());
    for (uint32_t group = 0; group < kCollectives; ++group) {
      for (uint32_t i = 0; i < count; ++i)
        if (group == 0 || Pick(0, 3) != 0) groups_[group].push_back(i);
    }
    std::vector<uint32_t> order;
    for (uint32_t i = Pick(2, 6); i > 0; --i) order.push_back(Pick(0, kCollectives - 1));
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t number : order)
        if (std::ranges::count(groups_[number], i) != 0) members_[i].program.push_back(number);
      members_[i].worker = Pick(0, workers_ - 1);
    }
    std::vector<uint32_t>& odd = members_[Pick(0, count - 1)].program;
    if (Pick(0, 1) == 0 || odd.size() < 2) return;
    const uint32_t at = Pick(0, static_cast<uint32_t>(odd.size()) - 2);
    std::swap(odd[at], odd[at + 1]);
  }

  void Run() {
    for (std::vector<std::function<void()>> next = Enabled(); !next.empty(); next = Enabled())
      next[Pick(0, static_cast<uint32_t>(next.size()) - 1)]();
  }

  // Of members that never end: whether some wait for one another. Others wait for members that have ended.
  bool IsDeadlocked() const {
    for (uint32_t first = 0; first < members_.size(); ++first) {
      uint32_t at = first;
      for (size_t i = 0; i <= members_.size() && members_[at].awaited; ++i) {
        at = *members_[at].awaited;
        if (at == first && members_[at].awaited) return true;
      }
    }
    return false;
  }
  const std::vector<GangWaits::Ring>& declared() const { return declared_; }
  uint64_t wait_of(IslandDevice device) const {
    const Member& member = members_[device.number()];
    return member.awaited ? member.wait : 0;
  }
  uint32_t suspicions() const { return checks_; }

 private:
  static constexpr uint32_t kCollectives = 4;
  using Key = std::pair<uint32_t, uint32_t>;  // collective, round
  struct Question {
    uint64_t check = 0, wait = 0;
    std::optional<Key> owed;
  };
  struct Member {
    std::vector<uint32_t> program;
    uint32_t worker = 0;
    size_t done = 0;      // calls
    size_t received = 0;  // members of the group, in the call that runs
    std::map<uint32_t, uint32_t> rounds;
    std::map<Key, size_t> slots;                  // messages, and how many have read them
    std::set<std::pair<uint32_t, Key>> mirrored;  // that have arrived at other members
    std::optional<uint32_t> awaited;              // the member that it waits for
    Key key;                                      // of the call
    uint64_t wait = 0, reported = 0;
    std::optional<Question> question;
    bool runs = false;  // it is in a call
  };

  uint32_t Pick(uint32_t least, uint32_t most) {
    return std::uniform_int_distribution<uint32_t>(least, most)(random_);
  }
  bool IsFar(uint32_t a, uint32_t b) const { return members_[a].worker != members_[b].worker; }
  bool Sees(uint32_t reader, uint32_t source, const Key& key) const {
    return IsFar(reader, source) ? members_[source].mirrored.contains({reader, key})
                                 : members_[source].slots.contains(key);
  }

  std::vector<std::function<void()>> Enabled() {
    std::vector<std::function<void()>> all;
    for (uint32_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      if (member.awaited ? Sees(i, *member.awaited, member.key)
                         : member.done < member.program.size())
        all.emplace_back([this, i] { Advance(i); });
      if (member.awaited && member.reported < member.wait)
        all.emplace_back([this, i] { Report(i); });
      if (member.question) all.emplace_back([this, i] { Answer(i); });
    }
    for (size_t i = 0; i < flying_.size(); ++i)
      all.emplace_back([this, i] {
        const auto [source, reader, key] = flying_[i];
        flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(i));
        members_[source].mirrored.insert({reader, key});
      });
    for (auto* queues : {&up_, &down_})
      for (auto& queue : *queues)
        if (!queue.empty())
          all.emplace_back([&queue] {
            const auto first = std::move(queue.front());
            queue.pop_front();
            first();
          });
    return all;
  }

  // One step of the program: a call begins, or a message is read.
  void Advance(uint32_t i) {
    Member& member = members_[i];
    if (member.awaited) {
      Member& source = members_[*member.awaited];
      ++source.slots.at(member.key);
      source.mirrored.erase({i, member.key});
      member.awaited.reset();
      ++member.received;
    } else if (!std::exchange(member.runs, true)) {
      const uint32_t number = member.program[member.done];
      member.key = {number, member.rounds[number]++};
      member.received = 0;
      std::erase_if(member.slots, [this](const auto& slot) {
        return slot.second == groups_[slot.first.first].size() - 1;
      });
      member.slots[member.key] = 0;
      for (uint32_t reader : groups_[number])
        if (IsFar(i, reader)) flying_.push_back({i, reader, member.key});
    }
    const std::vector<uint32_t>& group = groups_[member.key.first];
    if (member.received < group.size() && group[member.received] == i) ++member.received;
    if (member.received == group.size()) {
      member.runs = false;
      ++member.done;
    } else {
      member.awaited = group[member.received];
      ++member.wait;
    }
  }

  void Report(uint32_t i) {
    Member& member = members_[i];
    member.reported = member.wait;
    GangWaits::Wait wait = WaitOf(i, member.wait, *member.awaited);
    if (IsFar(i, *member.awaited)) {
      wait.deed.emplace();
      wait.deed->set_number(member.key.first);
      wait.deed->set_round(member.key.second);
    }
    up_[member.worker].emplace_back([this, wait] { Note(wait); });
  }

  void Note(const GangWaits::Wait& wait) {
    const GangWaits::Ring ring = waits_.Note(wait, ++checks_sent_);
    checks_ += ring.empty() ? 0 : 1;
    for (size_t i = 0; i < ring.size(); ++i) {
      const auto& before = ring[(i + ring.size() - 1) % ring.size()];
      Question question{.check = checks_sent_, .wait = ring[i].number};
      if (before.deed) question.owed = Key(before.deed->number(), before.deed->round());
      const uint32_t device = ring[i].device.number();
      down_[members_[device].worker].emplace_back([this, device, question] {
        Member& member = members_[device];
        if (member.awaited && member.wait == question.wait) member.question = question;
      });
    }
  }

  void Answer(uint32_t i) {
    Member& member = members_[i];
    const Question question = *std::exchange(member.question, std::nullopt);
    if (!member.awaited || member.wait != question.wait) return;
    if (Sees(i, *member.awaited, member.key)) return;
    if (question.owed && member.slots.contains(*question.owed)) return;
    up_[member.worker].emplace_back([this, i, question] {
      GangWaits::Ring ring = waits_.Confirm(question.check, IslandDevice(i));
      if (!ring.empty()) declared_.push_back(std::move(ring));
    });
  }

  struct Flying {
    uint32_t source = 0, reader = 0;
    Key key;
  };
  std::mt19937 random_;
  uint32_t workers_ = 1;
  std::vector<Member> members_;
  std::map<uint32_t, std::vector<uint32_t>> groups_;
  std::vector<Flying> flying_;
  std::vector<std::deque<std::function<void()>>> up_, down_;  // by worker
  GangWaits waits_;
  uint64_t checks_sent_ = 0;
  uint32_t checks_ = 0;
  std::vector<GangWaits::Ring> declared_;
};

TEST(GangWaits, ExactlyTheDeadlocksAreConfirmedInRandomInterleavings) {
  uint32_t deadlocks = 0, rest = 0, refuted = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    Model model(seed);
    model.Run();
    for (const GangWaits::Ring& ring : model.declared()) {
      for (const auto& wait : ring)
        ASSERT_EQ(model.wait_of(wait.device), wait.number)
            << "seed " << seed << ": device " << wait.device << " went on";
    }
    ASSERT_EQ(!model.declared().empty(), model.IsDeadlocked()) << "seed " << seed;
    ++(model.IsDeadlocked() ? deadlocks : rest);
    refuted += !model.IsDeadlocked() && model.suspicions() > 0 ? 1 : 0;
  }
  EXPECT_GT(deadlocks, 100u);
  EXPECT_GT(rest, 100u);
  EXPECT_GT(refuted, 100u) << "rings that were suspected, and none";
}

}  // namespace
}  // namespace gangway::scheduler
