// Runs the conformance suite on the in-process transport.
#include "gangway/transport/inproc/inproc.h"

#include "gangway/transport/conformance/conformance.h"

namespace gangway::transport {
namespace {

INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformance,
                         ::testing::Values(Implementation{"inproc", NewInprocTransport, "island0",
                                                          "nobody"}));

}  // namespace
}  // namespace gangway::transport
