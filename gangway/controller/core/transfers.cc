// Implementation of transfers.h.
#include "gangway/controller/core/transfers.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/sizes.h"
#include "gangway/wire/put_limits.h"
#include "gangway/xla/dtype.h"

namespace gangway::controller {
namespace {

using absl::StatusCode;

constexpr int kDimensionsMax = 64;  // NumPy's limit, too
constexpr size_t kMemoryKindBytesMax = 64;

template <typename... Parts>
wire::FailureRef Refuse(const Parts&... parts) {
  return wire::Share(wire::MakeFailure(StatusCode::kInvalidArgument, absl::StrCat(parts...)));
}

// Of an array whose bytes come with its declaration, and may not.
template <typename... Parts>
wire::FailureRef RefusePut(const Parts&... why) {
  return wire::Share(wire::MakeFailure(
      StatusCode::kInvalidArgument, absl::StrCat("an array cannot come with its bytes: ", why...),
      "Send the bytes to the workers, as Client::Put does with those of such arrays."));
}

Array WholeStorage(ArrayShapeRef shape, const DeviceListRef& devices, StorageId storage) {
  return {.failure = nullptr,
          .shape = std::move(shape),
          .devices = devices,
          .runs = {{storage, 0, static_cast<uint32_t>(devices->size())}}};
}

// Of an array that a client declares. `spec`: an ArraySpec or TensorSpec.
template <typename Spec>
wire::FailureRef CheckArray(const Session& session, ArrayHandle handle, const Spec& spec) {
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

// Of an array that comes with its bytes: all that a worker could find wrong with it.
wire::FailureRef CheckPutBytes(const wire::PutArray& array, int devices) {
  const wire::TensorSpec& tensor = array.tensor();
  if (array.shards_size() != devices) {
    return Refuse("an array with the bytes of ", array.shards_size(), " shards cannot be on ",
                  devices, " devices");
  }
  if (devices > wire::kPutShardsMax)
    return RefusePut("it has ", devices, " shards, the limit is ", wire::kPutShardsMax);
  if (tensor.shard_dims_size() > wire::kPutDimsMax)
    return RefusePut("it has ", tensor.shard_dims_size(), " dimensions, the limit is ",
                     wire::kPutDimsMax);
  if (!tensor.memory_kind().empty())
    return RefusePut("it is not for the usual memory of its devices, but for ",
                     tensor.memory_kind());
  const auto bytes =
      xla::DenseBytes(tensor.element_type(),
                      {tensor.shard_dims().data(), static_cast<size_t>(tensor.shard_dims_size())});
  if (!bytes.ok()) return Refuse("an array's shards cannot be: ", bytes.status().message());
  if (static_cast<uint64_t>(*bytes) != tensor.shard_bytes()) {
    return Refuse("an array was declared with shards of ", tensor.shard_bytes(),
                  " bytes, but shards of its shape have ", *bytes);
  }
  if (tensor.shard_bytes() > wire::kPutArrayBytesMax / static_cast<uint64_t>(devices)) {
    return RefusePut("its ", devices, " shards have ", tensor.shard_bytes(),
                     " bytes each, and all together may have ", wire::kPutArrayBytesMax);
  }
  for (const std::string& shard : array.shards()) {
    if (shard.size() == tensor.shard_bytes()) continue;
    return Refuse("a shard was sent with ", shard.size(), " bytes, not the declared ",
                  tensor.shard_bytes());
  }
  return nullptr;
}

// Types that some device runtimes do not have, by number; 0: it is none of them.
int32_t UnusualType(int32_t element_type) {
  switch (element_type) {
    case xla::TYPE_PRED:
    case xla::TYPE_S8:
    case xla::TYPE_S16:
    case xla::TYPE_S32:
    case xla::TYPE_S64:
    case xla::TYPE_U8:
    case xla::TYPE_U16:
    case xla::TYPE_U32:
    case xla::TYPE_U64:
    case xla::TYPE_F16:
    case xla::TYPE_BF16:
    case xla::TYPE_F32:
    case xla::TYPE_F64:
    case xla::TYPE_C64:
      return 0;
    default:
      return element_type;
  }
}

wire::IslandItem NodeItem(SessionId session, Ordinal ordinal) {
  wire::IslandItem item;
  item.mutable_node()->set_ordinal(ordinal.number());
  item.mutable_node()->set_session(session.number());
  return item;
}

void FillDevices(const DeviceList& list, google::protobuf::RepeatedField<uint32_t>& devices) {
  devices.Reserve(static_cast<int>(list.size()));
  for (const DeviceId device : list.devices()) devices.Add(device.number());
}

ArrayShapeRef InMemory(const ArrayShapeRef& shape, const std::string& memory_kind) {
  if (shape->memory_kind == memory_kind) return shape;
  auto changed = std::make_shared<ArrayShape>(*shape);
  changed->memory_kind = memory_kind;
  return changed;
}

void AddCopied(const CopiedArray& source, StorageId result, wire::Copy& copy) {
  wire::CopiedArray* array = copy.add_arrays();
  FillRef(source.runs, *array->mutable_source());
  array->set_storage(result.number());
  wire::TensorSpec* spec = array->mutable_spec();
  spec->set_element_type(source.shape->element_type);
  spec->mutable_shard_dims()->Add(source.shape->shard_dims.begin(), source.shape->shard_dims.end());
  spec->set_shard_bytes(source.shape->shard_bytes);
}

bool IsKnown(const Session& session, ArrayHandle array) {
  return session.arrays.Find(array) != nullptr;
}

bool KnowsSources(const Session& session, const wire::RegroupOp::Result& view) {
  if (view.replica_of() != 0) return IsKnown(session, ArrayHandle(view.replica_of()));
  return std::ranges::all_of(view.shards(), [&](const auto& shard) {
    return IsKnown(session, ArrayHandle(shard.array()));
  });
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
  if (op.upload() == 0 || rooms_.nodes.HasUpload(session.info.id, UploadId(op.upload())))
    return Refuse("upload number ", op.upload(), " is 0 or in use already");
  if (failure = CheckArray(session, ArrayHandle(op.array()), spec); failure) return failure;
  return rooms_.isolation.Claim(session.info, *devices, now);
}

void Transfers::OnUpload(Session& session, wire::UploadOp& op, Time now) {
  const SessionId id = session.info.id;
  DeviceListRef devices;
  if (const wire::FailureRef failure = CheckUpload(session, op, now, devices)) {
    rooms_.nodes.Refuse(id, failure);
    session.arrays.BindFailure(ArrayHandle(op.array()), failure);
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
                        .upload = UploadId(op.upload()),
                        .launched = nullptr,
                        .numbers = {}});
  session.arrays.Bind(ArrayHandle(op.array()), WholeStorage(ShapeOf(op.spec()), devices, storage));
  wire::IslandItem item = NodeItem(id, ordinal);
  wire::Upload* upload = item.mutable_node()->mutable_upload();
  upload->set_storage(storage.number());
  upload->set_upload(op.upload());
  upload->mutable_destinations()->Swap(op.mutable_destinations());
  upload->mutable_spec()->Swap(op.mutable_spec());
  rooms_.outbox.ToIslands(devices->islands(), std::move(item));
}

// The devices are checked once, however many arrays go there, and claimed for the first one that is good.
void Transfers::OnPut(Session& session, wire::Put& op, Time now) {
  wire::FailureRef refused;
  const DeviceListRef devices = rooms_.fleet.ListOf(SpanOf(op.devices()), refused);
  if (!refused) refused = rooms_.fleet.CheckOpen(*devices);
  bool claimed = false;
  PutRun run;
  *run.message.mutable_devices() = op.devices();
  for (wire::PutArray& array : *op.mutable_arrays()) {
    wire::FailureRef failure = refused;
    if (!failure) failure = CheckPut(session, array, run);
    if (!failure && !std::exchange(claimed, true))
      failure = refused = rooms_.isolation.Claim(session.info, *devices, now);
    if (!failure) {
      PutOne(session, devices, array, run);
      continue;
    }
    EndRun(session, devices, run);  // so that a node's numbers are in a row
    rooms_.nodes.Refuse(session.info.id, failure);
    session.arrays.BindFailure(ArrayHandle(array.array()), std::move(failure));
  }
  EndRun(session, devices, run);
}

wire::FailureRef Transfers::CheckPut(const Session& session, const wire::PutArray& array,
                                     const PutRun& run) const {
  if (auto failure = rooms_.nodes.CheckRoom(session.info.id)) return failure;
  if (auto failure = CheckArray(session, ArrayHandle(array.array()), array.tensor()))
    return failure;
  if (auto failure = CheckPutBytes(array, run.message.devices_size())) return failure;
  const uint64_t pending =
      rooms_.nodes.PutCostOf(session.info.id) + run.node.put_cost + wire::PutCost(array.shards());
  if (pending <= wire::kPutSessionCostMax) return nullptr;
  return wire::Share(wire::MakeFailure(
      StatusCode::kResourceExhausted,
      absl::StrCat("the session's arrays that came with their bytes and are not ready count as ",
                   pending, " bytes, the limit is ", wire::kPutSessionCostMax),
      "Its client should have sent these bytes to the workers (Client::Put does)."));
}

void Transfers::PutOne(Session& session, const DeviceListRef& devices, wire::PutArray& array,
                       PutRun& run) {
  const uint64_t cost = wire::PutCost(array.shards());
  const int32_t unusual_type = UnusualType(array.tensor().element_type());
  if (run.message.arrays_size() >= wire::kPutArraysMax ||
      run.node.put_cost + cost > wire::kPutCostMax || run.unusual_type != unusual_type)
    EndRun(session, devices, run);
  run.unusual_type = unusual_type;
  const StorageId storage = rooms_.storages.Add(session.info.id, devices,
                                                array.tensor().shard_bytes(), rooms_.nodes.next());
  session.arrays.Bind(ArrayHandle(array.array()),
                      WholeStorage(ShapeOf(array.tensor()), devices, storage));
  run.node.results.push_back(storage);
  run.node.numbers.push_back(rooms_.nodes.Number(session.info.id));
  run.node.put_cost += cost;
  wire::PutArray* put = run.message.add_arrays();
  put->Swap(&array);
  put->clear_array();
  put->set_storage(storage.number());
}

void Transfers::EndRun(const Session& session, const DeviceListRef& devices, PutRun& run) {
  if (run.node.results.empty()) return;
  const SessionId id = session.info.id;
  wire::IslandItem item = NodeItem(id, rooms_.nodes.next());
  run.node.open_islands = devices->islands();
  rooms_.nodes.Add(id, std::exchange(run.node, {}));
  wire::Put next;
  *next.mutable_devices() = run.message.devices();
  item.mutable_node()->mutable_put()->Swap(&run.message);
  run.message.Swap(&next);
  rooms_.outbox.ToIslands(devices->islands(), std::move(item));
}

// The devices are checked once, however many arrays go there.
void Transfers::OnCopy(Session& session, const wire::CopyOp& op, Time now, DeviceListRef known,
                       Nodes::Counting counting) {
  const SessionId id = session.info.id;
  wire::FailureRef refused;
  const DeviceListRef devices =
      known ? std::move(known) : rooms_.fleet.ListOf(SpanOf(op.devices()), refused);
  if (!refused) refused = rooms_.fleet.CheckOpen(*devices);
  if (!refused && op.memory_kind().size() > kMemoryKindBytesMax) {
    refused = Refuse("the name of a memory has ", op.memory_kind().size(), " bytes, the limit is ",
                     kMemoryKindBytesMax);
  }
  const bool is_counted = counting == Nodes::Counting::kByClient;
  bool claimed = false;
  for (int i = 0; i < op.sources_size() && i < op.results_size(); ++i) {
    const ArrayHandle from{op.sources(i)}, to{op.results(i)};
    if (session.arrays.Find(from) == nullptr) SendCopies(session);  // it may be a result
    wire::FailureRef failure = refused;
    const wire::FailureRef spoiled = session.arrays.CheckUsable(from);
    if (!failure && !spoiled) failure = CheckCopy(session, from, devices->size());
    if (!failure && !spoiled && !std::exchange(claimed, true))
      failure = refused = rooms_.isolation.Claim(session.info, *devices, now);
    failure = failure ? rooms_.nodes.AtOrigin(std::move(failure)) : spoiled;
    if (failure) {
      rooms_.nodes.Refuse(id, failure, is_counted ? 1 : 0);
      session.arrays.BindFailure(to, std::move(failure));
      continue;
    }
    const Array& source = *session.arrays.Find(from);
    for (const Run& run : source.runs) rooms_.storages.Hold(run);
    copies_.Add(
        {source.shape, source.runs, to,
         is_counted ? std::optional(rooms_.nodes.Number(id)) : std::nullopt, rooms_.nodes.origin()},
        CriteriaOf(source, devices, op.memory_kind()));
  }
}

void Transfers::SendCopies(Session& session) {
  std::optional<CopyRoute> route;  // of the last one: mostly, all go between the same devices
  for (const CopyBatch& batch : copies_.Take()) {
    if (!route || route->from != batch.from || route->to != batch.to)
      route.emplace(rooms_.fleet.lists().topology(), batch.from, batch.to);
    Copy(session, batch, *route);
  }
}

bool Transfers::MayOvertakeCopies(const Session& session, const wire::Op& op) {
  switch (op.op_case()) {
    case wire::Op::kCopy:
      return true;  // it is one of them
    case wire::Op::kTellEnds:
      return true;  // it names no array
    case wire::Op::kRegroup:
      return std::ranges::all_of(op.regroup().results(), [&](const wire::RegroupOp::Result& view) {
        return KnowsSources(session, view);
      });
    case wire::Op::kDrop:
      return std::ranges::all_of(op.drop().handles(), [&](uint64_t array) {
        return IsKnown(session, ArrayHandle(array));
      });
    default:
      return false;
  }
}

CopyBatches::Criteria Transfers::CriteriaOf(const Array& array, const DeviceListRef& to,
                                            const std::string& memory_kind) const {
  CopyBatches::Criteria criteria{.from = array.devices,
                                 .to = to,
                                 .memory_kind = memory_kind,
                                 .shard_bytes = array.shape->shard_bytes,
                                 .runs = array.runs.size(),
                                 .unusual_type = UnusualType(array.shape->element_type),
                                 .producers = {}};
  for (const Run& run : array.runs) criteria.producers.Add(rooms_.storages.ProducerOf(run.storage));
  return criteria;
}

wire::FailureRef Transfers::CheckCopy(const Session& session, ArrayHandle source,
                                      size_t shards) const {
  if (auto failure = rooms_.nodes.CheckRoom(session.info.id)) return failure;
  const size_t size = session.arrays.Find(source)->devices->size();
  if (size == shards) return nullptr;
  return Refuse("a copy keeps the number of shards: the source has ", size, ", the destination ",
                shards);
}

void Transfers::Copy(Session& session, const CopyBatch& batch, const CopyRoute& route) {
  const SessionId id = session.info.id;
  const Ordinal ordinal = rooms_.nodes.next();
  Nodes::Node node{.results = {},
                   .open_islands = route.islands,
                   .unreleased_sources = route.leaving_islands,
                   .senders = route.senders,
                   .launched = nullptr,
                   .numbers = {},
                   .origin = batch.arrays.front().origin};
  wire::IslandItem item = NodeItem(id, ordinal);
  if (batch.arrays.front().origin)
    item.mutable_node()->set_dispatch(batch.arrays.front().origin->dispatch);
  wire::Copy* copy = item.mutable_node()->mutable_copy();
  FillDevices(*route.from, *copy->mutable_source_devices());
  FillDevices(*route.to, *copy->mutable_devices());
  copy->set_memory_kind(batch.memory_kind);
  if (new_token_ && route.crosses_workers) copy->set_token(new_token_());
  std::vector<Array> results;
  for (const CopiedArray& each : batch.arrays) {
    const StorageId storage = rooms_.storages.Add(id, route.to, each.shape->shard_bytes, ordinal);
    node.results.push_back(storage);
    if (each.number) node.numbers.push_back(*each.number);
    AddCopied(each, storage, *copy);
    results.push_back(WholeStorage(InMemory(each.shape, batch.memory_kind), route.to, storage));
  }
  if (node.numbers.empty()) node.counting = Nodes::Counting::kUnknownToClient;
  rooms_.nodes.Add(id, std::move(node));
  rooms_.outbox.ToIslands(route.islands, std::move(item));
  // After the node, so that frees of unwanted storages follow it in the stream.
  for (size_t i = 0; i < results.size(); ++i)
    session.arrays.Bind(batch.arrays[i].result, std::move(results[i]));
  for (const CopiedArray& each : batch.arrays) {
    for (const Run& run : each.runs) rooms_.storages.LetGo(run);
  }
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
                        .fetch = FetchId(op.fetch()),
                        .launched = nullptr,
                        .numbers = {}});
  wire::Fetch* fetch = item.mutable_node()->mutable_fetch();
  FillRef(view.runs, *fetch->mutable_source());
  fetch->mutable_devices()->Add(view.devices.begin(), view.devices.end());
  fetch->set_fetch(op.fetch());
  rooms_.outbox.ToIslands(islands, std::move(item));
}

}  // namespace gangway::controller
