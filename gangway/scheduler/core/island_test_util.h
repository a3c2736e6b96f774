// The scheduler core of one island with two workers, and what its workers and the controller say to it.
#ifndef GANGWAY_SCHEDULER_CORE_ISLAND_TEST_UTIL_H_
#define GANGWAY_SCHEDULER_CORE_ISLAND_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/core_test_util.h"
#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {

using Devices = std::vector<uint32_t>;
using Ordinals = std::vector<uint64_t>;
using std::chrono::milliseconds;

inline constexpr uint64_t kSession = 7;
inline constexpr uint64_t kBytes = 16;
inline constexpr uint64_t kPutCost = kBytes + wire::kPutShardCost;  // of an array of one shard
inline constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;

// Island 0: worker 0 with devices 0 and 1, worker 1 with devices 2 and 3. Devices 4 and up are on
// other islands.
class IslandTest : public ::testing::Test {
 protected:
  void Make(uint64_t budget_bytes = 0, uint32_t window = 16) {
    IslandConfig config;
    config.workers = {{.devices = {DeviceId(0), DeviceId(1)}},
                      {.devices = {DeviceId(2), DeviceId(3)}}};
    config.budget_bytes = budget_bytes;
    config.window = window;
    config.put_cost_max = put_cost_max_;
    config.memory_wait_max = milliseconds(3000);
    config.worker_wait_max = milliseconds(2000);
    config.upload_wait_max = milliseconds(500);
    island_ = std::make_unique<Island>(config);
    Up(0, 11);
    Up(1, 21);
  }
  void SetUp() override { Make(); }

  void Step(Event event) {
    actions_ = {};
    island_->Step(std::move(event), now_, actions_);
    for (const auto& [worker, item] : ByWorker(actions_)) {
      for (uint64_t ordinal : item.release().ordinals()) released_.push_back(ordinal);
      for (int i = 0; i < item.release().order_positions_size(); ++i)
        order_positions_[item.release().ordinals(i)].push_back(item.release().order_positions(i));
    }
    for (const wire::Report& report : actions_.to_controller) {
      if (report.has_done()) done_[report.done().ordinal()] = report.done().failure();
    }
  }
  void Item(wire::IslandItem item) {
    FromController event;
    *event.batch.add_items() = std::move(item);
    Step(std::move(event));
  }
  // `device_bytes`: the budget of each of its devices; 0: it has none of its own.
  void Up(uint32_t worker, uint64_t incarnation, uint64_t device_bytes = 0,
          bool collectives_take_turns = false) {
    WorkerUp event;
    event.registration.set_index(worker);
    event.registration.set_incarnation(incarnation);
    event.registration.set_data_address(absl::StrCat("address", worker));
    event.registration.set_host(absl::StrCat("host", worker));
    event.registration.mutable_collectives()->set_name(absl::StrCat("socket", incarnation));
    event.registration.set_device_bytes(device_bytes);
    event.registration.set_collectives_take_turns(collectives_take_turns);
    Step(event);
    incarnations_[worker] = incarnation;
  }
  void Down(uint32_t worker) {
    Step(WorkerDown{worker, Incarnation(incarnations_[worker]),
                    wire::MakeFailure(absl::StatusCode::kUnavailable, "its process was killed")});
  }
  void Tick(milliseconds later) {
    now_ += later;
    Step(scheduler::Tick{});
  }
  void Done(uint32_t worker, uint64_t ordinal, const wire::Failure* failure = nullptr,
            wire::Done* (wire::Report::*kind)() = &wire::Report::mutable_done) {
    FromWorker event{worker, Incarnation(incarnations_[worker]), {}};
    wire::Done* done = (event.batch.add_reports()->*kind)();
    done->set_ordinal(ordinal);
    if (failure != nullptr) *done->mutable_failure() = *failure;
    Step(std::move(event));
  }
  void Failing(uint32_t worker, uint64_t ordinal, const wire::Failure& failure) {
    Done(worker, ordinal, &failure, &wire::Report::mutable_failing);
  }

  static wire::ArraySpec Spec(const Devices& devices, uint64_t bytes = kBytes) {
    wire::ArraySpec spec;
    spec.set_shard_bytes(bytes);
    spec.mutable_devices()->Add(devices.begin(), devices.end());
    return spec;
  }
  static void Refer(wire::ArrayRef* ref, uint64_t storage, uint32_t count, uint32_t first = 0) {
    wire::ShardRun* run = ref->add_runs();
    run->set_storage(storage);
    run->set_first(first);
    run->set_count(count);
  }
  static wire::IslandItem NodeItem(uint64_t ordinal, uint64_t session = kSession) {
    wire::IslandItem item;
    item.mutable_node()->set_ordinal(ordinal);
    item.mutable_node()->set_session(session);
    return item;
  }

  // An executable with one parameter and one result.
  void Load(uint64_t id, const Devices& devices, uint64_t temp_bytes = 0, uint64_t alias_bytes = 0,
            uint64_t bytes = kBytes, bool has_collectives = false) {
    wire::IslandItem item;
    wire::Load* load = item.mutable_load();
    load->set_executable(id);
    load->set_name("step");
    load->set_source("train.py:42");
    load->add_parameters()->set_shard_bytes(bytes);
    load->add_results()->set_shard_bytes(bytes);
    load->set_has_collectives(has_collectives);
    load->mutable_memory()->set_temp_bytes(temp_bytes);
    load->mutable_memory()->set_alias_bytes(alias_bytes);
    load->mutable_devices()->Add(devices.begin(), devices.end());
    Item(item);
  }
  void Unload(uint64_t id) {
    wire::IslandItem item;
    item.mutable_unload()->add_executables(id);
    Item(item);
  }
  void Upload(uint64_t ordinal, uint64_t storage, const Devices& devices,
              uint64_t session = kSession, uint64_t bytes = kBytes) {
    wire::IslandItem item = NodeItem(ordinal, session);
    item.mutable_node()->mutable_upload()->set_storage(storage);
    *item.mutable_node()->mutable_upload()->mutable_spec() = Spec(devices, bytes);
    Item(item);
  }
  // An upload whose bytes go to this incarnation of worker 0 or, if `next`, to its successor.
  void UploadTo(uint64_t ordinal, uint64_t incarnation, bool next) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Upload* upload = item.mutable_node()->mutable_upload();
    upload->set_storage(ordinal);
    *upload->mutable_spec() = Spec({0, 1});
    upload->add_destinations()->set_incarnation(incarnation);
    upload->mutable_destinations(0)->set_next(next);
    upload->add_destinations()->set_island(1);  // ignored by this island
    Item(item);
  }
  // Storages `first` to `last`, with their bytes.
  void Put(uint64_t ordinal, uint64_t first, uint64_t last, const Devices& devices) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Put* put = item.mutable_node()->mutable_put();
    put->mutable_devices()->Add(devices.begin(), devices.end());
    for (uint64_t storage = first; storage <= last; ++storage) {
      wire::PutArray* array = put->add_arrays();
      array->set_storage(storage);
      array->mutable_tensor()->set_shard_bytes(kBytes);
      for (size_t i = 0; i < devices.size(); ++i) array->add_shards(std::string(kBytes, 'x'));
    }
    Item(item);
  }
  int SentCancels(uint32_t worker) const {
    return Sent(worker, [](const auto& item) { return item.has_cancel(); });
  }
  // A finished upload: the storage is settled.
  void Have(uint64_t storage, const Devices& devices, uint64_t session = kSession) {
    uint64_t ordinal = 100000 + storage;
    Upload(ordinal, storage, devices, session);
    for (uint32_t worker : {0, 1}) Done(worker, ordinal);
    released_.clear();
  }
  void Launch(uint64_t ordinal, uint64_t executable, uint64_t argument, uint32_t shards,
              uint64_t result, bool donate = false) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Launch* launch = item.mutable_node()->mutable_launch();
    launch->set_executable(executable);
    Refer(launch->add_arguments(), argument, shards);
    launch->add_results(result);
    if (donate) launch->add_donated(0);
    Item(item);
  }
  void Copy(uint64_t ordinal, uint64_t source, const Devices& from, uint64_t result,
            const Devices& to, wire::Dispatch dispatch = wire::DISPATCH_PARALLEL) {
    CopyMany(ordinal, {{source, result}}, from, to, dispatch);
  }
  // `arrays`: sources and results.
  void CopyMany(uint64_t ordinal, const std::vector<std::pair<uint64_t, uint64_t>>& arrays,
                const Devices& from, const Devices& to,
                wire::Dispatch dispatch = wire::DISPATCH_PARALLEL) {
    wire::IslandItem item = NodeItem(ordinal);
    item.mutable_node()->set_dispatch(dispatch);
    wire::Copy* copy = item.mutable_node()->mutable_copy();
    copy->mutable_source_devices()->Add(from.begin(), from.end());
    copy->mutable_devices()->Add(to.begin(), to.end());
    for (const auto& [source, result] : arrays) {
      wire::CopiedArray* array = copy->add_arrays();
      Refer(array->mutable_source(), source, static_cast<uint32_t>(from.size()));
      array->set_storage(result);
      array->mutable_spec()->set_shard_bytes(Spec(to).shard_bytes());
    }
    Item(item);
  }
  void Fetch(uint64_t ordinal, uint64_t storage, const Devices& devices) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Fetch* fetch = item.mutable_node()->mutable_fetch();
    Refer(fetch->mutable_source(), storage, static_cast<uint32_t>(devices.size()));
    *fetch->mutable_devices() = Spec(devices).devices();
    Item(item);
  }
  void Free(const Ordinals& storages) {
    wire::IslandItem item;
    item.mutable_free()->mutable_storages()->Add(storages.begin(), storages.end());
    Item(item);
  }
  void Released(uint64_t ordinal) {
    wire::IslandItem item;
    item.mutable_released()->add_ordinals(ordinal);
    Item(item);
  }
  void Cancel(uint64_t ordinal) {
    wire::IslandItem item;
    item.mutable_cancel()->add_ordinals(ordinal);
    *item.mutable_cancel()->mutable_failure() =
        wire::MakeFailure(absl::StatusCode::kDataLoss, "the other half failed");
    Item(item);
  }

  void Turn(uint64_t ordinal) {
    wire::IslandItem item;
    item.mutable_admit()->add_ordinals(ordinal);
    Item(item);
  }
  void ReleaseSpanning(uint64_t ordinal) {
    wire::IslandItem item;
    item.mutable_release()->add_ordinals(ordinal);
    Item(item);
  }
  // What the last step told the sequencer.
  Ordinals Offered() const {
    Ordinals ordinals;
    for (const wire::Report& report : actions_.to_controller)
      ordinals.insert(ordinals.end(), report.ready().ordinals().begin(),
                      report.ready().ordinals().end());
    return ordinals;
  }
  Ordinals Admitted() const {
    Ordinals ordinals;
    for (const wire::Report& report : actions_.to_controller)
      ordinals.insert(ordinals.end(), report.admitted().ordinals().begin(),
                      report.admitted().ordinals().end());
    return ordinals;
  }

  // What the last step sent to a worker.
  template <typename Has>
  int Sent(uint32_t worker, Has has) const {
    return static_cast<int>(ItemsFor(worker, actions_, has).size());
  }
  int SentNodes(uint32_t worker) const {
    return Sent(worker, [](const auto& item) { return item.has_node(); });
  }
  int SentFrees(uint32_t worker, uint64_t storage) const {
    return Sent(worker, [storage](const auto& item) {
      return item.has_free() && std::ranges::count(item.free().storages(), storage) > 0;
    });
  }
  bool ReportedReleased(uint64_t ordinal) const {
    return std::any_of(actions_.to_controller.begin(), actions_.to_controller.end(),
                       [ordinal](const auto& report) {
                         return report.has_released() && report.released().ordinals(0) == ordinal;
                       });
  }
  Ordinals TakeReleased() { return std::exchange(released_, {}); }
  uint64_t Used(uint32_t device) const {
    return island_->ledger().used_bytes(IslandDevice(device));
  }
  void ExpectEmpty() {
    EXPECT_EQ(island_->node_count(), 0u);
    EXPECT_EQ(island_->storage_count(), 0u);
    for (uint32_t device = 0; device < 4; ++device) EXPECT_EQ(Used(device), 0u) << device;
  }

  Time now_ = Time() + std::chrono::hours(1);
  uint64_t put_cost_max_ = wire::kPutWorkerCostMax;  // of the next Make
  std::unique_ptr<Island> island_;
  std::map<uint32_t, uint64_t> incarnations_;
  Actions actions_;                               // of the last step
  Ordinals released_;                             // one entry per worker that takes part
  std::map<uint64_t, Ordinals> order_positions_;  // in the order, by ordinal
  std::map<uint64_t, wire::Failure> done_;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_ISLAND_TEST_UTIL_H_
