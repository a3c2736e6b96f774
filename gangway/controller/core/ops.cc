// The operations of a session, in order.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/sizes.h"
#include "gangway/controller/core/controller.h"
#include "gangway/wire/callback_limits.h"
#include "gangway/wire/failure.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::controller {
namespace {

using absl::StatusCode;

constexpr int kDimensionsMax = 64;  // NumPy's limit, too
constexpr size_t kMemoryKindBytesMax = 64;

wire::FailureRef Refuse(StatusCode code, std::string_view message, std::string_view advice = "") {
  return wire::Share(wire::MakeFailure(code, message, advice));
}

wire::FailureRef RefuseCall(const wire::ExecutableInfo& program, std::string_view message,
                            std::string_view advice = "") {
  wire::Failure failure = wire::MakeFailure(StatusCode::kInvalidArgument, message, advice);
  failure.set_program(program.name());
  failure.set_source(program.source());
  return wire::Share(std::move(failure));
}

std::string Describe(int32_t element_type, const google::protobuf::RepeatedField<int64_t>& dims) {
  const std::string_view name = xla::ElementName(element_type);
  return absl::StrCat(absl::string_view(name.data(), name.size()), "[", absl::StrJoin(dims, ","),
                      "]");
}

template <typename A, typename B>
bool SameList(const A& a, const B& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// Whether an array can be a parameter. JAX passes an empty array of booleans for a token, which has no bytes either.
bool Fits(const wire::ArraySpec& spec, const wire::TensorSpec& parameter) {
  const bool is_empty = spec.shard_dims_size() == 1 && spec.shard_dims(0) == 0;
  if (parameter.element_type() == xla::TYPE_TOKEN && spec.element_type() == xla::TYPE_PRED)
    return is_empty;
  return spec.element_type() == parameter.element_type() &&
         SameList(spec.shard_dims(), parameter.shard_dims());
}

}  // namespace

void Controller::OnOp(SessionId id, Session& session, wire::Op& op, Time now, Actions& actions) {
  switch (op.op_case()) {
    case wire::Op::kCompile:
      return OnCompile(id, session, *op.mutable_compile(), now, actions);
    case wire::Op::kUpload:
      return OnUpload(id, session, *op.mutable_upload(), now, actions);
    case wire::Op::kCall:
      return OnCall(id, session, op.call(), now, actions);
    case wire::Op::kCopy:
      return OnCopy(id, session, op.copy(), now, actions);
    case wire::Op::kRegroup:
      return OnRegroup(id, session, op.regroup(), actions);
    case wire::Op::kFetch:
      return OnFetch(id, session, op.fetch(), actions);
    case wire::Op::kAwait:
      return OnAwait(id, session, op.await(), actions);
    case wire::Op::kDrop:
      return OnDrop(session, op.drop(), /*consume=*/false, actions);
    case wire::Op::kDelete:
      return OnDrop(session, op.delete_(), /*consume=*/true, actions);
    case wire::Op::kDropExecutables:
      return OnDropExecutables(id, session, op.drop_executables(), now, actions);
    case wire::Op::kPoison:
      return OnPoison(id, session, *op.mutable_poison(), actions);
    case wire::Op::kAbandon:
      return OnAbandon(session, *op.mutable_abandon(), actions);
    case wire::Op::kDropShards:
      return OnDropShards(session, op.drop_shards(), /*consume=*/false, actions);
    case wire::Op::kDeleteShards:
      return OnDropShards(session, op.delete_shards(), /*consume=*/true, actions);
    case wire::Op::OP_NOT_SET:
      return;
  }
}

namespace {

wire::FailureRef CheckRoom(uint64_t pending, uint64_t pending_max) {
  if (pending < 2 * pending_max) return nullptr;
  return Refuse(StatusCode::kResourceExhausted,
                absl::StrCat("the session has ", pending, " pending nodes, twice the limit"),
                "Wait for results before submitting more.");
}

}  // namespace

// The client counts every node that it submits, so a rejected node counts as ended.
void Controller::CountRefused(SessionId id, Session& session, const wire::FailureRef& why) {
  ++session.ended;
  ++session.numbered;
  if (session.wants_ends) session.ends.Add(session.numbered, why);
  progressed_.insert(id);
}

void Controller::OnUpload(SessionId id, Session& session, wire::UploadOp& op, Time now,
                          Actions& actions) {
  wire::FailureRef failure = CheckDevices(op.spec().devices());
  if (!failure) failure = CheckOpen(op.spec().devices());
  if (!failure) failure = CheckRoom(session.pending, config_.pending_nodes_max);
  if (!failure && !CanBind(id, session, op.array())) {
    failure = Refuse(StatusCode::kInvalidArgument,
                     absl::StrCat("array handle ", op.array(), " is 0 or in use already"));
  }
  if (!failure && (op.upload() == 0 || session.uploads.contains(op.upload()))) {
    failure = Refuse(StatusCode::kInvalidArgument,
                     absl::StrCat("upload number ", op.upload(), " is 0 or in use already"));
  }
  if (!failure && (op.spec().shard_dims_size() > kDimensionsMax ||
                   op.spec().memory_kind().size() > kMemoryKindBytesMax)) {
    failure = Refuse(StatusCode::kInvalidArgument,
                     absl::StrCat("an array of ", op.spec().shard_dims_size(),
                                  " dimensions, or a name of ", op.spec().memory_kind().size(),
                                  " bytes for its memory, exceeds the limits of ", kDimensionsMax,
                                  " dimensions and ", kMemoryKindBytesMax, " bytes"));
  }
  if (!failure && op.spec().shard_bytes() > kSizeMax) {
    failure = Refuse(
        StatusCode::kInvalidArgument,
        absl::StrCat("an array with shards of ", op.spec().shard_bytes(), " bytes cannot exist"));
  }
  if (!failure) failure = Claim(id, session, op.spec().devices(), now, actions);
  if (failure) {
    CountRefused(id, session, failure);
    BindFailure(id, session, op.array(), failure, actions);
    wire::SessionEvent event;
    event.mutable_upload_failed()->set_upload(op.upload());
    *event.mutable_upload_failed()->mutable_failure() = *failure;
    actions.to_clients.emplace_back(id, std::move(event));
    return;
  }
  std::vector<uint32_t> islands = IslandsOf(op.spec().devices());
  Ordinal ordinal = NewNode(id, session, {}, islands);
  StorageId storage = NewStorage(id, op.spec(), ordinal);
  nodes_[ordinal].results = {storage};
  nodes_[ordinal].upload = op.upload();
  session.uploads[op.upload()] = ordinal;
  Array array;
  array.spec = op.spec();
  array.runs = {{storage, 0, static_cast<uint32_t>(op.spec().devices_size())}};
  Bind(id, session, op.array(), std::move(array), actions);
  wire::IslandItem item;
  item.mutable_node()->set_ordinal(ordinal.number());
  item.mutable_node()->set_session(id.number());
  wire::Upload* upload = item.mutable_node()->mutable_upload();
  upload->set_storage(storage.number());
  upload->set_upload(op.upload());
  upload->mutable_destinations()->Swap(op.mutable_destinations());
  upload->mutable_spec()->Swap(op.mutable_spec());
  for (uint32_t island : islands) actions.to_islands.emplace_back(island, item);
}

void Controller::OnAbandon(Session& session, wire::AbandonOp& op, Actions& actions) {
  auto upload = session.uploads.find(op.upload());
  if (upload == session.uploads.end()) return;  // it has ended
  wire::Failure failure = std::move(*op.mutable_failure());
  if (failure.code() == 0)
    failure = wire::MakeFailure(StatusCode::kCancelled, "the upload was abandoned");
  wire::Clip(failure);
  auto node = nodes_.find(upload->second);
  if (node == nodes_.end()) return;
  SpoilNode(node->first, node->second, wire::Share(std::move(failure)), actions);
}

// Finds the arrays of a call, and puts those together that it lists by shards. Fails if one is spoiled or consumed.
wire::FailureRef Controller::FindArguments(const Session& session, const Executable& executable,
                                           const wire::CallOp& op, Arguments& arguments) const {
  arguments.arrays.resize(static_cast<size_t>(op.arguments_size()));
  for (const wire::GatheredArgument& list : op.gathered()) {
    const uint32_t index = list.argument();
    if (index >= arguments.arrays.size() || op.arguments(static_cast<int>(index)) != 0 ||
        arguments.arrays[index] != nullptr || list.arrays().empty() ||
        list.arrays_size() != list.shards_size()) {
      return RefuseCall(
          executable.info,
          absl::StrCat("argument ", index, " is listed by shards, with ", list.arrays_size(),
                       " arrays and ", list.shards_size(), " shards, but the call has ",
                       op.arguments_size(), " arguments, or has an array in its place"));
    }
    Array& array = arguments.gathered.emplace_back();
    for (int i = 0; i < list.arrays_size(); ++i) {
      wire::RegroupOp::Shard shard;
      shard.set_array(list.arrays(i));
      shard.set_shard(list.shards(i));
      if (auto failure = AddShard(session, shard, array)) return failure;
    }
    arguments.arrays[index] = &array;
  }
  for (int i = 0; i < op.arguments_size(); ++i) {
    const Array*& array = arguments.arrays[static_cast<size_t>(i)];
    if (array != nullptr) continue;
    if (auto failure = CheckUsable(session, op.arguments(i))) return failure;
    array = FindArray(session, op.arguments(i));
  }
  return nullptr;
}

// Checks a call: counts, shapes and devices match, and no argument is spoiled or consumed.
wire::FailureRef Controller::CheckCall(const Session& session, const Executable& executable,
                                       const wire::CallOp& op, Arguments& arguments) const {
  auto invalid = [&executable](const auto&... parts) {
    return RefuseCall(executable.info, absl::StrCat(parts...));
  };
  if (!executable.ready)
    return invalid("the executable is still being compiled: wait for its Compiled event");
  if (op.arguments_size() != executable.info.parameters_size() ||
      op.results_size() != executable.info.results_size()) {
    return invalid("the program takes ", executable.info.parameters_size(), " arguments and gives ",
                   executable.info.results_size(), " results, the call has ", op.arguments_size(),
                   " and ", op.results_size());
  }
  if (auto failure = FindArguments(session, executable, op, arguments)) return failure;
  for (int i = 0; i < op.arguments_size(); ++i) {
    const wire::ArraySpec& spec = arguments.arrays[static_cast<size_t>(i)]->spec;
    const wire::TensorSpec& parameter = executable.info.parameters(i);
    if (!Fits(spec, parameter)) {
      return invalid("argument ", i, " has shards of ",
                     Describe(spec.element_type(), spec.shard_dims()),
                     ", the program was compiled for ",
                     Describe(parameter.element_type(), parameter.shard_dims()),
                     ": convert the array, or compile the program for such arrays");
    }
    if (!std::ranges::equal(spec.devices(), executable.devices, {}, {}, &DeviceId::number)) {
      return invalid("argument ", i, " is on devices ", absl::StrJoin(spec.devices(), ","),
                     ", the program runs on devices ", absl::StrJoin(executable.devices, ","));
    }
  }
  return nullptr;
}

// Finds the indices of the arguments that this call consumes. Fails if the call uses a consumed
// shard twice.
wire::FailureRef Controller::FindDonated(const Executable& executable, const wire::CallOp& op,
                                         const Arguments& arguments,
                                         std::vector<uint32_t>& donated) const {
  const absl::flat_hash_set<uint32_t> keep(op.keep().begin(), op.keep().end());
  for (uint32_t index : executable.info.donated()) {
    if (!keep.contains(index) && index < arguments.arrays.size()) donated.push_back(index);
  }
  if (donated.empty()) return nullptr;
  constexpr size_t kSeveral = SIZE_MAX;
  bool any_several = false;
  absl::flat_hash_map<StorageId, size_t> user;  // the argument that uses it
  for (size_t i = 0; i < arguments.arrays.size(); ++i) {
    for (const Run& run : arguments.arrays[i]->runs) {
      auto [it, is_new] = user.emplace(run.storage, i);
      if (is_new || it->second == i) continue;
      it->second = kSeveral;
      any_several = true;
    }
  }
  if (!any_several) return nullptr;
  // Of the storages that several arguments use, each shard may have one user.
  absl::flat_hash_map<std::pair<StorageId, uint32_t>, size_t> users;
  for (const Array* array : arguments.arrays) {
    for (const Run& run : array->runs) {
      if (user[run.storage] != kSeveral) continue;
      for (uint32_t i = 0; i < run.count; ++i) ++users[{run.storage, run.first + i}];
    }
  }
  for (uint32_t index : donated) {
    for (const Run& run : arguments.arrays[index]->runs) {
      if (user[run.storage] != kSeveral) continue;
      for (uint32_t i = 0; i < run.count; ++i) {
        if (users[{run.storage, run.first + i}] < 2) continue;
        return RefuseCall(executable.info,
                          absl::StrCat("argument ", index,
                                       " is donated and shares its memory with "
                                       "another argument of the call"),
                          "Copy one of them, or do not donate.");
      }
    }
  }
  return nullptr;
}

// Whether programs of this kind may be launched at all.
wire::FailureRef Controller::CheckLaunch(const Executable& executable, const wire::CallOp& op,
                                         Time now) {
  if (auto closed = CheckOpen(executable.devices)) return closed;
  if (auto blamed = blame_.Check(*executable.launched, now)) return wire::Share(*std::move(blamed));
  if (!executable.info.calls_host() || op.callback_depth() < wire::kCallbackDepthMax)
    return nullptr;
  return RefuseCall(
      executable.info,
      absl::StrCat("it calls functions of its client, and is called in a host callback "
                   "of depth ",
                   op.callback_depth(), ", over the limit of ", wire::kCallbackDepthMax,
                   " nested callbacks"),
      "Call it outside of the callback, or without a callback of its own.");
}

void Controller::OnCall(SessionId id, Session& session, const wire::CallOp& op, Time now,
                        Actions& actions) {
  auto found = session.executables.find(op.executable());
  wire::FailureRef failure = CheckRoom(session.pending, config_.pending_nodes_max);
  std::vector<uint32_t> donated;
  if (!failure && found == session.executables.end()) {
    failure = Refuse(
        StatusCode::kInvalidArgument,
        absl::StrCat("executable handle ", op.executable(), " is not known in this session"),
        "It was dropped, failed to compile, or belongs to another session; compile it again.");
  }
  Arguments arguments;
  if (!failure) failure = CheckCall(session, found->second, op, arguments);
  if (!failure) failure = CheckLaunch(found->second, op, now);
  if (!failure) failure = FindDonated(found->second, op, arguments, donated);
  if (!failure) failure = Claim(id, session, found->second.devices, now, actions);
  if (failure) {
    CountRefused(id, session, failure);
    for (uint64_t handle : op.results()) BindFailure(id, session, handle, failure, actions);
    return;
  }
  Executable& executable = found->second;
  wire::IslandItem item;
  Ordinal ordinal = NewNode(id, session, {}, executable.islands);
  if (executable.islands.size() > 1) sequencer_.Add(ordinal, executable.islands);
  item.mutable_node()->set_ordinal(ordinal.number());
  item.mutable_node()->set_session(id.number());
  wire::Launch* launch = item.mutable_node()->mutable_launch();
  launch->set_executable(executable.id.number());
  // XLA finds the members of a collective by launch id. It is never the client's id, which another
  // session may use too.
  launch->set_launch_id(static_cast<uint32_t>(ordinal.number() % 0x7fffffff) + 1);
  launch->set_callback_depth(op.callback_depth());
  launch->set_alone(blame_.IsSuspect(*executable.launched, now));
  for (const Array* argument : arguments.arrays) FillRef(*argument, *launch->add_arguments());
  std::vector<Run> consumed;
  for (uint32_t index : donated) {
    const std::vector<Run>& runs = arguments.arrays[index]->runs;
    consumed.insert(consumed.end(), runs.begin(), runs.end());
  }
  launch->mutable_donated()->Add(donated.begin(), donated.end());
  std::vector<StorageId> storages;
  for (int i = 0; i < op.results_size(); ++i) {
    const wire::TensorSpec& result = executable.info.results(i);
    Array array;
    array.spec.set_element_type(result.element_type());
    *array.spec.mutable_shard_dims() = result.shard_dims();
    array.spec.set_shard_bytes(result.shard_bytes());
    array.spec.set_memory_kind(result.memory_kind());
    array.spec.mutable_devices()->Reserve(static_cast<int>(executable.devices.size()));
    for (DeviceId device : executable.devices) array.spec.add_devices(device.number());
    StorageId storage = NewStorage(id, array.spec, ordinal);
    array.runs = {{storage, 0, static_cast<uint32_t>(executable.devices.size())}};
    launch->add_results(storage.number());
    storages.push_back(storage);
    pending_bindings_.emplace_back(op.results(i), std::move(array));
  }
  Node& node = nodes_[ordinal];
  node.results = std::move(storages);
  node.launched = executable.launched;
  node.alone = item.node().launch().alone();
  for (size_t i = 1; i < executable.islands.size(); ++i)
    actions.to_islands.emplace_back(executable.islands[i], item);
  actions.to_islands.emplace_back(executable.islands[0], std::move(item));
  // After the launch, so that frees of consumed and unwanted storages follow it in the stream.
  for (auto& [handle, array] : pending_bindings_)
    Bind(id, session, handle, std::move(array), actions);
  pending_bindings_.clear();
  for (const Run& run : consumed) Consume(run, actions);
}

// The devices are checked once, however many arrays go there.
void Controller::OnCopy(SessionId id, Session& session, const wire::CopyOp& op, Time now,
                        Actions& actions) {
  wire::FailureRef refused = CheckDevices(op.devices());
  if (!refused) refused = CheckOpen(op.devices());
  if (!refused && op.memory_kind().size() > kMemoryKindBytesMax) {
    refused = Refuse(StatusCode::kInvalidArgument,
                     absl::StrCat("the name of a memory has ", op.memory_kind().size(),
                                  " bytes, the limit is ", kMemoryKindBytesMax));
  }
  for (int i = 0; i < op.sources_size() && i < op.results_size(); ++i) {
    wire::FailureRef failure = refused;
    if (!failure) failure = CheckCopy(session, op.sources(i), op.devices_size());
    if (!failure) failure = Claim(id, session, op.devices(), now, actions);
    if (!failure) {
      CopyOne(id, session, op, i, actions);
    } else {
      CountRefused(id, session, failure);
      BindFailure(id, session, op.results(i), std::move(failure), actions);
    }
  }
}

wire::FailureRef Controller::CheckCopy(const Session& session, uint64_t source, int shards) const {
  if (auto failure = CheckRoom(session.pending, config_.pending_nodes_max)) return failure;
  if (auto failure = CheckUsable(session, source)) return failure;
  const int size = FindArray(session, source)->spec.devices_size();
  if (size == shards) return nullptr;
  return Refuse(StatusCode::kInvalidArgument,
                absl::StrCat("a copy keeps the number of shards: the source has ", size,
                             ", the destination ", shards));
}

void Controller::CopyOne(SessionId id, Session& session, const wire::CopyOp& op, int index,
                         Actions& actions) {
  const Array* source = FindArray(session, op.sources(index));
  Array array;
  array.spec = source->spec;
  *array.spec.mutable_devices() = op.devices();
  array.spec.set_memory_kind(op.memory_kind());
  google::protobuf::RepeatedField<uint32_t> both = op.devices();
  both.MergeFrom(source->spec.devices());
  std::vector<uint32_t> islands = IslandsOf(both);
  Ordinal ordinal = NewNode(id, session, {}, islands);
  StorageId storage = NewStorage(id, array.spec, ordinal);
  nodes_[ordinal].results = {storage};
  nodes_[ordinal].unreleased_sources = CrossingSources(source->spec.devices(), op.devices());
  nodes_[ordinal].senders = Senders(source->spec.devices(), op.devices());
  wire::IslandItem item;
  item.mutable_node()->set_ordinal(ordinal.number());
  item.mutable_node()->set_session(id.number());
  wire::Copy* copy = item.mutable_node()->mutable_copy();
  FillRef(*source, *copy->mutable_source());
  *copy->mutable_source_spec() = source->spec;
  copy->set_storage(storage.number());
  *copy->mutable_spec() = array.spec;
  if (config_.new_token && CrossesWorkers(source->spec.devices(), op.devices()))
    copy->set_token(config_.new_token());
  for (uint32_t island : islands) actions.to_islands.emplace_back(island, item);
  array.runs = {{storage, 0, static_cast<uint32_t>(op.devices_size())}};
  Bind(id, session, op.results(index), std::move(array), actions);
}

void Controller::OnFetch(SessionId id, Session& session, const wire::FetchOp& op,
                         Actions& actions) {
  wire::FailureRef failure = CheckRoom(session.pending, config_.pending_nodes_max);
  Array view;  // of shards that may differ in type and shape
  if (!failure) failure = FindWanted(session, op, view);
  if (failure) {
    CountRefused(id, session, failure);
    wire::SessionEvent event;
    event.mutable_fetch_failed()->set_fetch(op.fetch());
    *event.mutable_fetch_failed()->mutable_failure() = *failure;
    actions.to_clients.emplace_back(id, std::move(event));
    return;
  }
  std::vector<uint32_t> islands = IslandsOf(view.spec.devices());
  Ordinal ordinal = NewNode(id, session, {}, islands);
  nodes_[ordinal].fetch = op.fetch();
  wire::IslandItem item;
  item.mutable_node()->set_ordinal(ordinal.number());
  item.mutable_node()->set_session(id.number());
  wire::Fetch* fetch = item.mutable_node()->mutable_fetch();
  FillRef(view, *fetch->mutable_source());
  *fetch->mutable_devices() = view.spec.devices();
  fetch->set_fetch(op.fetch());
  for (uint32_t island : islands) actions.to_islands.emplace_back(island, item);
}

void Controller::OnAwait(SessionId id, Session& session, const wire::AwaitOp& op,
                         Actions& actions) {
  AwaitState& state = session.awaits[op.await()];
  absl::flat_hash_set<uint64_t> seen;
  uint32_t index = 0;
  for (uint64_t handle : op.arrays()) {
    if (op.arrays_size() > 1 && !seen.insert(handle).second) continue;
    state.Note(index++, CheckUsable(session, handle));
    const Array* array = FindArray(session, handle);
    if (array == nullptr) continue;
    for (const Run& run : array->runs) {  // a spoiled storage may still be pending
      if (run.count == 0) continue;
      Storage& storage = storages_.at(run.storage);
      if (storage.producer == Ordinal() || storage.holds.any_gone(run.range())) continue;
      storage.waiters.push_back({id, op.await(), run, index++});
      ++state.unsettled;
    }
  }
  if (state.unsettled == 0) FinishAwait(id, session, op.await(), actions);
}

void Controller::OnDrop(Session& session, const wire::DropOp& op, bool consume, Actions& actions) {
  for (uint64_t handle : op.handles()) Unbind(session, handle, consume, actions);
}

// The array lives on with its other shards, until its handle is dropped.
void Controller::OnDropShards(Session& session, const wire::DropShardsOp& op, bool consume,
                              Actions& actions) {
  for (const wire::DropShardsOp::Shards& shards : op.arrays()) {
    auto found = session.arrays.find(shards.array());
    if (found == session.arrays.end() || found->second.failure) continue;
    Array& array = found->second;
    Split(array);
    for (uint32_t shard : shards.shards()) {
      if (shard >= array.runs.size()) continue;
      Run& run = array.runs[shard];
      if (consume) Consume(run, actions);
      LetGo(run, actions);
      run.count = 0;
    }
  }
}

void Controller::OnPoison(SessionId id, Session& session, wire::PoisonOp& op, Actions& actions) {
  wire::Failure failure = std::move(*op.mutable_failure());
  if (failure.code() == 0)
    failure = wire::MakeFailure(StatusCode::kUnknown, "created as an error without a reason");
  wire::Clip(failure);
  const wire::FailureRef shared = wire::Share(std::move(failure));
  for (uint64_t handle : op.arrays()) BindFailure(id, session, handle, shared, actions);
}

}  // namespace gangway::controller
