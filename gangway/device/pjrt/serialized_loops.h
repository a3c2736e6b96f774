// Which serialized executables of XLA have loops. How long a program without any takes does not depend on its data.
#ifndef GANGWAY_DEVICE_PJRT_SERIALIZED_LOOPS_H_
#define GANGWAY_DEVICE_PJRT_SERIALIZED_LOOPS_H_

#include <string_view>

namespace gangway::device {

// Whether the executable may have one. It carries the program as a serialized HloModuleProto, where an instruction's
// opcode is field 2, a string.
inline bool MayLoop(std::string_view serialized) {
  return serialized.find(
             "\x12\x05"
             "while") != std::string_view::npos;
}

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_SERIALIZED_LOOPS_H_
