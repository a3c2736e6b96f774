// What one message costs the controller, a scheduler and a worker: no more than its size is worth. Each case is run
// with n, 2n and 4n parts, up to messages of some 300 KB, and its work is counted (counted_work.h), not timed. A cost
// in proportion to the size grows fourfold from n to 4n, one that grows with its square sixteenfold.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gangway/controller/core/controller.h"
#include "gangway/scheduler/core/island.h"
#include "gangway/simulation/cost_test_util.h"
#include "gangway/simulation/counted_work.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/core/worker_core.h"

namespace gangway::simulation {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using Time = std::chrono::steady_clock::time_point;

constexpr size_t kTextBytes = size_t{64} * 1024;

// Few bytes for each array or node that a failure reaches, however long its text.
void ExpectShared(const Case& one, size_t bytes_each) {
  ExpectLinear(one);
  EXPECT_LT(one(4 * kParts).bytes, 4 * kParts * bytes_each + 4 * kTextBytes);
}

wire::Failure LongFailure() {
  wire::Failure failure;
  failure.set_code(static_cast<int>(StatusCode::kInternal));
  failure.set_message(std::string(kTextBytes, 'x'));
  return failure;
}

wire::RegroupOp::Result* AddView(wire::RegroupOp* op, uint64_t handle) {
  wire::RegroupOp::Result* result = op->add_results();
  result->set_array(handle);
  return result;
}

void AddShard(wire::RegroupOp::Result* view, uint64_t array, uint32_t shard) {
  view->add_shards()->set_array(array);
  view->mutable_shards()->rbegin()->set_shard(shard);
}

TEST(MessageCostTest, AShardNamedAgainAndAgain) {
  ExpectLinear([](size_t n) {
    Head head(2);
    head.HaveMany(1, false);
    wire::RegroupOp::Result* view = AddView(head.Add()->mutable_regroup(), 1000000);
    for (size_t i = 0; i < n; ++i) AddShard(view, 1, 0);
    return head.Cost();
  });
}

TEST(MessageCostTest, AnArrayTakenApart) {
  for (const bool of_pieces : {false, true}) {  // the array: a storage, or a view of n storages
    ExpectLinear([of_pieces](size_t n) {
      Head head(n);
      if (of_pieces) {
        head.HaveMany(n, true);
        wire::RegroupOp::Result* whole = AddView(head.Add()->mutable_regroup(), 500000);
        for (size_t i = 0; i < n; ++i) AddShard(whole, i + 1, 0);
      } else {
        head.Upload(500000, 0, n);
      }
      head.Send();
      wire::RegroupOp* op = head.Add()->mutable_regroup();
      for (size_t i = 0; i < n; ++i)
        AddShard(AddView(op, 1000000 + i), 500000, static_cast<uint32_t>(i));
      return head.Cost();
    });
  }
}

TEST(MessageCostTest, AnArrayPutTogether) {
  ExpectLinear([](size_t n) {
    Head head(n);
    head.HaveMany(n, true);
    wire::RegroupOp::Result* whole = AddView(head.Add()->mutable_regroup(), 1000000);
    for (size_t i = 0; i < n; ++i) AddShard(whole, i + 1, 0);
    return head.Cost();
  });
}

TEST(MessageCostTest, APermutationOfAnArray) {
  ExpectLinear([](size_t n) {
    Head head(n);
    head.HaveMany(n, true);
    wire::RegroupOp::Result* whole = AddView(head.Add()->mutable_regroup(), 500000);
    for (size_t i = 0; i < n; ++i) AddShard(whole, i + 1, 0);
    head.Send();
    wire::RegroupOp::Result* turned = AddView(head.Add()->mutable_regroup(), 1000000);
    for (size_t i = 0; i < n; ++i) AddShard(turned, 500000, static_cast<uint32_t>(n - 1 - i));
    return head.Cost();
  });
}

TEST(MessageCostTest, AReplicaOfAnArrayNamedAgainAndAgain) {
  ExpectLinear([](size_t n) {
    Head head(64);
    head.Upload(1, 0, 64);
    head.Send();
    wire::RegroupOp* op = head.Add()->mutable_regroup();
    for (size_t i = 0; i < n; ++i) AddView(op, 1000000 + i)->set_replica_of(1);
    return head.Cost();
  });
}

TEST(MessageCostTest, AFetchOfManyShards) {
  for (const bool distinct : {true, false}) {
    ExpectLinear([distinct](size_t n) {
      Head head(n);
      head.Upload(1, 0, n);
      head.Send();
      wire::FetchOp* op = head.Add()->mutable_fetch();
      op->set_fetch(1);
      for (size_t i = 0; i < n; ++i) {
        op->add_arrays(1);
        op->add_shards(distinct ? static_cast<uint32_t>(i) : 0);
      }
      return head.Cost();
    });
  }
}

TEST(MessageCostTest, AFetchOfManyArrays) {
  ExpectLinear([](size_t n) {
    Head head(2);
    for (size_t i = 0; i < n; ++i) head.Upload(i + 1, 0, 1);
    head.Send();
    wire::FetchOp* op = head.Add()->mutable_fetch();
    op->set_fetch(1);
    for (size_t i = 0; i < n; ++i) {
      op->add_arrays(i + 1);
      op->add_shards(0);
    }
    return head.Cost();
  });
}

void AddPut(size_t n, uint64_t storage, wire::PutArray* array) {
  array->set_array(storage);
  array->set_storage(storage);
  array->mutable_tensor()->set_element_type(2);
  array->mutable_tensor()->add_shard_dims(8);
  array->mutable_tensor()->set_shard_bytes(8);
  for (size_t i = 0; i < n; ++i) array->add_shards(std::string(8, 'x'));
}

// Each wrong one begins another node.
TEST(MessageCostTest, APutOfManyArraysGoodOrNot) {
  for (const size_t wrong_each : {2, 100'000'000}) {
    ExpectLinear([wrong_each](size_t n) {
      Head head(2);
      wire::Put* op = head.Add()->mutable_put();
      op->add_devices(0);
      for (size_t i = 1; i <= n; ++i) AddPut(i % wrong_each == 0 ? 0 : 1, i, op->add_arrays());
      CountedWork cost = head.Cost();
      const CountedWork ends = WorkOf([&] { head.End(1, n); });
      return CountedWork{cost.blocks + ends.blocks, cost.bytes + ends.bytes};
    });
  }
}

// It is refused for their number.
TEST(MessageCostTest, APutToManyDevices) {
  ExpectLinear([](size_t n) {
    Head head(n);
    wire::Put* op = head.Add()->mutable_put();
    for (size_t i = 0; i < n; ++i) op->add_devices(static_cast<uint32_t>(i));
    AddPut(n, 1, op->add_arrays());
    return head.Cost();
  });
}

TEST(MessageCostTest, AnAwaitOfManyArrays) {
  for (const bool distinct : {true, false}) {
    ExpectLinear([distinct](size_t n) {
      Head head(2);
      for (size_t i = 0; i < n; ++i) head.Upload(i + 1, 0, 1);
      head.Send();
      wire::AwaitOp* op = head.Add()->mutable_await();
      op->set_await(1);
      for (size_t i = 0; i < n; ++i) op->add_arrays(distinct ? i + 1 : 1);
      CountedWork cost = head.Cost();
      const CountedWork settling = WorkOf([&] { head.End(1, head.ordinal); });
      return CountedWork{cost.blocks + settling.blocks, cost.bytes + settling.bytes};
    });
  }
}

// Each refused call is a range of its own, since its failure is.
TEST(MessageCostTest, LooksForEndsAmongManyRefusedCalls) {
  ExpectLinear([](size_t n) {
    Head head(2, /*wants_ends=*/true);
    for (size_t i = 0; i < n; ++i) {
      head.Add()->mutable_call()->set_executable(1000 + i);
      wire::TellEndsOp* op = head.Add()->mutable_tell_ends();
      op->set_when(wire::ENDS_TOGETHER);
      op->set_looked_for(2 * n);
    }
    return head.Cost();
  });
}

TEST(MessageCostTest, ACallWithManyDonatedArguments) {
  for (const bool kept : {true, false}) {
    ExpectLinear([kept](size_t n) {
      Head head(2);
      head.HaveMany(n, false);
      head.Compile(n, 1, 1, /*donates=*/true);
      wire::CallOp* op = head.Add()->mutable_call();
      op->set_executable(1);
      for (size_t i = 0; i < n; ++i) {
        op->add_arguments(i + 1);
        if (kept) op->add_keep(static_cast<uint32_t>(n - 1 - i));
      }
      op->add_results(1000000);
      return head.Cost();
    });
  }
}

TEST(MessageCostTest, ACallThatNamesAnArrayAgainAndAgain) {
  ExpectLinear([](size_t n) {
    Head head(2);
    head.HaveMany(1, false);
    head.Compile(n, n, 1, /*donates=*/true);
    wire::CallOp* op = head.Add()->mutable_call();
    op->set_executable(1);
    for (size_t i = 0; i < n; ++i) {
      op->add_arguments(1);
      op->add_results(1000000 + i);
    }
    return head.Cost();
  });
}

// Whatever the devices of a program are, they are compared and shared as one list.
TEST(MessageCostTest, ACallCostsTheControllerNoMoreForMoreDevices) {
  const auto cost = [](size_t n) {
    Head head(n);
    for (const uint64_t handle : {1, 2, 3, 4}) head.Upload(handle, 0, n);
    head.Compile(4, 4, n, /*donates=*/true);
    wire::CallOp* op = head.Add()->mutable_call();
    op->set_executable(1);
    for (const uint64_t handle : {1, 2, 3, 4}) {
      op->add_arguments(handle);
      op->add_results(10 + handle);
    }
    CountedWork cost = head.Cost();
    const CountedWork end = WorkOf([&] { head.End(5, 5); });
    EXPECT_EQ(head.actions.to_clients.size(), 0u) << "the call was refused";
    return CountedWork{cost.blocks + end.blocks, cost.bytes + end.bytes};
  };
  ExpectConstant(cost, 100);
}

// A worker that dies takes time for what it had, and none for the arrays of others.
TEST(MessageCostTest, ALostWorkerCostsNothingForArraysElsewhere) {
  const auto cost = [](size_t n) {
    Head head(2);
    head.HaveMany(n, /*spread=*/false);
    for (uint64_t handle = n + 1; handle <= n + 100; ++handle) head.Upload(handle, 1, 1);
    head.Send();
    head.End(n + 1, head.ordinal);
    controller::FromScheduler event{1, {}};
    wire::WorkerState* state = event.batch.add_reports()->mutable_worker_state();
    state->mutable_worker()->set_island(1);
    state->mutable_worker()->add_devices(1);
    *state->mutable_failure() = LongFailure();
    const CountedWork work = WorkOf([&] { head.Step(std::move(event)); });
    wire::AwaitOp* await = head.Add()->mutable_await();
    await->add_arrays(n + 100);
    head.Send();
    EXPECT_TRUE(head.actions.to_clients.at(0).second.await_done().has_failure());
    return work;
  };
  ExpectConstant(cost, 100);
}

// An array over all devices loses one worker's shards for the price of a record, and not of its shards.
TEST(MessageCostTest, ALostWorkerCostsEachArrayNoMoreForItsOtherShards) {
  const auto cost = [](size_t n) {
    Head head(n);
    for (uint64_t handle = 1; handle <= 100; ++handle) head.Upload(handle, 0, n);
    head.Send();
    head.End(1, head.ordinal);
    controller::FromScheduler event{1, {}};
    wire::WorkerState* state = event.batch.add_reports()->mutable_worker_state();
    state->mutable_worker()->set_island(1);
    *state->mutable_failure() = LongFailure();
    return WorkOf([&] { head.Step(std::move(event)); });
  };
  const CountedWork few = cost(64), many = cost(1024);
  EXPECT_GT(few.blocks, 100u) << "nothing was counted";
  EXPECT_LT(many.blocks, few.blocks + few.blocks / 10);
  EXPECT_LT(many.bytes, few.bytes + few.bytes / 10);
}

// Of arrays 1 to n, to a device of the same island.
void AddCopies(Head& head, size_t n, bool together) {
  wire::CopyOp* op = nullptr;
  for (size_t i = 0; i < n; ++i) {
    if (op == nullptr || !together) {
      op = head.Add()->mutable_copy();
      op->add_devices(2);
    }
    op->add_sources(i + 1);
    op->add_results(1000000 + i);
  }
}

TEST(MessageCostTest, CopiesToWrongDevices) {
  ExpectLinear([](size_t n) {
    Head head(2);
    head.HaveMany(1, false);
    wire::CopyOp* op = head.Add()->mutable_copy();
    for (size_t i = 0; i < n; ++i) {
      op->add_sources(1);
      op->add_results(1000000 + i);
      op->add_devices(static_cast<uint32_t>(i));
    }
    return head.Cost();
  });
}

// The operation names n arrays, or n operations name one each.
TEST(MessageCostTest, CopiesOfManyArraysTogetherAndApart) {
  for (const bool together : {true, false}) {
    ExpectLinear([together](size_t n) {
      Head head(4);
      head.HaveMany(n, false);
      AddCopies(head, n, together);
      return head.Cost();
    });
  }
}

TEST(MessageCostTest, CopiesOfUnknownRepeatedAndFreedArrays) {
  ExpectLinear([](size_t n) {
    Head head(4);
    head.HaveMany(2, false);
    head.Add()->mutable_delete_()->add_handles(2);
    head.Send();
    wire::CopyOp* op = head.Add()->mutable_copy();
    op->add_devices(2);
    for (size_t i = 0; i < n; ++i) {
      op->add_sources(i % 3 == 0 ? 1 : i % 3 == 1 ? 2 : 500000 + i);
      op->add_results(1000000 + i / 2);
    }
    return head.Cost();
  });
}

// DF-1: a copy is one item for its island, of few bytes for each array.
TEST(MessageCostTest, ACopyOfManyArraysIsOneItem) {
  for (const bool together : {true, false}) {
    size_t bytes_of_one = 0;
    for (const size_t arrays : {1, 200}) {
      Head head(4);
      head.HaveMany(arrays, false);
      AddCopies(head, arrays, together);
      head.Send();
      ASSERT_EQ(head.actions.to_islands.size(), 1u);
      const size_t bytes = head.actions.to_islands[0].second.ByteSizeLong();
      if (arrays == 1) bytes_of_one = bytes;
      EXPECT_LE(bytes, bytes_of_one + 32 * (arrays - 1));
    }
  }
}

TEST(MessageCostTest, OneArrayOfManyShards) {
  ExpectLinear([](size_t n) {
    Head head(n);
    wire::UploadOp* op = head.Add()->mutable_upload();
    op->set_array(1);
    op->set_upload(1);
    head.Spec(op->mutable_spec(), 0, n);
    for (size_t i = 0; i < n; ++i) op->add_destinations()->set_index(static_cast<uint32_t>(i));
    wire::CopyOp* copy = head.Add()->mutable_copy();
    copy->add_sources(1);
    copy->add_results(2);
    for (size_t i = 0; i < n; ++i) copy->add_devices(static_cast<uint32_t>((i + 1) % n));
    return head.Cost();
  });
}

TEST(MessageCostTest, ArraysOfManyDimensions) {
  ExpectLinear([](size_t n) {
    Head head(2);
    wire::UploadOp* op = head.Add()->mutable_upload();
    op->set_array(1);
    op->set_upload(1);
    head.Spec(op->mutable_spec(), 0, 1);
    for (size_t i = 0; i < n; ++i) op->mutable_spec()->add_shard_dims(1);
    wire::RegroupOp* views = head.Add()->mutable_regroup();
    for (size_t i = 0; i < n; ++i) AddShard(AddView(views, 1000000 + i), 1, 0);
    return head.Cost();
  });
}

TEST(MessageCostTest, DropsAndDeletesOfManyArrays) {
  for (const bool deletes : {false, true}) {
    ExpectLinear([deletes](size_t n) {
      Head head(n);
      head.HaveMany(n, true);
      wire::Op* op = head.Add();
      wire::DropOp* drop = deletes ? op->mutable_delete_() : op->mutable_drop();
      for (size_t i = 0; i < n; ++i) drop->add_handles(i + 1);
      return head.Cost();
    });
  }
}

TEST(MessageCostTest, GangsOverIslandsInAnyOrder) {
  for (const bool highest_first : {false, true}) {
    ExpectLinear([highest_first](size_t n) {
      Head head(2);
      head.Compile(0, 0, /*devices=*/2);
      for (size_t i = 0; i < n; ++i) head.Add()->mutable_call()->set_executable(1);
      CountedWork cost = head.Cost();
      for (const bool admitted : {false, true}) {
        for (uint32_t island : {0, 1}) {
          controller::FromScheduler event{island, {}};
          for (size_t i = 0; i < n; ++i) {
            wire::Report* report = event.batch.add_reports();
            (admitted ? report->mutable_admitted() : report->mutable_ready())
                ->add_ordinals(highest_first ? n - i : i + 1);
          }
          const CountedWork more = WorkOf([&] { head.Step(std::move(event)); });
          cost = {cost.blocks + more.blocks, cost.bytes + more.bytes};
        }
      }
      return cost;
    });
  }
}

TEST(MessageCostTest, AFailureOfManyArraysIsShared) {
  ExpectShared(
      [](size_t n) {
        Head head(2);
        wire::PoisonOp* op = head.Add()->mutable_poison();
        for (size_t i = 0; i < n; ++i) op->add_arrays(i + 1);
        *op->mutable_failure() = LongFailure();
        return head.Cost();
      },
      1024);
}

TEST(MessageCostTest, AFailureThatReachesManyArraysIsShared) {
  ExpectShared(
      [](size_t n) {
        Head head(2);
        wire::PoisonOp* poison = head.Add()->mutable_poison();
        poison->add_arrays(1);
        *poison->mutable_failure() = LongFailure();
        head.Compile(1, 4, 1);
        wire::RegroupOp* views = head.Add()->mutable_regroup();
        for (size_t i = 0; i < n; ++i) AddShard(AddView(views, 1000000 + i), 1, 0);
        for (size_t i = 0; i < n / 4; ++i) {
          wire::CallOp* call = head.Add()->mutable_call();
          call->set_executable(1);
          call->add_arguments(i == 0 ? 1 : 2000000 + 4 * (i - 1));
          for (size_t k = 0; k < 4; ++k) call->add_results(2000000 + 4 * i + k);
        }
        wire::AwaitOp* await = head.Add()->mutable_await();
        for (size_t i = 0; i < n; ++i) await->add_arrays(1000000 + i);
        return head.Cost();
      },
      2048);
}

TEST(MessageCostTest, AFailedGangOfManyResultsFailsOnce) {
  ExpectShared(
      [](size_t n) {
        Head head(2);
        head.Compile(0, n, 1);
        wire::CallOp* call = head.Add()->mutable_call();
        call->set_executable(1);
        wire::AwaitOp* await = head.Add()->mutable_await();
        for (size_t i = 0; i < n; ++i) {
          call->add_results(i + 1);
          await->add_arrays(i + 1);
        }
        head.Send();
        const wire::Failure failure = LongFailure();
        return WorkOf([&] { head.End(1, 1, &failure); });
      },
      1024);
}

// Each fetch is answered with the failure, so its text has a limit.
TEST(MessageCostTest, FetchesOfAFailedArrayAreAnsweredBriefly) {
  ExpectShared(
      [](size_t n) {
        Head head(2);
        wire::PoisonOp* poison = head.Add()->mutable_poison();
        poison->add_arrays(1);
        *poison->mutable_failure() = LongFailure();
        for (size_t i = 0; i < n; ++i) {
          wire::FetchOp* fetch = head.Add()->mutable_fetch();
          fetch->set_fetch(i + 1);
          fetch->add_arrays(1);
          fetch->add_shards(0);
        }
        return head.Cost();
      },
      2 * wire::kFailureTextMax);
}

// The scheduler of an island with workers of n devices each.
class IslandHead {
 public:
  explicit IslandHead(size_t devices, uint64_t budget_bytes = 0, size_t workers = 2,
                      uint32_t window = 16)
      : workers_(workers), island_(ConfigOf(devices, budget_bytes, workers, window)) {
    for (uint32_t worker = 0; worker < workers; ++worker) {
      scheduler::WorkerUp up;
      up.registration.set_index(worker);
      up.registration.set_incarnation(worker + 1);
      Step(std::move(up));
    }
  }

  void Step(scheduler::Event event, milliseconds later = {}) {
    now_ += later;
    actions = {};
    island_.Step(std::move(event), now_, actions);
  }
  wire::IslandItem* Add() { return batch_.add_items(); }
  wire::Node* AddNode() {
    wire::Node* node = Add()->mutable_node();
    node->set_ordinal(++ordinal);
    node->set_session(1);
    return node;
  }
  void Send() { Step(scheduler::FromController{std::exchange(batch_, {})}); }
  CountedWork Cost() {
    return WorkOf([this] { Send(); });
  }
  // All workers end these nodes.
  void End(uint64_t first, uint64_t last, const wire::Failure* failure = nullptr) {
    for (uint32_t worker = 0; worker < workers_; ++worker) {
      scheduler::FromWorker event{worker, Incarnation(worker + 1), {}};
      for (uint64_t each = first; each <= last; ++each) {
        wire::Done* done = event.batch.add_reports()->mutable_done();
        done->set_ordinal(each);
        if (failure != nullptr) *done->mutable_failure() = *failure;
      }
      Step(std::move(event));
    }
  }
  // Storages 1 to n on device 0.
  void HaveMany(size_t count) {
    const uint64_t first = ordinal + 1;
    for (size_t i = 0; i < count; ++i) {
      wire::Upload* upload = AddNode()->mutable_upload();
      upload->set_storage(i + 1);
      upload->mutable_spec()->add_devices(0);
      upload->mutable_spec()->set_shard_bytes(8);
    }
    Send();
    End(first, ordinal);
  }
  // Executable 1 on device 0.
  void Load(size_t results, uint64_t bytes = 8) {
    wire::Load* load = Add()->mutable_load();
    load->set_executable(1);
    load->add_devices(0);
    for (size_t i = 0; i < results; ++i) load->add_results()->set_shard_bytes(bytes);
    Send();
  }
  wire::Launch* AddLaunch() {
    wire::Launch* launch = AddNode()->mutable_launch();
    launch->set_executable(1);
    return launch;
  }
  static void Refer(wire::ArrayRef* ref, uint64_t storage, uint32_t count = 1) {
    wire::ShardRun* run = ref->add_runs();
    run->set_storage(storage);
    run->set_count(count);
  }

  scheduler::Actions actions;
  uint64_t ordinal = 0;

 private:
  static scheduler::IslandConfig ConfigOf(size_t devices, uint64_t budget_bytes, size_t workers,
                                          uint32_t window) {
    scheduler::IslandConfig config;
    config.window = window;
    config.budget_bytes = budget_bytes;
    config.memory_wait_max = milliseconds(1000);
    for (size_t worker = 0; worker < workers; ++worker) {
      config.workers.emplace_back();
      for (size_t i = 0; i < devices; ++i)
        config.workers.back().devices.emplace_back(static_cast<uint32_t>(worker * devices + i));
    }
    return config;
  }

  const size_t workers_;
  scheduler::Island island_;
  wire::IslandBatch batch_;
  Time now_ = Time() + std::chrono::hours(1);
};

TEST(MessageCostTest, ALaunchOfManyArguments) {
  for (const bool donated : {false, true}) {
    ExpectLinear([donated](size_t n) {
      IslandHead head(2);
      head.HaveMany(n);
      head.Load(1);
      wire::Launch* launch = head.AddLaunch();
      for (size_t i = 0; i < n; ++i) {
        IslandHead::Refer(launch->add_arguments(), i + 1);
        if (donated) launch->add_donated(static_cast<uint32_t>(i));
      }
      launch->add_results(1000000);
      wire::Free* free = head.Add()->mutable_free();
      for (size_t i = 0; i < n; ++i) free->add_storages(i + 1);
      CountedWork cost = head.Cost();
      const CountedWork end = WorkOf([&] { head.End(head.ordinal, head.ordinal); });
      return CountedWork{cost.blocks + end.blocks, cost.bytes + end.bytes};
    });
  }
}

// Of arrays 1 to n.
void AddArrays(wire::Copy& copy, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    wire::CopiedArray* array = copy.add_arrays();
    IslandHead::Refer(array->mutable_source(), i + 1);
    array->set_storage(1000000 + i);
    array->mutable_spec()->set_shard_bytes(8);
  }
}

TEST(MessageCostTest, NodesOnManyDevices) {
  ExpectLinear([](size_t n) {
    IslandHead head(n);
    wire::Upload* upload = head.AddNode()->mutable_upload();
    upload->set_storage(1);
    wire::Copy* copy = head.AddNode()->mutable_copy();
    IslandHead::Refer(copy->add_arrays()->mutable_source(), 1);
    copy->mutable_arrays(0)->mutable_source()->mutable_runs(0)->set_count(
        static_cast<uint32_t>(2 * n));
    copy->mutable_arrays(0)->set_storage(2);
    for (size_t i = 0; i < 2 * n; ++i) {
      upload->mutable_spec()->add_devices(static_cast<uint32_t>(i));
      copy->add_source_devices(static_cast<uint32_t>(2 * n - 1 - i));
      copy->add_devices(static_cast<uint32_t>(i));
    }
    return head.Cost();
  });
}

TEST(MessageCostTest, ACopyOfManyArraysOnItsIsland) {
  ExpectLinear([](size_t n) {
    IslandHead head(2);
    head.HaveMany(n);
    wire::Copy* copy = head.AddNode()->mutable_copy();
    copy->add_source_devices(0);
    copy->add_devices(3);
    AddArrays(*copy, n);
    CountedWork cost = head.Cost();
    const CountedWork end = WorkOf([&] { head.End(head.ordinal, head.ordinal); });
    return CountedWork{cost.blocks + end.blocks, cost.bytes + end.bytes};
  });
}

TEST(MessageCostTest, AFailedLaunchOfManyResultsFailsOnce) {
  ExpectShared(
      [](size_t n) {
        IslandHead head(2);
        head.Load(n);
        wire::Launch* launch = head.AddLaunch();
        for (size_t i = 0; i < n; ++i) launch->add_results(i + 1);
        head.Send();
        const wire::Failure failure = LongFailure();
        return WorkOf([&] { head.End(1, 1, &failure); });
      },
      2048);
}

// Each of them is a node of its own, which is cancelled on its worker and reported.
TEST(MessageCostTest, NodesThatReadAFailureFailBriefly) {
  ExpectShared(
      [](size_t n) {
        IslandHead head(2);
        head.Load(1);
        head.AddLaunch()->add_results(1);
        for (size_t i = 0; i < n; ++i) {
          wire::Launch* launch = head.AddLaunch();
          IslandHead::Refer(launch->add_arguments(), i + 1);
          launch->add_results(i + 2);
        }
        const CountedWork cost = head.Cost();
        const wire::Failure failure = LongFailure();
        const CountedWork end = WorkOf([&] { head.End(1, 1, &failure); });
        return CountedWork{cost.blocks + end.blocks, cost.bytes + end.bytes};
      },
      6 * wire::kFailureTextMax);
}

TEST(MessageCostTest, NodesThatWaitTooLongForMemory) {
  ExpectLinear([](size_t n) {
    IslandHead head(2, /*budget_bytes=*/8 * (n + 1));
    head.HaveMany(n);
    head.Load(1, 8 * (n + 1));
    for (size_t i = 0; i < n; ++i) head.AddLaunch()->add_results(1000000 + i);
    head.Send();
    return WorkOf([&] { head.Step(scheduler::Tick{}, milliseconds(1001)); });
  });
}

TEST(MessageCostTest, AWorkerThatIsLostWithMuch) {
  ExpectShared(
      [](size_t n) {
        IslandHead head(2);
        head.HaveMany(n);
        scheduler::WorkerDown down{0, Incarnation(1), LongFailure()};
        return WorkOf([&] { head.Step(std::move(down)); });
      },
      1024);
}

// What is on worker 0 costs the loss of worker 1 nothing.
TEST(MessageCostTest, AWorkerThatIsLostCostsNoMoreForArraysElsewhere) {
  ExpectConstant([](size_t n) {
    IslandHead head(2);
    head.HaveMany(n);
    scheduler::WorkerDown down{1, Incarnation(2), LongFailure()};
    return WorkOf([&] { head.Step(std::move(down)); });
  });
}

TEST(MessageCostTest, AWorkerThatStartsCostsNoMoreForExecutablesElsewhere) {
  ExpectConstant([](size_t n) {
    IslandHead head(2);
    for (size_t i = 0; i < n; ++i) {
      wire::Load* load = head.Add()->mutable_load();
      load->set_executable(i + 1);
      load->set_has_collectives(true);
      load->mutable_positions()->set_partitions(2);
      for (uint32_t device : {0, 1}) load->add_devices(device);
    }
    head.Send();
    head.Step(scheduler::Tick{});  // the items above are gone
    scheduler::WorkerUp up;
    up.registration.set_index(1);
    up.registration.set_incarnation(7);
    return WorkOf([&] { head.Step(std::move(up)); });
  });
}

// Its executables, and the members that it is to know.
TEST(MessageCostTest, AWorkerThatStartsWithMuch) {
  ExpectLinear([](size_t parts) {
    const size_t n = parts / 50;  // all others are introduced to it
    IslandHead head(1, 0, n);
    for (size_t i = 0; i < 8; ++i) {
      wire::Load* load = head.Add()->mutable_load();
      load->set_executable(i + 1);
      load->set_has_collectives(true);
      load->mutable_positions()->set_partitions(static_cast<uint32_t>(n));
      for (size_t device = 0; device < n; ++device)
        load->add_devices(static_cast<uint32_t>(device));
    }
    head.Send();
    scheduler::WorkerUp up;
    up.registration.set_index(1);
    up.registration.set_incarnation(n + 7);
    return WorkOf([&] { head.Step(std::move(up)); });
  });
}

// The workers of a program are introduced to one another once: a further load names none of them.
TEST(MessageCostTest, ALoadOverWorkersThatKnowOneAnother) {
  ExpectLinear([](size_t parts) {
    const size_t n = parts / 5;
    IslandHead head(1, 0, n);
    const auto load = [&head, n](uint64_t executable) {
      wire::Load* load = head.Add()->mutable_load();
      load->set_executable(executable);
      load->set_has_collectives(true);
      load->mutable_positions()->set_partitions(static_cast<uint32_t>(n));
      for (size_t device = 0; device < n; ++device)
        load->add_devices(static_cast<uint32_t>(device));
      return head.Cost();
    };
    load(1);
    const CountedWork second = load(2);
    EXPECT_EQ(head.actions.to_workers.size(), 1u);
    return second;
  });
}

// Nor does a further copy name senders to its receivers.
TEST(MessageCostTest, ACopyBetweenWorkersThatKnowOneAnother) {
  ExpectLinear([](size_t parts) {
    const size_t n = parts / 5;
    IslandHead head(1, 0, n);
    wire::Upload* upload = head.AddNode()->mutable_upload();
    upload->set_storage(1);
    upload->mutable_spec()->set_shard_bytes(8);
    for (size_t i = 0; i < n; ++i) upload->mutable_spec()->add_devices(static_cast<uint32_t>(i));
    head.Send();
    head.End(1, 1);
    const auto copy = [&head, n](uint64_t result, size_t step) {
      wire::Copy* copy = head.AddNode()->mutable_copy();
      wire::CopiedArray* array = copy->add_arrays();
      array->set_storage(result);
      IslandHead::Refer(array->mutable_source(), 1, static_cast<uint32_t>(n));
      array->mutable_spec()->set_shard_bytes(8);
      for (size_t i = 0; i < n; ++i) {
        copy->add_source_devices(static_cast<uint32_t>(i));
        copy->add_devices(static_cast<uint32_t>((i + step) % n));
      }
      return head.Cost();
    };
    copy(2, 1);
    const CountedWork second = copy(3, 1);
    EXPECT_EQ(head.actions.to_workers.size(), 2u) << "the node and its release";
    return second;
  });
}

// A gang over n devices takes memory while one over n others waits for it.
TEST(MessageCostTest, AGangThatTakesMemoryWhileOthersWaitForIt) {
  ExpectLinear([](size_t n) {
    IslandHead head(2 * n, /*budget_bytes=*/100);
    for (uint32_t half : {0, 1}) {
      wire::Load* load = head.Add()->mutable_load();
      load->set_executable(half + 1);
      load->add_results()->set_shard_bytes(60);
      for (size_t i = 0; i < n; ++i) load->add_devices(static_cast<uint32_t>(half * n + i));
    }
    for (uint64_t result : {1, 2}) head.AddLaunch()->add_results(result);
    head.Send();  // the second one waits
    wire::Launch* launch = head.AddLaunch();
    launch->set_executable(2);
    launch->add_results(3);
    return head.Cost();
  });
}

// Each worker gets one item, however much a gang frees at its end.
TEST(MessageCostTest, AGangThatFreesMuchSendsEachWorkerFewItems) {
  ExpectLinear([](size_t n) {
    constexpr size_t kWorkers = 8;
    IslandHead head(1, 0, kWorkers);
    wire::Load* load = head.Add()->mutable_load();
    load->set_executable(1);
    for (uint32_t device = 0; device < kWorkers; ++device) load->add_devices(device);
    wire::Launch* launch = head.AddLaunch();
    wire::Free free;
    for (size_t i = 0; i < n; ++i) {
      launch->add_results(i + 1);
      free.add_storages(i + 1);
    }
    *head.Add()->mutable_free() = std::move(free);
    head.Send();
    const CountedWork end = WorkOf([&] { head.End(head.ordinal, head.ordinal); });
    EXPECT_EQ(head.actions.to_workers.size(), (n + 4095) / 4096);
    return end;
  });
}

// A gang over n workers with two devices each: from its launch to the last report of its end, with another one behind
// it that waits for the devices.
TEST(MessageCostTest, AGangOverManyWorkers) {
  ExpectLinear([](size_t n) {
    IslandHead head(2, 0, n, /*window=*/1);
    wire::Load* load = head.Add()->mutable_load();
    load->set_executable(1);
    for (size_t i = 0; i < 2 * n; ++i) load->add_devices(static_cast<uint32_t>(2 * n - 1 - i));
    for (size_t i = 0; i < 2; ++i) load->add_results()->set_shard_bytes(8);
    head.Send();
    wire::Launch* first = head.AddLaunch();
    first->add_results(1);
    first->add_results(2);
    head.Send();
    head.End(1, 1);
    wire::Launch* launch = head.AddLaunch();
    IslandHead::Refer(launch->add_arguments(), 1, static_cast<uint32_t>(2 * n));
    launch->add_donated(0);
    launch->add_results(3);
    launch->add_results(4);
    head.Add()->mutable_free()->add_storages(1);
    wire::Launch* behind = head.AddLaunch();
    behind->add_results(5);
    behind->add_results(6);
    const CountedWork cost = head.Cost();
    const CountedWork end = WorkOf([&] { head.End(2, 2); });
    return CountedWork{cost.blocks + end.blocks, cost.bytes + end.bytes};
  });
}

// The core of a worker with device 0, which has executable 1, of a number of positions.
class WorkerHead {
 public:
  explicit WorkerHead(size_t results, size_t positions = 1)
      : core_({"island0/worker0", Incarnation(1), 1}) {
    wire::IslandItem open;
    open.mutable_open_devices()->add_devices(0);
    Step(std::move(open));
    wire::IslandItem load;
    load.mutable_load()->set_executable(1);
    for (size_t i = 0; i < positions; ++i)
      load.mutable_load()->add_devices(static_cast<uint32_t>(positions - 1 - i));
    if (positions > 1)
      load.mutable_load()->mutable_positions()->set_partitions(static_cast<uint32_t>(positions));
    for (size_t i = 0; i < results; ++i) load.mutable_load()->add_results()->set_shard_bytes(8);
    Step(std::move(load));
  }
  void Step(wire::IslandItem item) { core_.Step(worker::ItemArrived{std::move(item)}); }
  void Step(worker::Event event) { core_.Step(std::move(event)); }

 private:
  worker::WorkerCore core_;
};

wire::IslandItem LaunchOf(size_t arguments, size_t results, bool donates) {
  wire::IslandItem item;
  item.mutable_node()->set_ordinal(1000000);
  wire::Launch* launch = item.mutable_node()->mutable_launch();
  launch->set_executable(1);
  for (size_t i = 0; i < arguments; ++i) {
    IslandHead::Refer(launch->add_arguments(), i + 1);
    if (donates) launch->add_donated(static_cast<uint32_t>(i));
  }
  for (size_t i = 0; i < results; ++i) launch->add_results(1000000 + i);
  return item;
}

// Arrays that meet in a put are one node everywhere: what each costs beside its bytes is small.
TEST(MessageCostTest, AnArrayOfAPutCostsTheSchedulerAndItsWorkerLittle) {
  const auto item_of = [](size_t n) {
    wire::IslandItem item;
    item.mutable_node()->set_ordinal(1);
    item.mutable_node()->mutable_put()->add_devices(0);
    for (size_t i = 1; i <= n; ++i) AddPut(1, i, item.mutable_node()->mutable_put()->add_arrays());
    return item;
  };
  const auto of_scheduler = [&](size_t n) {
    IslandHead head(1);
    *head.Add() = item_of(n);
    CountedWork cost = head.Cost();
    const CountedWork end = WorkOf([&] { head.End(1, 1); });
    return CountedWork{cost.blocks + end.blocks, cost.bytes + end.bytes};
  };
  const auto of_worker = [&](size_t n) {
    WorkerHead head(1);
    wire::IslandItem item = item_of(n);
    return WorkOf([&] { head.Step(std::move(item)); });
  };
  ExpectLinear(of_scheduler);
  ExpectLinear(of_worker);
}

// Arrays 1 to n, of one shard on device 0.
void HaveMany(WorkerHead& head, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    wire::IslandItem item;
    item.mutable_node()->set_ordinal(i + 1);
    item.mutable_node()->mutable_upload()->set_storage(i + 1);
    item.mutable_node()->mutable_upload()->set_upload(i + 1);
    item.mutable_node()->mutable_upload()->mutable_spec()->add_devices(0);
    head.Step(std::move(item));
  }
}

TEST(MessageCostTest, ALaunchOfManyArgumentsOnItsWorker) {
  ExpectLinear([](size_t n) {
    WorkerHead head(1);
    HaveMany(head, n);
    wire::IslandItem launch = LaunchOf(n, 1, true);
    return WorkOf([&] { head.Step(std::move(launch)); });
  });
}

TEST(MessageCostTest, ACopyOfManyArraysOnItsWorker) {
  for (const uint32_t device : {0, 1}) {  // here, and on another worker
    ExpectLinear([device](size_t n) {
      WorkerHead head(1);
      HaveMany(head, n);
      wire::IslandItem item;
      item.mutable_node()->set_ordinal(1000000);
      wire::Copy* copy = item.mutable_node()->mutable_copy();
      copy->add_source_devices(0);
      copy->add_devices(device);
      AddArrays(*copy, n);
      return WorkOf([&] { head.Step(std::move(item)); });
    });
  }
}

// Each shard is staged by an event of its own, on either side of its node.
TEST(MessageCostTest, AnUploadOfManyShardsToItsWorker) {
  for (const bool node_first : {false, true}) {
    ExpectLinear([node_first](size_t n) {
      worker::WorkerCore core({"island0/worker0", Incarnation(1), static_cast<int>(n)});
      wire::IslandItem open, node, release;
      node.mutable_node()->set_ordinal(1);
      node.mutable_node()->mutable_upload()->set_storage(1);
      node.mutable_node()->mutable_upload()->set_upload(1);
      node.mutable_node()->mutable_upload()->mutable_spec()->set_shard_bytes(8);
      for (uint32_t device = 0; device < n; ++device) {
        open.mutable_open_devices()->add_devices(device);
        node.mutable_node()->mutable_upload()->mutable_spec()->add_devices(device);
      }
      release.mutable_release()->add_ordinals(1);
      core.Step(worker::ItemArrived{open});
      return WorkOf([&] {
        if (node_first) core.Step(worker::ItemArrived{node});
        for (uint32_t shard = 0; shard < n; ++shard)
          core.Step(worker::UploadShardStaged{{}, UploadId(1), shard, 8});
        if (!node_first) core.Step(worker::ItemArrived{node});
        core.Step(worker::ItemArrived{release});
      });
    });
  }
}

// Of a program over n devices, of which the worker has one: what the others have costs it nothing.
TEST(MessageCostTest, ALaunchCostsAWorkerNoMoreForDevicesElsewhere) {
  const auto cost = [](size_t n) {
    WorkerHead head(4, n);
    for (uint64_t storage : {1, 2, 3, 4}) {
      wire::IslandItem item;
      item.mutable_node()->set_ordinal(storage);
      wire::Upload* upload = item.mutable_node()->mutable_upload();
      upload->set_storage(storage);
      upload->set_upload(storage);
      for (size_t i = 0; i < n; ++i)
        upload->mutable_spec()->add_devices(static_cast<uint32_t>(n - 1 - i));
      head.Step(std::move(item));
    }
    wire::IslandItem launch = LaunchOf(4, 4, true);
    for (wire::ArrayRef& argument : *launch.mutable_node()->mutable_launch()->mutable_arguments())
      argument.mutable_runs(0)->set_count(static_cast<uint32_t>(n));
    return WorkOf([&] { head.Step(std::move(launch)); });
  };
  ExpectConstant(cost, 100);
}

}  // namespace
}  // namespace gangway::simulation
