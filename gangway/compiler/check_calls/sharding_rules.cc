// Calls that XLA's partitioner reads and removes: where an array lies, and the borders between whole arrays and shards.
// No handler runs, but shapes change at the borders, and what lies behind one is believed. So the shape behind it
// follows here from the sharding before it.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "gangway/compiler/check_calls/call_check.h"
#include "gangway/compiler/check_calls/text_scanner.h"

namespace gangway::compiler::calls {
namespace {

using xla::hlo::Sharding;

enum ShardingType { kReplicated = 0, kOther = 3, kManual = 4 };  // xla.OpSharding.Type

constexpr std::string_view kShardingAttribute = "xla.sdy.sharding";
constexpr std::string_view kManualAxes = "xla.sdy.manual_axes";

// "unspecified_dims=[0,2]": dimensions whose sharding is left to XLA.
void CheckUnspecified(CallCheck& check) {
  absl::string_view text(check.call().backend_config());
  if (text.empty()) return;
  const int rank = check.call().shape().dimensions_size();
  int64_t last = -1;
  if (!absl::ConsumePrefix(&text, "unspecified_dims=[") || !absl::ConsumeSuffix(&text, "]"))
    return check.Fault("its backend_config is not unspecified_dims=[...]");
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t dim = 0;
    if (!absl::SimpleAtoi(part, &dim) || dim <= last || dim >= rank)
      return check.Fault("its unspecified_dims are not ascending dimensions of its array");
    last = dim;
  }
}

std::vector<TextSharding> Shardings(CallCheck& check, std::string_view attribute) {
  const std::string text = check.FrontendAttribute(attribute);
  if (check.failed()) return {};
  const absl::StatusOr<TextMeshes>& meshes = check.program().meshes;
  if (!meshes.ok()) {
    check.Fault(std::string(meshes.status().message()));
    return {};
  }
  auto shardings = ParseShardings(text, *meshes);
  if (!shardings.ok()) {
    check.Fault(std::string(shardings.status().message()));
    return {};
  }
  return *std::move(shardings);
}

// A text of shardings beside an OpSharding is one of the same array. XLA reads it when it uses Shardy.
void CheckShardingText(CallCheck& check, bool must_have) {
  const auto& attributes = check.call().frontend_attributes().map();
  if (!must_have && attributes.find(std::string(kShardingAttribute)) == attributes.end()) return;
  const std::vector<TextSharding> shardings = Shardings(check, kShardingAttribute);
  check.True(shardings.size() == 1, "it has not one sharding");
  if (check.failed()) return;
  const size_t rank = static_cast<size_t>(check.call().shape().dimensions_size());
  check.True(shardings[0].dims.size() == rank || shardings[0].dims.empty(),
             "its sharding has another number of dimensions than its array");
}

// In how many parts each of `rank` dimensions is cut; empty after a fault.
std::vector<int64_t> Tiles(CallCheck& check, const Sharding& sharding, int rank) {
  if (sharding.has_named_sharding()) {
    const auto& named = sharding.named_sharding();
    std::vector<int64_t> tiles(static_cast<size_t>(rank), 1);
    if (named.dim_shardings_size() > rank) check.Fault("its sharding has too many dimensions");
    for (int i = 0; i < named.dim_shardings_size() && !check.failed(); ++i) {
      for (const auto& axis : named.dim_shardings(i).axes()) {
        const int64_t index = axis.mesh_axis_index();
        if (index < 0 || index >= named.mesh().axes_size()) {
          check.Fault("its sharding names an axis that its mesh does not have");
          return {};
        }
        int64_t& tile = tiles[static_cast<size_t>(i)];
        const int64_t size = axis.has_sub_axis_info()
                                 ? axis.sub_axis_info().size()
                                 : named.mesh().axes(static_cast<int>(index)).size();
        if (size < 1 || __builtin_mul_overflow(tile, size, &tile))
          check.Fault("its sharding has no sizes");
      }
    }
    return tiles;
  }
  if (sharding.type() == kReplicated) return std::vector<int64_t>(static_cast<size_t>(rank), 1);
  if (sharding.type() != kOther || sharding.tile_assignment_dimensions_size() < rank) {
    check.Fault("the sharding of its whole array does not say how it is cut");
    return {};
  }
  const auto& dims = sharding.tile_assignment_dimensions();
  return {dims.begin(), dims.begin() + rank};
}

// How many positions have shards of their own: those that jax.shard_map is over. 0 after a fault.
int64_t ManualPositions(CallCheck& check, const Sharding& sharding, int rank) {
  if (sharding.type() == kManual && !sharding.has_named_sharding())
    return check.program().settings.partitions;
  if (sharding.has_named_sharding()) {
    int64_t count = 1;
    for (const auto& axis : sharding.named_sharding().manual_axes()) {
      const int64_t index = axis.mesh_axis_index();
      const auto& axes = sharding.named_sharding().mesh().axes();
      if (index < 0 || index >= axes.size() ||
          __builtin_mul_overflow(count, axes[static_cast<int>(index)].size(), &count)) {
        check.Fault("its sharding names an axis that its mesh does not have");
        return 0;
      }
    }
    return count;
  }
  const auto& dims = sharding.tile_assignment_dimensions();
  const auto& last = sharding.last_tile_dims();
  if (sharding.type() != kOther || dims.size() != rank + last.size()) {
    check.Fault("the sharding of its shards is not manual");
    return 0;
  }
  int64_t count = 1;
  for (int i = 0; i < dims.size(); ++i) {
    const bool is_manual = i >= rank && last[i - rank] == kManual;
    if (i < rank && dims[i] != 1) check.Fault("the sharding of its shards cuts them again");
    if (is_manual && (dims[i] < 1 || __builtin_mul_overflow(count, dims[i], &count)))
      check.Fault("the sharding of its shards has no sizes");
  }
  return check.failed() ? 0 : count;
}

// `whole`, cut by `cuts`, is `shard`.
void CheckCut(CallCheck& check, const Shape& whole, const Shape& shard,
              const std::vector<int64_t>& cuts) {
  const int rank = whole.dimensions_size();
  bool fits = whole.element_type() == shard.element_type() && shard.dimensions_size() == rank &&
              cuts.size() == static_cast<size_t>(rank);
  for (int i = 0; fits && i < rank; ++i) {
    int64_t product = 0;
    fits = cuts[static_cast<size_t>(i)] >= 1 &&
           !__builtin_mul_overflow(shard.dimensions(i), cuts[static_cast<size_t>(i)], &product) &&
           product == whole.dimensions(i);
  }
  if (!fits)
    check.Fault(absl::StrCat("an array of shape ", ShapeText(whole), " has no shards of shape ",
                             ShapeText(shard), " by its sharding"));
}

// The border between a whole array with a sharding and its shards.
void CheckBorder(CallCheck& check, const Shape& whole, const Sharding* of_whole, const Shape& shard,
                 const Sharding* of_shard) {
  if (of_whole == nullptr || of_shard == nullptr)
    return check.Fault("the sharding of its operand or of its result is missing");
  const int rank = whole.dimensions_size();
  const std::vector<int64_t> tiles = Tiles(check, *of_whole, rank);
  const int64_t manual = ManualPositions(check, *of_shard, rank);
  if (check.failed()) return;
  int64_t count = 1;
  for (const int64_t tile : tiles)
    if (tile < 1 || __builtin_mul_overflow(count, tile, &count)) count = INT64_MAX;
  check.True(manual % count == 0 && check.program().settings.partitions % manual == 0,
             absl::StrCat("its sharding is of ", count, " parts on ", manual, " positions of ",
                          check.program().settings.partitions));
  CheckCut(check, whole, shard, tiles);
}

// Of the call's only operand.
const Sharding* OperandSharding(const CallCheck& check) {
  const auto found = check.program().shardings.find(check.call().operand_ids(0));
  return found == check.program().shardings.end() ? nullptr : found->second;
}

bool IsOneArray(CallCheck& check) {
  check.Interface({0, kOriginalInterface});
  check.Operands(1);
  check.NoCallees();
  check.NoAliases();
  if (check.failed()) return false;
  check.True(check.call().operand_ids_size() == 1, "its operand is missing");
  check.Array(*check.operands()[0], "its operand");
  check.Array(check.call().shape(), "its result");
  CheckUnspecified(check);
  return !check.failed();
}

// Shardy's borders: each operand is cut, or put together, along the manual axes of its sharding alone.
void CheckTextBorder(CallCheck& check, std::string_view attribute, bool to_shards) {
  check.Interface({0, kOriginalInterface});
  check.NoCallees();
  check.NoAliases();
  check.NoConfig();
  const size_t count = check.operands().size();
  check.True(count > 0 && check.results().size() == count && check.yields_tuple() == (count > 1),
             "it has not one result for each operand");
  const std::vector<TextSharding> shardings = Shardings(check, attribute);
  check.True(shardings.size() == count, "it has not a sharding for each operand");
  const auto manual = ParseManualAxes(check.FrontendAttribute(kManualAxes));
  if (!manual.ok()) check.Fault(std::string(manual.status().message()));
  for (size_t i = 0; i < count && !check.failed(); ++i) {
    const Shape& whole = to_shards ? *check.operands()[i] : *check.results()[i];
    const Shape& shard = to_shards ? *check.results()[i] : *check.operands()[i];
    check.Array(whole, "a whole array of it", /*may_be_token=*/true);
    check.Array(shard, "a shard of it", /*may_be_token=*/true);
    const TextMesh& mesh = shardings[i].mesh;
    if (check.program().settings.partitions != mesh.positions)
      return check.Fault(absl::StrCat("its mesh has ", mesh.positions,
                                      " positions, and the program ",
                                      check.program().settings.partitions));
    for (const std::string& axis : *manual)
      check.True(mesh.axes.contains(axis), "it names an axis that its mesh does not have");
    std::vector<int64_t> cuts;
    for (const std::vector<AxisUse>& dim : shardings[i].dims) {
      cuts.push_back(1);
      for (const AxisUse& use : dim)
        if (std::ranges::count(*manual, use.axis) != 0 &&
            __builtin_mul_overflow(cuts.back(), use.size, &cuts.back()))
          cuts.back() = INT64_MAX;
    }
    if (!check.failed()) CheckCut(check, whole, shard, cuts);
  }
}

}  // namespace

void CheckSharding(CallCheck& check) {
  check.Interface({0, kOriginalInterface});
  check.SameShape();
  CheckUnspecified(check);
  const auto& attributes = check.call().frontend_attributes().map();
  check.True(check.call().has_sharding() || attributes.contains(std::string(kShardingAttribute)),
             "it has no sharding");
  CheckShardingText(check, /*must_have=*/false);
}

void CheckFullToShard(CallCheck& check) {
  if (!IsOneArray(check)) return;
  CheckBorder(check, *check.operands()[0], OperandSharding(check), check.call().shape(),
              check.call().has_sharding() ? &check.call().sharding() : nullptr);
}

void CheckShardToFull(CallCheck& check) {
  if (!IsOneArray(check)) return;
  CheckBorder(check, check.call().shape(),
              check.call().has_sharding() ? &check.call().sharding() : nullptr,
              *check.operands()[0], OperandSharding(check));
}

void CheckResultSharding(CallCheck& check) {
  check.Interface({0, kOriginalInterface});
  check.SameShape();
  check.NoConfig();
  CheckShardingText(check, /*must_have=*/true);
}

void CheckGlobalToLocal(CallCheck& check) {
  CheckTextBorder(check, "xla.sdy.in_shardings", /*to_shards=*/true);
}

void CheckLocalToGlobal(CallCheck& check) {
  CheckTextBorder(check, "xla.sdy.out_shardings", /*to_shards=*/false);
}

// Arrays with one number are sharded alike.
void CheckShardingGroup(CallCheck& check) {
  check.Interface({0, kOriginalInterface});
  check.Operands(1);
  check.NoCallees();
  check.NoAliases();
  check.NoConfig();
  check.True(check.yields_tuple() && check.results().empty(), "it has a result");
  if (!check.failed()) check.Array(*check.operands()[0], "its operand");
  const std::string text = check.FrontendAttribute("xla.sdy.sharding_group_id");
  TextScanner scanner(text);
  const std::optional<int64_t> id = scanner.Integer();
  check.True(id && *id >= 0 && scanner.Take(":") && scanner.Word() == "i64" && scanner.AtEnd(),
             "its sharding_group_id is no number");
}

void CheckLayoutConstraint(CallCheck& check) {
  check.Interface({0, kOriginalInterface});
  check.SameShape();
  check.NoConfig();
  if (check.failed()) return;
  const Shape* const placed = check.Placed(0);
  if (placed == nullptr) return;
  check.Array(*placed, "its operand");
  check.True(std::ranges::count(placed->dimensions(), 0) == 0 || IsRowMajor(*placed),
             "its array is empty and not in row-major order");
}

void CheckPlacement(CallCheck& check) {
  check.Interface({0, kOriginalInterface});
  check.SameShape();
  check.NoConfig();
  const std::string kind = check.FrontendAttribute("_xla_buffer_placement");
  check.True(kind == "device" || kind == "pinned_host" || kind == "unpinned_host",
             "it names no kind of memory");
}

// jax.custom_partitioning and inspect_array_sharding: the compiler asks the script (compiler/sharded_calls.h) and
// removes the call. Its config is an address in the script, which nothing here follows.
void CheckAsked(CallCheck& check) {
  constexpr size_t kConfigMax = 256;
  check.Interface({0, kOriginalInterface, kStatusInterface});
  check.NoCallees();
  check.NoAliases();
  check.True(check.call().backend_config().size() <= kConfigMax, "its backend_config is too long");
  for (const Shape* operand : check.operands()) check.Array(*operand, "an operand");
  for (const Shape* result : check.results()) check.Array(*result, "a result");
}

}  // namespace gangway::compiler::calls
