// Execution on a simulated worker: device queues, transfers, fetches, uploads.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/simulation/sim_worker.h"
#include "gangway/wire/failure.h"

namespace gangway::simulation {
namespace {

constexpr Duration kOfferAgain = std::chrono::milliseconds(20);

bool IsCollective(const wire::Load& load) {
  return load.devices_size() > 1 && load.executable() % 2 == 0;
}

}  // namespace

std::string ContentBytes(uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

uint64_t ExecuteShard(const std::string& executable, uint32_t result,
                      const std::vector<uint64_t>& arguments) {
  uint64_t hash = Mix(result + 1);
  for (char c : executable) hash = Mix(hash ^ static_cast<unsigned char>(c));
  for (uint64_t argument : arguments) hash = Mix(hash ^ argument);
  return hash;
}

void SimWorker::Use(uint32_t device, int64_t bytes) {
  Device& state = device_states_[device];
  state.used_bytes += bytes;
  world_.memory->OnUse("the device", device, state.used_bytes);
}

void SimWorker::Discharge(Storage& storage) {
  for (uint32_t device : storage.charged) Use(device, -static_cast<int64_t>(storage.shard_bytes));
  storage.charged.clear();
}

// The result bytes that reuse memory of donated arguments, per device.
uint64_t SimWorker::AliasBytes(const Node& node) const {
  const wire::Launch& launch = node.message.launch();
  std::set<uint64_t> consumed;
  for (uint32_t index : launch.donated()) {
    for (const wire::ShardRun& run : launch.arguments(static_cast<int>(index)).runs())
      consumed.insert(run.storage());
  }
  uint64_t consumed_bytes = 0;
  for (uint64_t id : consumed) {
    auto it = storages_.find(id);
    if (it != storages_.end()) consumed_bytes += it->second.shard_bytes;
  }
  uint64_t result_bytes = 0;
  for (const wire::TensorSpec& result : node.load->results()) result_bytes += result.shard_bytes();
  return std::min({node.load->memory().alias_bytes(), consumed_bytes, result_bytes});
}

std::optional<Content> SimWorker::Read(const wire::ArrayRef& ref, uint32_t position) const {
  for (const wire::ShardRun& run : ref.runs()) {
    if (position >= run.count()) {
      position -= run.count();
      continue;
    }
    auto storage = storages_.find(run.storage());
    if (storage == storages_.end()) break;
    if (storage->second.failure) return Content{0, storage->second.failure};
    auto content = storage->second.content.find(run.first() + position);
    if (content == storage->second.content.end()) return std::nullopt;
    return Content{content->second, std::nullopt};
  }
  return Content{0,
                 wire::MakeFailure(absl::StatusCode::kDataLoss, "an input is not on this worker")};
}

void SimWorker::Pump() {
  for (uint32_t device : devices_) PumpDevice(device);
  std::vector<uint64_t> released;
  for (const auto& [ordinal, node] : nodes_) {
    if (node.released && !node.message.has_launch()) released.push_back(ordinal);
  }
  for (uint64_t ordinal : released) {
    Node& node = nodes_.at(ordinal);
    switch (node.message.kind_case()) {  // each may end the node
      case wire::Node::kCopy:
        PumpCopy(ordinal, node);
        break;
      case wire::Node::kFetch:
        PumpFetch(ordinal, node);
        break;
      case wire::Node::kUpload:
        PumpUpload(ordinal, node);
        break;
      default:
        break;
    }
  }
}

// Only the first gang of the queue may run, as on a real device: while it waits, it blocks every
// gang behind it.
void SimWorker::PumpDevice(uint32_t device) {
  Device& state = device_states_[device];
  while (!state.busy && !state.queue.empty()) {
    auto [ordinal, position] = state.queue.front();
    Node& node = nodes_.at(ordinal);
    std::vector<uint64_t> arguments;
    for (const wire::ArrayRef& ref : node.message.launch().arguments()) {
      std::optional<Content> content = Read(ref, position);
      if (!content) return;
      if (content->failure) Fail(ordinal, node, *content->failure);
      arguments.push_back(content->value);
    }
    state.busy = true;
    if (node.failure) {
      Later(Duration(0), [this, device = device, ordinal = ordinal, position = position] {
        EndPosition(device, ordinal, position);
      });
    } else {
      StartPosition(device, node, position, arguments);
    }
  }
}

// Keeps the gang's first failure, and ends its members here that wait for the other members.
void SimWorker::Fail(uint64_t ordinal, Node& node, const wire::Failure& failure) {
  if (!node.failure) node.failure = failure;
  for (uint32_t position : std::exchange(node.meeting, {})) {
    world_.meeting->Leave(ordinal, position);
    uint32_t device = node.load->devices(static_cast<int>(position));
    Later(Duration(0),
          [this, device, ordinal, position] { EndPosition(device, ordinal, position); });
  }
}

void SimWorker::StartPosition(uint32_t device, Node& node, uint32_t position,
                              const std::vector<uint64_t>& arguments) {
  uint64_t ordinal = node.message.ordinal();
  if (!IsCollective(*node.load)) return RunPosition(device, ordinal, position, arguments);
  node.meeting.insert(position);
  world_.meeting->Join(ordinal, position, static_cast<size_t>(node.load->devices_size()),
                       [this, incarnation = incarnation_, device, ordinal, position, arguments] {
                         if (incarnation_ != incarnation) return;
                         nodes_.at(ordinal).meeting.erase(position);
                         RunPosition(device, ordinal, position, arguments);
                       });
}

void SimWorker::RunPosition(uint32_t device, uint64_t ordinal, uint32_t position,
                            const std::vector<uint64_t>& arguments) {
  Node& node = nodes_.at(ordinal);
  const wire::Launch& launch = node.message.launch();
  const wire::Load& load = *node.load;
  int64_t temporary = static_cast<int64_t>(load.memory().temp_bytes());
  int64_t alias = static_cast<int64_t>(AliasBytes(node));
  int64_t total = temporary - alias;
  for (int r = 0; r < launch.results_size(); ++r) {
    uint64_t id = launch.results(r);
    node.made[{id, position}] = ExecuteShard(load.name(), static_cast<uint32_t>(r), arguments);
    Storage& storage = storages_.at(id);
    storage.charged.insert(device);
    total += static_cast<int64_t>(storage.shard_bytes);
  }
  Use(device, total);
  Later(Microseconds(world_.random->Between(5, 300)),
        [this, device, ordinal, position, temporary, alias] {
          std::set<uint64_t> consumed;
          const wire::Launch& done = nodes_.at(ordinal).message.launch();
          for (uint32_t index : done.donated()) {
            for (const wire::ShardRun& run : done.arguments(static_cast<int>(index)).runs())
              consumed.insert(run.storage());
          }
          int64_t freed = temporary - alias;
          for (uint64_t id : consumed) {
            auto it = storages_.find(id);
            if (it != storages_.end() && it->second.charged.erase(device) != 0) {
              freed += static_cast<int64_t>(it->second.shard_bytes);
            }
          }
          Use(device, -freed);
          EndPosition(device, ordinal, position);
        });
}

void SimWorker::EndPosition(uint32_t device, uint64_t ordinal, uint32_t position) {
  Device& state = device_states_[device];
  state.busy = false;
  state.queue.pop_front();
  nodes_.at(ordinal).open.erase(position);
  EndIfOver(ordinal);
  Pump();
}

void SimWorker::PumpCopy(uint64_t ordinal, Node& node) {
  const wire::Copy& copy = node.message.copy();
  std::vector<uint32_t> unsent(node.unsent.begin(), node.unsent.end());
  for (uint32_t shard : unsent) {
    std::optional<Content> content = Read(copy.source(), shard);
    if (!content) continue;
    node.unsent.erase(shard);
    node.unacknowledged.insert(shard);
    Offer(ordinal, copy.spec().devices(static_cast<int>(shard)), shard, *content);
  }
}

void SimWorker::Offer(uint64_t ordinal, uint32_t device, uint32_t shard, const Content& content) {
  auto taken = [this, incarnation = incarnation_, ordinal, shard] {
    auto it = nodes_.find(ordinal);
    if (incarnation != incarnation_ || it == nodes_.end()) return;
    it->second.unacknowledged.erase(shard);
    EndIfOver(ordinal);
    Pump();
  };
  if (IsLocal(device)) {
    Later(Microseconds(world_.random->Between(1, 50)), [this, ordinal, shard, content, taken] {
      if (TakeOffer(ordinal, shard, content, incarnation_)) taken();
    });
    return;
  }
  world_.offer(device, ordinal, shard, content, incarnation_, taken);
  Later(kOfferAgain, [this, ordinal, device, shard, content] {
    auto it = nodes_.find(ordinal);
    if (it != nodes_.end() && it->second.unacknowledged.count(shard) != 0)
      Offer(ordinal, device, shard, content);
  });
}

bool SimWorker::TakeOffer(uint64_t ordinal, uint32_t shard, const Content& content,
                          uint64_t incarnation) {
  auto it = nodes_.find(ordinal);
  if (it == nodes_.end() || !it->second.released) return false;
  const auto& devices = it->second.message.copy().source_spec().devices();
  if (it->second.peers[devices.Get(static_cast<int>(shard))] != incarnation) return false;
  if (it->second.open.count(shard) != 0) Receive(it->second, shard, content);
  EndIfOver(ordinal);
  Pump();
  return true;
}

void SimWorker::Receive(Node& node, uint32_t shard, const Content& content) {
  node.open.erase(shard);
  if (content.failure) {
    if (!node.failure) node.failure = content.failure;
    return;
  }
  uint64_t id = node.message.copy().storage();
  Storage& storage = storages_.at(id);
  uint32_t device = storage.devices.at(shard);
  if (storage.charged.insert(device).second) Use(device, static_cast<int64_t>(storage.shard_bytes));
  node.made[{id, shard}] = content.value;
}

void SimWorker::PumpFetch(uint64_t ordinal, Node& node) {
  const wire::Fetch& fetch = node.message.fetch();
  std::vector<uint32_t> open(node.open.begin(), node.open.end());
  for (uint32_t part : open) {
    std::optional<Content> content = Read(fetch.source(), part);
    if (!content) continue;
    node.open.erase(part);
    if (content->failure && !node.failure) node.failure = content->failure;
    world_.send_fetched(node.message.session(), fetch.fetch(), fetch.shards(static_cast<int>(part)),
                        *content);
  }
  EndIfOver(ordinal);
}

void SimWorker::PumpUpload(uint64_t ordinal, Node& node) {
  const wire::Upload& upload = node.message.upload();
  auto staged = staged_.find({node.message.session(), upload.upload()});
  if (staged == staged_.end()) return;
  Storage& storage = storages_.at(upload.storage());
  for (const auto& [shard, device] : storage.devices) {
    if (staged->second.count(shard) == 0) return;
  }
  for (const auto& [shard, device] : storage.devices) {
    node.made[{upload.storage(), shard}] = staged->second.at(shard);
    storage.charged.insert(device);
    Use(device, static_cast<int64_t>(storage.shard_bytes));
  }
  staged_.erase(staged);
  End(ordinal);
  Later(Duration(0), [this] { Pump(); });
}

void SimWorker::Stage(uint64_t session, uint64_t upload, uint32_t shard, uint64_t value) {
  if (ended_sessions_.count(session) != 0) return;
  staged_[{session, upload}][shard] = value;
  Pump();
}

}  // namespace gangway::simulation
