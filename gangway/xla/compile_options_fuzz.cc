// Compile options from a client: they are rejected, or the devices written to them are read back.
#include <random>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/xla/compile_options.h"
#include "gangway/xla/fuzz_message.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  xla::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_num_replicas(2);
  options.mutable_executable_build_options()->set_num_partitions(2);
  auto assigned = xla::WithDevices(options.SerializeAsString(), std::vector<uint32_t>{4, 5, 6, 7});
  GANGWAY_CHECK(assigned.ok(), "a seed is valid");
  return {options.SerializeAsString(), *assigned};
}

}  // namespace gangway::fuzz

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  std::mt19937 random(seed);
  return gangway::xla::MutatedMessage<gangway::xla::CompileOptionsProto>(
             gangway::fuzz::View(data, size), random)
      .copy(reinterpret_cast<char*>(data), size_max);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gangway::xla::CompileOptionsProto options;
  if (options.ParseFromArray(data, static_cast<int>(size)))
    (void)gangway::xla::AssignedDevices(options);
  const std::vector<uint32_t> all[] = {{}, {3}, {9, 8, 7, 6}};
  for (const std::vector<uint32_t>& devices : all) {
    auto written = gangway::xla::WithDevices(gangway::fuzz::View(data, size), devices);
    if (!written.ok()) continue;
    GANGWAY_CHECK(options.ParseFromString(*written), "written options parse");
    auto read = gangway::xla::AssignedDevices(options);
    GANGWAY_CHECK(read.ok() && *read == devices, "the devices are those that were written");
  }
  const auto canonical = gangway::xla::CanonicalOptions(gangway::fuzz::View(data, size));
  if (canonical.ok()) {
    const auto again = gangway::xla::CanonicalOptions(*canonical);
    GANGWAY_CHECK(again.ok() && *again == *canonical, "canonical options stay as they are");
  }
  return 0;
}
