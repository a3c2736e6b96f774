// The advice of the table, and what of a refusal is kept. Texts of the real plugin: compiler_test.cc.
#include "gangway/compiler/refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gangway/wire/failure.h"

namespace gangway::compiler {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(AdviceOn, TheParticularRowComesBeforeTheGeneralOne) {
  constexpr std::string_view kGeneral =
      "No registered implementation for untyped custom call to nobody for Host";
  constexpr std::string_view kParticular =
      "No registered implementation for untyped custom call to tpu_custom_call for Host";
  EXPECT_THAT(std::string(AdviceOn(kGeneral)), HasSubstr("no such function"));
  EXPECT_THAT(std::string(AdviceOn(kParticular)), HasSubstr("interpret=True"));
}

TEST(AdviceOn, UnknownRefusalsNameTheWayToFindTheCause) {
  EXPECT_THAT(std::string(AdviceOn("something new")), HasSubstr("JAX_PLATFORMS=cpu"));
}

TEST(Explain, KeepsTheCodeAndTheRuntimesText) {
  const absl::Status explained =
      Explain(absl::NotFoundError("No FFI handler registered for nobody on Host\n"));
  EXPECT_EQ(explained.code(), absl::StatusCode::kNotFound);
  const wire::Failure failure = wire::ToFailure(explained);
  EXPECT_EQ(failure.message(),
            "the devices' runtime does not compile the program: No FFI handler registered for "
            "nobody on Host.");
  EXPECT_THAT(failure.advice(), HasSubstr("no such function"));
  EXPECT_TRUE(Explain(absl::OkStatus()).ok());
}

TEST(Explain, TheAdviceOfALongRefusalIsWhole) {
  const absl::Status explained =
      Explain(absl::UnimplementedError("opcode `send` " + std::string(100'000, 'x')));
  EXPECT_LT(explained.message().size(), 6000u);
  EXPECT_THAT(std::string(explained.message()), HasSubstr("io_callback."));
  EXPECT_THAT(std::string(explained.message()), Not(HasSubstr("JAX_PLATFORMS")));
}

}  // namespace
}  // namespace gangway::compiler
