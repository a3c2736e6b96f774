// Which serialized executables of XLA have loops, branches or calls of a library. How long a program without any takes
// does not depend on its data.
#ifndef GANGWAY_DEVICE_PJRT_SERIALIZED_LOOPS_H_
#define GANGWAY_DEVICE_PJRT_SERIALIZED_LOOPS_H_

#include <algorithm>
#include <array>
#include <string_view>

namespace gangway::device {

// Whether the executable may have one. It carries the program as a serialized HloModuleProto, where an instruction's
// opcode is field 2, a string. Of a branch the runtime counts the larger side, and of a library's call nothing, so it
// may run either inside the call although they take long.
inline bool MayVaryInTime(std::string_view serialized) {
  constexpr std::array<std::string_view, 3> kOpcodes = {
      "\x12\x05"
      "while",
      "\x12\x0b"
      "conditional",
      "\x12\x0b"
      "custom-call"};
  return std::ranges::any_of(kOpcodes, [serialized](std::string_view opcode) {
    return serialized.find(opcode) != std::string_view::npos;
  });
}

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_SERIALIZED_LOOPS_H_
