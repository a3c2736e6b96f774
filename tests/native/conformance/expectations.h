// What the two plugins answer differently, in one table (expectations.cc): the CPU plugin (XLA's of API
// 0.115) says what PJRT does, the reason says why Gangway's answer is another. A test names the topic, and leaves
// out what would end the process.
#ifndef TESTS_NATIVE_CONFORMANCE_EXPECTATIONS_H_
#define TESTS_NATIVE_CONFORMANCE_EXPECTATIONS_H_

#include "pjrt_c_api.h"

namespace conformance {

enum class Topic {
  kAliasBuffer,
  kAssignmentTooSmall,
  kCompileForTopology,
  kCopyToDeviceStream,
  kCostAnalysis,
  kDamagedExecutable,
  kDeletedExecutable,
  kDmaMap,
  kDonationRefused,
  kErrorOfPendingEvent,
  kExecuteDevice,
  kHostLayout,
  kHugeReplicas,
  kIncompleteTransfer,
  kLoadedFingerprint,
  kMemoryDescriptions,
  kMemoryStats,
  kNoOptions,
  kNoReference,
  kNullHandles,
  kOlderMemoryStats,
  kOutputMemoryKinds,
  kParameterLayouts,
  kPortableAssignment,
  kStridesToHost,
  kTooManyReplicas,
  kTopologyDeserialize,
  kTopologyLayout,
  kTransferMistakes,
  kUninitializedBuffer,
  kUnknownOption,
  kUnknownType,
  kWaitInCallback,
  kWrongType,
};

// Whether the plugin under test is Gangway's; otherwise it is XLA's for CPUs.
bool IsGangway();

// The code that the plugin under test answers.
PJRT_Error_Code Expected(Topic topic);

// Whether the case runs on the plugin under test, or is left out for its reason.
bool Runs(Topic topic);

// Why the answers differ.
const char* Reason(Topic topic);

}  // namespace conformance

#endif  // TESTS_NATIVE_CONFORMANCE_EXPECTATIONS_H_
