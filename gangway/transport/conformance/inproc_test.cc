// Runs the conformance suite on the in-process transport.
#include "gangway/transport/inproc/inproc.h"

#include "gangway/transport/conformance/conformance.h"

namespace gangway::transport {
namespace {

const Implementation kInproc{"inproc", NewInprocTransport, "island0", "nobody"};

INSTANTIATE_TEST_SUITE_P(Inproc, TransportAddresses, ::testing::Values(kInproc));
INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformance, ::testing::Values(kInproc));

}  // namespace
}  // namespace gangway::transport
