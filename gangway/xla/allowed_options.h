// Which compile options a client may set. XLA's options were made for one user on one machine: some write files where
// they say, change the whole process, end it, or make XLA trust the program. So only what is listed reaches XLA: of
// DebugOptions the fields in option_table.h, of the other messages the fields in allowed_options.cc, each within its
// range, by whichever way they come. What comes out has one spelling, so that equal options have one cache entry. Pure
// functions.
#ifndef GANGWAY_XLA_ALLOWED_OPTIONS_H_
#define GANGWAY_XLA_ALLOWED_OPTIONS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/xla/hlo.pb.h"

namespace gangway::xla {

// What the options are for.
struct OptionsHost {
  std::string_view platform;  // of the devices: "cpu", "cuda", ...
  std::string_view
      flags;  // XLA_FLAGS of the process that compiles: paths of a GPU's files come from there
};

// The largest serialized options that are read.
inline constexpr size_t kOptionsBytesMax = size_t{4} << 20;

// The serialized CompileOptionsProto that a client sent, as XLA gets it. The devices are left out, since the compiler
// assigns positions. So are fields of DebugOptions that the table lacks: they come from a newer JAX, which sends all of
// its options, also those that no script has set. INVALID_ARGUMENT: not compile options, or an option that is refused;
// the message has its name, why, and what to do.
absl::StatusOr<std::string> AllowedOptions(std::string_view serialized, const OptionsHost& host);

// Whether the lists of the options fit a program of this shape: XLA ends its process if it propagates shardings to more
// or fewer parameters or results than there are. INVALID_ARGUMENT: a list has neither one element nor one for each.
absl::Status CheckPropagation(std::string_view serialized, const ProgramShapeProto& shape);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_ALLOWED_OPTIONS_H_
