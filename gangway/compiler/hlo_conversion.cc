// Implementation of hlo_conversion.h.
#include "gangway/compiler/hlo_conversion.h"

#include <climits>
#include <optional>
#include <utility>

#include "gangway/base/status.h"
#include "gangway/compiler/hlo_field.h"
#include "gangway/compiler/partition.h"
#include "gangway/compiler/written_hlo.h"
#include "gangway/xla/compile_options.pb.h"

namespace gangway::compiler {
namespace {

// Two positions, and no partitioner: XLA refuses that after it converted the program. Only what the conversion itself
// depends on is the request's.
absl::StatusOr<std::string> RefusedOptions(const std::string& serialized) {
  xla::CompileOptionsProto asked;
  if (serialized.size() > INT_MAX || !asked.ParseFromString(serialized))
    return absl::InvalidArgumentError("malformed compile options");
  xla::CompileOptionsProto options;
  xla::ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  build.set_num_replicas(1);
  build.set_num_partitions(2);
  build.set_use_shardy_partitioner(asked.executable_build_options().use_shardy_partitioner());
  return options.SerializeAsString();
}

}  // namespace

absl::StatusOr<std::string> ConvertToHlo(device::Backend& converter,
                                         const wire::CompileRequest& request) {
  constexpr int kModule = 1;  // of HloProto
  GANGWAY_ASSIGN_OR_RETURN(const std::string options, RefusedOptions(request.options()));
  wire::CompileRequest refused;
  refused.set_program(request.program());
  refused.set_format(request.format());
  refused.set_device_count(2);
  GANGWAY_ASSIGN_OR_RETURN(
      const std::string written,
      WrittenHlo(options, "", "before_optimizations", [&](const std::string& writes) {
        return CompileForPositions(converter, refused, writes).status();
      }));
  std::optional<std::string> module = FieldOf(written, kModule);
  if (!module)
    return absl::UnavailableError("the runtime wrote a part of a program: is its disk full?");
  return *std::move(module);
}

}  // namespace gangway::compiler
