// The operations that a simulated session chooses among.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/ids.h"
#include "gangway/simulation/session.h"

namespace gangway::simulation {
namespace {

constexpr int32_t kF32 = 11;  // xla::PrimitiveType

std::string Content(uint64_t seed, uint64_t bytes) {
  std::string content(bytes, '\0');
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = Mix(seed + at);
    std::memcpy(content.data() + at, &word, std::min<size_t>(sizeof(word), bytes - at));
  }
  return content;
}

template <typename Place>
bool Share(const std::vector<Place>& some, const std::vector<Place>& others) {
  return std::ranges::any_of(
      some, [&others](const Place& place) { return std::ranges::count(others, place) != 0; });
}

}  // namespace

void Session::OneOp() {
  if (!to_give_up_.empty() && Below(3) == 0) GiveUp();
  const uint64_t dice = arrays_.size() >= plan_.live_arrays_max ? 95 : Below(100);
  if (dice < 12) {
    Upload(Placement());
  } else if (dice < 40) {
    Call();
  } else if (dice < 46) {
    Launch();
  } else if (dice < 58) {
    Copy();
  } else if (dice < 66) {
    Regroup();
  } else if (dice < 80) {
    Fetch();
  } else if (dice < 86) {
    AwaitSome();
  } else if (dice < 91) {
    Mistake();
  } else {
    Drop(/*consume=*/dice < 93);
  }
}

std::optional<Session::Executable> Session::Compile(uint64_t program, const Devices& devices) {
  auto [it, is_new] = executables_.try_emplace({program, devices});
  if (!is_new) return it->second;
  auto question = Ask(absl::StrCat("compile of program ", program), Good());
  const StatusCallback answered = Answered(question);
  const ExecutableHandle handle =
      client_->Compile(ProgramText(program, devices), "sim", "", devices,
                       [answered](const auto& info) { answered(info.status()); });
  it->second = {.handle = handle, .program = program};
  if (Check(*question)) return it->second;
  executables_.erase(it);
  return std::nullopt;
}

ArrayHandle Session::Add(program::ValueId value, const Devices& devices) {
  const ArrayHandle handle = client_->NewArrayHandle();
  const uint64_t storage = next_storage_++;
  Array& array = arrays_[handle] = {.value = value, .devices = devices};
  for (uint32_t shard = 0; shard < devices.size(); ++shard)
    array.places.emplace_back(storage, shard);
  return handle;
}

ArrayHandle Session::Upload(const Devices& devices) {
  const ArrayHandle handle = Add(program_.AddArgument(devices), devices);
  const uint64_t bytes = plan_.elements * 4;
  const ArraySpec spec{.element_type = kF32,
                       .shard_dims = {static_cast<int64_t>(plan_.elements)},
                       .devices = devices,
                       .shard_bytes = bytes};
  program::Array argument{.devices = devices};
  const bool withholds = plan_.withholds && Below(4) == 0;
  const bool gives_up = plan_.plants && Below(12) == 0;
  for (uint32_t shard = 0; shard < devices.size(); ++shard)
    argument.shards.push_back(Content(random_.Next(), bytes));
  ++counts_.uploads;
  if (!withholds && !gives_up && Below(2) == 0) {
    const std::vector<std::string_view> shards(argument.shards.begin(), argument.shards.end());
    client_->Put(handle, spec, shards);
    arguments_.push_back(std::move(argument));
    return handle;
  }
  const OperationId upload = client_->Upload(handle, spec);
  for (uint32_t shard = withholds || gives_up ? 1 : 0; shard < devices.size(); ++shard) {
    auto content = std::make_shared<std::string>(argument.shards[shard]);
    client_->Push(upload, shard, *content, [content] {});
  }
  if (withholds && Below(2) == 0) client_->AbandonUpload(upload, absl::DataLossError("given up"));
  if (gives_up) GiveUpLater(upload, handle);
  arguments_.push_back(std::move(argument));
  return handle;
}

void Session::SetBlame(ArrayHandle array, const Blame& blame) {
  if (!blame.records.empty()) blame_[arrays_.at(array).places[0].first] = blame;
}

void Session::GiveUpLater(OperationId upload, ArrayHandle array) {
  const std::string what = absl::StrCat(plan_.name, " gave up upload ", upload, ", at ");
  to_give_up_.push_back({upload, what});
  Blame blame{.records = {what}};
  for (uint32_t shard = 0; shard < arrays_.at(array).devices.size(); ++shard)
    blame.shards.insert(shard);
  SetBlame(array, blame);
  ++counts_.planted;
}

// Before any wait for an answer, which may depend on these uploads.
void Session::GiveUp() {
  const auto at =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch());
  for (const auto& [upload, what] : to_give_up_)
    client_->AbandonUpload(upload, absl::AbortedError(absl::StrCat(what, at.count(), " us")));
  to_give_up_.clear();
}

// As a process that ends, while gangs of its own are in flight.
void Session::Leave() {
  left_ = true;
  for (uint64_t i = Below(4); i < 4; ++i) Call();
}

ArrayHandle Session::PickUsable() {
  if (arrays_.empty()) Upload(Placement());
  return std::next(arrays_.begin(), static_cast<ptrdiff_t>(Below(arrays_.size())))->first;
}

uint64_t Session::PickProgram(const Devices& devices) {
  const bool spans = plan_.spanning.contains(devices);
  if (!spans && (devices.size() == 1 || Below(4) != 0)) return Below(kPrograms);
  ++counts_.gangs;
  counts_.spanning += spans ? 1 : 0;
  if (plan_.plants && Below(5) == 0) return kPrograms + kGangPrograms + Below(kFailingPrograms);
  return kPrograms + Below(kGangPrograms);
}

void Session::Call() {
  const Devices devices = Placement();
  const uint64_t number = PickProgram(devices);
  const std::optional<Executable> executable = Compile(number, devices);
  if (!executable) return;
  const auto program = device::ParseSimProgram(ProgramText(number, devices));
  std::vector<ArrayHandle> arguments;
  for (size_t i = 0; i < program->inputs.size(); ++i) {
    std::vector<ArrayHandle> fitting;
    for (const auto& [handle, array] : arrays_) {
      if (array.devices == devices) fitting.push_back(handle);
    }
    arguments.push_back(fitting.empty() || Below(10) == 0 ? Upload(devices)
                                                          : random_.Pick(fitting));
  }
  std::vector<program::ValueId> inputs;
  std::vector<std::vector<Place>> places;
  Blame blame;
  for (ArrayHandle argument : arguments) {
    inputs.push_back(arrays_.at(argument).value);
    places.push_back(arrays_.at(argument).places);
  }
  std::vector<GatheredArgument> gathered;
  if (Below(4) == 0) {  // the first argument's shards, each from any array that has one there
    gathered.push_back({0, Gather(devices, places[0], inputs[0], blame)});
    arguments[0] = {};
  }
  for (ArrayHandle argument : arguments) {
    if (argument != ArrayHandle()) blame.Add(BlameOf(arrays_.at(argument)));
  }
  // A member that fails for its input leaves the others in a collective of the runtime, and its worker ends.
  if (program->collective && !blame.records.empty() && !plan_.may_fail) return;
  std::vector<uint32_t> keep, donated;
  const std::vector<Place> taken = places[0];
  if (program->donated_input[0] == 0) {
    const bool shared = arguments.size() > 1 && Share(places[1], taken);
    (shared || Below(3) == 0 ? keep : donated).push_back(0);
  }
  const auto result_count = static_cast<uint32_t>(program->outputs.size());
  const program::ValueId first =
      program_.AddCall(absl::StrCat("p/", number), inputs, donated, result_count, devices);
  std::vector<ArrayHandle> results;
  if (IsFailing(number)) {
    const auto failing = std::ranges::find(devices, static_cast<uint32_t>(program->failing_device));
    blame.Add({{FailureOf(number, devices)}, {static_cast<uint32_t>(failing - devices.begin())}});
  }
  for (uint32_t r = 0; r < result_count; ++r) {
    results.push_back(Add(first + r, devices));
    SetBlame(results.back(), blame);
  }
  counts_.planted += IsFailing(number) ? 1 : 0;
  counts_.slow += program->slow_us > 0 ? 1 : 0;
  *plan_.slow += std::chrono::microseconds(program->slow_us);
  MayLookFor(client_->Call(executable->handle, arguments, results,
                           {.keep = keep, .gathered = gathered, .ended = ToldEnd("a call")}));
  ++counts_.calls;
  if (!donated.empty()) Consume(taken);
}

// One array, or several with as many shards, of which some may be named twice.
std::vector<ArrayHandle> Session::PickToCopy() {
  std::vector<ArrayHandle> sources = {PickUsable()};
  const size_t shards = arrays_.at(sources[0]).devices.size();
  for (uint64_t i = Below(2) * Below(6); i > 0; --i) {
    const ArrayHandle other = PickUsable();
    if (arrays_.at(other).devices.size() == shards) sources.push_back(other);
  }
  return sources;
}

// Arrays that are copied together fail apart: none meets a failure of another one (ER-1).
void Session::Copy() {
  const std::vector<ArrayHandle> sources = PickToCopy();
  Devices target(plan_.device_count);
  std::iota(target.begin(), target.end(), 0u);
  for (size_t i = target.size(); i > 1; --i) std::swap(target[i - 1], target[Below(i)]);
  target.resize(arrays_.at(sources[0]).devices.size());
  for (int i = 0; i < 8 && Below(8) != 0; ++i) {  // mostly to devices where programs run
    if (const Devices& placement = Placement(); placement.size() == target.size())
      target = placement;
  }
  std::vector<ArrayHandle> results;
  for (ArrayHandle source : sources) {
    const Blame blame = BlameOf(arrays_.at(source));
    results.push_back(Add(program_.AddTransfer(arrays_.at(source).value, target), target));
    SetBlame(results.back(), blame);
  }
  MayLookFor(client_->Copy(sources, results, target, "", ToldEnd("a copy")));
  counts_.copies += results.size();
}

// Makes a new array from selected shards of one or two arrays.
void Session::Regroup() {
  std::vector<ArrayHandle> sources = {PickUsable()};
  if (const ArrayHandle other = PickUsable(); other != sources[0]) sources.push_back(other);
  Client::Regrouped regrouped;
  Array array;
  std::vector<program::ValueId> inputs;
  std::vector<uint32_t> shards;
  for (ArrayHandle handle : sources) {
    const Array& source = arrays_.at(handle);
    array.sources.merge(BlameOf(source).records);
    for (uint32_t shard = 0; shard < source.devices.size(); ++shard) {
      const bool there = std::ranges::count(array.devices, source.devices[shard]) > 0;
      if (there || (Below(3) == 0 && !array.devices.empty())) continue;
      array.devices.push_back(source.devices[shard]);
      regrouped.shards.push_back({handle, shard});
      array.places.push_back(source.places[shard]);
      inputs.push_back(source.value);
      shards.push_back(shard);
    }
  }
  array.value = program_.AddView(inputs, shards, array.devices);
  regrouped.array = client_->NewArrayHandle();
  arrays_[regrouped.array] = array;
  client_->Regroup({std::move(regrouped)});
}

void Session::Fetch() {
  const ArrayHandle handle = PickUsable();
  const Array& array = arrays_.at(handle);
  program_.AddResult(array.value);
  const uint32_t result = result_count_++;
  for (uint32_t shard = 0; shard < array.devices.size(); ++shard) {
    auto question = Ask(absl::StrCat("fetch ", result, " of shard ", shard), Good());
    question->result = result;
    question->shard = shard;
    question->bytes.resize(plan_.elements * 4);
    AskAbout(*question, handle, {shard});
    // The shard may be read before its gang fails elsewhere.
    if (!question->blame.empty()) question->allowed = Allowed::kEither;
    client_->Fetch(handle, {shard},
                   {.on_data =
                        [question](size_t, uint64_t offset, std::string_view data) {
                          std::memcpy(question->bytes.data() + offset, data.data(), data.size());
                        },
                    .on_done = Answered(question)});
    fetches_.push_back(question);
    if (Below(4) == 0) Check(*question);
  }
}

void Session::AwaitSome() {
  std::vector<ArrayHandle> handles;
  for (uint64_t i = Below(4); i < 4; ++i) handles.push_back(PickUsable());
  const std::shared_ptr<Question> question = Await(handles);
  others_.push_back(question);
  if (Below(2) == 0) Check(*question);
}

std::shared_ptr<Session::Question> Session::Await(const std::vector<ArrayHandle>& handles) {
  auto question = Ask("an await", Good());
  if (handles.size() == 1) {
    std::vector<uint32_t> shards(arrays_.at(handles[0]).devices.size());
    std::iota(shards.begin(), shards.end(), 0u);
    AskAbout(*question, handles[0], shards);
  }
  bool is_spoiled = false;
  for (ArrayHandle handle : handles) {
    question->blame.merge(BlameOf(arrays_.at(handle)).records);
    is_spoiled |= IsSpoiled(arrays_.at(handle));
  }
  if (!question->blame.empty()) question->allowed = is_spoiled ? Allowed::kBad : Allowed::kEither;
  client_->Await(handles, Answered(question));
  return question;
}

// Every array that was good once: long enough after the last kill, each must be lost or good.
void Session::AwaitWhatWasGood() {
  if (*lost_) return;
  Answer<bool>().WaitFor(2 * kLossKnown);
  std::vector<std::shared_ptr<Question>> questions;
  for (const auto& [handle, array] : arrays_) {
    if (array.known) questions.push_back(Await({handle}));
  }
  for (const auto& question : questions) Check(*question);
}

void Session::Drop(bool consume) {
  if (arrays_.empty()) return;
  const ArrayHandle handle = PickUsable();
  if (!consume && Below(3) == 0) return DropOneShard();
  const std::vector<Place> places = arrays_.at(handle).places;
  arrays_.erase(handle);
  if (consume) {
    client_->Delete(std::vector{handle});
    Consume(places);
  } else {
    client_->Drop(std::vector{handle});
  }
}

// A view of the shards of an array that are not among `gone`, if there are any.
void Session::KeepRest(ArrayHandle handle, const Array& array, const std::vector<Place>& gone) {
  Client::Regrouped rest;
  Array view{.sources = BlameOf(array).records};
  std::vector<uint32_t> shards;
  for (uint32_t shard = 0; shard < array.devices.size(); ++shard) {
    if (std::ranges::count(gone, array.places[shard]) != 0) continue;
    rest.shards.push_back({handle, shard});
    view.devices.push_back(array.devices[shard]);
    view.places.push_back(array.places[shard]);
    shards.push_back(shard);
  }
  if (rest.shards.empty()) return;
  std::vector<program::ValueId> inputs(shards.size(), array.value);
  view.value = program_.AddView(std::move(inputs), std::move(shards), view.devices);
  rest.array = client_->NewArrayHandle();
  arrays_[rest.array] = std::move(view);
  client_->Regroup({std::move(rest)});
}

// Drops one shard of an array, or some or all, one by one. A view holds those after the first (OB-1).
void Session::DropOneShard() {
  const ArrayHandle handle = PickUsable();
  const Array array = arrays_.at(handle);
  const auto count = static_cast<uint32_t>(array.devices.size());
  const auto first = static_cast<uint32_t>(Below(count));
  client_->DropShard({handle, first}, count);
  arrays_.erase(handle);
  KeepRest(handle, array, {array.places[first]});
  for (uint32_t shard = 0; shard < count; ++shard) {
    if (shard == first) continue;
    if (Below(4) == 0) return partly_dropped_.push_back(handle);
    client_->DropShard({handle, shard}, count);
  }
}

// A shard for each device, out of arrays that are usable.
std::vector<ShardOf> Session::Gather(const Devices& devices, std::vector<Place>& places,
                                     program::ValueId& value, Blame& blame) {
  std::vector<ShardOf> shards;
  std::vector<program::ValueId> inputs;
  std::vector<uint32_t> numbers;
  places.clear();
  for (uint32_t device : devices) {
    std::vector<ShardOf> fitting;
    for (const auto& [handle, array] : arrays_) {
      for (uint32_t shard = 0; shard < array.devices.size(); ++shard) {
        if (array.devices[shard] == device) fitting.push_back({handle, shard});
      }
    }
    if (fitting.empty()) fitting.push_back({Upload({device}), 0});
    const ShardOf& shard = random_.Pick(fitting);
    const Array& array = arrays_.at(shard.array);
    inputs.push_back(array.value);
    numbers.push_back(shard.shard);
    places.push_back(array.places[shard.shard]);
    const Blame own = BlameOf(array);
    blame.Add({.records = own.records});
    if (own.shards.contains(shard.shard)) blame.shards.insert(static_cast<uint32_t>(shards.size()));
    shards.push_back(shard);
  }
  value = program_.AddView(std::move(inputs), std::move(numbers), devices);
  return shards;
}

// Arrays that share one of these shards are not usable any more, but their other shards are.
void Session::Consume(const std::vector<Place>& taken) {
  std::vector<std::pair<ArrayHandle, Array>> sharing;
  std::erase_if(arrays_, [&](const auto& entry) {
    if (!Share(entry.second.places, taken)) return false;
    sharing.push_back(entry);
    return true;
  });
  for (const auto& [handle, array] : sharing) {
    if (Below(2) == 0) KeepRest(handle, array, taken);
    if (Below(2) == 0) {
      client_->Drop(std::vector{handle});
    } else {
      consumed_.insert(handle);
    }
  }
}

// --- Mistakes, which must be rejected and spoil nothing else ---

void Session::BadArray(ArrayHandle handle, const std::string& what) {
  auto question = Ask(absl::StrCat("an await of ", what), Allowed::kBad);
  client_->Await(std::vector{handle}, Answered(question));
  others_.push_back(question);
  consumed_.insert(handle);
}

void Session::Mistake() {
  const ArrayHandle result = client_->NewArrayHandle();
  const ArrayHandle unknown{NumberOf(result) + 1'000'000'000};
  switch (Below(8)) {
    case 0: {  // an unknown argument
      if (executables_.empty()) return;
      client_->Call(executables_.begin()->second.handle, std::vector{PickUsable(), unknown},
                    std::vector{result});
      return BadArray(result, "a call of an unknown array");
    }
    case 1:  // an unknown executable
      client_->Call(ExecutableHandle(987654321), std::vector{PickUsable()}, std::vector{result});
      return BadArray(result, "a call of an unknown executable");
    case 2:  // an unknown device
      client_->Copy(std::vector{PickUsable()}, std::vector{result}, std::vector<uint32_t>{99}, "");
      return BadArray(result, "a copy to an unknown device");
    case 3:  // shards that are not there
      client_->Regroup({{result, {{PickUsable(), 1000}, {unknown, 0}}}});
      return BadArray(result, "shards that are not there");
    case 4:  // an array that is gone, unless the call that took it was rejected
      if (consumed_.empty() || plan_.may_fail || !blame_.empty()) return;
      return BadArray(*consumed_.begin(), "an array that is gone");
    case 5:  // an unknown program
      client().Launch(ProgramHandle(987654321), std::vector{PickUsable()}, std::vector{result});
      return BadArray(result, "a launch of an unknown program");
    case 6:  // an argument too many
      if (programs_.empty() || programs_[0].graph.result_count() != 1) return;
      client().Launch(programs_[0].handle,
                      std::vector(programs_[0].arguments.size() + 1, PickUsable()),
                      std::vector{result});
      return BadArray(result, "a launch with an argument too many");
    default: {  // a fetch of nothing
      auto question = Ask("a fetch of an unknown array", Allowed::kBad);
      client_->Fetch(
          unknown, {0},
          {.on_data = [](size_t, uint64_t, std::string_view) {}, .on_done = Answered(question)});
      others_.push_back(question);
    }
  }
}

}  // namespace gangway::simulation
