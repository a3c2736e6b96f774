// Implementation of sharded_calls.h.
#include "gangway/compiler/sharded_calls.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/compiler/hlo_insert.h"
#include "gangway/device/pjrt/host_call.h"
#include "gangway/xla/named_sharding.h"
#include "gangway/xla/sharded_calls.h"
#include "gangway/xla/sharding.h"

namespace gangway::compiler {
namespace {

using xla::HloComputationEditProto;
using xla::HloInstructionEditProto;
using xla::OpShardingProto;
using xla::ShapeProto;

constexpr std::string_view kBatchAttribute = "num_batch_dims";
// Functions that compute each entry of a batch alone. JAX marks calls of others with the attribute, too.
constexpr std::string_view kBatchPrefixes[] = {"lapack_", "blas_", "tridiagonal_solve_"};

bool IsAsked(std::string_view target) {
  return target == xla::kPartitionTarget || target == xla::kInspectTarget;
}

// How many leading dimensions of a call are its batch; 0 if it is no batch call.
int64_t BatchRank(const HloInstructionEditProto& call) {
  if (std::ranges::none_of(kBatchPrefixes, [&](std::string_view prefix) {
        return call.custom_call_target().starts_with(prefix);
      }))
    return 0;
  const auto& attributes = call.frontend_attributes().map();
  const auto found = attributes.find(std::string(kBatchAttribute));
  int64_t rank = 0;
  if (found == attributes.end() || !absl::SimpleAtoi(found->second, &rank)) return 0;
  return std::max<int64_t>(rank, 0);
}

bool IsCut(const HloInstructionEditProto& call) {
  return call.opcode() == "custom-call" &&
         (IsAsked(call.custom_call_target()) || BatchRank(call) > 0 ||
          call.custom_call_target() == device::kLocalHostCallTarget);
}

// The arrays of a shape: itself, or the parts of a tuple.
std::vector<const ShapeProto*> Parts(const ShapeProto& shape) {
  if (shape.element_type() != xla::TYPE_TUPLE) return {&shape};
  std::vector<const ShapeProto*> parts;
  for (const ShapeProto& part : shape.tuple_shapes()) parts.push_back(&part);
  return parts;
}

// Whether each position has an array of its own, as within jax.shard_map.
bool IsShard(const OpShardingProto& sharding) {
  return sharding.type() == OpShardingProto::TYPE_MANUAL ||
         std::ranges::any_of(sharding.last_tile_dims(),
                             [](int type) { return type == OpShardingProto::TYPE_MANUAL; }) ||
         std::ranges::any_of(sharding.tuple_shardings(), IsShard);
}

// Whether positions that share a tile of it have the same bytes. XLA's calls around shards know no others.
bool CopiesAreEqual(const OpShardingProto& sharding) {
  return sharding.type() == OpShardingProto::TYPE_REPLICATED ||
         (sharding.type() == OpShardingProto::TYPE_OTHER &&
          std::ranges::all_of(sharding.last_tile_dims(),
                              [](int type) { return type == OpShardingProto::TYPE_REPLICATED; }));
}

// Of the arrays of one call.
struct ArrayShardings {
  std::vector<OpShardingProto> operands;
  std::vector<OpShardingProto> results;
};

// How a batch is cut: tiles per dimension, and the positions in the order of the tiles, `copies` for each.
struct Batch {
  std::vector<int64_t> tiles;
  std::vector<int32_t> positions;
  int64_t copies = 1;

  OpShardingProto ShardingOf(const ShapeProto& shape) const {
    OpShardingProto sharding;
    sharding.set_type(OpShardingProto::TYPE_OTHER);
    for (int i = 0; i < shape.dimensions_size(); ++i)
      sharding.add_tile_assignment_dimensions(
          static_cast<size_t>(i) < tiles.size() ? tiles[static_cast<size_t>(i)] : 1);
    if (copies > 1) {
      sharding.add_tile_assignment_dimensions(copies);
      sharding.set_replicate_on_last_tile_dim(true);
    }
    sharding.mutable_tile_assignment_devices()->Add(positions.begin(), positions.end());
    return sharding;
  }
};

// How the first `rank` dimensions of an array with this sharding are cut; nothing if they are not.
absl::StatusOr<std::optional<Batch>> BatchOf(const OpShardingProto& sharding, int64_t rank) {
  if (sharding.type() != OpShardingProto::TYPE_OTHER || !CopiesAreEqual(sharding))
    return std::nullopt;
  const auto& tiles = sharding.tile_assignment_dimensions();
  if (tiles.size() < rank)
    return MalformedProgram("a sharding has fewer dimensions than its array");
  Batch batch;
  GANGWAY_ASSIGN_OR_RETURN(batch.positions, xla::TileAssignment(sharding));
  batch.tiles.assign(tiles.begin(), tiles.begin() + rank);
  int64_t count = 1;  // no more than the positions, which TileAssignment has counted
  for (const int64_t tile : batch.tiles) count *= tile;
  if (count <= 1) return std::nullopt;
  // The tiles are in row-major order, and the batch comes first: what shares a tile of it is adjacent.
  batch.copies = static_cast<int64_t>(batch.positions.size()) / count;
  return batch;
}

class Cutter {
 public:
  Cutter(xla::HloModuleEditProto& module, HloIds ids, int64_t positions,
         const std::vector<CallAnswer>& answers)
      : module_(&module), ids_(std::move(ids)), positions_(positions), answers_(&answers) {}

  absl::StatusOr<CutCalls> Run() {
    GANGWAY_RETURN_IF_ERROR(InsertAnswers());
    for (int i = inserted_; i < module_->computations_size(); ++i)
      GANGWAY_RETURN_IF_ERROR(Rewrite(*module_->mutable_computations(i)));
    return std::move(done_);
  }

 private:
  // The modules of the answers become computations, so that calls can refer to them.
  absl::Status InsertAnswers() {
    if (answers_->empty()) return absl::OkStatus();
    std::vector<std::string> names;
    for (const HloComputationEditProto& computation : module_->computations())
      for (const HloInstructionEditProto& call : computation.instructions())
        if (IsCut(call) && IsAsked(call.custom_call_target())) names.push_back(call.name());
    if (names.size() != answers_->size())
      return absl::InvalidArgumentError(
          absl::StrCat("the program asks about ", names.size(), " calls, and ", answers_->size(),
                       " are answered: was it compiled with other options?"));
    const int before = module_->computations_size();
    for (size_t i = 0; i < names.size(); ++i) {
      bodies_.push_back(0);
      const xla::HloModuleEditProto* const body = (*answers_)[i].module;
      if (body == nullptr) continue;
      GANGWAY_ASSIGN_OR_RETURN(bodies_.back(), ids_.Insert(*body, names[i], *module_));
    }
    inserted_ = module_->computations_size() - before;
    return absl::OkStatus();
  }

  absl::Status Rewrite(HloComputationEditProto& computation) {
    if (std::ranges::none_of(computation.instructions(), IsCut)) return absl::OkStatus();
    computation_ = &computation;
    known_.clear();
    google::protobuf::RepeatedPtrField<HloInstructionEditProto> before;
    before.Swap(computation.mutable_instructions());
    for (HloInstructionEditProto& instruction : before) {
      if (IsCut(instruction)) {
        GANGWAY_RETURN_IF_ERROR(Check(instruction));
        GANGWAY_RETURN_IF_ERROR(CutOne(instruction));
        known_[instruction.id()] = &instruction;
      } else {
        HloInstructionEditProto& kept = *computation.add_instructions();
        kept = std::move(instruction);  // it may hold a large constant
        known_[kept.id()] = &kept;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Check(const HloInstructionEditProto& call) const {
    for (const int64_t id : call.operand_ids())
      if (!known_.contains(id))
        return MalformedProgram(
            absl::StrCat(call.name(), " refers to what does not come before it"));
    if (call.operand_shapes_with_layout_size() != 0 &&
        call.operand_shapes_with_layout_size() != call.operand_ids_size())
      return MalformedProgram(
          absl::StrCat(call.name(), " has not a layout for each of its operands"));
    return absl::OkStatus();
  }

  absl::Status CutOne(const HloInstructionEditProto& call) {
    GANGWAY_ASSIGN_OR_RETURN(const ArrayShardings shardings, ShardingsOf(call));
    if (IsAsked(call.custom_call_target())) return CutAsked(call, shardings);
    std::optional<ArrayShardings> cut;
    if (call.custom_call_target() == device::kLocalHostCallTarget) {
      cut = CutLocal(call, shardings);
    } else {
      GANGWAY_ASSIGN_OR_RETURN(cut, CutBatch(call, shardings));
    }
    if (!cut) {
      *computation_->add_instructions() = call;
      return absl::OkStatus();
    }
    return EmitOnShards(call, call, *cut);
  }

  absl::StatusOr<OpShardingProto> Tiles(const OpShardingProto& sharding) const {
    GANGWAY_ASSIGN_OR_RETURN(OpShardingProto tiles, xla::AsTiles(sharding));
    int64_t count = 1;
    for (const int64_t tile : tiles.tile_assignment_dimensions())
      if (tile < 1 || __builtin_mul_overflow(count, tile, &count)) count = INT64_MAX;
    if (tiles.type() == OpShardingProto::TYPE_OTHER && count != positions_)
      return MalformedProgram(absl::StrCat("a sharding is of ", count, " positions"));
    return tiles;
  }

  // What the propagation has found.
  absl::StatusOr<ArrayShardings> ShardingsOf(const HloInstructionEditProto& call) const {
    ArrayShardings shardings;
    for (const int64_t id : call.operand_ids()) {
      GANGWAY_ASSIGN_OR_RETURN(OpShardingProto sharding,
                               Tiles(known_.find(id)->second->sharding()));
      shardings.operands.push_back(std::move(sharding));
    }
    const OpShardingProto& results = call.sharding();
    const size_t count = Parts(call.shape()).size();
    if (count == 0) return shardings;  // XLA gives an empty tuple a sharding, too
    if (results.type() == OpShardingProto::TYPE_TUPLE) {
      for (const OpShardingProto& result : results.tuple_shardings()) {
        GANGWAY_ASSIGN_OR_RETURN(OpShardingProto sharding, Tiles(result));
        shardings.results.push_back(std::move(sharding));
      }
    } else {
      GANGWAY_ASSIGN_OR_RETURN(const OpShardingProto sharding, Tiles(results));
      shardings.results.assign(count, sharding);
    }
    if (shardings.results.size() != count)
      return MalformedProgram(
          absl::StrCat(call.name(), " has not a sharding for each of its results"));
    return shardings;
  }

  absl::StatusOr<std::optional<ArrayShardings>> CutBatch(const HloInstructionEditProto& call,
                                                         const ArrayShardings& before) const {
    const int64_t rank = BatchRank(call);
    std::vector<const ShapeProto*> arrays = Parts(call.shape());
    std::vector<const OpShardingProto*> shardings;
    for (const OpShardingProto& sharding : before.results) shardings.push_back(&sharding);
    for (const OpShardingProto& sharding : before.operands) shardings.push_back(&sharding);
    for (const int64_t id : call.operand_ids()) arrays.push_back(&known_.find(id)->second->shape());
    std::optional<Batch> batch;
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (arrays[i]->dimensions_size() < rank || IsShard(*shardings[i])) return std::nullopt;
      if (batch) continue;
      GANGWAY_ASSIGN_OR_RETURN(batch, BatchOf(*shardings[i], rank));
    }
    if (!batch) return std::nullopt;
    for (const ShapeProto* array : arrays)
      for (int64_t i = 0; i < rank; ++i)
        if (array->dimensions(static_cast<int>(i)) % batch->tiles[static_cast<size_t>(i)] != 0)
          return std::nullopt;
    ArrayShardings after;
    for (size_t i = 0; i < arrays.size(); ++i)
      (i < before.results.size() ? after.results : after.operands)
          .push_back(batch->ShardingOf(*arrays[i]));
    return after;
  }

  // Nothing if it takes shards already. What XLA would pad, or has on one position only, is taken whole.
  std::optional<ArrayShardings> CutLocal(const HloInstructionEditProto& call,
                                         ArrayShardings shardings) const {
    if (call.shape().element_type() != xla::TYPE_TUPLE || !call.shape().tuple_shapes().empty() ||
        IsShard(call.sharding()) || std::ranges::any_of(shardings.operands, IsShard))
      return std::nullopt;
    for (size_t i = 0; i < shardings.operands.size(); ++i) {
      const ShapeProto& shape = known_.find(call.operand_ids(static_cast<int>(i)))->second->shape();
      OpShardingProto& sharding = shardings.operands[i];
      if (CopiesAreEqual(sharding) && ShardOf(shape, sharding).ok()) continue;
      sharding.Clear();  // replicated
    }
    return shardings;
  }

  absl::Status CutAsked(const HloInstructionEditProto& call, const ArrayShardings& before) {
    xla::CallToPartition& asked = *done_.asked.add_calls();
    asked.set_target(call.custom_call_target());
    asked.set_backend_config(call.backend_config());
    for (size_t i = 0; i < before.operands.size(); ++i) {
      *asked.add_operands() = known_[call.operand_ids(static_cast<int>(i))]->shape();
      *asked.add_operand_shardings() = before.operands[i];
    }
    *asked.mutable_result() = call.shape();
    if (call.shape().element_type() == xla::TYPE_TUPLE) {
      asked.mutable_result_sharding()->set_type(OpShardingProto::TYPE_TUPLE);
      for (const OpShardingProto& result : before.results)
        *asked.mutable_result_sharding()->add_tuple_shardings() = result;
    } else if (!before.results.empty()) {
      *asked.mutable_result_sharding() = before.results[0];
    }
    if (answers_->empty()) {
      *computation_->add_instructions() = call;
      return absl::OkStatus();
    }
    const size_t number = static_cast<size_t>(done_.asked.calls_size()) - 1;
    const CallAnswer& answer = (*answers_)[number];
    if (call.custom_call_target() == xla::kInspectTarget) return DropInspected(call);
    if (answer.module == nullptr)
      return absl::InvalidArgumentError(absl::StrCat(call.name(), " is not partitioned"));
    GANGWAY_ASSIGN_OR_RETURN(const ArrayShardings after, Answered(call, *answer.shardings));
    HloInstructionEditProto on_shards;
    on_shards.set_opcode("call");
    *on_shards.mutable_shape() = call.shape();
    *on_shards.mutable_metadata() = call.metadata();
    *on_shards.mutable_control_predecessor_ids() = call.control_predecessor_ids();
    on_shards.add_called_computation_ids(bodies_[number]);
    return EmitOnShards(call, std::move(on_shards), after);
  }

  // Leaves its operand in its place.
  absl::Status DropInspected(const HloInstructionEditProto& call) {
    if (call.operand_ids_size() != 1)
      return MalformedProgram(absl::StrCat(call.name(), " looks at several arrays"));
    HloInstructionEditProto copy;
    copy.set_opcode("copy");
    copy.set_id(call.id());
    copy.set_name(call.name());
    *copy.mutable_shape() = known_[call.operand_ids(0)]->shape();
    *copy.mutable_sharding() = known_[call.operand_ids(0)]->sharding();
    *copy.mutable_control_predecessor_ids() = call.control_predecessor_ids();
    copy.add_operand_ids(call.operand_ids(0));
    *computation_->add_instructions() = std::move(copy);
    ++done_.cut;
    return absl::OkStatus();
  }

  absl::StatusOr<ArrayShardings> Answered(const HloInstructionEditProto& call,
                                          const xla::PartitionedCall& answer) const {
    ArrayShardings shardings;
    const auto add = [this](const OpShardingProto& sharding,
                            std::vector<OpShardingProto>& to) -> absl::Status {
      GANGWAY_ASSIGN_OR_RETURN(OpShardingProto tiles, Tiles(sharding));
      if (!CopiesAreEqual(tiles))
        return absl::InvalidArgumentError("it is neither whole nor cut into tiles");
      to.push_back(std::move(tiles));
      return absl::OkStatus();
    };
    absl::Status fits;
    for (const OpShardingProto& operand : answer.operand_shardings())
      if (fits.ok()) fits = add(operand, shardings.operands);
    if (answer.result_sharding().type() == OpShardingProto::TYPE_TUPLE) {
      for (const OpShardingProto& result : answer.result_sharding().tuple_shardings())
        if (fits.ok()) fits = add(result, shardings.results);
    } else if (fits.ok()) {
      fits = add(answer.result_sharding(), shardings.results);
    }
    const size_t results = Parts(call.shape()).size();
    if (fits.ok() && (shardings.operands.size() != static_cast<size_t>(call.operand_ids_size()) ||
                      shardings.results.size() != results))
      fits = absl::InvalidArgumentError("there is not one for each operand and result");
    if (fits.ok()) return shardings;
    return absl::InvalidArgumentError(
        absl::StrCat("the shardings that the partition function of ", call.name(),
                     " returned do not fit: ", std::string(fits.message())));
  }

  absl::StatusOr<ShapeProto> ShardOf(ShapeProto shape, const OpShardingProto& sharding) const {
    GANGWAY_ASSIGN_OR_RETURN(const xla::Sharding known,
                             xla::Sharding::FromProto(sharding, positions_));
    GANGWAY_ASSIGN_OR_RETURN(const std::vector<int64_t> dims,
                             known.ShardShape(std::vector<int64_t>(shape.dimensions().begin(),
                                                                   shape.dimensions().end())));
    std::ranges::copy(dims, shape.mutable_dimensions()->begin());
    return shape;
  }

  HloInstructionEditProto& Emit(const HloInstructionEditProto& of, std::string_view opcode,
                                ShapeProto shape) {
    HloInstructionEditProto& emitted = *computation_->add_instructions();
    emitted.set_id(ids_.New(computation_->id()));
    emitted.set_name(absl::StrCat(of.name(), ".shards.", emitted.id() & UINT32_MAX));
    emitted.set_opcode(std::string(opcode));
    *emitted.mutable_shape() = std::move(shape);
    *emitted.mutable_metadata() = of.metadata();
    return emitted;
  }

  // One of the calls that XLA's partitioner itself knows.
  HloInstructionEditProto& EmitOwn(const HloInstructionEditProto& of, std::string_view target,
                                   ShapeProto shape, OpShardingProto sharding, int64_t operand) {
    HloInstructionEditProto& own = Emit(of, "custom-call", std::move(shape));
    own.set_custom_call_target(std::string(target));
    own.set_custom_call_api_version(xla::API_VERSION_ORIGINAL);
    *own.mutable_sharding() = std::move(sharding);
    own.add_operand_ids(operand);
    return own;
  }

  // Puts `on_shards`, which still has the shape of `call`, in its place, on arrays with these shardings.
  absl::Status EmitOnShards(const HloInstructionEditProto& call, HloInstructionEditProto on_shards,
                            const ArrayShardings& shardings) {
    ++done_.cut;
    on_shards.clear_operand_ids();
    std::vector<ShapeProto> shards;
    for (size_t i = 0; i < shardings.operands.size(); ++i) {
      const int64_t operand = call.operand_ids(static_cast<int>(i));
      const ShapeProto& whole = known_[operand]->shape();
      GANGWAY_ASSIGN_OR_RETURN(ShapeProto shard, ShardOf(whole, shardings.operands[i]));
      const int64_t placed = EmitOwn(call, "Sharding", whole, shardings.operands[i], operand).id();
      on_shards.add_operand_ids(
          EmitOwn(call, "SPMDFullToShardShape", shard, ManualSharding(shard), placed).id());
      if (on_shards.operand_shapes_with_layout_size() > 0) {
        ShapeProto& asked = *on_shards.mutable_operand_shapes_with_layout(static_cast<int>(i));
        GANGWAY_ASSIGN_OR_RETURN(asked, ShardOf(asked, shardings.operands[i]));
      }
      shards.push_back(std::move(shard));
    }
    if (on_shards.custom_call_target() == device::kLocalHostCallTarget)
      AddShapes(call, shards, on_shards);
    on_shards.mutable_frontend_attributes()->mutable_map()->erase(std::string(kBatchAttribute));
    const bool is_tuple = call.shape().element_type() == xla::TYPE_TUPLE;
    for (size_t i = 0; i < shardings.results.size(); ++i) {
      ShapeProto& part = is_tuple
                             ? *on_shards.mutable_shape()->mutable_tuple_shapes(static_cast<int>(i))
                             : *on_shards.mutable_shape();
      GANGWAY_ASSIGN_OR_RETURN(part, ShardOf(part, shardings.results[i]));
    }
    *on_shards.mutable_sharding() = ManualSharding(on_shards.shape());
    if (shardings.results.empty()) {
      on_shards.set_id(call.id());
      on_shards.set_name(call.name());
      *computation_->add_instructions() = std::move(on_shards);
      return absl::OkStatus();
    }
    on_shards.set_id(ids_.New(computation_->id()));
    on_shards.set_name(absl::StrCat(call.name(), ".on_shards"));
    const int64_t id = on_shards.id();
    const ShapeProto shape = on_shards.shape();
    *computation_->add_instructions() = std::move(on_shards);
    EmitWhole(call, id, shape, shardings);
    return absl::OkStatus();
  }

  // The whole results. Their users know them by the id of the call.
  void EmitWhole(const HloInstructionEditProto& call, int64_t on_shards, const ShapeProto& shape,
                 const ArrayShardings& shardings) {
    if (call.shape().element_type() != xla::TYPE_TUPLE) {
      EmitOwn(call, "SPMDShardToFullShape", call.shape(), shardings.results[0], on_shards)
          .set_id(call.id());
      return;
    }
    HloInstructionEditProto whole;
    whole.set_opcode("tuple");
    whole.set_name(absl::StrCat(call.name(), ".whole"));
    whole.set_id(call.id());
    *whole.mutable_shape() = call.shape();
    *whole.mutable_metadata() = call.metadata();
    whole.mutable_sharding()->set_type(OpShardingProto::TYPE_TUPLE);
    for (int i = 0; i < shape.tuple_shapes_size(); ++i) {
      HloInstructionEditProto& part = Emit(call, "get-tuple-element", shape.tuple_shapes(i));
      part.set_tuple_index(i);
      part.add_operand_ids(on_shards);
      *part.mutable_sharding() = ManualSharding(part.shape());
      const OpShardingProto& sharding = shardings.results[static_cast<size_t>(i)];
      whole.add_operand_ids(
          EmitOwn(call, "SPMDShardToFullShape", call.shape().tuple_shapes(i), sharding, part.id())
              .id());
      *whole.mutable_sharding()->add_tuple_shardings() = sharding;
    }
    *computation_->add_instructions() = std::move(whole);
  }

  // The function gets bytes, and does not know the shards' dimensions.
  void AddShapes(const HloInstructionEditProto& call, const std::vector<ShapeProto>& shards,
                 HloInstructionEditProto& on_shards) {
    if (shards.empty()) return;
    HloInstructionEditProto& dims = Emit(call, "constant", {});
    xla::LiteralProto& literal = *dims.mutable_literal();
    for (const ShapeProto& shard : shards) {
      literal.add_s32s(shard.dimensions_size());
      for (const int64_t dim : shard.dimensions()) literal.add_s32s(static_cast<int32_t>(dim));
    }
    ShapeProto& shape = *dims.mutable_shape();
    shape.set_element_type(xla::TYPE_S32);
    shape.add_dimensions(literal.s32s_size());
    shape.add_is_dynamic_dimension(false);
    shape.mutable_layout()->add_minor_to_major(0);
    *literal.mutable_shape() = shape;
    *dims.mutable_sharding() = ManualSharding(shape);
    on_shards.add_operand_ids(dims.id());
    if (on_shards.operand_shapes_with_layout_size() > 0)
      *on_shards.add_operand_shapes_with_layout() = shape;
  }

  xla::HloModuleEditProto* module_;
  HloIds ids_;
  int64_t positions_;
  const std::vector<CallAnswer>* answers_;
  std::vector<int64_t> bodies_;  // of the answers: the computation that is called
  int inserted_ = 0;             // computations, which come first
  CutCalls done_;

  // Of the computation that is rewritten: as it was.
  HloComputationEditProto* computation_ = nullptr;
  absl::flat_hash_map<int64_t, const HloInstructionEditProto*> known_;
};

}  // namespace

bool MayHaveCallsToCut(std::string_view program) {
  return std::ranges::any_of(
      std::vector{kBatchAttribute, device::kLocalHostCallTarget, xla::kPartitionTarget,
                  xla::kInspectTarget},
      [&](std::string_view name) { return program.find(name) != std::string_view::npos; });
}

absl::StatusOr<CutCalls> Cut(xla::HloModuleEditProto& module, int64_t positions,
                             const std::vector<CallAnswer>& answers) {
  GANGWAY_ASSIGN_OR_RETURN(HloIds ids, HloIds::Of(module));
  return Cutter(module, std::move(ids), positions, answers).Run();
}

}  // namespace gangway::compiler
