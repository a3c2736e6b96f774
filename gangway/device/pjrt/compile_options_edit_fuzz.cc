// The device layer's edit of compile options: it fails, or it keeps the shape and a second edit
// changes nothing.
#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/device/pjrt/compile_options_edit.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  using namespace std::string_literals;
  // executable_build_options {num_replicas: 2 num_partitions: 2}, and an unknown field before it.
  return {"\x1a\x04\x20\x02\x28\x02"s, "\x08\x07\x1a\x04\x20\x02\x28\x02"s, ""s,
          // env_option_overrides {key: "xla_disable_hlo_passes" value {string_field: "a"}}
          "\x3a\x1d\x0a\x16xla_disable_hlo_passes\x12\x03\x0a\x01\x61"s};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace device = gangway::device;
  const std::string_view options = gangway::fuzz::View(data, size);
  auto shape = device::ReadLogicalShape(options);
  const std::string without = device::WithoutXlaPass(options, "a pass");
  GANGWAY_CHECK(without.starts_with(options), "it adds an override, or changes nothing");
  GANGWAY_CHECK(device::ReadLogicalShape(without).ok() == shape.ok(), "it stays valid or not");
  const std::vector<int64_t> all[] = {{3}, {0, 1, 2, 5}};
  for (const std::vector<int64_t>& devices : all) {
    auto written = device::WithDeviceAssignment(options, devices);
    if (!written.ok()) continue;
    auto kept = device::ReadLogicalShape(*written);
    GANGWAY_CHECK(shape.ok() && kept.ok() && kept->num_replicas == shape->num_replicas &&
                      kept->num_partitions == shape->num_partitions,
                  "the shape stays");
    auto again = device::WithDeviceAssignment(*written, devices);
    GANGWAY_CHECK(again.ok() && *again == *written, "a second edit changes nothing");
  }
  return 0;
}
