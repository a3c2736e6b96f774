// A session's turns, its answers, and the model of its handles; the operations are in
// sim_client_ops.cc.
#include "gangway/simulation/sim_client.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gangway::simulation {

SimClient::SimClient(ClientConfig config, World world)
    : config_(std::move(config)), world_(std::move(world)) {}

void SimClient::StartPhase(int op_count) {
  ops_left_ = op_count;
  if (executables_.empty()) {
    for (int i = 0; i < 4; ++i) Compile();
    world_.send(std::exchange(batch_, {}));
  }
  world_.timeline->After(Milliseconds(world_.random->Below(5)), [this] { Turn(); });
}

void SimClient::End() {
  ended_ = true;
  ops_left_ = 0;
  world_.answers->OnSessionEnd(config_.session);
}

void SimClient::Turn() {
  if (ended_ || ops_left_ <= 0) return;
  int count = static_cast<int>(world_.random->Between(1, 8));
  for (int i = 0; i < count; ++i) OneOp();
  ops_left_ -= count;
  world_.send(std::exchange(batch_, {}));
  world_.timeline->After(Microseconds(world_.random->Below(2000)), [this] { Turn(); });
}

void SimClient::OnEvents(const wire::SessionEvents& events) {
  if (ended_) return;
  auto answer = [this](const char* kind, uint64_t number, const wire::Failure* failure) {
    world_.answers->OnAnswered(config_.session, kind, number, failure);
  };
  for (const wire::SessionEvent& event : events.events()) {
    if (event.has_compiled()) {
      const wire::Compiled& compiled = event.compiled();
      answer("compile", compiled.executable(),
             compiled.has_failure() ? &compiled.failure() : nullptr);
      auto it = executables_.find(compiled.executable());
      if (it == executables_.end()) continue;
      if (compiled.has_failure())
        executables_.erase(it);
      else
        it->second.ready = true;
    } else if (event.has_await_done()) {
      const wire::AwaitDone& done = event.await_done();
      answer("await", done.await(), done.has_failure() ? &done.failure() : nullptr);
    } else if (event.has_fetch_failed()) {
      Fetch& fetch = fetches_[event.fetch_failed().fetch()];
      if (!std::exchange(fetch.answered, true)) {
        answer("fetch", event.fetch_failed().fetch(), &event.fetch_failed().failure());
      }
    } else if (event.has_upload_failed()) {
      OnUploadFailed(event.upload_failed());
    } else if (event.has_worker_state()) {
      OnWorkerState(event.worker_state());
    }
  }
}

void SimClient::OnUploadFailed(const wire::UploadFailed& failed) {
  failed_uploads_.insert(failed.upload());
  world_.answers->OnUploadFailed(config_.session, failed.upload(), failed.failure(),
                                 withheld_uploads_.count(failed.upload()) != 0);
}

void SimClient::OnWorkerState(const wire::WorkerState& state) {
  WorkerKey key(state.worker().island(), state.worker().index());
  Worker& worker = workers_[key];
  uint64_t incarnation = state.worker().incarnation();
  if (incarnation != worker.incarnation)
    worker.previous = std::exchange(worker.incarnation, incarnation);
  worker.up = state.up();
  for (const UploadShard& shard : std::exchange(held_shards_, {})) SendShard(shard);
}

// As in the client library, bytes go only to the process that the upload names.
wire::Destination SimClient::DestinationOf(uint32_t device) const {
  wire::Destination to;
  WorkerKey key = config_.worker_of.at(device);
  to.set_island(key.first);
  to.set_index(key.second);
  auto known = workers_.find(key);
  to.set_next(known == workers_.end() || !known->second.up);
  if (known != workers_.end()) to.set_incarnation(known->second.incarnation);
  return to;
}

void SimClient::SendShard(const UploadShard& shard) {
  if (ended_ || failed_uploads_.count(shard.upload) != 0) return;
  const Worker& worker = workers_[config_.worker_of.at(shard.device)];
  if (!worker.up) {
    if (shard.to.next() && shard.to.incarnation() == worker.incarnation)
      held_shards_.push_back(shard);
    return;
  }
  uint64_t expected = shard.to.next() ? worker.previous : worker.incarnation;
  if (shard.to.incarnation() != expected) return;  // for a process that is gone
  world_.send_shard(shard.upload, shard.shard, shard.device, shard.value, worker.incarnation);
}

void SimClient::OnFetched(uint64_t number, uint32_t shard, const Content& content) {
  auto it = fetches_.find(number);
  if (ended_ || it == fetches_.end()) return;
  Fetch& fetch = it->second;
  if (content.failure) {
    if (!std::exchange(fetch.answered, true)) {
      world_.answers->OnAnswered(config_.session, "fetch", number, &*content.failure);
    }
    return;
  }
  world_.results->OnFetched(config_.session, fetch.result, shard, ContentBytes(content.value));
  fetch.shards.erase(shard);
  if (fetch.shards.empty() && !std::exchange(fetch.answered, true)) {
    world_.answers->OnAnswered(config_.session, "fetch", number, nullptr);
  }
}

uint64_t SimClient::ready_executable_count() const {
  return static_cast<uint64_t>(std::count_if(executables_.begin(), executables_.end(),
                                             [](const auto& entry) { return entry.second.ready; }));
}

// --- The model of its handles ---

uint64_t SimClient::NewStorage(const std::vector<uint32_t>& devices) {
  storages_[next_storage_].devices = devices;
  return next_storage_++;
}

void SimClient::AddArray(uint64_t handle, Array array) {
  for (uint64_t storage : std::set<uint64_t>(array.storages.begin(), array.storages.end())) {
    ++storages_.at(storage).handles;
  }
  arrays_[handle] = std::move(array);
}

void SimClient::AddBad(uint64_t handle) {
  Array array;
  array.bad = true;
  arrays_[handle] = std::move(array);
}

void SimClient::Forget(uint64_t handle, bool consume) {
  auto it = arrays_.find(handle);
  std::set<uint64_t> held(it->second.storages.begin(), it->second.storages.end());
  arrays_.erase(it);
  for (uint64_t id : held) {
    Storage& storage = storages_.at(id);
    storage.consumed |= consume;
    if (--storage.handles == 0) storages_.erase(id);
  }
}

bool SimClient::IsUsable(const Array& array) const {
  return !array.bad && std::none_of(array.storages.begin(), array.storages.end(),
                                    [this](uint64_t id) { return storages_.at(id).consumed; });
}

std::vector<uint64_t> SimClient::Usable() const {
  std::vector<uint64_t> handles;
  for (const auto& [handle, array] : arrays_) {
    if (IsUsable(array)) handles.push_back(handle);
  }
  return handles;
}

const std::vector<uint32_t>& SimClient::Placement() {
  const auto& island = config_.placements[world_.random->Below(config_.placements.size())];
  return island[world_.random->Below(island.size())];
}

AnswerChecker::Outcome SimClient::Allowed(bool must_fail) const {
  if (must_fail) return AnswerChecker::Outcome::kBad;
  return config_.certain ? AnswerChecker::Outcome::kGood : AnswerChecker::Outcome::kEither;
}

// --- The reference ---

absl::StatusOr<std::vector<std::vector<std::string>>> EvaluateSimulated(
    const program::Node& call, const std::vector<const program::Array*>& inputs) {
  std::vector<std::vector<std::string>> outputs(call.output_count);
  if (call.executable.rfind("view/", 0) == 0) {
    for (absl::string_view part :
         absl::StrSplit(absl::string_view(call.executable).substr(5), '/')) {
      std::pair<absl::string_view, absl::string_view> shard = absl::StrSplit(part, '.');
      uint32_t input = 0;
      uint32_t index = 0;
      if (!absl::SimpleAtoi(shard.first, &input) || !absl::SimpleAtoi(shard.second, &index)) {
        return absl::InvalidArgumentError("a view that cannot be parsed");
      }
      outputs[0].push_back(inputs.at(input)->shards.at(index));
    }
    return outputs;
  }
  for (uint32_t r = 0; r < call.output_count; ++r) {
    for (size_t i = 0; i < call.devices.size(); ++i) {
      std::vector<uint64_t> arguments;
      for (const program::Array* input : inputs) {
        uint64_t value = 0;
        std::memcpy(&value, input->shards.at(i).data(), sizeof(value));
        arguments.push_back(value);
      }
      outputs[r].push_back(ContentBytes(ExecuteShard(call.executable, r, arguments)));
    }
  }
  return outputs;
}

}  // namespace gangway::simulation
