// Functions for tests of the passes, by name. Each is on the devices and takes and gives the shapes that its table
// says.
#ifndef GANGWAY_PROGRAM_FUNCTIONS_TEST_UTIL_H_
#define GANGWAY_PROGRAM_FUNCTIONS_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/program/passes.h"
#include "gangway/program/program.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::program {

inline ArrayShape F32(int64_t elements) {
  return {.element_type = xla::TYPE_F32,
          .shard_dims = {elements},
          .shard_bytes = static_cast<uint64_t>(elements) * 4};
}

// "missing" is not among them.
class TestFunctions {
 public:
  TestFunctions() {
    Add("f", {F32(2)}, {F32(2)}, {}, {0, 1});
    Add("take", {F32(2)}, {F32(2)}, {0}, {0, 1});
    Add("far", {F32(2)}, {F32(2)}, {}, {2, 3});
    Add("take_far", {F32(2), F32(2)}, {F32(2)}, {0}, {2, 3});
    Add("pair", {F32(2), F32(2)}, {F32(2), F32(4)}, {0, 1}, {0, 1});
    Add("add", {F32(2), F32(2)}, {F32(2)}, {}, {0, 1});
    Add("log", {F32(4)}, {}, {}, {0, 1});
    Add("one", {F32(2)}, {F32(2)}, {}, {0});
    Add("anywhere", {F32(2)}, {F32(2)}, {}, {});
  }

  FunctionTypes Types() const {
    return [this](const std::string& name) -> absl::StatusOr<const FunctionType*> {
      auto found = all_.find(name);
      if (found == all_.end()) return absl::InvalidArgumentError("'" + name + "' is not known");
      return &found->second;
    };
  }

 private:
  void Add(const std::string& name, std::vector<ArrayShape> parameters,
           std::vector<ArrayShape> results, std::vector<uint32_t> donated, Devices devices) {
    all_[name] = {.name = "my_" + name,
                  .parameters = std::move(parameters),
                  .results = std::move(results),
                  .donated = std::move(donated),
                  .devices = std::move(devices)};
  }

  std::map<std::string, FunctionType> all_;
};

// A program from its text, which must be right.
inline Program Parsed(std::string_view text) {
  absl::StatusOr<Program> program = Parse(text);
  EXPECT_TRUE(program.ok()) << program.status() << "\n" << text;
  return program.ok() ? *std::move(program) : Program();
}

// What a pass gave, or its error.
inline std::string TextOf(const absl::StatusOr<Program>& program) {
  if (!program.ok()) return std::string(program.status().message());
  EXPECT_EQ(Parsed(Print(*program)), *program) << Print(*program);
  return Print(*program);
}

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_FUNCTIONS_TEST_UTIL_H_
