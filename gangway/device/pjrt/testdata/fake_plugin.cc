// Three broken plugins for pjrt_open_test, by GANGWAY_FAKE: 0 exports nothing, 1 has another API
// version, 2 has the right version but no functions.
#include "pjrt_c_api.h"

#if GANGWAY_FAKE != 0
extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api{};
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = GANGWAY_FAKE == 1 ? 99 : PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = GANGWAY_FAKE == 1 ? 1 : PJRT_API_MINOR;
  return &api;
}
#endif
