// The conformance suite of device::Backend: what every implementation must do. An implementation
// lists conformance.cc among its test's sources and instantiates the suite with its Subject.
#ifndef GANGWAY_DEVICE_CONFORMANCE_CONFORMANCE_H_
#define GANGWAY_DEVICE_CONFORMANCE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gangway/device/device.h"

namespace gangway::device {

struct TestProgram {
  std::string code;
  std::string format;
  std::string compile_options;
};

// The test programs of one implementation, and `expected`, which computes their outputs.
struct Subject {
  std::string name;
  // Opens `device_count` devices if it can. Real hardware may have fewer; tests that need more are
  // then skipped with a message.
  std::function<absl::StatusOr<std::unique_ptr<Backend>>(int device_count)> open;

  TestProgram unary;     // f32[4] -> f32[4]
  TestProgram binary;    // f32[4], f32[4] -> f32[4], f32[4]
  TestProgram donating;  // f32[4] -> f32[4], the argument donated to the output
  // `count` partitions, each f32[1] -> f32[1]; finishes only when every member runs. Each output
  // depends on all inputs and on the logical position.
  std::function<TestProgram(int count)> gang;

  // The outputs that logical position `position` must produce for `inputs` (per position, per
  // argument).
  using Arguments = std::vector<std::vector<float>>;
  std::function<Arguments(const TestProgram&, const std::vector<Arguments>& inputs, int position)>
      expected;

  std::vector<int32_t> element_types;  // types that the round-trip test covers
};

// How GoogleTest shows a Subject in its reports.
inline void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

class DeviceConformance : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override;

  // Compiles for `devices`. A compile error fails the test and returns null.
  std::unique_ptr<Executable> Compile(const TestProgram& program, std::vector<int> devices);

  int Last() const { return device_count_ - 1; }
  std::vector<int> AllDevices() const;

  static constexpr int kDevicesMax = 8;
  int device_count_ = 0;  // devices under test: at most kDevicesMax, even if the backend has more
  std::unique_ptr<Backend> backend_;
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_CONFORMANCE_CONFORMANCE_H_
