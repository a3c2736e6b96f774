// The simulated accelerator under the device conformance suite.
#include <cstring>

#include "gangway/device/conformance/conformance.h"
#include "gangway/device/conformance/device_test_util.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/device/sim/sim_program.h"

namespace gangway::device {
namespace {

TestProgram Sim(int cost_us, std::string statements) {
  return {absl::StrCat("sim 1\nname test\ncost_us ", cost_us, "\n", statements), "sim", ""};
}

uint64_t DigestOf(const SimProgram& program, const Subject::Arguments& inputs) {
  std::vector<std::span<const std::byte>> bytes;
  for (const auto& input : inputs) bytes.push_back(Bytes(input));
  return DigestInputs(program, bytes);
}

Subject::Arguments Expected(const TestProgram& text, const std::vector<Subject::Arguments>& inputs,
                            int position) {
  const SimProgram program = *ParseSimProgram(text.code);
  std::vector<uint64_t> digests;
  for (const auto& arguments : inputs) digests.push_back(DigestOf(program, arguments));
  const uint64_t digest =
      program.collective && program.partitions > 1 ? CombineDigests(digests) : digests[position];
  Subject::Arguments outputs;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const std::vector<std::byte> bytes = SimOutput(program, static_cast<int>(i), position, digest);
    outputs.emplace_back(bytes.size() / sizeof(float));
    std::memcpy(outputs.back().data(), bytes.data(), bytes.size());
  }
  return outputs;
}

// Without cost, programs run inside ExecuteOn.
Subject Simulated(std::string name, int cost_us) {
  Subject subject;
  subject.name = std::move(name);
  subject.open = [](int count) -> absl::StatusOr<std::unique_ptr<Backend>> {
    SimOptions options;
    options.device_count = count;
    return OpenSim(options);
  };
  subject.unary = Sim(cost_us, "input 11 4\noutput 11 4\n");
  subject.binary = Sim(cost_us, "input 11 4\ninput 11 4\noutput 11 4\noutput 11 4\n");
  subject.donating = Sim(cost_us, "input 11 4\noutput 11 4 donates 0\n");
  subject.gang = [cost_us](int count) {
    return Sim(cost_us,
               absl::StrCat("partitions ", count, "\ncollective\ninput 11 1\noutput 11 1\n"));
  };
  subject.expected = &Expected;
  subject.element_types = {kPred, kS8,  kS16,  kS32, kS64,  kU8, kU16, kU32,    kU64,     kF16,
                           kF32,  kF64, kBF16, kC64, kC128, kS4, kU4,  kF8E5M2, kF8E4M3FN};
  return subject;
}

INSTANTIATE_TEST_SUITE_P(Sim, DeviceConformance,
                         testing::Values(Simulated("Sim", 50), Simulated("Null", 0)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gangway::device
