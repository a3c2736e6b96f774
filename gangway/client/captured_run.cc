// Implementation of captured_run.h.
#include "gangway/client/captured_run.h"

#include <algorithm>
#include <cstring>

namespace gangway::client {
namespace {

// What the words of a key say. A value is 2k for argument k, and 2j + 1 for the j-th value that a node makes.
enum Word : uint32_t {
  kExecutable,  // low, high: the next entry of the table
  kDevices,     // count, devices: likewise
  kMemoryKind,  // bytes, the bytes in whole words: likewise; the first entry, "", is always there
  kCall,        // executable, list of inputs, list of those to keep, number of outputs
  kTransfer,    // input, devices, memory kind
  kView,        // list of inputs, list of shards
  kResults,     // list of values, and last of all words the number of arguments
};

constexpr uint32_t kGone = UINT32_MAX;  // instead of a value: what was dropped
constexpr size_t kTableScanMax = 64;    // later lists of devices are not compared with each other

uint32_t Argument(size_t index) { return static_cast<uint32_t>(2 * index); }
uint32_t Made(size_t index) { return static_cast<uint32_t>(2 * index + 1); }

template <typename List>
void WriteList(const List& list, std::vector<uint32_t>& words) {
  words.push_back(static_cast<uint32_t>(list.size()));
  words.insert(words.end(), list.begin(), list.end());
}

// Reads what CapturedRun wrote.
class Words {
 public:
  explicit Words(std::string_view key) : words_(key.size() / sizeof(uint32_t)) {
    std::memcpy(words_.data(), key.data(), key.size());
    arguments_ = words_.back();
  }

  uint32_t arguments() const { return arguments_; }
  Word NextKind() { return static_cast<Word>(Next()); }
  uint32_t Next() { return words_[at_++]; }
  uint32_t NextValue() { return Value(Next()); }
  template <typename List>
  void NextList(List& list) {
    for (uint32_t count = Next(); count > 0; --count) list.Add(Next());
  }
  template <typename List>
  void NextValues(List& list) {
    for (uint32_t count = Next(); count > 0; --count) list.Add(NextValue());
  }
  std::string NextText() {
    const uint32_t bytes = Next();
    std::string text(bytes, '\0');
    std::memcpy(text.data(), &words_[at_], bytes);
    at_ += (bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t);
    return text;
  }

 private:
  uint32_t Value(uint32_t word) const { return word % 2 == 0 ? word / 2 : arguments_ + word / 2; }

  std::vector<uint32_t> words_;
  size_t at_ = 0;
  uint32_t arguments_ = 0;
};

}  // namespace

bool CapturedRun::Takes(const wire::Op& op) {
  switch (op.op_case()) {
    case wire::Op::kCall:
      return op.call().callback_depth() == 0;
    case wire::Op::kCopy:
    case wire::Op::kRegroup:
    case wire::Op::kDrop:
    case wire::Op::kDropShards:
    case wire::Op::kTellEnds:
      return true;
    default:
      return false;
  }
}

uint64_t CapturedRun::NodesOf(const wire::Op& op) {
  if (op.has_call()) return 1;
  if (!op.has_copy()) return 0;
  return static_cast<uint64_t>(std::min(op.copy().sources_size(), op.copy().results_size()));
}

uint64_t CapturedRun::ProgramNodesOf(const wire::Op& op) {
  if (op.has_call()) return 1 + static_cast<uint64_t>(op.call().gathered_size());
  if (op.has_regroup()) return static_cast<uint64_t>(op.regroup().results_size());
  return NodesOf(op);
}

void CapturedRun::Clear() {
  words_.clear();
  nodes_ = program_nodes_ = 0;
  values_.clear();
  arguments_.clear();
  defined_.clear();
  internal_.clear();
  dropped_.clear();
  executables_.clear();
  executable_index_.clear();
  device_lists_.clear();
  memory_kinds_.assign(1, "");
}

bool CapturedRun::Read(const Ops& ops, const Limits& limits) {
  Clear();
  const size_t words_max = limits.key_bytes / sizeof(uint32_t);
  for (const wire::Op& op : ops) {
    if (!ReadOp(op) || program_nodes_ > limits.nodes || words_.size() > words_max) return false;
  }
  std::vector<uint32_t>& results = inputs_;
  results.clear();
  for (size_t i = 0; i < defined_.size(); ++i)
    if (!defined_[i].is_dropped) results.push_back(Made(i));
  Write(kResults);
  WriteList(results, words_);
  Write(static_cast<uint32_t>(arguments_.size()));
  return words_.size() <= words_max;
}

bool CapturedRun::ReadOp(const wire::Op& op) {
  switch (op.op_case()) {
    case wire::Op::kCall:
      return op.call().callback_depth() == 0 && ReadCall(op.call());
    case wire::Op::kCopy:
      return ReadCopy(op.copy());
    case wire::Op::kRegroup:
      return ReadRegroup(op.regroup());
    case wire::Op::kDrop:
      ReadDrop(op.drop());
      return true;
    default:
      return op.has_drop_shards() || op.has_tell_ends();
  }
}

// --- Nodes ---

bool CapturedRun::ReadCall(const wire::CallOp& call) {
  inputs_.clear();
  for (const uint64_t array : call.arguments()) {
    if (array == 0) {
      inputs_.push_back(kGone);  // a gathered one
      continue;
    }
    const std::optional<uint32_t> value = Use(array);
    if (!value) return false;
    inputs_.push_back(*value);
  }
  if (!ReadGathered(call) || std::ranges::find(inputs_, kGone) != inputs_.end()) return false;
  const uint32_t executable = ExecutableIndex(call.executable());
  Write(kCall);
  Write(executable);
  WriteList(inputs_, words_);
  WriteList(call.keep(), words_);
  Write(static_cast<uint32_t>(call.results_size()));
  ++nodes_;
  ++program_nodes_;
  return std::ranges::all_of(call.results(), [this](uint64_t array) { return Define(array); });
}

bool CapturedRun::ReadGathered(const wire::CallOp& call) {
  for (const wire::GatheredArgument& gathered : call.gathered()) {
    if (gathered.argument() >= inputs_.size() || inputs_[gathered.argument()] != kGone)
      return false;
    const std::optional<uint32_t> view = ReadView(gathered.arrays(), gathered.shards());
    if (!view) return false;
    inputs_[gathered.argument()] = *view;
  }
  return true;
}

template <typename Arrays, typename Shards>
std::optional<uint32_t> CapturedRun::ReadView(const Arrays& arrays, const Shards& shards) {
  if (arrays.size() == 0 || arrays.size() != shards.size()) return std::nullopt;
  Write(kView);
  Write(static_cast<uint32_t>(arrays.size()));
  for (const uint64_t array : arrays) {
    const std::optional<uint32_t> value = Use(array);
    if (!value) return std::nullopt;
    Write(*value);
  }
  WriteList(shards, words_);
  ++program_nodes_;
  defined_.push_back({.array = 0, .is_dropped = true});  // no handle names it
  return Made(defined_.size() - 1);
}

bool CapturedRun::ReadCopy(const wire::CopyOp& copy) {
  if (copy.sources_size() != copy.results_size()) return false;
  const uint32_t devices = DevicesIndex(copy), kind = KindIndex(copy.memory_kind());
  for (int i = 0; i < copy.sources_size(); ++i) {
    const std::optional<uint32_t> source = Use(copy.sources(i));
    if (!source || !Define(copy.results(i))) return false;
    Write(kTransfer);
    Write(*source);
    Write(devices);
    Write(kind);
  }
  nodes_ += static_cast<uint64_t>(copy.sources_size());
  program_nodes_ += static_cast<uint64_t>(copy.sources_size());
  return true;
}

bool CapturedRun::ReadRegroup(const wire::RegroupOp& regroup) {
  for (const wire::RegroupOp::Result& result : regroup.results()) {
    std::vector<uint64_t> arrays;
    std::vector<uint32_t> shards;
    for (const wire::RegroupOp::Shard& shard : result.shards()) {
      arrays.push_back(shard.array());
      shards.push_back(shard.shard());
    }
    if (result.replica_of() != 0) {
      if (!arrays.empty()) return false;
      const std::optional<uint32_t> value = Use(result.replica_of());
      if (!value) return false;
      words_.insert(words_.end(), {kView, 1, *value, 0});
      ++program_nodes_;
    } else if (ReadView(arrays, shards)) {
      defined_.pop_back();  // it has a handle
    } else {
      return false;
    }
    if (!Define(result.array())) return false;
  }
  return true;
}

void CapturedRun::ReadDrop(const wire::DropOp& drop) {
  for (const uint64_t array : drop.handles()) {
    const auto [entry, is_new] = values_.try_emplace(array, kGone);
    const uint32_t value = std::exchange(entry->second, kGone);
    if (!is_new && value != kGone && value % 2 == 1) {
      defined_[value / 2].is_dropped = true;
      internal_.insert(array);
    } else if (is_new || value != kGone) {
      dropped_.push_back(array);
    }
  }
}

// --- Tables ---

std::optional<uint32_t> CapturedRun::Use(uint64_t array) {
  if (array == 0) return std::nullopt;
  const auto [entry, is_new] = values_.try_emplace(array, Argument(arguments_.size()));
  if (is_new) arguments_.push_back(array);
  return entry->second == kGone ? std::nullopt : std::optional(entry->second);
}

bool CapturedRun::Define(uint64_t array) {
  const bool is_new = values_.try_emplace(array, Made(defined_.size())).second;
  defined_.push_back({.array = array, .is_dropped = false});
  return is_new && array != 0;
}

uint32_t CapturedRun::ExecutableIndex(uint64_t executable) {
  const auto [entry, is_new] =
      executable_index_.try_emplace(executable, static_cast<uint32_t>(executables_.size()));
  if (is_new) {
    executables_.push_back(executable);
    Write(kExecutable);
    Write(static_cast<uint32_t>(executable));
    Write(static_cast<uint32_t>(executable >> 32));
  }
  return entry->second;
}

uint32_t CapturedRun::DevicesIndex(const wire::CopyOp& copy) {
  const size_t compared = std::min(device_lists_.size(), kTableScanMax);
  for (size_t i = 0; i < compared; ++i)
    if (std::ranges::equal(device_lists_[i], copy.devices())) return static_cast<uint32_t>(i);
  device_lists_.emplace_back(copy.devices().begin(), copy.devices().end());
  Write(kDevices);
  WriteList(copy.devices(), words_);
  return static_cast<uint32_t>(device_lists_.size() - 1);
}

// There are a few kinds of memory.
uint32_t CapturedRun::KindIndex(const std::string& memory_kind) {
  const size_t compared = std::min(memory_kinds_.size(), kTableScanMax);
  for (size_t i = 0; i < compared; ++i)
    if (memory_kinds_[i] == memory_kind) return static_cast<uint32_t>(i);
  memory_kinds_.push_back(memory_kind);
  Write(kMemoryKind);
  Write(static_cast<uint32_t>(memory_kind.size()));
  const size_t begin = words_.size();
  words_.resize(begin + (memory_kind.size() + sizeof(uint32_t) - 1) / sizeof(uint32_t));
  std::memcpy(&words_[begin], memory_kind.data(), memory_kind.size());
  return static_cast<uint32_t>(memory_kinds_.size() - 1);
}

// --- What is made of it ---

std::string_view CapturedRun::key() const {
  return {reinterpret_cast<const char*>(words_.data()), words_.size() * sizeof(uint32_t)};
}

void CapturedRun::MakeLaunch(uint64_t program, wire::LaunchOp& launch) const {
  launch.set_program(program);
  launch.mutable_arguments()->Add(arguments_.begin(), arguments_.end());
  for (const Defined& value : defined_)
    if (!value.is_dropped) launch.add_results(value.array);
  launch.set_nodes(static_cast<uint32_t>(nodes_));
}

void CapturedRun::TakeRest(Ops& run, Ops& rest) const {
  for (wire::Op& op : run) {
    if (op.has_drop_shards()) {
      auto& arrays = *op.mutable_drop_shards()->mutable_arrays();
      const auto kept = std::stable_partition(
          arrays.begin(), arrays.end(),
          [this](const auto& shards) { return !internal_.contains(shards.array()); });
      arrays.erase(kept, arrays.end());
      if (!arrays.empty()) rest.Add()->Swap(&op);
    } else if (op.has_tell_ends()) {
      rest.Add()->Swap(&op);
    }
  }
  if (!dropped_.empty())
    rest.Add()->mutable_drop()->mutable_handles()->Add(dropped_.begin(), dropped_.end());
}

void CapturedRun::ToProgram(std::string_view key, wire::Program& program) {
  Words words(key);
  std::vector<std::string> memory_kinds(1);
  program.set_arguments(words.arguments());
  for (Word kind = words.NextKind(); kind != kResults; kind = words.NextKind()) {
    switch (kind) {
      case kExecutable: {
        const uint64_t low = words.Next();
        program.add_executables(low | uint64_t{words.Next()} << 32);
        break;
      }
      case kDevices:
        words.NextList(*program.add_device_lists()->mutable_devices());
        break;
      case kMemoryKind:
        memory_kinds.push_back(words.NextText());
        break;
      case kCall: {
        wire::ProgramCall& call = *program.add_nodes()->mutable_call();
        call.set_executable(words.Next());
        words.NextValues(*call.mutable_inputs());
        words.NextList(*call.mutable_keep());
        call.set_outputs(words.Next());
        break;
      }
      case kTransfer: {
        wire::ProgramTransfer& transfer = *program.add_nodes()->mutable_transfer();
        transfer.set_input(words.NextValue());
        transfer.set_devices(words.Next());
        transfer.set_memory_kind(memory_kinds[words.Next()]);
        break;
      }
      case kView: {
        wire::ProgramView& view = *program.add_nodes()->mutable_view();
        words.NextValues(*view.mutable_inputs());
        words.NextList(*view.mutable_shards());
        break;
      }
      case kResults:
        break;
    }
  }
  words.NextValues(*program.mutable_results());
}

}  // namespace gangway::client
