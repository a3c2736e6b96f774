// Implementation of calls.h.
#include "gangway/controller/core/calls.h"

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/program/array_shape.h"
#include "gangway/wire/callback_limits.h"

namespace gangway::controller {
namespace {

using absl::StatusCode;

wire::FailureRef Refuse(const wire::ExecutableInfo& program, std::string_view message,
                        std::string_view advice = "") {
  wire::Failure failure = wire::MakeFailure(StatusCode::kInvalidArgument, message, advice);
  failure.set_program(program.name());
  failure.set_source(program.source());
  return wire::Share(std::move(failure));
}

// What an argument is on, if that is not what the executable runs on.
template <typename Devices>
std::string OtherDevices(size_t argument, const Devices& devices, const DeviceList& wanted) {
  return absl::StrCat("argument ", argument, " is on devices ", absl::StrJoin(devices, ","),
                      ", the program runs on devices ", absl::StrJoin(wanted.devices(), ","));
}

}  // namespace

// Of one call. The pointers are to arrays of the session, which it does not change before it has been sent, or to
// `gathered`.
struct Calls::Arguments {
  struct Argument {
    const ArrayShape* shape = nullptr;
    const std::vector<Run>* runs = nullptr;
  };
  std::vector<Argument> all;
  std::deque<NamedShards> gathered;  // the arguments that the call lists by shards
  bool is_one_spoiled = false;       // by a failure that the call did not cause
};

// Finds the arguments, and puts those together that the call lists by shards. Fails if one is spoiled, freed, or not
// what the program takes.
wire::FailureRef Calls::CheckArguments(const SessionArrays& arrays, const Executable& executable,
                                       const wire::CallOp& op, Arguments& arguments) const {
  const auto size = static_cast<size_t>(op.arguments_size());
  arguments.all.resize(size);
  std::vector<const NamedShards*> views(size);
  for (const wire::GatheredArgument& list : op.gathered()) {
    const uint32_t index = list.argument();
    if (index >= size || op.arguments(static_cast<int>(index)) != 0 || views[index] != nullptr ||
        list.arrays().empty() || list.arrays_size() != list.shards_size()) {
      return Refuse(
          executable.info,
          absl::StrCat("argument ", index, " is listed by shards, with ", list.arrays_size(),
                       " arrays and ", list.shards_size(), " shards, but the call has ",
                       op.arguments_size(), " arguments, or has an array in its place"));
    }
    NamedShards& view = arguments.gathered.emplace_back();
    if (auto failure = arrays.AddShards(list, view)) {
      arguments.is_one_spoiled = true;
      return failure;
    }
    views[index] = &view;
  }
  for (size_t i = 0; i < size; ++i) {
    const ArrayHandle handle{op.arguments(static_cast<int>(i))};
    if (views[i] != nullptr) continue;
    if (auto failure = arrays.CheckUsable(handle)) {
      arguments.is_one_spoiled = true;
      return failure;
    }
  }
  for (size_t i = 0; i < size; ++i) {
    const NamedShards* view = views[i];
    const Array* array =
        view ? nullptr : arrays.Find(ArrayHandle(op.arguments(static_cast<int>(i))));
    Arguments::Argument& argument = arguments.all[i];
    argument.shape = view ? view->shape.get() : array->shape.get();
    argument.runs = view ? &view->runs : &array->runs;
    const ArrayShape& parameter = *executable.parameters[i];
    if (!Fits(*argument.shape, parameter)) {
      return Refuse(executable.info,
                    absl::StrCat("argument ", i, " has shards of ", ToText(*argument.shape),
                                 ", the program was compiled for ", ToText(parameter),
                                 ": convert the array, or compile the program for such arrays"));
    }
    const DeviceList& wanted = *executable.devices;
    if (view != nullptr &&
        !std::ranges::equal(view->devices, wanted.devices(), {}, {}, &DeviceId::number))
      return Refuse(executable.info, OtherDevices(i, view->devices, wanted));
    if (view == nullptr && array->devices != executable.devices)
      return Refuse(executable.info, OtherDevices(i, array->devices->devices(), wanted));
  }
  return nullptr;
}

namespace {

// Fails if a shard of these arguments has another user in the call. `runs`: of all arguments.
wire::FailureRef CheckDonated(const wire::ExecutableInfo& info,
                              const std::vector<const std::vector<Run>*>& runs,
                              const std::vector<uint32_t>& donated) {
  constexpr size_t kSeveral = SIZE_MAX;
  bool any_several = false;
  absl::flat_hash_map<StorageId, size_t> user;  // the argument that uses it
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const Run& run : *runs[i]) {
      auto [it, is_new] = user.emplace(run.storage, i);
      if (is_new || it->second == i) continue;
      it->second = kSeveral;
      any_several = true;
    }
  }
  if (!any_several) return nullptr;
  // Of the storages that several arguments use, each shard may have one user.
  absl::flat_hash_map<std::pair<StorageId, uint32_t>, size_t> users;
  for (const std::vector<Run>* each : runs) {
    for (const Run& run : *each) {
      if (user[run.storage] != kSeveral) continue;
      for (uint32_t i = 0; i < run.count; ++i) ++users[{run.storage, run.first + i}];
    }
  }
  for (const uint32_t index : donated) {
    for (const Run& run : *runs[index]) {
      if (user[run.storage] != kSeveral) continue;
      for (uint32_t i = 0; i < run.count; ++i) {
        if (users[{run.storage, run.first + i}] < 2) continue;
        return Refuse(info,
                      absl::StrCat("argument ", index,
                                   " is donated and shares its memory with another argument of "
                                   "the call"),
                      "Copy one of them, or do not donate.");
      }
    }
  }
  return nullptr;
}

}  // namespace

// Whether programs of this kind may be launched at all.
wire::FailureRef Calls::CheckLaunch(const Executable& executable, uint32_t callback_depth,
                                    Time now) const {
  if (auto closed = rooms_.fleet.CheckOpen(*executable.devices)) return closed;
  if (auto blamed = rooms_.blame.Check(*executable.launched, now))
    return wire::Share(*std::move(blamed));
  if (!executable.info.calls_host() || callback_depth < wire::kCallbackDepthMax) return nullptr;
  return Refuse(executable.info,
                absl::StrCat("it calls functions of its client, and is called in a host callback "
                             "of depth ",
                             callback_depth, ", over the limit of ", wire::kCallbackDepthMax,
                             " nested callbacks"),
                "Call it outside of the callback, or without a callback of its own.");
}

// Finds what the call names, and the indices of the arguments that it consumes.
wire::FailureRef Calls::Check(const Session& session, const wire::CallOp& op,
                              uint32_t callback_depth, Time now, const Executable*& executable,
                              Arguments& arguments, std::vector<uint32_t>& donated) const {
  if (auto failure = rooms_.nodes.CheckRoom(session.info.id)) return failure;
  executable = rooms_.executables.Find(session.info.id, ExecutableHandle(op.executable()));
  if (executable == nullptr) {
    return wire::Share(wire::MakeFailure(
        StatusCode::kInvalidArgument,
        absl::StrCat("executable handle ", op.executable(), " is not known in this session"),
        "It was dropped, failed to compile, or belongs to another session; compile it again."));
  }
  const wire::ExecutableInfo& info = executable->info;
  if (!executable->ready)
    return Refuse(info, "the executable is still being compiled: wait for its Compiled event");
  if (op.arguments_size() != info.parameters_size() || op.results_size() != info.results_size()) {
    return Refuse(
        info, absl::StrCat("the program takes ", info.parameters_size(), " arguments and gives ",
                           info.results_size(), " results, the call has ", op.arguments_size(),
                           " and ", op.results_size()));
  }
  if (auto failure = CheckArguments(session.arrays, *executable, op, arguments)) return failure;
  if (auto failure = CheckLaunch(*executable, callback_depth, now)) return failure;
  const absl::flat_hash_set<uint32_t> keep(op.keep().begin(), op.keep().end());
  for (const uint32_t index : info.donated())
    if (!keep.contains(index) && index < arguments.all.size()) donated.push_back(index);
  if (!donated.empty()) {
    std::vector<const std::vector<Run>*> runs;
    for (const Arguments::Argument& argument : arguments.all) runs.push_back(argument.runs);
    if (auto failure = CheckDonated(info, runs, donated)) return failure;
  }
  return rooms_.isolation.Claim(session.info, *executable->devices, now);
}

void Calls::OnCall(Session& session, const wire::CallOp& op, uint32_t callback_depth, Time now) {
  const Executable* executable = nullptr;
  Arguments arguments;
  std::vector<uint32_t> donated;
  wire::FailureRef failure =
      Check(session, op, callback_depth, now, executable, arguments, donated);
  if (!failure) return Launch(session, op, callback_depth, *executable, arguments, donated, now);
  if (!arguments.is_one_spoiled) failure = rooms_.nodes.AtOrigin(std::move(failure));
  rooms_.nodes.Refuse(session.info.id, failure);
  for (const uint64_t handle : op.results())
    session.arrays.BindFailure(ArrayHandle(handle), failure);
}

void Calls::Launch(Session& session, const wire::CallOp& op, uint32_t callback_depth,
                   const Executable& executable, const Arguments& arguments,
                   const std::vector<uint32_t>& donated, Time now) {
  const Ordinal ordinal = rooms_.nodes.next();
  wire::IslandItem item;
  item.mutable_node()->set_ordinal(ordinal.number());
  item.mutable_node()->set_session(session.info.id.number());
  if (rooms_.nodes.origin()) item.mutable_node()->set_dispatch(rooms_.nodes.origin()->dispatch);
  wire::Launch* launch = item.mutable_node()->mutable_launch();
  launch->set_executable(executable.id.number());
  // XLA finds the members of a collective by launch id. It is never the client's id, which another
  // session may use too.
  launch->set_launch_id(static_cast<uint32_t>(ordinal.number() % 0x7fffffff) + 1);
  launch->set_callback_depth(callback_depth);
  launch->set_alone(rooms_.blame.IsSuspect(*executable.launched, now));
  for (const Arguments::Argument& argument : arguments.all)
    FillRef(*argument.runs, *launch->add_arguments());
  std::vector<Run> taken;
  for (const uint32_t index : donated) {
    const std::vector<Run>& runs = *arguments.all[index].runs;
    taken.insert(taken.end(), runs.begin(), runs.end());
  }
  launch->mutable_donated()->Add(donated.begin(), donated.end());
  Nodes::Node node{.results = {},
                   .open_islands = executable.devices->islands(),
                   .unreleased_sources = {},
                   .senders = {},
                   .launched = executable.launched,
                   .alone = launch->alone(),
                   .numbers = {}};
  for (const ArrayShapeRef& shape : executable.results) {
    node.results.push_back(
        rooms_.storages.Add(session.info.id, executable.devices, shape->shard_bytes, ordinal));
    launch->add_results(node.results.back().number());
  }
  const std::vector<StorageId> results = node.results;
  rooms_.nodes.Add(session.info.id, std::move(node));
  rooms_.outbox.ToIslands(executable.devices->islands(), std::move(item));
  // After the launch, so that frees of consumed and unwanted storages follow it in the stream.
  for (size_t i = 0; i < results.size(); ++i) {
    Array array{.failure = nullptr,
                .shape = executable.results[i],
                .devices = executable.devices,
                .runs = {{results[i], 0, static_cast<uint32_t>(executable.devices->size())}}};
    session.arrays.Bind(ArrayHandle(op.results(static_cast<int>(i))), std::move(array));
  }
  for (const Run& run : taken) rooms_.storages.Take(run);
}

}  // namespace gangway::controller
