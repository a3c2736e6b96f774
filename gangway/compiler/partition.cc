// Implementation of partition.h.
#include "gangway/compiler/partition.h"

#include <google/protobuf/unknown_field_set.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/heap.h"
#include "gangway/base/status.h"
#include "gangway/compiler/thread_room.h"
#include "gangway/device/pjrt/compile_options_edit.h"
#include "gangway/xla/compile_options.pb.h"

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;

// JAX marks values for another kind of memory with a custom call that XLA's CPU plugin lacks, and
// that its partitioner rejects. Neither error names the cause.
absl::Status ExplainCompile(const absl::Status& status) {
  if (!absl::StrContains(status.message(), "annotate_device_placement")) return status;
  return absl::UnimplementedError(absl::StrCat(
      "this program places a value in another kind of memory (memory_kind, such as pinned_host, in "
      "out_shardings or in a device_put inside of a jit), and the devices' runtime cannot: call "
      "jax.device_put(result, sharding.with_memory_kind(...)) outside of the jit instead. The "
      "runtime says: ",
      status.message()));
}

// A client's programs have their devices: only OptionsForOne (compile.cc) asks for a portable one.
std::string WithDevices(const std::string& serialized) {
  xla::CompileOptionsProto options;
  if (!options.ParseFromString(serialized) || !options.compile_portable_executable())
    return serialized;  // malformed ones are the runtime's to refuse
  options.clear_compile_portable_executable();
  return options.SerializeAsString();
}

// A new folder that only this user may read, gone with this object.
class TemporaryFolder {
 public:
  static absl::StatusOr<TemporaryFolder> Make() {
    std::error_code none;
    const fs::path parent = fs::temp_directory_path(none);
    std::string name = (parent.empty() ? fs::path("/tmp") : parent) / "gangway-partition-XXXXXX";
    if (mkdtemp(name.data()) == nullptr)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the folder ", name));
    return TemporaryFolder(name);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

// The contents of the file whose name ends so.
std::optional<std::string> ReadFileLike(const fs::path& folder, std::string_view end) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!entry.path().native().ends_with(end)) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  return std::nullopt;
}

// The bytes of a message's field, without what the field's own fields mean.
std::optional<std::string> FieldOf(const std::string& message, int number) {
  google::protobuf::UnknownFieldSet fields;
  if (message.size() > INT32_MAX || !fields.ParseFromString(message)) return std::nullopt;
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() == number &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      return field.length_delimited();
  }
  return std::nullopt;
}

// What OptimizedProgram would be, from a serialized xla.HloProto. Its module passes through as it is. Clients that read
// the program end without the layout of its entry.
absl::StatusOr<std::string> AddConfig(const std::string& hlo, const device::LogicalShape& shape) {
  constexpr int kModule = 1, kConfig = 2;  // of HloProto and HloModuleProtoWithConfig
  constexpr int kProgramShape = 4;         // of HloModuleProto
  constexpr int kLayout = 1, kReplicas = 4, kPartitions = 5;  // of HloModuleConfigProto
  const std::optional<std::string> module = FieldOf(hlo, kModule);
  if (!module) return absl::InternalError("the runtime wrote a program without its module");
  const std::optional<std::string> layout = FieldOf(*module, kProgramShape);
  if (!layout) return absl::InternalError("the runtime wrote a program without its shape");
  google::protobuf::UnknownFieldSet config, whole;
  config.AddLengthDelimited(kLayout, *layout);
  config.AddVarint(kReplicas, static_cast<uint64_t>(shape.num_replicas));
  config.AddVarint(kPartitions, static_cast<uint64_t>(shape.num_partitions));
  std::string config_bytes, bytes;
  config.SerializeToString(&config_bytes);
  whole.AddLengthDelimited(kModule, *module);
  whole.AddLengthDelimited(kConfig, config_bytes);
  whole.SerializeToString(&bytes);
  return bytes;
}

std::string With(const std::string& options, Exchanges exchanges) {
  const char* const flags = std::getenv("XLA_FLAGS");
  const bool flags_choose = flags != nullptr && absl::StrContains(flags, "hlo_passes");
  if (exchanges == Exchanges::kOfSlices || flags_choose) return options;
  return device::WithoutXlaPass(options, "all_to_all_decomposer");
}

// XLA CPU partitions and optimizes some collectives for which it has no code.
bool LacksOnlyCode(const absl::Status& status) {
  return absl::IsUnimplemented(status) && absl::StrContains(status.message(), "ThunkEmitter");
}

// The optimized program of a compile that then fails for lack of code: the runtime writes it to a file before that.
absl::StatusOr<std::string> ReadWhatWasOptimized(device::Backend& partitioner,
                                                 const wire::CompileRequest& request,
                                                 const std::string& options,
                                                 const absl::Status& failure) {
  GANGWAY_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
  GANGWAY_ASSIGN_OR_RETURN(const device::LogicalShape shape, device::ReadLogicalShape(options));
  const std::string writes =
      device::WithXlaOption(device::WithXlaOption(options, "xla_dump_to", folder.path().native()),
                            "xla_dump_hlo_as_proto", "True");
  (void)CompileForPositions(partitioner, request, writes);  // fails as before
  const std::optional<std::string> hlo =
      ReadFileLike(folder.path(), "cpu_after_optimizations.hlo.pb");
  if (!hlo) return failure;
  return AddConfig(*hlo, shape);
}

absl::StatusOr<Partitioned> ReadExecutable(const device::Executable& executable) {
  Partitioned partitioned;
  GANGWAY_ASSIGN_OR_RETURN(partitioned.program, executable.OptimizedProgram());
  const auto kinds = executable.output_memory_kinds();
  partitioned.memory_kinds.assign(kinds.begin(), kinds.end());
  partitioned.costs = executable.GetCostAnalysis();
  return partitioned;
}

absl::StatusOr<Partitioned> PartitionWith(device::Backend& partitioner,
                                          const wire::CompileRequest& request,
                                          Exchanges exchanges) {
  // Its code is not used, so it need not be good: that halves the time, and the optimized HLO, which the costs are
  // counted from, is the same.
  const std::string options = device::WithXlaOption(With(request.options(), exchanges),
                                                    "xla_backend_optimization_level", "0");
  const auto partitioned = CompileForPositions(partitioner, request, options);
  if (partitioned.ok()) return ReadExecutable(**partitioned);
  if (!LacksOnlyCode(partitioned.status())) return partitioned.status();
  Partitioned read;
  GANGWAY_ASSIGN_OR_RETURN(
      read.program, ReadWhatWasOptimized(partitioner, request, options, partitioned.status()));
  return read;
}

// By a runtime that is closed when this returns.
absl::StatusOr<Partitioned> PartitionWithNew(const OpenBackend& open,
                                             const wire::CompileRequest& request,
                                             Exchanges exchanges) {
  GANGWAY_ASSIGN_OR_RETURN(const auto partitioner, open(static_cast<int>(request.device_count())));
  return PartitionWith(*partitioner, request, exchanges);
}

}  // namespace

absl::StatusOr<std::unique_ptr<device::Executable>> CompileForPositions(
    device::Backend& backend, const wire::CompileRequest& request, const std::string& options) {
  std::vector<int> positions(request.device_count());
  std::iota(positions.begin(), positions.end(), 0);
  auto compiled =
      backend.Compile({request.program(), request.format()}, WithDevices(options), positions);
  if (!compiled.ok()) return ExplainCompile(compiled.status());
  return compiled;
}

absl::StatusOr<Partitioned> Partition(device::Backend& backend, const wire::CompileRequest& request,
                                      const OpenBackend& open, Exchanges exchanges) {
  if (request.device_count() <= backend.devices().size())
    return PartitionWith(backend, request, exchanges);
  if (request.device_count() > kSpanMax) {
    return absl::ResourceExhaustedError(absl::StrCat("a program over ", request.device_count(),
                                                     " devices is over the limit of ", kSpanMax));
  }
  GANGWAY_RETURN_IF_ERROR(CheckThreadRoom(request.device_count() + kPartitionThreads));
  auto partitioned = PartitionWithNew(open, request, exchanges);
  ReleaseHeap(request.device_count() * kPartitionBytes);  // malloc would keep it for the next
  return partitioned;
}

}  // namespace gangway::compiler
