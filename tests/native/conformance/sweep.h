// All functions of the plugin's table as one list, to call each of them with the same mistake. These calls do not count
// as tests of a function.
#ifndef TESTS_NATIVE_CONFORMANCE_SWEEP_H_
#define TESTS_NATIVE_CONFORMANCE_SWEEP_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/native/conformance/functions.h"
#include "tests/native/conformance/plugin.h"

namespace conformance {

// A function of the table, called with bytes instead of its arguments. The bytes outlive the call.
struct Swept {
  std::string name;
  size_t size;  // of its arguments, in the header's version
  std::function<Said(void*)> call;
};

template <typename Args>
std::function<Said(void*)> CallOf(PJRT_Error* (*function)(Args*)) {
  return [function](void* args) { return Take(function(static_cast<Args*>(args))); };
}
// PJRT_Error_Destroy and PJRT_Error_Message, which report nothing.
template <typename Args>
std::function<Said(void*)> CallOf(void (*function)(Args*)) {
  return [function](void* args) {
    function(static_cast<Args*>(args));
    return Said{};
  };
}

inline std::vector<Swept> AllFunctions() {
  return {
#define CONFORMANCE_SWEPT(name) \
  {"PJRT_" #name, PJRT_##name##_Args_STRUCT_SIZE, CallOf(RawApi().PJRT_##name)},
      CONFORMANCE_FUNCTIONS(CONFORMANCE_SWEPT)
#undef CONFORMANCE_SWEPT
  };
}

}  // namespace conformance

#endif  // TESTS_NATIVE_CONFORMANCE_SWEEP_H_
