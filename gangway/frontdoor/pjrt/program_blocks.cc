// Implementation of program_blocks.h.
#include "gangway/frontdoor/pjrt/program_blocks.h"

#include "gangway/client/client.h"
#include "gangway/frontdoor/pjrt/cluster.h"
#include "gangway/frontdoor/pjrt/process_clients.h"

namespace gangway::pjrt {
namespace {

void Begin() {
  ForEachProcessClient([](const PJRT_Client& client) { client.session->BeginProgram(); });
}

// A client that the block made has begun nothing, and ends nothing.
void End(GangwayProgramCapture* capture) {
  *capture = {};
  ForEachProcessClient([capture](const PJRT_Client& client) {
    const ProgramCapture captured = client.session->EndProgram();
    capture->launches += captured.launches;
    capture->operations_sent_as_they_came += captured.operations_sent_as_they_came;
    if (!captured.cut_by.empty() && capture->cut_by[0] == '\0')
      captured.cut_by.copy(capture->cut_by, sizeof(capture->cut_by) - 1);
  });
}

}  // namespace

PJRT_Extension_Base* ProgramsExtension() {
  static GangwayProgramsExtension extension{
      .base = {.struct_size = sizeof(GangwayProgramsExtension),
               .type = static_cast<PJRT_Extension_Type>(GANGWAY_PROGRAMS_EXTENSION_TYPE),
               .next = nullptr},
      .begin = Begin,
      .end = End};
  return &extension.base;
}

}  // namespace gangway::pjrt
