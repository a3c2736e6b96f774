// The bytes of a serialized executable: the program, and the options to compile it with. They hold no native code, so
// that nothing of what a script loads runs on a worker before the cluster's compiler has made it; its cache answers
// without compiling. Pure; what is read may come from anywhere.
#ifndef GANGWAY_FRONTDOOR_PJRT_STORED_PROGRAM_H_
#define GANGWAY_FRONTDOOR_PJRT_STORED_PROGRAM_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gangway::pjrt {

struct StoredProgram {
  std::string program;
  std::string format;   // as in PJRT_Program
  std::string options;  // a serialized xla.CompileOptionsProto
  std::string layouts;  // of layout.h; empty: row-major

  bool operator==(const StoredProgram&) const = default;
};

std::string Store(const StoredProgram& stored);

// INVALID_ARGUMENT: not bytes of Store, or damaged. FAILED_PRECONDITION: of another version.
absl::StatusOr<StoredProgram> ReadStored(std::string_view bytes);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_STORED_PROGRAM_H_
