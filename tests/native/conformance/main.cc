// The conformance suite of PJRT's C API: tests/test_pjrt_conformance.py runs it on Gangway's plugin and on XLA's plugin
// for CPUs. A run of all tests fails if one function of the API was never called. With --states it only says of each
// function whether Gangway serves it, for the comparison with docs/reference/pjrt.md.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/native/conformance/plugin.h"
#include "tests/native/conformance/sweep.h"

namespace conformance {
namespace {

void PrintStates() {
  for (const Swept& each : AllFunctions()) {
    const bool is_served = each.call(nullptr).code != PJRT_Error_Code_UNIMPLEMENTED;
    std::printf("%s %s\n", each.name.c_str(), is_served ? "served" : "unimplemented");
  }
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--states") == 0) {
    conformance::PrintStates();
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  const bool runs_all = testing::GTEST_FLAG(filter) == "*";
  const int status = RUN_ALL_TESTS();
  if (!runs_all) return status;
  const std::vector<std::string> missing = conformance::FunctionsNotCalled();
  for (const std::string& name : missing) std::printf("no test calls %s\n", name.c_str());
  return missing.empty() ? status : 1;
}
