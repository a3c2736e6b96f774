// Bytes of serialized executables: what is written is read, and nothing else.
#include "gangway/frontdoor/pjrt/stored_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gangway::pjrt {
namespace {

using testing::HasSubstr;

const StoredProgram& Example() {
  static const auto& example = *new StoredProgram{
      .program = std::string("a\0b", 3), .format = "mlir", .options = "", .layouts = "0,1|"};
  return example;
}

TEST(StoredProgramTest, IsReadAsItWasWritten) {
  auto read = ReadStored(Store(Example()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Example());
}

TEST(StoredProgramTest, EveryChangedOrMissingByteIsAnError) {
  const std::string bytes = Store(Example());
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(ReadStored(bytes.substr(0, i)).ok()) << i;
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(ReadStored(changed).ok()) << i;
  }
  EXPECT_FALSE(ReadStored(bytes + "x").ok());
}

TEST(StoredProgramTest, ErrorsSayWhatIsWrong) {
  EXPECT_THAT(ReadStored("\x7f"
                         "ELF")
                  .status()
                  .message(),
              HasSubstr("compile the program again"));
  std::string newer = Store(Example());
  newer[8] = '4';
  EXPECT_EQ(ReadStored(newer).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(ReadStored(newer).status().message(), HasSubstr("another version"));
}

}  // namespace
}  // namespace gangway::pjrt
