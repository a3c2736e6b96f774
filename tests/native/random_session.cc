// Implementation of random_session.h.
#include "tests/native/random_session.h"

#include <cstring>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/program/passes.h"

namespace gangway::e2e {
namespace {

constexpr int32_t kU32 = 8;      // XLA PrimitiveType
constexpr size_t kElements = 4;  // of one shard
constexpr uint64_t kShardBytes = kElements * sizeof(uint32_t);

using Shard = std::array<uint32_t, kElements>;

Shard FromBytes(const std::string& bytes) {
  Shard shard;
  std::memcpy(shard.data(), bytes.data(), kShardBytes);
  return shard;
}

std::string ToBytes(const Shard& shard) {
  return std::string(reinterpret_cast<const char*>(shard.data()), kShardBytes);
}

// StableHLO of a function. mix: x, y -> 3x + y, donates x. split: x -> x + 7, x * x. gather: x -> x +
// the sum of its elements on all devices.
std::string Text(const std::string& name, size_t devices) {
  const std::string type = absl::StrCat("tensor<", kElements * devices, "xui32>");
  const std::string sharding =
      devices == 1 ? ""
                   : absl::StrCat("mhlo.sharding = \"{devices=[", devices, "]<=[", devices, "]}\"");
  const std::string attributes = sharding.empty() ? "" : absl::StrCat(" {", sharding, "}");
  const std::string donated =
      absl::StrCat(" {tf.aliasing_output = 0 : i32", sharding.empty() ? "" : ", ", sharding, "}");
  std::string body, signature;
  auto constant = [&](const char* id, int value) {
    return absl::StrCat("%", id, " = stablehlo.constant dense<", value, "> : ", type, "\n");
  };
  auto binary = [&](const char* id, const char* op, const char* a, const char* b) {
    return absl::StrCat("%", id, " = stablehlo.", op, " %", a, ", %", b, " : ", type, "\n");
  };
  const std::string result = absl::StrCat(type, attributes);
  if (name == "mix") {
    signature =
        absl::StrCat("(%x: ", type, donated, ", %y: ", type, attributes, ") -> (", result, ")");
    body = constant("c", 3) + binary("t", "multiply", "x", "c") + binary("r", "add", "t", "y") +
           absl::StrCat("return %r : ", type);
  } else if (name == "split") {
    signature = absl::StrCat("(%x: ", type, attributes, ") -> (", result, ", ", result, ")");
    body = constant("c", 7) + binary("r", "add", "x", "c") + binary("s", "multiply", "x", "x") +
           absl::StrCat("return %r, %s : ", type, ", ", type);
  } else {
    signature = absl::StrCat("(%x: ", type, attributes, ") -> (", result, ")");
    body = absl::StrCat(
               "%z = stablehlo.constant dense<0> : tensor<ui32>\n"
               "%sum = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] "
               ": (",
               type,
               ", tensor<ui32>) -> tensor<ui32>\n%b = stablehlo.broadcast_in_dim %sum, dims = [] "
               ": (tensor<ui32>) -> ",
               type, "\n") +
           binary("r", "add", "x", "b") + absl::StrCat("return %r : ", type);
  }
  return absl::StrCat("module @", name, " attributes {mhlo.num_partitions = ", devices,
                      " : i32, mhlo.num_replicas = 1 : i32} { func.func public @main", signature,
                      " {\n", body, "\n} }");
}

using Outputs = std::vector<std::vector<std::string>>;

Outputs EvaluateNamed(const std::string& name, const std::vector<const program::Array*>& inputs) {
  const size_t count = inputs[0]->shards.size();
  Outputs outputs(name == "split" ? 2 : 1, std::vector<std::string>(count));
  uint32_t sum = 0;
  for (const std::string& bytes : inputs[0]->shards) {
    const Shard shard = FromBytes(bytes);
    sum = std::accumulate(shard.begin(), shard.end(), sum);
  }
  for (size_t i = 0; i < count; ++i) {
    const Shard x = FromBytes(inputs[0]->shards[i]);
    Shard first{}, second{};
    for (size_t e = 0; e < kElements; ++e) {
      if (name == "mix") first[e] = 3 * x[e] + FromBytes(inputs[1]->shards[i])[e];
      if (name == "split") first[e] = x[e] + 7;
      if (name == "gather") first[e] = x[e] + sum;
      second[e] = x[e] * x[e];
    }
    outputs[0][i] = ToBytes(first);
    if (name == "split") outputs[1][i] = ToBytes(second);
  }
  return outputs;
}

// Evaluates a call by its recorded name: "mix", "split" or "gather".
absl::StatusOr<Outputs> Evaluate(const program::Call& call,
                                 const std::vector<const program::Array*>& inputs) {
  return EvaluateNamed(call.function, inputs);
}

}  // namespace

// Devices of one worker, as programs need; copies may go to any devices.
const RandomSession::Devices& RandomSession::Placement() {
  static const std::vector<Devices> placements = {{0},    {3},    {4},    {6},
                                                  {0, 1}, {3, 2}, {4, 5}, {6, 7}};
  return placements[Below(placements.size())];
}

void RandomSession::Run(int count, const std::function<void()>& step) {
  for (int i = 0; i < count; ++i) {
    step();
    const uint64_t dice = arrays_.size() > 24 ? 99 : Below(100);
    if (dice < 12) {
      Upload(Placement());
    } else if (dice < 50) {
      Call();
    } else if (dice < 64) {
      Copy();
    } else if (dice < 72) {
      Regroup();
    } else if (dice < 88) {
      Fetch();
    } else {
      Drop(/*consume=*/dice < 91);
    }
  }
}

std::optional<ExecutableHandle> RandomSession::Compile(const std::string& name,
                                                       const Devices& devices) {
  auto [it, is_new] = executables_.try_emplace({name, devices});
  if (!is_new) return it->second;
  xla::CompileOptionsProto options;
  auto* build = options.mutable_executable_build_options();
  build->set_num_replicas(1);
  build->set_num_partitions(static_cast<int>(devices.size()));
  build->set_use_spmd_partitioning(true);
  auto compiled = std::make_shared<Arrival<absl::Status>>();
  const ExecutableHandle handle =
      client_->Compile(Text(name, devices.size()), "mlir", options.SerializeAsString(), devices,
                       [compiled, timed = Timed()](auto info) {
                         timed();
                         compiled->Set(info.status());
                       });
  const absl::Status status = compiled->Wait().value_or(Late());
  if (status.ok()) {
    it->second = handle;
  } else {
    Check(status, absl::StrCat(name, " on ", devices.size(), " devices"));
    executables_.erase(it);
    return std::nullopt;
  }
  return it->second;
}

ArrayHandle RandomSession::Add(program::ValueId value, Devices devices,
                               std::set<uint64_t> storages) {
  const ArrayHandle handle = client_->NewArrayHandle();
  arrays_[handle] = {
      .value = value, .devices = std::move(devices), .storages = std::move(storages)};
  return handle;
}

ArrayHandle RandomSession::Upload(const Devices& devices) {
  const ArrayHandle handle = Add(program_.AddArgument(devices), devices, {next_storage_++});
  const ArraySpec spec{.element_type = kU32,
                       .shard_dims = {static_cast<int64_t>(kElements)},
                       .devices = devices,
                       .shard_bytes = kShardBytes};
  program::Array argument{.devices = devices};
  for (uint32_t shard = 0; shard < devices.size(); ++shard) {
    Shard values;
    for (uint32_t& value : values) value = static_cast<uint32_t>(random_());
    argument.shards.push_back(ToBytes(values));
  }
  if (Below(2) == 0) {
    const std::vector<std::string_view> shards(argument.shards.begin(), argument.shards.end());
    client_->Put(handle, spec, shards);
  } else {
    const OperationId upload = client_->Upload(handle, spec);
    for (uint32_t shard = 0; shard < devices.size(); ++shard) {
      auto bytes = std::make_shared<std::string>(argument.shards[shard]);
      client_->Push(upload, shard, *bytes, [bytes] {});
    }
  }
  arguments_.push_back(std::move(argument));
  return handle;
}

ArrayHandle RandomSession::PickUsable() {
  if (arrays_.empty()) Upload(Placement());
  return std::next(arrays_.begin(), static_cast<ptrdiff_t>(Below(arrays_.size())))->first;
}

void RandomSession::Call() {
  const Devices devices = Placement();
  const std::string name = std::vector<std::string>{"mix", "split", "gather"}[Below(3)];
  const std::optional<ExecutableHandle> executable = Compile(name, devices);
  if (!executable) return;
  std::vector<ArrayHandle> arguments;
  for (int i = 0; i < (name == "mix" ? 2 : 1); ++i) {
    std::vector<ArrayHandle> fitting;
    for (const auto& [handle, array] : arrays_) {
      if (array.devices == devices) fitting.push_back(handle);
    }
    arguments.push_back(fitting.empty() || Below(10) == 0 ? Upload(devices)
                                                          : fitting[Below(fitting.size())]);
  }
  std::vector<program::ValueId> inputs;
  for (ArrayHandle argument : arguments) inputs.push_back(arrays_.at(argument).value);
  std::vector<uint32_t> keep, donated;
  const std::set<uint64_t> taken = arrays_.at(arguments[0]).storages;
  if (name == "mix") {
    const std::set<uint64_t>& other = arrays_.at(arguments[1]).storages;
    const bool shared = std::any_of(other.begin(), other.end(),
                                    [&taken](uint64_t id) { return taken.count(id) != 0; });
    (shared || Below(3) == 0 ? keep : donated).push_back(0);
  }
  const uint32_t result_count = name == "split" ? 2 : 1;
  const program::ValueId first = program_.AddCall(name, inputs, donated, result_count, devices);
  std::vector<ArrayHandle> results;
  for (uint32_t r = 0; r < result_count; ++r)
    results.push_back(Add(first + r, devices, {next_storage_++}));
  client_->Call(*executable, arguments, results, {.keep = keep});
  ++call_count_;
  if (!donated.empty()) Consume(taken);
}

void RandomSession::Copy() {
  const ArrayHandle source = PickUsable();
  Devices everywhere(client_->cluster().devices.size());
  std::iota(everywhere.begin(), everywhere.end(), 0u);
  std::shuffle(everywhere.begin(), everywhere.end(), random_);
  everywhere.resize(arrays_.at(source).devices.size());
  for (int i = 0; i < 8 && Below(8) != 0; ++i) {  // mostly to devices where programs run
    const Devices& placement = Placement();
    if (placement.size() == everywhere.size()) everywhere = placement;
  }
  const program::ValueId value = program_.AddTransfer(arrays_.at(source).value, everywhere);
  const ArrayHandle result = Add(value, everywhere, {next_storage_++});
  client_->Copy(std::vector{source}, std::vector{result}, everywhere, "");
  ++copy_count_;
}

// Makes a new array from selected shards of one or two arrays.
void RandomSession::Regroup() {
  std::vector<ArrayHandle> sources = {PickUsable()};
  if (ArrayHandle other = PickUsable(); other != sources[0]) sources.push_back(other);
  Client::Regrouped regrouped;
  Array array;
  std::vector<program::ValueId> inputs;
  std::vector<uint32_t> shards;
  for (const ArrayHandle handle : sources) {
    const Array& source = arrays_.at(handle);
    for (uint32_t shard = 0; shard < source.devices.size(); ++shard) {
      const bool there =
          std::count(array.devices.begin(), array.devices.end(), source.devices[shard]) > 0;
      if (there || (Below(3) == 0 && !array.devices.empty())) continue;
      array.devices.push_back(source.devices[shard]);
      regrouped.shards.push_back({handle, shard});
      inputs.push_back(source.value);
      shards.push_back(shard);
    }
    array.storages.insert(source.storages.begin(), source.storages.end());
  }
  array.value = program_.AddView(std::move(inputs), std::move(shards), array.devices);
  regrouped.array = client_->NewArrayHandle();
  arrays_[regrouped.array] = array;
  client_->Regroup({std::move(regrouped)});
}

void RandomSession::Fetch() {
  const ArrayHandle handle = PickUsable();
  const Array& array = arrays_.at(handle);
  program_.AddResult(array.value);
  const uint32_t result = result_count_++;
  for (uint32_t shard = 0; shard < array.devices.size(); ++shard) {
    Fetched fetched{.result = result,
                    .shard = shard,
                    .bytes = std::make_shared<std::string>(),
                    .done = std::make_shared<Arrival<absl::Status>>()};
    client_->Fetch(handle, {shard},
                   {.on_data = [bytes = fetched.bytes](size_t, uint64_t,
                                                       std::string_view data) { *bytes += data; },
                    .on_done =
                        [done = fetched.done, timed = Timed()](absl::Status status) {
                          timed();
                          done->Set(std::move(status));
                        }});
    fetched_.push_back(std::move(fetched));
  }
}

void RandomSession::Drop(bool consume) {
  if (arrays_.empty()) return;
  const ArrayHandle handle = PickUsable();
  const std::set<uint64_t> storages = arrays_.at(handle).storages;
  arrays_.erase(handle);
  if (consume) {
    client_->Delete(std::vector{handle});
    Consume(storages);
  } else {
    client_->Drop(std::vector{handle});
  }
}

// Arrays that share one of these storages are no longer usable; drops their handles.
void RandomSession::Consume(const std::set<uint64_t>& storages) {
  for (auto it = arrays_.begin(); it != arrays_.end();) {
    const bool shares = std::any_of(storages.begin(), storages.end(), [&it](uint64_t id) {
      return it->second.storages.count(id) != 0;
    });
    if (shares) client_->Drop(std::vector{it->first});
    it = shares ? arrays_.erase(it) : std::next(it);
  }
}

std::function<void()> RandomSession::Timed() {
  return [slowest = slowest_ms_, asked = std::chrono::steady_clock::now()] {
    const auto took = std::chrono::steady_clock::now() - asked;
    const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(took).count();
    for (int64_t most = *slowest; most < ms && !slowest->compare_exchange_weak(most, ms);) continue;
  };
}

// Allowed errors: DATA_LOSS that names the lost worker, and DEADLINE_EXCEEDED that names an absent
// one, because a worker that keeps dying is restarted after growing delays; where links are cut, also the loss of the
// session, or of a data stream to a worker that is named. No other error may occur.
void RandomSession::Check(const absl::Status& status, const std::string& what) {
  ++failed_count_;
  last_error_ = std::string(status.message());
  const wire::Failure failure = wire::ToFailure(status);
  const bool lost = failure.code() == static_cast<int>(absl::StatusCode::kDataLoss);
  const bool absent = failure.code() == static_cast<int>(absl::StatusCode::kDeadlineExceeded);
  const bool named = failure.worker().rfind("island", 0) == 0;
  if (trouble_ != Trouble::kNone && named && (absent || lost)) return;
  const bool session = failure.code() == static_cast<int>(absl::StatusCode::kUnavailable) &&
                       (absl::StrContains(failure.message(), "the session with the controller") ||
                        absl::StrContains(failure.message(), "the controller lost its client"));
  // The worker may notice that a stream is gone, and give its fetches up, before the client does.
  const bool stream = failure.code() == static_cast<int>(absl::StatusCode::kUnavailable) && named &&
                      absl::StrContains(failure.message(), "no data stream to this worker");
  if (trouble_ == Trouble::kCuts && (session || stream)) return;
  ADD_FAILURE() << "seed " << seed_ << ", " << what << ": " << status << "\n"
                << failure.DebugString();
}

void RandomSession::Finish() {
  std::vector<ArrayHandle> all;
  for (const auto& [handle, array] : arrays_) all.push_back(handle);
  auto settled = std::make_shared<Arrival<absl::Status>>();
  client_->Await(all, [settled, timed = Timed()](absl::Status status) {
    timed();
    settled->Set(std::move(status));
  });
  const absl::Status status = settled->Wait().value_or(Late());
  if (!status.ok()) Check(status, "an array that is held");
  const program::Program recorded = program::ArgumentsFirst(program_);
  auto expected = program::Interpret(recorded, arguments_, Evaluate);
  ASSERT_TRUE(expected.ok()) << expected.status() << "\n" << program::Print(recorded);
  for (const Fetched& fetched : fetched_) {
    const std::string what = absl::StrCat("result ", fetched.result, " shard ", fetched.shard);
    const absl::Status got = fetched.done->Wait().value_or(Late());
    if (!got.ok()) {
      Check(got, what);
      continue;
    }
    ++compared_count_;
    EXPECT_EQ(*fetched.bytes, (*expected)[fetched.result].shards[fetched.shard])
        << "seed " << seed_ << ", " << what << " of\n"
        << program::Print(recorded);
  }
  client_->Drop(all);
}

}  // namespace gangway::e2e
