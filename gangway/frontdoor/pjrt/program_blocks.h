// Blocks of a script that are captured as programs (Client::BeginProgram): an extension of Gangway's own in the chain
// of PJRT_Api, which the framework's side (python/gangway/_program.py, through ctypes) calls at their begin and end. A
// block is of all clients of the process: it does not know which one its script will use.
//
// Threading: any thread; never waits for the cluster.
#ifndef GANGWAY_FRONTDOOR_PJRT_PROGRAM_BLOCKS_H_
#define GANGWAY_FRONTDOOR_PJRT_PROGRAM_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "pjrt_c_api.h"

extern "C" {

// Outside the numbers of the API's own extensions.
#define GANGWAY_PROGRAMS_EXTENSION_TYPE 0x47575950

// gangway::ProgramCapture, of all clients together.
struct GangwayProgramCapture {
  uint64_t launches;
  uint64_t operations_sent_as_they_came;
  char cut_by[64];  // ends with 0
};

struct GangwayProgramsExtension {
  PJRT_Extension_Base base;
  void (*begin)();
  void (*end)(GangwayProgramCapture* capture);
};
}

namespace gangway::pjrt {

PJRT_Extension_Base* ProgramsExtension();

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_PROGRAM_BLOCKS_H_
