// Implementation of random_program_test_util.h.
#include "gangway/program/random_program_test_util.h"

#include <rapidcheck.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "gangway/program/functions_test_util.h"

namespace gangway::program {
namespace {

using rc::gen::inRange;

constexpr size_t kFunctions = 6;
constexpr uint32_t kShards = 3;  // at most
constexpr size_t kInputs = 3;    // likewise

bool Once(int in) { return *inRange(0, in) == 0; }

Devices DrawDevices(size_t count) {
  Devices all(6);
  std::iota(all.begin(), all.end(), 0);
  std::rotate(all.begin(), all.begin() + *inRange(0, 6), all.end());
  all.resize(count);
  return all;
}

FunctionType DrawFunction() {
  FunctionType function;
  function.devices = DrawDevices(*inRange<size_t>(1, kShards + 1));
  function.parameters.resize(*inRange<size_t>(0, kInputs + 1), F32(2));
  function.results.resize(*inRange<size_t>(0, 3), F32(2));
  for (uint32_t i = 0; i < function.parameters.size(); ++i)
    if (Once(3)) function.donated.push_back(i);
  return function;
}

class Drawing {
 public:
  Drawing() {
    for (size_t i = 0; i < kFunctions; ++i) drawn_.functions.push_back(DrawFunction());
  }

  RandomProgram Draw() {
    if (Once(2)) drawn_.program = Program(*rc::gen::element<std::string>("step", "my \"step\"#"));
    for (int i = *inRange(0, 4); i > 0; --i) AddArgument();
    for (int i = *inRange(0, 12); i > 0; --i) {
      const size_t before = program().nodes().size();
      AddNode();
      if (program().nodes().size() > before && Once(3))
        program().SetSource(*rc::gen::element<std::string>("t.py:1", "\"a\\b#\n\".py:2"));
    }
    for (const Usable& each : usable_)
      if (Once(2)) program().AddResult(each.value);
    return drawn_;
  }

 private:
  struct Usable {
    ValueId value = 0;
    size_t shards = 0;
    Devices devices;  // empty: not known
    std::string memory;
    std::vector<std::pair<ValueId, uint32_t>>
        owners;  // of its shards; of a replica, all that may be
  };

  Program& program() { return drawn_.program; }
  // A value with shards of its own.
  void AddUsable(ValueId value, const Devices& devices, const std::string& memory = "") {
    Usable usable{value, devices.size(), devices, memory, {}};
    for (uint32_t i = 0; i < devices.size(); ++i) usable.owners.emplace_back(value, i);
    usable_.push_back(std::move(usable));
  }
  static bool Share(const Usable& one, const Usable& other) {
    return std::ranges::find_first_of(one.owners, other.owners) != one.owners.end();
  }
  void AddArgument();
  void AddNode();
  void AddCall();
  void AddView();

  RandomProgram drawn_;
  std::vector<Usable> usable_;
};

void Drawing::AddArgument() {
  const Devices devices = DrawDevices(*inRange<size_t>(1, kShards + 1));
  drawn_.arguments.push_back({.shape = F32(2), .devices = devices});
  AddUsable(program().AddArgument(), devices);
}

void Drawing::AddNode() {
  const int kind = *inRange(0, 4);
  if (usable_.empty() || kind > 1) return AddCall();
  if (kind == 1) return AddView();
  const Usable from = *rc::gen::elementOf(usable_);
  const Devices devices = DrawDevices(from.shards);
  const auto memory = *rc::gen::element<std::string>("", "pinned_host");
  AddUsable(program().AddTransfer(from.value, devices, memory), devices, memory);
}

void Drawing::AddCall() {
  const auto index = *inRange<size_t>(0, kFunctions);
  const FunctionType& function = drawn_.functions[index];
  std::vector<Usable> fitting;
  std::ranges::copy_if(usable_, std::back_inserter(fitting), [&function](const Usable& each) {
    return each.shards == function.devices.size();
  });
  if (fitting.empty() && !function.parameters.empty()) return;
  std::vector<Usable> inputs;
  std::vector<ValueId> values;
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    inputs.push_back(*rc::gen::elementOf(fitting));
    values.push_back(inputs.back().value);
  }
  std::vector<uint32_t> kept;
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    const auto sharing =
        std::ranges::count_if(inputs, [&](const Usable& other) { return Share(inputs[i], other); });
    if (sharing > 1 || Once(3)) kept.push_back(i);
  }
  const auto outputs = static_cast<uint32_t>(function.results.size());
  const ValueId first = program().AddCall(absl::StrCat(index), values, {}, outputs);
  for (uint32_t donated : function.donated) {
    if (std::ranges::count(kept, donated) == 0)
      std::erase_if(usable_, [&](const Usable& each) { return Share(each, inputs[donated]); });
  }
  program().SetKept(std::move(kept));
  for (uint32_t k = 0; k < outputs; ++k) AddUsable(first + k, function.devices);
}

// Of shards of values in one memory, on distinct devices; or a replica.
void Drawing::AddView() {
  const Usable like = *rc::gen::elementOf(usable_);
  if (like.devices.empty() || Once(4)) {
    const Devices devices = like.devices.size() == 1 ? like.devices : Devices();
    usable_.push_back({program().AddView({like.value}, {}), 1, devices, like.memory, like.owners});
    return;
  }
  Usable view{.memory = like.memory};
  std::vector<ValueId> inputs;
  std::vector<uint32_t> shards;
  for (const Usable& from : {*rc::gen::elementOf(usable_), like}) {
    for (uint32_t i = 0; i < from.devices.size(); ++i) {
      if (from.memory != like.memory || std::ranges::count(view.devices, from.devices[i]) > 0)
        continue;
      inputs.push_back(from.value);
      shards.push_back(i);
      view.devices.push_back(from.devices[i]);
      view.owners.push_back(from.owners[i]);
    }
  }
  view.shards = shards.size();
  view.value = program().AddView(inputs, shards);
  usable_.push_back(view);
}

}  // namespace

FunctionTypes RandomProgram::Types() const {
  return [this](const std::string& name) -> absl::StatusOr<const FunctionType*> {
    return &functions.at(std::stoul(name));
  };
}

RandomProgram DrawProgram() { return Drawing().Draw(); }

}  // namespace gangway::program
