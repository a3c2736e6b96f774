// Runs the device conformance suite on any PJRT plugin:
//     gangway_conformance --plugin PATH [GoogleTest's flags]
// The test of this name runs XLA's CPU plugin. gangway_conformance is the same program, linked so
// that it needs only glibc and the plugin: it can be copied to a machine with other devices. Tests
// that a platform cannot run are skipped with the reason.
#include <cstdio>
#include <string>
#include <string_view>

#include "gangway/base/package.h"
#include "gangway/device/conformance/conformance.h"
#include "gangway/device/element_type.h"
#include "gangway/device/pjrt/pjrt_test_programs.h"

namespace gangway::device {
namespace {

Subject::Arguments Expected(const TestProgram& program,
                            const std::vector<Subject::Arguments>& inputs, int position) {
  std::vector<float> x = inputs[position][0];
  if (program.code == UnaryProgram().code) {
    for (float& value : x) value += 1;
    return {x};
  }
  if (program.code == DonatingProgram().code) {
    for (float& value : x) value += value;
    return {x};
  }
  if (program.code == BinaryProgram().code) {
    std::vector<float> sum = x, product = x;
    for (size_t i = 0; i < x.size(); ++i) {
      sum[i] += inputs[position][1][i];
      product[i] *= inputs[position][1][i];
    }
    return {sum, product};
  }
  for (const auto& arguments : inputs) x[0] += arguments[0][0];
  x[0] += 1000.0f * static_cast<float>(position);
  return {x};
}

std::string& PluginPath() {
  static auto& path = *new std::string;
  return path;
}

absl::StatusOr<std::unique_ptr<Backend>> Open(int device_count) {
  PjrtOptions options;
  options.plugin_path = PluginPath();
  options.device_count = device_count;
  return OpenPjrt(options);
}

Subject Plugin() {
  Subject subject;
  subject.name = "Plugin";
  subject.open = &Open;
  subject.unary = UnaryProgram();
  subject.binary = BinaryProgram();
  subject.donating = DonatingProgram();
  subject.gang = &GangProgram;
  subject.expected = &Expected;
  subject.element_types = {kPred, kS8,  kS16,  kS32, kS64,  kU8, kU16, kU32,    kU64,     kF16,
                           kF32,  kF64, kBF16, kC64, kC128, kS4, kU4,  kF8E5M2, kF8E4M3FN};
  return subject;
}

INSTANTIATE_TEST_SUITE_P(Pjrt, DeviceConformance, testing::Values(Plugin()),
                         [](const auto& info) { return info.param.name; });

// Prints the plugin under test and its devices. False: the plugin cannot be opened.
bool Describe() {
  auto backend = Open(8);
  if (!backend.ok()) {
    std::fprintf(stderr, "gangway_conformance: %s\n", backend.status().ToString().c_str());
    return false;
  }
  const Capabilities& capabilities = (*backend)->capabilities();
  std::printf("plugin %s\nplatform %s, %s\n%s\n", PluginPath().c_str(),
              capabilities.platform.c_str(), capabilities.api_version.c_str(),
              capabilities.platform_version.c_str());
  for (const DeviceInfo& device : (*backend)->devices()) {
    std::string kinds;
    for (const std::string& kind : device.memory_kinds) kinds += " " + kind;
    std::printf("device %d: %s, memory:%s\n", device.local_index, device.kind.c_str(),
                kinds.c_str());
  }
  return true;
}

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 3 && std::string_view(argv[1]) == "--plugin") {
    PluginPath() = argv[2];
#ifdef GANGWAY_TEST_PJRT_PLUGIN
  } else if (argc == 1) {
    PluginPath() = SourcePath(GANGWAY_TEST_PJRT_PLUGIN);
#endif
  } else {
    std::fprintf(stderr, "usage: %s --plugin PATH [--gtest_filter=...]\n", argv[0]);
    return 2;
  }
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  return Describe() ? RUN_ALL_TESTS() : 1;
}

}  // namespace
}  // namespace gangway::device

int main(int argc, char** argv) { return gangway::device::Main(argc, argv); }
