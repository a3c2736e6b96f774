// The operations that a simulated session chooses among.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/simulation/sim_client.h"

namespace gangway::simulation {
namespace {

constexpr uint64_t kElementBytes = 8;
constexpr int32_t kElementType = 11;

wire::ArraySpec MakeSpec(const std::vector<uint32_t>& devices, uint32_t size) {
  wire::ArraySpec spec;
  spec.set_element_type(kElementType);
  spec.add_shard_dims(size);
  spec.set_shard_bytes(size * kElementBytes);
  spec.mutable_devices()->Add(devices.begin(), devices.end());
  return spec;
}

wire::TensorSpec MakeTensor(uint32_t size) {
  wire::TensorSpec spec;
  spec.set_element_type(kElementType);
  spec.add_shard_dims(size);
  spec.set_shard_bytes(size * kElementBytes);
  return spec;
}

}  // namespace

void SimClient::OneOp() {
  uint64_t dice = world_.random->Below(100);
  if (arrays_.size() >= config_.live_arrays_max) dice = 100;  // make room
  if (dice < 12) return Upload(Placement(), static_cast<uint32_t>(world_.random->Between(1, 2)));
  if (dice < 50) return Call();
  if (dice < 60) return Copy();
  if (dice < 70) return Regroup();
  if (dice < 80) return FetchSome();
  if (dice < 86) return AwaitSome();
  if (dice < 89 && config_.mistakes) return Mistake();
  if (dice < 90) return Compile();
  if (dice < 91) return DropExecutable();
  DropSome(/*consume=*/dice < 93);
}

// The program is its own description, which the simulated compiler returns.
void SimClient::Compile() {
  uint64_t handle = next_++;
  Executable executable;
  executable.devices = Placement();
  executable.info.set_name(absl::StrCat("s", config_.session, ".e", handle));
  executable.info.set_device_count(static_cast<uint32_t>(executable.devices.size()));
  auto size = [this] { return static_cast<uint32_t>(world_.random->Percent(75) ? 1 : 2); };
  uint64_t donated_bytes = 0;
  uint64_t parameters = world_.random->Between(1, 3);
  for (uint64_t i = 0; i < parameters; ++i) {
    *executable.info.add_parameters() = MakeTensor(size());
    if (!world_.random->Percent(25)) continue;
    executable.info.add_donated(static_cast<uint32_t>(i));
    donated_bytes += executable.info.parameters(static_cast<int>(i)).shard_bytes();
  }
  uint64_t result_bytes = 0;
  for (uint64_t i = world_.random->Below(3); i < 3; ++i) {
    *executable.info.add_results() = MakeTensor(size());
    result_bytes += executable.info.results().rbegin()->shard_bytes();
  }
  executable.info.mutable_memory()->set_temp_bytes(world_.random->Below(3) * kElementBytes);
  if (world_.random->Percent(70)) {
    executable.info.mutable_memory()->set_alias_bytes(std::min(donated_bytes, result_bytes));
  }
  wire::CompileOp* op = NewOp()->mutable_compile();
  op->set_executable(handle);
  op->set_program(executable.info.SerializeAsString());
  op->set_format("simulated");
  op->mutable_devices()->Add(executable.devices.begin(), executable.devices.end());
  executables_[handle] = std::move(executable);
  world_.answers->OnAsked(config_.session, "compile", handle, AnswerChecker::Outcome::kEither);
}

void SimClient::Upload(const std::vector<uint32_t>& devices, uint32_t size) {
  uint64_t handle = next_++;
  uint64_t number = next_++;
  wire::UploadOp* op = NewOp()->mutable_upload();
  op->set_array(handle);
  op->set_upload(number);
  *op->mutable_spec() = MakeSpec(devices, size);
  Array array{.value = program_.AddArgument(devices), .devices = devices, .size = size};
  array.storages.assign(devices.size(), NewStorage(devices));
  program::Array argument{.devices = devices};
  std::set<WorkerKey> workers;
  bool withheld = world_.random->Percent(config_.withheld_percent);
  if (withheld) withheld_uploads_.insert(number);
  for (uint32_t i = 0; i < devices.size(); ++i) {
    UploadShard shard{number, i, devices[i], world_.random->Next(), DestinationOf(devices[i])};
    if (workers.insert(config_.worker_of.at(devices[i])).second) *op->add_destinations() = shard.to;
    argument.shards.push_back(ContentBytes(shard.value));
    if (withheld && i == 0) continue;
    world_.timeline->After(Microseconds(world_.random->Below(3000)),
                           [this, shard] { SendShard(shard); });
  }
  arguments_.push_back(std::move(argument));
  AddArray(handle, std::move(array));
}

void SimClient::Call() {
  std::vector<uint64_t> ready;
  for (const auto& [handle, executable] : executables_) {
    if (executable.ready) ready.push_back(handle);
  }
  if (ready.empty()) return Upload(Placement(), 1);
  uint64_t executable_handle = world_.random->Pick(ready);
  const Executable& executable = executables_.at(executable_handle);
  std::vector<uint64_t> arguments;
  for (const wire::TensorSpec& parameter : executable.info.parameters()) {
    auto size = static_cast<uint32_t>(parameter.shard_dims(0));
    std::vector<uint64_t> fitting;
    for (uint64_t handle : Usable()) {
      const Array& array = arrays_.at(handle);
      if (array.devices == executable.devices && array.size == size) fitting.push_back(handle);
    }
    if (fitting.empty() || world_.random->Percent(5)) {
      Upload(executable.devices, size);
      fitting = {arrays_.rbegin()->first};
    }
    arguments.push_back(world_.random->Pick(fitting));
  }
  // Donates the arguments that the program can consume, unless the call uses their storage twice.
  std::map<uint64_t, int> uses;
  for (uint64_t handle : arguments) {
    const Array& array = arrays_.at(handle);
    for (uint64_t storage : std::set<uint64_t>(array.storages.begin(), array.storages.end()))
      ++uses[storage];
  }
  std::vector<uint32_t> donated;
  wire::CallOp* op = NewOp()->mutable_call();
  op->set_executable(executable_handle);
  for (uint32_t index : executable.info.donated()) {
    const Array& array = arrays_.at(arguments[index]);
    bool shared = std::any_of(array.storages.begin(), array.storages.end(),
                              [&](uint64_t id) { return uses[id] > 1; });
    if (shared || world_.random->Percent(30)) {
      op->add_keep(index);
    } else {
      donated.push_back(index);
    }
  }
  std::vector<program::ValueId> inputs;
  for (uint64_t handle : arguments) {
    op->add_arguments(handle);
    inputs.push_back(arrays_.at(handle).value);
  }
  auto results = static_cast<uint32_t>(executable.info.results_size());
  program::ValueId first =
      program_.AddCall(executable.info.name(), inputs, donated, results, executable.devices);
  for (uint32_t r = 0; r < results; ++r) {
    uint64_t handle = next_++;
    op->add_results(handle);
    Array array{
        .value = first + r,
        .devices = executable.devices,
        .size = static_cast<uint32_t>(executable.info.results(static_cast<int>(r)).shard_dims(0))};
    array.storages.assign(executable.devices.size(), NewStorage(executable.devices));
    AddArray(handle, std::move(array));
  }
  for (uint32_t index : donated) {
    for (uint64_t storage : arrays_.at(arguments[index]).storages)
      storages_.at(storage).consumed = true;
  }
}

void SimClient::Copy() {
  std::vector<uint64_t> usable = Usable();
  if (usable.empty()) return;
  uint64_t source_handle = world_.random->Pick(usable);
  Array source = arrays_.at(source_handle);
  // Shuffled destinations, so that shards cross in both directions.
  std::vector<uint32_t> everywhere;
  for (const auto& island : config_.placements) {
    for (const auto& devices : island)
      everywhere.insert(everywhere.end(), devices.begin(), devices.end());
  }
  std::vector<uint32_t> devices;
  if (world_.random->Percent(70)) devices = Placement();
  if (devices.size() != source.devices.size()) {
    devices.clear();
    while (devices.size() < source.devices.size()) {
      uint32_t device = world_.random->Pick(everywhere);
      if (std::find(devices.begin(), devices.end(), device) == devices.end())
        devices.push_back(device);
    }
  }
  uint64_t handle = next_++;
  wire::CopyOp* op = NewOp()->mutable_copy();
  op->add_sources(source_handle);
  op->add_results(handle);
  op->mutable_devices()->Add(devices.begin(), devices.end());
  Array array{.value = program_.AddTransfer(source.value, devices),
              .devices = devices,
              .size = source.size};
  array.storages.assign(devices.size(), NewStorage(devices));
  AddArray(handle, std::move(array));
}

void SimClient::Regroup() {
  std::vector<uint64_t> usable = Usable();
  if (usable.empty()) return;
  std::vector<uint64_t> sources = {world_.random->Pick(usable)};
  for (int i = 0; i < 2; ++i) {
    uint64_t other = world_.random->Pick(usable);
    bool fits = arrays_.at(other).size == arrays_.at(sources[0]).size;
    if (fits && std::find(sources.begin(), sources.end(), other) == sources.end())
      sources.push_back(other);
  }
  uint64_t handle = next_++;
  wire::RegroupOp::Result* result = NewOp()->mutable_regroup()->add_results();
  result->set_array(handle);
  Array array{.size = arrays_.at(sources[0]).size};
  std::string view = "view";
  std::vector<program::ValueId> inputs;
  for (size_t k = 0; k < sources.size(); ++k) {
    const Array& source = arrays_.at(sources[k]);
    inputs.push_back(source.value);
    for (uint32_t shard = 0; shard < source.devices.size(); ++shard) {
      auto& devices = array.devices;
      bool last_chance =
          array.devices.empty() && k + 1 == sources.size() && shard + 1 == source.devices.size();
      bool taken =
          std::find(devices.begin(), devices.end(), source.devices[shard]) != devices.end();
      if (taken || (!last_chance && world_.random->Percent(40))) continue;
      devices.push_back(source.devices[shard]);
      array.storages.push_back(source.storages[shard]);
      result->add_shards()->set_array(sources[k]);
      result->mutable_shards()->rbegin()->set_shard(shard);
      absl::StrAppend(&view, "/", k, ".", shard);
    }
  }
  array.value = program_.AddCall(view, inputs, {}, 1, array.devices);
  AddArray(handle, std::move(array));
}

void SimClient::FetchSome() {
  std::vector<uint64_t> usable = Usable();
  if (usable.empty()) return;
  uint64_t handle = world_.random->Pick(usable);
  const Array& array = arrays_.at(handle);
  uint64_t number = next_++;
  wire::FetchOp* op = NewOp()->mutable_fetch();
  op->set_fetch(number);
  op->set_array(handle);
  Fetch& fetch = fetches_[number];
  fetch.result = result_count_++;
  program_.AddResult(array.value);
  for (uint32_t shard = 0; shard < array.devices.size(); ++shard) {
    if (shard > 0 && world_.random->Percent(30)) continue;
    op->add_shards(shard);
    fetch.shards.insert(shard);
  }
  world_.answers->OnAsked(config_.session, "fetch", number, Allowed(false));
}

void SimClient::AwaitSome() {
  if (arrays_.empty()) return;
  uint64_t number = next_++;
  wire::AwaitOp* op = NewOp()->mutable_await();
  op->set_await(number);
  bool must_fail = false;
  for (const auto& [handle, array] : arrays_) {
    if (!world_.random->Percent(IsUsable(array) ? 40 : 5)) continue;
    op->add_arrays(handle);
    must_fail |= MustFail(array);
  }
  world_.answers->OnAsked(config_.session, "await", number, Allowed(must_fail));
}

void SimClient::DropSome(bool consume) {
  wire::Op* op = NewOp();
  uint64_t count = world_.random->Between(1, 4);
  for (uint64_t i = 0; i < count && !arrays_.empty(); ++i) {
    auto it = arrays_.begin();
    std::advance(it, world_.random->Below(arrays_.size()));
    (consume ? op->mutable_delete_() : op->mutable_drop())->add_handles(it->first);
    Forget(it->first, consume);
  }
}

void SimClient::DropExecutable() {
  if (executables_.size() < 3) return;
  auto it = executables_.begin();
  std::advance(it, world_.random->Below(executables_.size()));
  NewOp()->mutable_drop_executables()->add_handles(it->first);
  executables_.erase(it);
}

// --- Mistakes, which must be rejected and spoil nothing else ---

void SimClient::BadCall(uint64_t executable) {
  wire::CallOp* op = NewOp()->mutable_call();
  op->set_executable(executable);
  std::vector<uint64_t> usable = Usable();
  if (!usable.empty()) op->add_arguments(world_.random->Pick(usable));
  op->add_arguments(next_ + 1000000);  // an unknown handle, or another session's
  uint64_t handle = next_++;
  op->add_results(handle);
  AddBad(handle);
}

void SimClient::Mistake() {
  std::vector<uint64_t> usable = Usable();
  uint64_t handle = next_++;
  switch (world_.random->Below(5)) {
    case 0:
      return BadCall(executables_.empty() ? 12345 : executables_.begin()->first);
    case 1:
      return BadCall(handle);
    case 2: {  // an unknown device
      if (usable.empty()) return;
      wire::CopyOp* op = NewOp()->mutable_copy();
      op->add_sources(world_.random->Pick(usable));
      op->add_results(handle);
      op->add_devices(99);
      return AddBad(handle);
    }
    case 3: {  // an unknown, consumed or failed array
      wire::FetchOp* op = NewOp()->mutable_fetch();
      op->set_fetch(handle);
      op->set_array(handle + 1000000);
      for (const auto& [other, array] : arrays_) {
        if (MustFail(array)) op->set_array(other);
      }
      op->add_shards(0);
      fetches_[handle].shards = {0};
      return world_.answers->OnAsked(config_.session, "fetch", handle,
                                     AnswerChecker::Outcome::kBad);
    }
    default: {  // a handle that is in use keeps its array
      if (arrays_.empty()) return;
      wire::UploadOp* op = NewOp()->mutable_upload();
      op->set_array(arrays_.begin()->first);
      op->set_upload(handle);
      *op->mutable_spec() = MakeSpec(Placement(), 1);
    }
  }
}

}  // namespace gangway::simulation
