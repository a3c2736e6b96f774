// Random sessions, sent as runs: what is sent does what was submitted, whatever is known by then.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "gangway/client/captured_ops.h"
#include "gangway/client/captured_programs.h"

namespace gangway::client {
namespace {

constexpr uint64_t kOutside = 3;  // arrays 1 to 3 of a run are from outside

// Draws the operations of a run, over a few arrays.
class RandomRun {
 public:
  CapturedRun::Ops Draw() {
    CapturedRun::Ops run;
    for (int length = *rc::gen::inRange(0, 5); length > 0; --length) *run.Add() = Next();
    return run;
  }

 private:
  wire::Op Next() {
    switch (arrays_.empty() ? 0 : *rc::gen::inRange(0, 6)) {
      case 0:
      case 1: {
        const bool gathers = !arrays_.empty() && *rc::gen::arbitrary<bool>();
        Numbers arguments = Some(2);
        if (gathers) arguments.push_back(0);
        const uint64_t executable = *rc::gen::inRange(1, 4);
        wire::Op op = CallOf(executable, arguments, New(*rc::gen::inRange(0, 3)));
        if (!gathers) return op;
        return Gathered(op, static_cast<uint32_t>(arguments.size() - 1), Shards());
      }
      case 2: {
        const Numbers sources = Some(2);
        return CopyOf(sources, New(static_cast<int>(sources.size())),
                      {*rc::gen::inRange(0u, 3u), 4}, *rc::gen::element<std::string>("", "host"));
      }
      case 3: {
        const std::vector<ShardNumber> shards = Shards();
        return RegroupOf(New(1)[0], shards);
      }
      case 4: {
        const uint64_t array = One();
        return ReplicaOf(New(1)[0], array);
      }
      default: {
        Numbers dropped = Some(2);
        for (const uint64_t array : dropped) std::erase(arrays_, array);
        return DropOf(dropped);
      }
    }
  }
  Numbers New(int count) {
    Numbers made;
    for (int i = 0; i < count; ++i) {
      made.push_back(++next_);
      arrays_.push_back(next_);
    }
    if (arrays_.size() > 4) arrays_.erase(arrays_.begin());  // it is kept, and not used again
    return made;
  }
  uint64_t One() { return *rc::gen::elementOf(arrays_); }
  Numbers Some(int most) {
    Numbers some;
    if (arrays_.empty()) return some;
    for (int count = *rc::gen::inRange(0, most + 1); count > 0; --count) some.push_back(One());
    return some;
  }
  std::vector<ShardNumber> Shards() {
    std::vector<ShardNumber> shards;
    for (int count = *rc::gen::inRange(1, 3); count > 0; --count)
      shards.push_back({One(), *rc::gen::inRange(0u, 2u)});
    return shards;
  }

  uint64_t next_ = kOutside;
  Numbers arrays_{1, 2, 3};
};

// The same operations on other arrays.
class Renaming {
 public:
  // What the run makes has new numbers; `outside`: what it is given, which may be one array for several.
  Renaming(uint64_t& next, Numbers outside) : next_(next), outside_(std::move(outside)) {}

  CapturedRun::Ops operator()(CapturedRun::Ops run) {
    for (wire::Op& op : run) {
      if (op.has_call()) {
        Rename(*op.mutable_call()->mutable_arguments());
        Rename(*op.mutable_call()->mutable_results());
        for (auto& gathered : *op.mutable_call()->mutable_gathered())
          Rename(*gathered.mutable_arrays());
      } else if (op.has_copy()) {
        Rename(*op.mutable_copy()->mutable_sources());
        Rename(*op.mutable_copy()->mutable_results());
      } else if (op.has_regroup()) {
        for (auto& result : *op.mutable_regroup()->mutable_results()) {
          result.set_array(Of(result.array()));
          result.set_replica_of(Of(result.replica_of()));
          for (auto& shard : *result.mutable_shards()) shard.set_array(Of(shard.array()));
        }
      } else {
        Rename(*op.mutable_drop()->mutable_handles());
      }
    }
    return run;
  }

 private:
  template <typename Arrays>
  void Rename(Arrays& arrays) {
    for (uint64_t& array : arrays) array = Of(array);
  }
  uint64_t Of(uint64_t array) {
    if (array <= kOutside) return array == 0 ? 0 : outside_[array - 1];
    const auto [name, is_new] = names_.try_emplace(array, next_);
    next_ += is_new;
    return name->second;
  }

  uint64_t& next_;
  const Numbers outside_;
  std::map<uint64_t, uint64_t> names_;
};

// A few runs come again and again, on whatever arrays.
TEST(CapturedRandomTest, WhatIsSentDoesWhatWasSubmitted) {
  uint64_t launches = 0;
  EXPECT_TRUE(rc::check([&] {
    uint64_t last_program = 0, next_array = 10;
    CapturedPrograms programs([&] { return ++last_program; },
                              {.run = {.nodes = 6, .key_bytes = 1000}, .keys = 3});
    std::vector<CapturedRun::Ops> runs;
    for (int i = 0; i < 4; ++i) runs.push_back(RandomRun().Draw());
    Meaning submitted, sent;
    for (int i = *rc::gen::inRange(0, 60); i > 0; --i) {
      const auto given = *rc::gen::container<Numbers>(
          kOutside, rc::gen::inRange(next_array > 18 ? next_array - 8 : 1, next_array));
      CapturedRun::Ops run = Renaming(next_array, given)(*rc::gen::elementOf(runs));
      submitted.Apply(run);
      const auto when = *rc::gen::element(CapturedPrograms::Register::kFirstTime,
                                          CapturedPrograms::Register::kSecondTime);
      launches += programs.Replace(run, when) == CapturedPrograms::Sent::kByALaunch;
      const std::vector<uint64_t> evicted = programs.TakeEvicted();
      run.Add()->mutable_drop_programs()->mutable_handles()->Add(evicted.begin(), evicted.end());
      sent.Apply(run);
      for (const wire::Op& op : run) {
        if (op.has_register_program())
          programs.OnRegistered(op.register_program().program(), *rc::gen::inRange(0, 4) != 0);
      }
      RC_ASSERT(sent.TakeNodes() == submitted.TakeNodes());
      RC_ASSERT(sent.arrays() == submitted.arrays());
    }
  }));
  EXPECT_GT(launches, 100u) << "hardly any run came again";
}

}  // namespace
}  // namespace gangway::client
