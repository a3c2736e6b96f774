// Serialized executables (stored_program.h). Loading one compiles its program, which the cluster's compile cache
// answers where it still has the program.
#include <utility>

#include "gangway/base/status.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/executable.h"
#include "gangway/frontdoor/pjrt/stored_program.h"

struct PJRT_SerializedExecutable {
  std::string bytes;
};

namespace gangway::pjrt {

absl::Status ExecutableSerialize(PJRT_Executable_Serialize_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, "the executable"));
  auto serialized = std::make_unique<PJRT_SerializedExecutable>();
  serialized->bytes = Store(*args.executable->program->source);
  args.serialized_bytes = serialized->bytes.data();
  args.serialized_bytes_size = serialized->bytes.size();
  args.serialized_executable_deleter = [](PJRT_SerializedExecutable* done) { delete done; };
  args.serialized_executable = serialized.release();
  return absl::OkStatus();
}

absl::Status ExecutableLoad(PJRT_Executable_DeserializeAndLoad_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, "the client"));
  GANGWAY_RETURN_IF_ERROR(Need(args.serialized_executable, "the serialized executable"));
  GANGWAY_ASSIGN_OR_RETURN(StoredProgram stored, ReadStored({args.serialized_executable,
                                                             args.serialized_executable_size}));
  if (args.overridden_serialized_compile_options != nullptr) {
    stored.options.assign(args.overridden_serialized_compile_options,
                          args.overridden_serialized_compile_options_size);
  }
  GANGWAY_ASSIGN_OR_RETURN(args.loaded_executable, Compile(args.client, std::move(stored)));
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
