// Programs of a simulated session: each is drawn once, registered, and launched again and again, on other arguments.
// What a launch computes is recorded node by node, as if the session had sent each of them by itself (DF-3).
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/ids.h"
#include "gangway/client/client_impl.h"
#include "gangway/simulation/session.h"

namespace gangway::simulation {
namespace {

constexpr size_t kProgramsMax = 4;  // of one session

template <typename DrawnValue>
DrawnValue* PickOfSize(size_t size, std::vector<DrawnValue>& values, Random& random) {
  std::vector<DrawnValue*> fitting;
  for (DrawnValue& value : values)
    if (value.is_usable && value.devices.size() == size) fitting.push_back(&value);
  return fitting.empty() ? nullptr : random.Pick(fitting);
}

}  // namespace

// Of two values that are not always different.
void Session::DrawView(std::vector<DrawnValue>& values, program::Program& graph) {
  std::vector<program::ValueId> inputs;
  std::vector<uint32_t> shards, devices;
  for (int i = 0; i < 2; ++i) {
    DrawnValue& value = values[Below(values.size())];
    if (!value.is_usable) continue;
    for (uint32_t shard = 0; shard < value.devices.size(); ++shard) {
      const bool is_there = std::ranges::count(devices, value.devices[shard]) > 0;
      if (is_there || (!devices.empty() && Below(3) == 0)) continue;
      inputs.push_back(value.id);
      shards.push_back(shard);
      devices.push_back(value.devices[shard]);
      value.is_shared = true;
    }
  }
  if (inputs.empty()) return;
  const program::ValueId view = graph.AddView(std::move(inputs), std::move(shards));
  values.push_back({.id = view, .devices = std::move(devices), .is_shared = true});
}

// Adds a call to the program that is being drawn. False: its compile failed.
bool Session::DrawCall(std::vector<DrawnValue>& values, program::Program& graph) {
  const Devices devices = Placement();
  uint64_t number = PickProgram(devices);
  if (IsFailing(number)) number = kPrograms;
  const std::optional<Executable> executable = Compile(number, devices);
  if (!executable) return false;
  const auto program = device::ParseSimProgram(ProgramText(number, devices));
  std::vector<program::ValueId> inputs;
  DrawnValue* first = nullptr;
  for (size_t i = 0; i < program->inputs.size(); ++i) {
    DrawnValue* const value = PickOfSize(devices.size(), values, random_);
    if (value == nullptr) return true;
    if (i == 0) first = value;
    inputs.push_back(value->id);
  }
  const bool is_twice = std::ranges::count(inputs, inputs[0]) > 1;
  const bool donates = program->donated_input[0] == 0;
  const bool keeps = donates && (is_twice || first->is_shared || Below(3) == 0);
  if (donates && !keeps) first->is_usable = false;
  const auto outputs = static_cast<uint32_t>(program->outputs.size());
  const program::ValueId output =
      graph.AddCall(absl::StrCat(NumberOf(executable->handle)), std::move(inputs), {}, outputs);
  if (keeps) graph.SetKept({0});
  for (uint32_t i = 0; i < outputs; ++i) values.push_back({.id = output + i, .devices = devices});
  return true;
}

// False: nothing was drawn.
bool Session::DrawProgram() {
  DrawnProgram drawn{.graph = program::Program(absl::StrCat(plan_.name, ".", programs_.size()))};
  std::vector<DrawnValue> values;
  for (uint64_t i = random_.Between(1, 3); i > 0; --i) {
    drawn.arguments.push_back(Placement());
    values.push_back({.id = drawn.graph.AddArgument(), .devices = drawn.arguments.back()});
  }
  for (uint64_t i = random_.Between(2, 10); i > 0; --i) {
    const uint64_t dice = Below(10);
    if (dice < 6) {
      if (!DrawCall(values, drawn.graph)) return false;
    } else if (dice < 8) {
      const Devices devices = Placement();
      const DrawnValue* const value = PickOfSize(devices.size(), values, random_);
      if (value == nullptr) continue;
      const program::ValueId moved = drawn.graph.AddTransfer(value->id, devices);
      values.push_back({.id = moved, .devices = devices});
    } else {
      DrawView(values, drawn.graph);
    }
  }
  std::erase_if(values, [](const DrawnValue& value) { return !value.is_usable; });
  for (const DrawnValue& value : values)
    if (Below(3) != 0) drawn.graph.AddResult(value.id);
  auto question = Ask(absl::StrCat("the registration of ", drawn.graph.name()), Good());
  drawn.handle = client().RegisterProgram(drawn.graph, {}, Answered(question),
                                          /*sequential=*/Below(4) == 0);
  others_.push_back(std::move(question));
  programs_.push_back(std::move(drawn));
  return true;
}

// A usable array for each argument, of which no two share shards.
std::optional<std::vector<ArrayHandle>> Session::PickArguments(const DrawnProgram& drawn) {
  std::vector<ArrayHandle> arguments;
  std::vector<Place> places;
  for (const Devices& devices : drawn.arguments) {
    std::vector<ArrayHandle> fitting;
    for (const auto& [handle, array] : arrays_)
      if (array.devices == devices) fitting.push_back(handle);
    arguments.push_back(fitting.empty() || Below(10) == 0 ? Upload(devices)
                                                          : random_.Pick(fitting));
    for (const Place& place : arrays_.at(arguments.back()).places) {
      if (std::ranges::count(places, place) != 0) return std::nullopt;
      places.push_back(place);
    }
  }
  return arguments;
}

void Session::Launch() {
  if (programs_.empty() || (programs_.size() < kProgramsMax && Below(3) == 0)) {
    if (!DrawProgram()) return;
  }
  const DrawnProgram& drawn = programs_[Below(programs_.size())];
  const auto arguments = PickArguments(drawn);
  if (!arguments) return;
  // See Call.
  const bool any_blame = std::ranges::any_of(*arguments, [this](ArrayHandle argument) {
    return !BlameOf(arrays_.at(argument)).records.empty();
  });
  if (any_blame && !plan_.may_fail) return;
  std::vector<Array> values;
  for (const ArrayHandle argument : *arguments) values.push_back(arrays_.at(argument));
  std::vector<ArrayHandle> results;
  std::vector<Place> taken;
  for (const program::Node& node : drawn.graph.nodes()) {
    if (node.kind == program::Kind::kCall) RecordCall(drawn, node, values, taken);
    if (node.kind == program::Kind::kTransfer)
      values.push_back(
          RecordMove(values[node.inputs[0]], drawn.graph.device_lists()[*node.devices]));
    if (node.kind == program::Kind::kView) RecordView(node, values);
    if (node.kind != program::Kind::kResult) continue;
    results.push_back(client_->NewArrayHandle());
    Array result = values[node.inputs[0]];
    result.sources = BlameOf(result).records;
    result.known.reset();
    arrays_[results.back()] = std::move(result);
  }
  MayLookFor(client().Launch(drawn.handle, *arguments, results, {.ended = ToldEnd("a launch")}));
  ++counts_.launches;
  counts_.launched += drawn.graph.work_count();
  if (!taken.empty()) Consume(taken);
}

void Session::RecordCall(const DrawnProgram& drawn, const program::Node& call,
                         std::vector<Array>& values, std::vector<Place>& taken) {
  uint64_t handle = 0;
  (void)absl::SimpleAtoi(drawn.graph.functions()[call.function], &handle);
  const auto executable = std::ranges::find_if(executables_, [handle](const auto& entry) {
    return NumberOf(entry.second.handle) == handle;
  });
  const auto& [number, devices] = executable->first;
  const auto program = device::ParseSimProgram(ProgramText(number, devices));
  std::vector<program::ValueId> inputs;
  std::vector<uint32_t> donated;
  if (program->donated_input[0] == 0 && call.kept.empty()) donated.push_back(0);
  Blame blame;
  for (const program::ValueId input : call.inputs) {
    const bool is_elsewhere = values[input].devices != devices;
    const Array moved = is_elsewhere ? RecordMove(values[input], devices) : values[input];
    const bool is_donated = !donated.empty() && inputs.empty();
    if (is_donated && !is_elsewhere)
      taken.insert(taken.end(), moved.places.begin(), moved.places.end());
    inputs.push_back(moved.value);
    blame.Add(BlameOf(moved));
  }
  const auto outputs = static_cast<uint32_t>(program->outputs.size());
  const program::ValueId first = program_.AddCall(absl::StrCat("p/", number), std::move(inputs),
                                                  std::move(donated), outputs, devices);
  for (uint32_t i = 0; i < outputs; ++i) values.push_back(NewArray(first + i, devices, blame));
  *plan_.slow += std::chrono::microseconds(program->slow_us);
}

Session::Array Session::RecordMove(const Array& from, const Devices& devices) {
  return NewArray(program_.AddTransfer(from.value, devices), devices, BlameOf(from));
}

void Session::RecordView(const program::Node& view, std::vector<Array>& values) {
  Array array;
  std::vector<program::ValueId> inputs;
  for (size_t i = 0; i < view.inputs.size(); ++i) {
    const Array& from = values[view.inputs[i]];
    inputs.push_back(from.value);
    array.devices.push_back(from.devices[view.shards[i]]);
    array.places.push_back(from.places[view.shards[i]]);
    array.sources.merge(BlameOf(from).records);
  }
  array.value = program_.AddView(std::move(inputs), view.shards, array.devices);
  values.push_back(std::move(array));
}

// With a storage of its own.
Session::Array Session::NewArray(program::ValueId value, const Devices& devices,
                                 const Blame& blame) {
  const uint64_t storage = next_storage_++;
  Array array{.value = value, .devices = devices};
  for (uint32_t shard = 0; shard < devices.size(); ++shard)
    array.places.emplace_back(storage, shard);
  if (!blame.records.empty()) blame_[storage] = blame;
  return array;
}

}  // namespace gangway::simulation
