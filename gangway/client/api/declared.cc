// Implementation of declared.h.
#include "gangway/client/api/declared.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/xla/compile_options.pb.h"
#include "gangway/xla/executable.h"

namespace gangway::api {
namespace {

constexpr char kParameter[] = "parameter ", kResult[] = "result ";

absl::Status CheckEach(const char* what, const std::vector<Sharding>& shardings, const Mesh& mesh) {
  for (size_t i = 0; i < shardings.size(); ++i) {
    GANGWAY_RETURN_IF_ERROR(absl::Status(shardings[i].status()), what, i);
    if (shardings[i].mesh().devices() == mesh.devices()) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, i, " is declared to be split as ",
                                                   shardings[i].ToText(),
                                                   ", and the function runs on ", mesh.ToText()));
  }
  return absl::OkStatus();
}

absl::Status CheckNumber(const char* what, size_t declared, size_t has, const char* option) {
  if (declared == has) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the function has ", has, " ", what, "s, and the shardings of ", declared,
                   " are declared: declare one for each (FunctionOptions::", option, ")"));
}

Shape GlobalShape(const TensorSpec& tensor, const Sharding& sharding) {
  Shape shape = tensor.shard_dims;
  for (size_t d = 0; d < shape.size(); ++d) shape[d] *= sharding.Parts(d);
  return shape;
}

// Whether each position has the part of the array that is declared.
absl::Status CheckPartition(const char* what, size_t index, const xla::Operand& made,
                            const Sharding& declared) {
  const size_t count = declared.mesh().devices().size();
  GANGWAY_ASSIGN_OR_RETURN(const xla::Sharding sharding,
                           xla::Sharding::FromProto(made.sharding, static_cast<int64_t>(count)));
  for (size_t i = 0; i < count; ++i) {
    GANGWAY_ASSIGN_OR_RETURN(const xla::ShardExtent extent,
                             sharding.Extent(static_cast<int64_t>(i), made.global_dims));
    const Result<ShardRange> range = declared.RangeOf(i, made.global_dims);
    if (range.ok() && range->offset == extent.offset && range->shape == extent.shape) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        what, index, ", of shape ", gangway::ToText(made.global_dims),
        ", is declared to be split as ", declared.ToText(),
        ", and the function's text splits it another way: write the same into both, as the "
        "attribute mhlo.sharding = \"",
        declared.ToAttribute(made.global_dims.size()), "\""));
  }
  return absl::OkStatus();
}

absl::Status CheckPartitions(const ExecutableInfo& info, const FunctionOptions& options) {
  GANGWAY_ASSIGN_OR_RETURN(const xla::ExecutableDescription made,
                           xla::DescribeExecutable(info.optimized_program));
  for (size_t i = 0; i < std::min(options.parameters.size(), made.parameters.size()); ++i)
    GANGWAY_RETURN_IF_ERROR(
        CheckPartition(kParameter, i, made.parameters[i], options.parameters[i]));
  for (size_t i = 0; i < std::min(options.results.size(), made.results.size()); ++i)
    GANGWAY_RETURN_IF_ERROR(CheckPartition(kResult, i, made.results[i], options.results[i]));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CompileOptionsOf(std::string_view stablehlo, const Mesh& mesh,
                                             const FunctionOptions& options) {
  GANGWAY_RETURN_IF_ERROR(CheckEach(kParameter, options.parameters, mesh));
  GANGWAY_RETURN_IF_ERROR(CheckEach(kResult, options.results, mesh));
  const auto count = static_cast<int64_t>(mesh.devices().size());
  const bool is_partitioned = options.partitioning == Partitioning::kPartitioned;
  xla::CompileOptionsProto proto;
  auto& build = *proto.mutable_executable_build_options();
  build.set_device_ordinal(-1);
  build.set_num_replicas(is_partitioned ? 1 : count);
  build.set_num_partitions(is_partitioned ? count : 1);
  build.set_use_spmd_partitioning(is_partitioned);
  build.set_use_shardy_partitioner(is_partitioned &&
                                   stablehlo.find("sdy") != std::string_view::npos);
  return proto.SerializeAsString();
}

absl::StatusOr<std::vector<ArrayTypeRef>> ResultTypes(const ExecutableInfo& info, const Mesh& mesh,
                                                      const FunctionOptions& options) {
  const bool is_partitioned = options.partitioning == Partitioning::kPartitioned;
  const bool is_alone = mesh.devices().size() == 1;
  if (!(is_alone && options.results.empty()))
    GANGWAY_RETURN_IF_ERROR(
        CheckNumber("result", options.results.size(), info.results.size(), "results"));
  if (!options.parameters.empty() || (is_partitioned && !is_alone))
    GANGWAY_RETURN_IF_ERROR(
        CheckNumber("parameter", options.parameters.size(), info.parameters.size(), "parameters"));
  if (is_partitioned) GANGWAY_RETURN_IF_ERROR(CheckPartitions(info, options));
  for (size_t i = 0; i < options.parameters.size(); ++i)
    GANGWAY_RETURN_IF_ERROR(
        absl::Status(options.parameters[i]
                         .ShardShape(GlobalShape(info.parameters[i], options.parameters[i]))
                         .status()),
        kParameter, i);
  std::vector<ArrayTypeRef> types;
  for (size_t i = 0; i < info.results.size(); ++i) {
    const Sharding sharding = options.results.empty() ? Sharding(mesh) : options.results[i];
    GANGWAY_ASSIGN_OR_RETURN(ArrayTypeRef type,
                             MakeType(static_cast<ElementType>(info.results[i].element_type),
                                      GlobalShape(info.results[i], sharding), sharding),
                             kResult, i);
    types.push_back(std::move(type));
  }
  return types;
}

}  // namespace gangway::api
