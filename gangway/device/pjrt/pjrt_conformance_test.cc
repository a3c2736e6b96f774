// XLA CPU behind the PJRT C API, under the device conformance suite.
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

Subject XlaCpu() {
  Subject subject;
  subject.name = "XlaCpu";
  subject.open = &OpenTestPlugin;
  subject.unary = UnaryProgram();
  subject.binary = BinaryProgram();
  subject.donating = DonatingProgram();
  subject.gang = &GangProgram;
  subject.expected = &Expected;
  subject.element_types = {kPred, kS8,  kS16,  kS32, kS64,  kU8, kU16, kU32,    kU64,     kF16,
                           kF32,  kF64, kBF16, kC64, kC128, kS4, kU4,  kF8E5M2, kF8E4M3FN};
  return subject;
}

INSTANTIATE_TEST_SUITE_P(Pjrt, DeviceConformance, testing::Values(XlaCpu()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gangway::device
