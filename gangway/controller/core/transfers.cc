// Implementation of transfers.h.
#include "gangway/controller/core/transfers.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/sizes.h"
#include "gangway/wire/put_limits.h"

namespace gangway::controller {
namespace {

using absl::StatusCode;

constexpr int kDimensionsMax = 64;  // NumPy's limit, too
constexpr size_t kMemoryKindBytesMax = 64;

template <typename... Parts>
wire::FailureRef Refuse(const Parts&... parts) {
  return wire::Share(wire::MakeFailure(StatusCode::kInvalidArgument, absl::StrCat(parts...)));
}

Array WholeStorage(ArrayShapeRef shape, const DeviceListRef& devices, StorageId storage) {
  return {.failure = nullptr,
          .shape = std::move(shape),
          .devices = devices,
          .runs = {{storage, 0, static_cast<uint32_t>(devices->size())}}};
}

// Of an array that a client declares. `spec`: an ArraySpec or TensorSpec.
template <typename Spec>
wire::FailureRef CheckArray(const Session& session, uint64_t handle, const Spec& spec) {
  if (!session.arrays.CanBind(handle))
    return Refuse("array handle ", handle, " is 0 or in use already");
  if (spec.shard_dims_size() > kDimensionsMax || spec.memory_kind().size() > kMemoryKindBytesMax) {
    return Refuse("an array of ", spec.shard_dims_size(), " dimensions, or a name of ",
                  spec.memory_kind().size(), " bytes for its memory, exceeds the limits of ",
                  kDimensionsMax, " dimensions and ", kMemoryKindBytesMax, " bytes");
  }
  if (spec.shard_bytes() > kSizeMax)
    return Refuse("an array with shards of ", spec.shard_bytes(), " bytes cannot exist");
  return nullptr;
}

wire::IslandItem NodeItem(SessionId session, Ordinal ordinal) {
  wire::IslandItem item;
  item.mutable_node()->set_ordinal(ordinal.number());
  item.mutable_node()->set_session(session.number());
  return item;
}

}  // namespace

wire::FailureRef Transfers::CheckUpload(const Session& session, const wire::UploadOp& op, Time now,
                                        DeviceListRef& devices) {
  const wire::ArraySpec& spec = op.spec();
  wire::FailureRef failure;
  devices = rooms_.fleet.ListOf(SpanOf(spec.devices()), failure);
  if (!failure) failure = rooms_.fleet.CheckOpen(*devices);
  if (!failure) failure = rooms_.nodes.CheckRoom(session.info.id);
  if (failure) return failure;
  if (op.upload() == 0 || rooms_.nodes.HasUpload(session.info.id, op.upload()))
    return Refuse("upload number ", op.upload(), " is 0 or in use already");
  if (failure = CheckArray(session, op.array(), spec); failure) return failure;
  return rooms_.isolation.Claim(session.info, *devices, now);
}

void Transfers::OnUpload(Session& session, wire::UploadOp& op, Time now) {
  const SessionId id = session.info.id;
  DeviceListRef devices;
  if (const wire::FailureRef failure = CheckUpload(session, op, now, devices)) {
    rooms_.nodes.Refuse(id, failure);
    session.arrays.BindFailure(op.array(), failure);
    wire::SessionEvent event;
    event.mutable_upload_failed()->set_upload(op.upload());
    *event.mutable_upload_failed()->mutable_failure() = *failure;
    rooms_.outbox.ToClient(id, std::move(event));
    return;
  }
  const Ordinal ordinal = rooms_.nodes.next();
  const StorageId storage = rooms_.storages.Add(id, devices, op.spec().shard_bytes(), ordinal);
  rooms_.nodes.Add(id, {.results = {storage},
                        .open_islands = devices->islands(),
                        .unreleased_sources = {},
                        .senders = {},
                        .upload = op.upload(),
                        .launched = nullptr});
  session.arrays.Bind(op.array(), WholeStorage(ShapeOf(op.spec()), devices, storage));
  wire::IslandItem item = NodeItem(id, ordinal);
  wire::Upload* upload = item.mutable_node()->mutable_upload();
  upload->set_storage(storage.number());
  upload->set_upload(op.upload());
  upload->mutable_destinations()->Swap(op.mutable_destinations());
  upload->mutable_spec()->Swap(op.mutable_spec());
  rooms_.outbox.ToIslands(devices->islands(), std::move(item));
}

// The devices are checked and claimed once, however many arrays go there.
void Transfers::OnPut(Session& session, wire::Put& op, Time now) {
  wire::FailureRef refused;
  const DeviceListRef devices = rooms_.fleet.ListOf(SpanOf(op.devices()), refused);
  if (!refused) refused = rooms_.fleet.CheckOpen(*devices);
  if (!refused && !op.arrays().empty())
    refused = rooms_.isolation.Claim(session.info, *devices, now);
  PutRun run;
  *run.message.mutable_devices() = op.devices();
  for (wire::PutArray& array : *op.mutable_arrays()) {
    wire::FailureRef failure = refused;
    if (!failure) failure = CheckPut(session, array, run);
    if (!failure) {
      PutOne(session, devices, array, run);
      continue;
    }
    EndRun(session, devices, run);  // numbers follow the order of the operation
    rooms_.nodes.Refuse(session.info.id, failure);
    session.arrays.BindFailure(array.array(), std::move(failure));
  }
  EndRun(session, devices, run);
}

wire::FailureRef Transfers::CheckPut(const Session& session, const wire::PutArray& array,
                                     const PutRun& run) const {
  if (auto failure = rooms_.nodes.CheckRoom(session.info.id)) return failure;
  if (auto failure = CheckArray(session, array.array(), array.tensor())) return failure;
  if (array.shards_size() != run.message.devices_size()) {
    return Refuse("an array with the bytes of ", array.shards_size(), " shards cannot be on ",
                  run.message.devices_size(), " devices");
  }
  uint64_t bytes = 0;
  for (const std::string& shard : array.shards()) {
    if (shard.size() != array.tensor().shard_bytes()) {
      return Refuse("a shard was sent with ", shard.size(), " bytes, not the declared ",
                    array.tensor().shard_bytes());
    }
    bytes += shard.size();
  }
  if (bytes > wire::kPutArrayBytesMax) {
    return Refuse("an array whose bytes come with its declaration has ", bytes, ", the limit is ",
                  wire::kPutArrayBytesMax);
  }
  const uint64_t pending = rooms_.nodes.PutBytesOf(session.info.id) + run.node.put_bytes + bytes;
  if (pending <= wire::kPutSessionBytesMax) return nullptr;
  return wire::Share(wire::MakeFailure(
      StatusCode::kResourceExhausted,
      absl::StrCat("the session's arrays that came with their bytes and are not ready have ",
                   pending, " bytes, the limit is ", wire::kPutSessionBytesMax),
      "Wait for results before submitting more."));
}

void Transfers::PutOne(Session& session, const DeviceListRef& devices, wire::PutArray& array,
                       PutRun& run) {
  uint64_t bytes = 0;
  for (const std::string& shard : array.shards()) bytes += shard.size();
  if (run.message.arrays_size() >= wire::kPutArraysMax ||
      run.node.put_bytes + bytes > wire::kPutBytesMax)
    EndRun(session, devices, run);
  const StorageId storage = rooms_.storages.Add(session.info.id, devices,
                                                array.tensor().shard_bytes(), rooms_.nodes.next());
  session.arrays.Bind(array.array(), WholeStorage(ShapeOf(array.tensor()), devices, storage));
  run.node.results.push_back(storage);
  run.node.put_bytes += bytes;
  wire::PutArray* put = run.message.add_arrays();
  put->Swap(&array);
  put->clear_array();
  put->set_storage(storage.number());
}

void Transfers::EndRun(const Session& session, const DeviceListRef& devices, PutRun& run) {
  if (run.node.results.empty()) return;
  const SessionId id = session.info.id;
  wire::IslandItem item = NodeItem(id, rooms_.nodes.next());
  run.node.count = run.node.results.size();
  run.node.open_islands = devices->islands();
  rooms_.nodes.Add(id, std::exchange(run.node, {}));
  wire::Put next;
  *next.mutable_devices() = run.message.devices();
  item.mutable_node()->mutable_put()->Swap(&run.message);
  run.message.Swap(&next);
  rooms_.outbox.ToIslands(devices->islands(), std::move(item));
}

// The devices are checked once, however many arrays go there.
void Transfers::OnCopy(Session& session, const wire::CopyOp& op, Time now) {
  wire::FailureRef refused;
  const DeviceListRef devices = rooms_.fleet.ListOf(SpanOf(op.devices()), refused);
  if (!refused) refused = rooms_.fleet.CheckOpen(*devices);
  if (!refused && op.memory_kind().size() > kMemoryKindBytesMax) {
    refused = Refuse("the name of a memory has ", op.memory_kind().size(), " bytes, the limit is ",
                     kMemoryKindBytesMax);
  }
  std::optional<CopyRoute>
      route;  // of the last one: the arrays of a copy are mostly on the same devices
  for (int i = 0; i < op.sources_size() && i < op.results_size(); ++i) {
    wire::FailureRef failure = refused;
    if (!failure) failure = CheckCopy(session, op.sources(i), devices->size());
    if (!failure) failure = rooms_.isolation.Claim(session.info, *devices, now);
    if (failure) {
      rooms_.nodes.Refuse(session.info.id, failure);
      session.arrays.BindFailure(op.results(i), std::move(failure));
      continue;
    }
    const Array& source = *session.arrays.Find(op.sources(i));
    if (!route || route->from != source.devices)
      route.emplace(rooms_.fleet.lists().topology(), source.devices, devices);
    CopyOne(session, source, op.results(i), *route, op.memory_kind());
  }
}

wire::FailureRef Transfers::CheckCopy(const Session& session, uint64_t source,
                                      size_t shards) const {
  if (auto failure = rooms_.nodes.CheckRoom(session.info.id)) return failure;
  if (auto failure = session.arrays.CheckUsable(source)) return failure;
  const size_t size = session.arrays.Find(source)->devices->size();
  if (size == shards) return nullptr;
  return Refuse("a copy keeps the number of shards: the source has ", size, ", the destination ",
                shards);
}

void Transfers::CopyOne(Session& session, const Array& source, uint64_t result,
                        const CopyRoute& route, const std::string& memory_kind) {
  const SessionId id = session.info.id;
  const Ordinal ordinal = rooms_.nodes.next();
  ArrayShapeRef shape = source.shape;
  if (shape->memory_kind != memory_kind) {
    auto changed = std::make_shared<ArrayShape>(*shape);
    changed->memory_kind = memory_kind;
    shape = std::move(changed);
  }
  const StorageId storage = rooms_.storages.Add(id, route.to, shape->shard_bytes, ordinal);
  Array array = WholeStorage(std::move(shape), route.to, storage);
  rooms_.nodes.Add(id, {.results = {storage},
                        .open_islands = route.islands,
                        .unreleased_sources = route.leaving_islands,
                        .senders = route.senders,
                        .launched = nullptr});
  wire::IslandItem item = NodeItem(id, ordinal);
  wire::Copy* copy = item.mutable_node()->mutable_copy();
  FillRef(source.runs, *copy->mutable_source());
  FillSpec(source, *copy->mutable_source_spec());
  copy->set_storage(storage.number());
  FillSpec(array, *copy->mutable_spec());
  if (new_token_ && route.crosses_workers) copy->set_token(new_token_());
  rooms_.outbox.ToIslands(route.islands, std::move(item));
  session.arrays.Bind(result, std::move(array));
}

void Transfers::OnFetch(Session& session, const wire::FetchOp& op) {
  const SessionId id = session.info.id;
  wire::FailureRef failure = rooms_.nodes.CheckRoom(id);
  NamedShards view;  // of shards that may differ in type and shape
  if (!failure) failure = session.arrays.FindWanted(op, view);
  if (failure) {
    rooms_.nodes.Refuse(id, failure);
    wire::SessionEvent event;
    event.mutable_fetch_failed()->set_fetch(op.fetch());
    *event.mutable_fetch_failed()->mutable_failure() = *failure;
    rooms_.outbox.ToClient(id, std::move(event));
    return;
  }
  const std::vector<uint32_t> islands = rooms_.fleet.IslandsOf(view.devices);
  wire::IslandItem item = NodeItem(id, rooms_.nodes.next());
  rooms_.nodes.Add(id, {.results = {},
                        .open_islands = islands,
                        .unreleased_sources = {},
                        .senders = {},
                        .fetch = op.fetch(),
                        .launched = nullptr});
  wire::Fetch* fetch = item.mutable_node()->mutable_fetch();
  FillRef(view.runs, *fetch->mutable_source());
  fetch->mutable_devices()->Add(view.devices.begin(), view.devices.end());
  fetch->set_fetch(op.fetch());
  rooms_.outbox.ToIslands(islands, std::move(item));
}

}  // namespace gangway::controller
