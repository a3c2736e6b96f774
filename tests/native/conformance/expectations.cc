// Implementation of expectations.h.
#include "tests/native/conformance/expectations.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace conformance {
namespace {

constexpr int kNotRun = -1;  // the case, or the rest of it, is left out

constexpr int kOk = PJRT_Error_Code_OK, kInvalid = PJRT_Error_Code_INVALID_ARGUMENT,
              kNotFound = PJRT_Error_Code_NOT_FOUND,
              kPrecondition = PJRT_Error_Code_FAILED_PRECONDITION,
              kUnimplemented = PJRT_Error_Code_UNIMPLEMENTED;

struct Difference {
  Topic topic;
  int gangway, cpu;
  const char* reason;
};

constexpr Difference kDifferences[] = {
    // What a plugin whose devices are in other processes does not have.
    {Topic::kAliasBuffer, kUnimplemented, kOk,
     "a buffer's bytes are known by its call or transfer"},
    {Topic::kCopyToDeviceStream, kUnimplemented, kInvalid, "programs send and receive nothing"},
    {Topic::kUninitializedBuffer, kUnimplemented, kOk, "its bytes could not be written"},
    {Topic::kCompileForTopology, kUnimplemented, kOk, "the cluster compiles for its devices"},
    {Topic::kTopologyDeserialize, kUnimplemented, kOk, "the cluster compiles for its devices"},
    // What Gangway has beyond the CPU plugin.
    {Topic::kCostAnalysis, kOk, kUnimplemented, "JAX's users read them"},
    {Topic::kLoadedFingerprint, kOk, kUnimplemented, "deprecated, but older callers ask"},
    {Topic::kMemoryDescriptions, kOk, kNotRun, "the CPU plugin describes no memories"},
    {Topic::kMemoryStats, kOk, kUnimplemented, "the cluster's ledger counts"},
    {Topic::kParameterLayouts, kOk, kNotRun, "the CPU plugin's extension is older"},
    {Topic::kStridesToHost, kOk, kInvalid, "any strides are possible from host memory, too"},
    {Topic::kHostLayout, kOk, kNotRun, "the CPU plugin copies the bytes as they lie"},
    {Topic::kDonationRefused, kOk, kOk, "a call that is refused donates nothing"},
    {Topic::kWaitInCallback, kPrecondition, kOk, "a callback's thread serves the session"},
    // Another code for the same mistake.
    {Topic::kAssignmentTooSmall, kInvalid, kPrecondition, "an argument is wrong, not a state"},
    {Topic::kExecuteDevice, kUnimplemented, kInvalid, "a device that the call names is one limit"},
    {Topic::kNoReference, kPrecondition, kInvalid, "the call is right, the buffer's state is not"},
    {Topic::kPortableAssignment, kPrecondition, kOk, "each call names the device"},
    // Mistakes that the CPU plugin does not see.
    {Topic::kTooManyReplicas, kInvalid, kOk, "the cluster has no such devices"},
    {Topic::kWrongType, kInvalid, kOk, "the CPU plugin compares sizes in bytes alone"},
    {Topic::kDamagedExecutable, kInvalid, kNotRun, "the CPU plugin loads some of them"},
    {Topic::kOlderMemoryStats, kOk, kNotRun, "the CPU plugin refuses all but the newest callers"},
    // Mistakes that end the process of the CPU plugin.
    {Topic::kDeletedExecutable, kOk, kNotRun, "it runs deleted executables, and crashes"},
    {Topic::kErrorOfPendingEvent, kOk, kNotRun, "it ends the process"},
    {Topic::kHugeReplicas, kOk, kNotRun, "an exception leaves it"},
    {Topic::kIncompleteTransfer, kOk, kNotRun, "it takes them, and ends the process later"},
    {Topic::kNoOptions, kOk, kNotRun, "it ends the process without a number of replicas"},
    {Topic::kNullHandles, kOk, kNotRun, "it dereferences null"},
    {Topic::kTransferMistakes, kOk, kNotRun, "it ends the process"},
    {Topic::kUnknownType, kOk, kNotRun, "it ends the process"},
    // One answer.
    {Topic::kDmaMap, kUnimplemented, kUnimplemented, "no device reads this memory by itself"},
    {Topic::kOutputMemoryKinds, kOk, kOk, "JAX asks for them"},
    {Topic::kUnknownOption, kInvalid, kInvalid, "a misspelled option would be a wrong cluster"},
    {Topic::kTopologyLayout, kOk, kOk, "of the client's own topology"},
};

const Difference& Find(Topic topic) {
  for (const Difference& each : kDifferences) {
    if (each.topic == topic) return each;
  }
  std::abort();  // the table lacks a topic
}

int Answer(Topic topic) { return IsGangway() ? Find(topic).gangway : Find(topic).cpu; }

}  // namespace

bool IsGangway() {
  static const bool is_gangway = [] {
    const char* const name = std::getenv("GANGWAY_CONFORMANCE_PLUGIN");
    const std::string_view plugin = name == nullptr ? "" : name;
    if (plugin == "gangway" || plugin == "cpu") return plugin == "gangway";
    std::fprintf(stderr, "GANGWAY_CONFORMANCE_PLUGIN is neither gangway nor cpu\n");
    std::exit(1);
  }();
  return is_gangway;
}

PJRT_Error_Code Expected(Topic topic) { return static_cast<PJRT_Error_Code>(Answer(topic)); }

bool Runs(Topic topic) { return Answer(topic) != kNotRun; }

const char* Reason(Topic topic) { return Find(topic).reason; }

}  // namespace conformance
