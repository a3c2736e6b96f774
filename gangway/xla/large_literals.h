// Leaves the values of large constants out of a compiled program, so that what reads the program, keeps it or sends it
// does not copy them. Pure; for any bytes, in time linear in their number.
#ifndef GANGWAY_XLA_LARGE_LITERALS_H_
#define GANGWAY_XLA_LARGE_LITERALS_H_

#include <cstddef>
#include <string>

namespace gangway::xla {

// In bytes of the message. XLA prints constants of more than 10 elements as {...} in any case.
inline constexpr size_t kLargeLiteralBytes = size_t{64} << 10;

// `hlo_with_config`: as of DescribeExecutable (executable.h). Instructions whose literal takes more than `bytes_max`
// come without it, which XLA's clients read, and print as constant({...}). Everything else is kept, as are bytes that
// are no such program.
std::string WithoutLargeLiterals(std::string hlo_with_config,
                                 size_t bytes_max = kLargeLiteralBytes);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_LARGE_LITERALS_H_
