// The fixture of the controller core's tests: a controller without threads, whose actions are collected.
#ifndef GANGWAY_CONTROLLER_CORE_CONTROLLER_TEST_UTIL_H_
#define GANGWAY_CONTROLLER_CORE_CONTROLLER_TEST_UTIL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/controller.h"
#include "gangway/program/program.h"
#include "gangway/program/wire_form.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {

using Devices = std::vector<uint32_t>;
using Handles = std::vector<uint64_t>;
using absl::StatusCode;
using std::chrono::milliseconds;

// Two islands of two workers of two devices: device d is on island d / 4, worker d / 2 % 2.
class ControllerTest : public ::testing::Test {
 protected:
  void SetUp() override { Make(Reach::kWorker); }

  void Make(Reach reach, std::set<uint32_t> remote_islands = {}) {
    ControllerConfig config;
    config.program_reach = reach;
    config.remote_islands = std::move(remote_islands);
    for (uint32_t i = 0; i < 4; ++i) {
      wire::Worker worker;
      worker.set_island(i / 2);
      worker.set_index(i % 2);
      worker.add_devices(2 * i);
      worker.add_devices(2 * i + 1);
      config.workers.push_back(std::move(worker));
    }
    Make(std::move(config));
  }

  void Make(ControllerConfig config) {
    config.scheduler_wait_max = milliseconds(1000);
    config.compiles.compiler_wait_max = milliseconds(1000);
    config.new_token = [this] { return std::string(32, static_cast<char>('a' + tokens_++)); };
    controller_ = std::make_unique<Controller>(config);
    Step(CompilerUp{1});
    Step(SessionOpened{SessionId(1), "one"});
    Step(SessionOpened{SessionId(2), "two"});
  }

  void Step(Event event) {
    actions_ = {};
    controller_->Step(std::move(event), now_, actions_);
    for (auto& [session, event] : actions_.to_clients)
      events_.emplace_back(session.number(), event);
    for (auto& [island, item] : actions_.to_islands) items_.emplace_back(island, item);
    for (auto& [compiler, request] : actions_.to_compilers) requests_.push_back(request);
  }
  void Tick(milliseconds later) {
    now_ += later;
    Step(controller::Tick{});
  }
  void Do(wire::Op op, uint64_t session = 1) {
    FromClient event{SessionId(session), {}};
    *event.batch.add_ops() = std::move(op);
    Step(std::move(event));
  }
  void Report(uint32_t island, wire::Report report) {
    FromScheduler event{island, {}};
    *event.batch.add_reports() = std::move(report);
    Step(std::move(event));
  }
  void Done(uint32_t island, uint64_t ordinal, const std::string& failure = "") {
    wire::Report report;
    report.mutable_done()->set_ordinal(ordinal);
    if (!failure.empty()) {
      *report.mutable_done()->mutable_failure() = wire::MakeFailure(StatusCode::kInternal, failure);
    }
    Report(island, std::move(report));
  }
  void LoseWorker(uint32_t island, uint32_t index, uint64_t incarnation = 0) {
    wire::Report report;
    wire::WorkerState* state = report.mutable_worker_state();
    state->mutable_worker()->set_island(island);
    state->mutable_worker()->set_index(index);
    for (uint32_t i = 0; i < 2; ++i)
      state->mutable_worker()->add_devices((island * 2 + index) * 2 + i);
    state->mutable_worker()->set_incarnation(incarnation);
    *state->mutable_failure() = wire::MakeFailure(StatusCode::kDataLoss, "the worker is gone");
    state->mutable_failure()->set_worker("some worker");
    Report(island, std::move(report));
  }

  void BringUp(uint32_t island, uint32_t index, uint64_t incarnation) {
    wire::Report report;
    report.mutable_worker_state()->set_up(true);
    report.mutable_worker_state()->mutable_worker()->set_island(island);
    report.mutable_worker_state()->mutable_worker()->set_index(index);
    report.mutable_worker_state()->mutable_worker()->set_incarnation(incarnation);
    Report(island, std::move(report));
  }

  uint64_t last_ordinal() const { return items_.back().second.node().ordinal(); }

  // Each of these returns the ordinal of its node, 0 if none was made.
  uint64_t OrdinalOf(wire::Op op, uint64_t session) {
    size_t before = items_.size();
    Do(std::move(op), session);
    for (size_t i = before; i < items_.size(); ++i) {
      if (items_[i].second.has_node()) return items_[i].second.node().ordinal();
    }
    return 0;
  }
  uint64_t Upload(uint64_t handle, const Devices& devices, uint64_t session = 1) {
    wire::Op op;
    op.mutable_upload()->set_array(handle);
    op.mutable_upload()->set_upload(handle);
    wire::ArraySpec* spec = op.mutable_upload()->mutable_spec();
    spec->set_element_type(11);
    spec->add_shard_dims(2);
    spec->set_shard_bytes(8);
    spec->mutable_devices()->Add(devices.begin(), devices.end());
    return OrdinalOf(std::move(op), session);
  }
  // A settled array.
  void Have(uint64_t handle, const Devices& devices, uint64_t session = 1) {
    uint64_t ordinal = Upload(handle, devices, session);
    for (uint32_t island : {0, 1}) Done(island, ordinal);
    items_.clear();
    events_.clear();
  }
  void Compile(uint64_t handle, const Devices& devices, uint64_t session = 1) {
    wire::Op op;
    op.mutable_compile()->set_executable(handle);
    op.mutable_compile()->mutable_devices()->Add(devices.begin(), devices.end());
    Do(std::move(op), session);
  }
  void FinishCompile(uint64_t request, bool donates = false) {
    FromCompiler event;
    event.result.set_request(request);
    wire::ExecutableInfo* info = event.result.mutable_info();
    info->set_name("step");
    info->set_fingerprint(absl::StrCat("fingerprint", request));
    for (wire::TensorSpec* spec : {info->add_parameters(), info->add_results()}) {
      spec->set_element_type(11);
      spec->add_shard_dims(2);
      spec->set_shard_bytes(8);
    }
    if (donates) info->add_donated(0);
    Step(std::move(event));
  }
  void HaveProgram(uint64_t handle, const Devices& devices, bool donates = false,
                   uint64_t session = 1) {
    Compile(handle, devices, session);
    FinishCompile(requests_.back().request(), donates);
    items_.clear();
    events_.clear();
  }
  uint64_t Call(uint64_t executable, const Handles& arguments, const Handles& results,
                uint64_t session = 1) {
    wire::Op op;
    op.mutable_call()->set_executable(executable);
    op.mutable_call()->mutable_arguments()->Add(arguments.begin(), arguments.end());
    op.mutable_call()->mutable_results()->Add(results.begin(), results.end());
    return OrdinalOf(std::move(op), session);
  }
  // Registers a program in its text form, whose functions are handles of executables. Why it is refused; code 0: it is
  // not.
  wire::Failure Register(uint64_t handle, const std::string& text, const Handles& like = {},
                         uint64_t session = 1, bool sequential = false) {
    const auto program = program::Parse(text);
    EXPECT_TRUE(program.ok()) << program.status();
    wire::Op op;
    op.mutable_register_program()->set_program(handle);
    op.mutable_register_program()->set_sequential(sequential);
    op.mutable_register_program()->mutable_like()->Add(like.begin(), like.end());
    program::ToWire(*program, *op.mutable_register_program()->mutable_definition());
    work_counts_[handle] = program->work_count();
    Do(std::move(op), session);
    for (const auto& [to, event] : actions_.to_clients)
      if (to.number() == session && event.has_registered()) return event.registered().failure();
    ADD_FAILURE() << "the registration was not answered";
    return {};
  }
  wire::Op LaunchOf(uint64_t program, const Handles& arguments, const Handles& results) {
    wire::Op op;
    op.mutable_launch()->set_program(program);
    op.mutable_launch()->mutable_arguments()->Add(arguments.begin(), arguments.end());
    op.mutable_launch()->mutable_results()->Add(results.begin(), results.end());
    op.mutable_launch()->set_nodes(work_counts_[program]);
    return op;
  }
  void Launch(uint64_t program, const Handles& arguments, const Handles& results,
              uint64_t session = 1) {
    Do(LaunchOf(program, arguments, results), session);
  }
  uint64_t Copy(uint64_t source, uint64_t result, const Devices& devices) {
    wire::Op op;
    op.mutable_copy()->add_sources(source);
    op.mutable_copy()->add_results(result);
    op.mutable_copy()->mutable_devices()->Add(devices.begin(), devices.end());
    return OrdinalOf(std::move(op), 1);
  }
  void CopyMany(const Handles& sources, const Handles& results, const Devices& devices) {
    wire::Op op;
    op.mutable_copy()->mutable_sources()->Add(sources.begin(), sources.end());
    op.mutable_copy()->mutable_results()->Add(results.begin(), results.end());
    op.mutable_copy()->mutable_devices()->Add(devices.begin(), devices.end());
    Do(std::move(op), 1);
  }
  void Regroup(uint64_t result, const std::vector<std::pair<uint64_t, uint32_t>>& shards) {
    wire::Op op;
    wire::RegroupOp::Result* out = op.mutable_regroup()->add_results();
    out->set_array(result);
    for (auto [array, shard] : shards) {
      out->add_shards()->set_array(array);
      out->mutable_shards()->rbegin()->set_shard(shard);
    }
    Do(std::move(op));
  }
  void Drop(const Handles& handles, uint64_t session = 1) {
    wire::Op op;
    op.mutable_drop()->mutable_handles()->Add(handles.begin(), handles.end());
    Do(std::move(op), session);
  }

  void DropShards(uint64_t array, const std::vector<uint32_t>& shards, bool consume = false) {
    wire::Op op;
    wire::DropShardsOp* drop = consume ? op.mutable_delete_shards() : op.mutable_drop_shards();
    drop->add_arrays()->set_array(array);
    drop->mutable_arrays(0)->mutable_shards()->Add(shards.begin(), shards.end());
    Do(std::move(op));
  }
  // "STORAGE:FIRST+COUNT" of all frees of single shards.
  std::vector<std::string> FreedShards() const {
    std::vector<std::string> freed;
    for (const auto& [island, item] : items_) {
      for (const wire::ShardRun& run : item.free().shards())
        freed.push_back(absl::StrCat(run.storage(), ":", run.first(), "+", run.count()));
    }
    return freed;
  }
  // A call whose argument is a list of shards.
  static wire::Op GatheredCall(uint64_t executable,
                               const std::vector<std::pair<uint64_t, uint32_t>>& shards,
                               uint64_t result) {
    wire::Op op;
    op.mutable_call()->set_executable(executable);
    op.mutable_call()->add_arguments(0);
    op.mutable_call()->add_results(result);
    wire::GatheredArgument* list = op.mutable_call()->add_gathered();
    for (auto [array, shard] : shards) {
      list->add_arrays(array);
      list->add_shards(shard);
    }
    return op;
  }
  uint64_t CallGathered(uint64_t executable,
                        const std::vector<std::pair<uint64_t, uint32_t>>& shards, uint64_t result) {
    return OrdinalOf(GatheredCall(executable, shards, result), 1);
  }
  // "FIRST+COUNT" or "FIRST+COUNT failed" of the nodes whose end the session was told.
  std::vector<std::string> Ends(uint64_t session) const {
    std::vector<std::string> ends;
    for (const auto& [to, event] : events_) {
      if (to != session) continue;
      for (const wire::NodesEnded& nodes : event.progress().nodes())
        ends.push_back(
            absl::StrCat(nodes.first(), "+", nodes.count(), nodes.has_failure() ? " failed" : ""));
    }
    return ends;
  }

  // The failure of the arrays, from a new await. nullopt: no answer yet; code 0: success.
  std::optional<wire::Failure> Await(const Handles& handles, uint64_t session = 1) {
    wire::Op op;
    op.mutable_await()->set_await(++await_);
    op.mutable_await()->mutable_arrays()->Add(handles.begin(), handles.end());
    Do(std::move(op), session);
    return Awaited(await_, session);
  }
  std::optional<wire::Failure> Awaited(uint64_t await, uint64_t session = 1) const {
    std::optional<wire::Failure> found;
    for (const auto& [to, event] : events_) {
      if (to != session || !event.has_await_done() || event.await_done().await() != await) continue;
      EXPECT_FALSE(found.has_value()) << "answered twice";
      found = event.await_done().failure();
    }
    return found;
  }
  std::vector<wire::Compiled> CompiledEvents(uint64_t handle) const {
    std::vector<wire::Compiled> found;
    for (const auto& [to, event] : events_) {
      if (event.has_compiled() && event.compiled().executable() == handle)
        found.push_back(event.compiled());
    }
    return found;
  }
  std::vector<uint64_t> Freed(uint32_t island) const {
    std::vector<uint64_t> storages;
    for (const auto& [to, item] : items_) {
      if (to == island)
        storages.insert(storages.end(), item.free().storages().begin(),
                        item.free().storages().end());
    }
    return storages;
  }

  Time now_ = Time() + std::chrono::hours(1);
  int tokens_ = 0;
  std::unique_ptr<Controller> controller_;
  Actions actions_;  // of the last step
  std::vector<std::pair<uint64_t, wire::SessionEvent>> events_;
  std::vector<std::pair<uint32_t, wire::IslandItem>> items_;
  std::vector<wire::CompileRequest> requests_;
  uint64_t await_ = 1000;
  std::map<uint64_t, uint32_t> work_counts_;  // of programs, by handle
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_CONTROLLER_TEST_UTIL_H_
