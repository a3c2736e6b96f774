// Programs whose collectives are taken out, on the real plugin: compiled for one position, loaded once, run on each
// device, with handlers that exchange by way of the process's memory. They give the bits of XLA's own collectives.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "xla/ffi/api/ffi.h"

#include "gangway/base/mutex.h"
#include "gangway/collective/lowering/lowering.h"
#include "gangway/device/pjrt/pjrt_test_programs.h"
#include "gangway/device/pjrt/position_call.h"
#include "gangway/xla/collectives.pb.h"
#include "gangway/xla/hlo_edit.pb.h"

namespace gangway::device {
namespace {

namespace ffi = ::xla::ffi;
using xla::Collective;

constexpr int kDevices = 4;
constexpr size_t kElements = 16;

// Where the members of a launch meet. One program at a time.
class Meetings {
 public:
  struct Member {
    std::vector<std::vector<float>> operands;  // copies: a result may lie where an operand does
  };
  struct Meeting {
    std::map<int, Member> members;  // by rank
    size_t left = 0;
  };

  void Begin(xla::CollectiveTable table) {
    MutexLock lock(mutex_);
    table_ = std::move(table);
    failing_run_ = -1;
    meetings_.clear();
    rounds_.clear();
    order_.clear();
    failed_.clear();
  }
  void Fail(int64_t run) {
    MutexLock lock(mutex_);
    failing_run_ = run;
  }
  // The numbers of the collectives that the device has called.
  std::vector<int64_t> OrderOf(int device) {
    MutexLock lock(mutex_);
    return order_[device];
  }

  absl::Status Meet(int64_t run, int device, int64_t number, Member member,
                    const std::vector<std::vector<float>*>& results) {
    MutexLock lock(mutex_);
    const Collective& collective = table_.collectives(static_cast<int>(number));
    auto [group, rank, members] = PlaceOf(collective, device);
    order_[device].push_back(number);
    const int round = rounds_[{run, number, device}]++;
    if (run == failing_run_ && device == 1) {
      failed_.insert(run);
      changed_.NotifyAll();
      return absl::UnavailableError("this member fails");
    }
    const auto key = std::make_tuple(run, number, group, round);
    Meeting& meeting = meetings_[key];
    meeting.members[rank] = std::move(member);
    changed_.NotifyAll();
    const bool met = changed_.WaitFor(mutex_, std::chrono::seconds(30), [&]() GANGWAY_NO_ANALYSIS {
      return meeting.members.size() == members.size() || failed_.contains(run);
    });
    if (!met) return absl::DeadlineExceededError("a member did not come");
    if (failed_.contains(run)) return absl::UnavailableError("another member failed");
    for (size_t i = 0; i < results.size(); ++i)
      Fill(collective, i, rank, device, meeting, *results[i]);
    if (++meeting.left == members.size()) meetings_.erase(key);
    return absl::OkStatus();
  }

 private:
  std::tuple<int, int, std::vector<int>> PlaceOf(const Collective& collective, int device)
      GANGWAY_REQUIRES(mutex_) {
    std::vector<int> all(kDevices);
    std::iota(all.begin(), all.end(), 0);
    if (collective.kind() == Collective::PERMUTE) return {0, device, all};
    const auto& groups = table_.groups(static_cast<int>(collective.groups())).groups();
    for (int i = 0; i < groups.size(); ++i) {
      const auto& positions = groups[i].positions();
      auto it = std::find(positions.begin(), positions.end(), static_cast<uint32_t>(device));
      if (it != positions.end())
        return {i, static_cast<int>(it - positions.begin()), {positions.begin(), positions.end()}};
    }
    return {-1, device, {device}};
  }

  static float Reduced(Collective::Reduction reduction, float a, float b) {
    switch (reduction) {
      case Collective::SUM:
        return a + b;
      case Collective::PRODUCT:
        return a * b;
      case Collective::MIN:
        return std::min(a, b);
      default:
        return std::max(a, b);
    }
  }

  static void Fill(const Collective& collective, size_t index, int rank, int device,
                   Meeting& meeting, std::vector<float>& result) {
    const auto& extents = collective.operands(static_cast<int>(index));
    const size_t piece = extents.piece_bytes() / sizeof(float), size = meeting.members.size();
    auto from = [&](int member, size_t operand) -> const std::vector<float>& {
      return meeting.members.at(member).operands.at(operand);
    };
    for (size_t i = 0; i < result.size(); ++i) {
      const size_t outer = i / piece, at = i % piece;                    // of a piece
      const size_t row = i / (piece * size), member = i / piece % size;  // of as many as members
      switch (collective.kind()) {
        case Collective::ALL_REDUCE:
        case Collective::REDUCE_SCATTER: {
          const bool scatters = collective.kind() == Collective::REDUCE_SCATTER;
          const size_t source = scatters ? (outer * size + rank) * piece + at : i;
          result[i] = from(0, index)[source];
          for (size_t other = 1; other < size; ++other)
            result[i] = Reduced(collective.reduction(), result[i], from(other, index)[source]);
          break;
        }
        case Collective::ALL_GATHER:
          result[i] = from(member, index)[row * piece + at];
          break;
        case Collective::ALL_TO_ALL:
          result[i] = from(member, index)[(row * size + rank) * piece + at];
          break;
        case Collective::ALL_TO_ALL_TUPLE:
          result[i] = from(static_cast<int>(index), rank)[i];
          break;
        case Collective::BROADCAST:
          result[i] = size == 1 ? 0 : from(0, index)[i];
          break;
        default: {
          const auto& targets = collective.targets();
          auto it = std::find(targets.begin(), targets.end(), static_cast<uint32_t>(device));
          result[i] =
              it == targets.end()
                  ? 0
                  : from(collective.sources(static_cast<int>(it - targets.begin())), index)[i];
        }
      }
    }
  }

  Mutex mutex_;
  CondVar changed_;
  xla::CollectiveTable table_ GANGWAY_GUARDED_BY(mutex_);
  std::map<std::tuple<int64_t, int64_t, int, int>, Meeting> meetings_ GANGWAY_GUARDED_BY(mutex_);
  std::map<std::tuple<int64_t, int64_t, int>, int> rounds_ GANGWAY_GUARDED_BY(mutex_);
  std::map<int, std::vector<int64_t>> order_ GANGWAY_GUARDED_BY(mutex_);
  std::set<int64_t> failed_ GANGWAY_GUARDED_BY(mutex_);
  int64_t failing_run_ GANGWAY_GUARDED_BY(mutex_) = -1;
};

Meetings& TheMeetings() {
  static auto* const meetings = new Meetings();
  return *meetings;
}

// The chain is the last operand and the last result.
ffi::Error CallCollective(ffi::RunId run, int32_t device, ffi::RemainingArgs arguments,
                          ffi::RemainingRets results, int64_t number) {
  Meetings::Member member;
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    auto operand = arguments.get<ffi::AnyBuffer>(i);
    std::vector<float>& copy = member.operands.emplace_back(operand->element_count());
    std::memcpy(copy.data(), operand->untyped_data(), operand->size_bytes());
  }
  std::vector<std::vector<float>> values(results.size() - 1);
  std::vector<std::vector<float>*> pointers;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].resize((*results.get<ffi::AnyBuffer>(i))->element_count());
    pointers.push_back(&values[i]);
  }
  const absl::Status status =
      TheMeetings().Meet(run.run_id, device, number, std::move(member), pointers);
  if (!status.ok())
    return {static_cast<ffi::ErrorCode>(status.code()), std::string(status.message())};
  for (size_t i = 0; i < values.size(); ++i) {
    auto result = results.get<ffi::AnyBuffer>(i);
    std::memcpy((*result)->untyped_data(), values[i].data(), (*result)->size_bytes());
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(CollectiveHandler, CallCollective,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::RunId>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("number"));

// For one position, of an HLO module that is optimized already.
std::string BackendOnly() {
  std::string build;
  for (int field : {4, 5, 11}) {  // num_replicas, num_partitions, run_backend_only
    AppendVarint(build, static_cast<uint64_t>(field) << 3);
    AppendVarint(build, 1);
  }
  std::string options = "\x20\x01\x1a";  // compile_portable_executable, executable_build_options
  AppendVarint(options, build.size());
  return options + build;
}

class LoweredProgramTest : public ::testing::Test {
 protected:
  using Outputs = std::vector<std::vector<std::vector<float>>>;  // by device, by result

  void SetUp() override {
    auto backend = OpenTestPlugin(kDevices);
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    const std::vector<FfiHandler> handlers = {
        {std::string(collective::kCollectiveTarget), reinterpret_cast<void*>(CollectiveHandler)}};
    GANGWAY_ASSERT_OK(backend_->RegisterFfiHandlers(handlers));
    GANGWAY_ASSERT_OK(backend_->RegisterFfiHandlers(PositionHandlers().handlers));
  }

  using Edit = std::function<void(xla::HloInstructionEditProto&)>;  // of a permute

  // Compiles the original for all devices, and loads what is lowered from it, for one position, on all.
  void Lower(const TestProgram& program, const Edit& edit = nullptr) {
    auto original = backend_->Compile({program.code, program.format}, program.compile_options, {});
    ASSERT_TRUE(original.ok()) << original.status();
    original_ = *std::move(original);
    std::string optimized = *original_->OptimizedProgram();
    if (edit) {
      xla::HloWithConfigEditProto edited;
      ASSERT_TRUE(edited.ParseFromString(optimized));
      for (auto& computation : *edited.mutable_module()->mutable_computations())
        for (auto& instruction : *computation.mutable_instructions())
          if (instruction.opcode() == "collective-permute") edit(instruction);
      optimized = edited.SerializeAsString();
    }
    auto lowered = collective::LowerCollectives(optimized);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const std::vector<int> first = {0};
    auto compiled = backend_->Compile({lowered->program, "hlo"}, BackendOnly(), first);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const std::string bytes = *(*compiled)->Serialize();
    asks_ = MayAskPosition(bytes);
    auto loaded = backend_->Load(bytes, std::vector<int>{0, 1, 2, 3});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    lowered_ = *std::move(loaded);
    TheMeetings().Begin(std::move(lowered->table));
  }

  Outputs Run(const std::function<Executable&(int)>& executable, int32_t launch,
              std::vector<absl::Status>& statuses, size_t elements = kElements) {
    Outputs outputs(kDevices);
    statuses.assign(kDevices, absl::OkStatus());
    OnThreads(kDevices, [&](int device) {
      const size_t seed = static_cast<size_t>(device) * 13 + static_cast<size_t>(launch) * 3;
      std::vector<float> values(elements);
      for (size_t i = 0; i < elements; ++i)
        values[i] = 0.37f * static_cast<float>((i * 7 + seed) % 17) - 2;
      auto argument = *MakeBuffer(*backend_, device, values);
      Buffer* const pointer = argument.get();
      Waiter complete;
      auto results = executable(device).ExecuteOn(device, {&pointer, 1}, {.launch_id = launch},
                                                  complete.Callback());
      statuses[device] = results.ok() ? complete.Wait() : results.status();
      if (!statuses[device].ok()) return;
      for (auto& result : *results) outputs[device].push_back(*ReadFloats(*result));
    });
    return outputs;
  }
  Outputs RunLowered(int32_t launch, std::vector<absl::Status>& statuses,
                     size_t elements = kElements) {
    for (int device = 0; device < kDevices; ++device)
      SetPosition(launch, device, LogicalPosition{.partition = static_cast<uint32_t>(device)});
    Outputs outputs =
        Run([this](int) -> Executable& { return *lowered_; }, launch, statuses, elements);
    for (int device = 0; device < kDevices; ++device) SetPosition(launch, device, std::nullopt);
    return outputs;
  }

  // Several launches give what the original gives.
  void ExpectEqual(const TestProgram& program, size_t elements = kElements) {
    Lower(program);
    if (HasFatalFailure()) return;
    for (int32_t launch : {5, 6, 7}) {
      std::vector<absl::Status> statuses;
      const Outputs ours = RunLowered(launch, statuses, elements);
      for (const absl::Status& status : statuses) ASSERT_TRUE(status.ok()) << status;
      const Outputs theirs =
          Run([this](int) -> Executable& { return *original_; }, launch, statuses, elements);
      for (const absl::Status& status : statuses) ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(ours, theirs);
    }
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executable> original_;
  std::unique_ptr<Executable> lowered_;
  bool asks_ = false;  // for its position
};

// `body` makes %y from %x (tensor<4x4xf32>), and is of four replicas.
TestProgram Replicas(const std::string& body, const std::string& result = "4x4xf32") {
  return Mlir(absl::StrCat("func.func public @main(%flat: tensor<16xf32>) -> tensor<", result,
                           "> {\n    %x = stablehlo.reshape %flat : (tensor<16xf32>) -> "
                           "tensor<4x4xf32>\n",
                           body, "\n    return %y : tensor<", result, ">\n  }"),
              kDevices);
}

std::string AllReduce(const std::string& result, const std::string& operand,
                      const std::string& operation, const std::string& groups) {
  return absl::StrCat("%", result, " = \"stablehlo.all_reduce\"(%", operand,
                      ") ({\n ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n  %c = stablehlo.",
                      operation,
                      " %a, %b : tensor<f32>\n  stablehlo.return %c : tensor<f32>\n }) "
                      "{replica_groups = dense<",
                      groups, "> : tensor<2x2xi64>} : (tensor<4x4xf32>) -> tensor<4x4xf32>\n");
}

std::string Shift(const std::string& result, const std::string& operand) {
  return absl::StrCat("%", result, " = \"stablehlo.collective_permute\"(%", operand,
                      ") {source_target_pairs = dense<[[0, 1], [1, 2], [2, 3]]> : "
                      "tensor<3x2xi64>} : (tensor<4x4xf32>) -> tensor<4x4xf32>\n");
}

TEST_F(LoweredProgramTest, Reductions) {
  for (const char* operation : {"add", "multiply", "minimum", "maximum"})
    ExpectEqual(Replicas(AllReduce("y", "x", operation, "[[0, 3], [2, 1]]")));
}

TEST_F(LoweredProgramTest, GathersAlongEitherDimension) {
  for (int dimension : {0, 1}) {
    const std::string result = dimension == 0 ? "16x4xf32" : "4x16xf32";
    ExpectEqual(
        Replicas(absl::StrCat("%y = \"stablehlo.all_gather\"(%x) {all_gather_dim = ", dimension,
                              " : i64, replica_groups = dense<[[3, 1, 0, 2]]> : "
                              "tensor<1x4xi64>} : (tensor<4x4xf32>) -> tensor<",
                              result, ">"),
                 result));
  }
}

TEST_F(LoweredProgramTest, ScattersAlongEitherDimension) {
  for (int dimension : {0, 1}) {
    const std::string result = dimension == 0 ? "1x4xf32" : "4x1xf32";
    ExpectEqual(Replicas(absl::StrCat("%y = \"stablehlo.reduce_scatter\"(%x) ({\n ^bb0(%a: "
                                      "tensor<f32>, %b: tensor<f32>):\n  %c = stablehlo.add %a, %b "
                                      ": tensor<f32>\n  stablehlo.return %c : tensor<f32>\n }) "
                                      "{scatter_dimension = ",
                                      dimension,
                                      " : i64, replica_groups = dense<[[0, 1, 2, 3]]> : "
                                      "tensor<1x4xi64>} : (tensor<4x4xf32>) -> tensor<",
                                      result, ">"),
                         result));
  }
}

TEST_F(LoweredProgramTest, Exchanges) {
  for (int dimension : {0, 1}) {
    ExpectEqual(Replicas(
        absl::StrCat("%y = \"stablehlo.all_to_all\"(%x) {split_dimension = ", dimension,
                     " : i64, concat_dimension = ", dimension,
                     " : i64, split_count = 2 : i64, replica_groups = dense<[[0, 2], [1, 3]]> : "
                     "tensor<2x2xi64>} : (tensor<4x4xf32>) -> tensor<4x4xf32>")));
  }
}

TEST_F(LoweredProgramTest, PermutesWithAMissingSource) { ExpectEqual(Replicas(Shift("y", "x"))); }

// This version of XLA CPU refuses the program, so it is made of another one's optimized form.
TEST_F(LoweredProgramTest, Broadcasts) {
  Lower(Replicas(Shift("y", "x")), [](auto& instruction) {
    instruction.set_opcode("collective-broadcast");
    instruction.clear_source_target_pairs();
    auto& ids = *instruction.add_replica_groups()->mutable_replica_ids();
    for (int64_t id : {2, 0, 3}) ids.Add(id);
  });
  std::vector<absl::Status> statuses;
  const Outputs outputs = RunLowered(5, statuses);
  for (const absl::Status& status : statuses) ASSERT_TRUE(status.ok()) << status;
  EXPECT_NE(outputs[2][0][0], 0);
  EXPECT_EQ(outputs[0], outputs[2]);
  EXPECT_EQ(outputs[3], outputs[2]);
  EXPECT_EQ(outputs[1][0], std::vector<float>(kElements)) << "in no group";
}

TEST_F(LoweredProgramTest, AProgramOfPartitionsThatAsksForItsPosition) {
  EXPECT_EQ(collective::kPositionTarget, kPositionCallTarget);
  ExpectEqual(GangProgram(kDevices), 1);
  EXPECT_TRUE(asks_);
  std::vector<absl::Status> statuses;
  Run([this](int) -> Executable& { return *lowered_; }, 77, statuses, 1);
  for (const absl::Status& status : statuses)
    EXPECT_TRUE(absl::StrContains(status.message(), "no position on device")) << status;
}

TEST_F(LoweredProgramTest, AProgramWithoutCommunication) {
  ExpectEqual(Replicas("%y = stablehlo.add %x, %x : tensor<4x4xf32>"));
  EXPECT_FALSE(asks_);
}

// Two collectives in a loop, one in a branch of it, and one behind it.
std::string LoopProgram() {
  return absl::StrCat(
      R"(%zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %three = stablehlo.constant dense<3> : tensor<i32>
    %half = stablehlo.constant dense<0.5> : tensor<4x4xf32>
    %l:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4x4xf32>
    cond {
      %go = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      )",
      AllReduce("r", "v", "add", "[[0, 1], [2, 3]]"), Shift("s", "r"),
      R"(%k = stablehlo.remainder %i, %two : tensor<i32>
      %w = "stablehlo.case"(%k) ({
        )",
      AllReduce("t", "s", "maximum", "[[0, 2], [1, 3]]"),
      R"(stablehlo.return %t : tensor<4x4xf32>
      }, {
        %u = stablehlo.multiply %s, %half : tensor<4x4xf32>
        stablehlo.return %u : tensor<4x4xf32>
      }) : (tensor<i32>) -> tensor<4x4xf32>
      %n = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %n, %w : tensor<i32>, tensor<4x4xf32>
    }
    )",
      AllReduce("y", "l#1", "add", "[[0, 3], [1, 2]]"));
}

TEST_F(LoweredProgramTest, LoopsAndBranchesKeepOneOrder) {
  ExpectEqual(Replicas(LoopProgram()));
  const std::vector<int64_t> order = TheMeetings().OrderOf(0);
  EXPECT_EQ(order.size(), 3u * 9u) << "two each round, one in rounds 0 and 2, one behind the loop";
  for (int device = 1; device < kDevices; ++device)
    EXPECT_EQ(TheMeetings().OrderOf(device), order) << device;
}

TEST_F(LoweredProgramTest, AMemberThatFailsFailsItsLaunchOnly) {
  Lower(Replicas(LoopProgram()));
  std::vector<absl::Status> statuses;
  TheMeetings().Fail(8);
  RunLowered(8, statuses);
  for (const absl::Status& status : statuses) EXPECT_FALSE(status.ok());
  const Outputs again = RunLowered(9, statuses);
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(again, Run([this](int) -> Executable& { return *original_; }, 9, statuses));
}

}  // namespace
}  // namespace gangway::device
