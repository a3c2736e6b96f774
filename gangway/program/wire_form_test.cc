// Programs on the wire.
#include "gangway/program/wire_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>

#include "gangway/program/functions_test_util.h"
#include "gangway/program/random_program_test_util.h"

namespace gangway::program {
namespace {

constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();

TEST(WireFormTest, RoundTrip) {
  EXPECT_TRUE(rc::check([] {
    const Program program = DrawProgram().program;
    wire::Program message;
    ToWire(program, message);
    const auto read = FromWire(message);
    RC_ASSERT(read.ok());
    RC_ASSERT(*read == program);
  }));
}

TEST(WireFormTest, NamesExecutablesByTheirHandles) {
  wire::Program message;
  ToWire(Parsed("program step\n"
                "%0 = argument @0,1\n"
                "%1 = argument @2,3\n"
                "%2, %3 = call 18446744073709551615(%0, keep %0) from \"t.py:1\"\n"
                "%4 = transfer %2 @4,5 {pinned_host}\n"
                "%5 = view %4[1], %0[0]\n"
                "%6 = replica of %5\n"
                "%7 = call 7(%6)\n"
                "%8 = transfer %7 @4,5\n"
                "result %8\n"
                "result %3\n"),
         message);
  EXPECT_EQ(message.name(), "step");
  EXPECT_EQ(message.arguments(), 2u);
  EXPECT_THAT(message.executables(),
              ::testing::ElementsAre(std::numeric_limits<uint64_t>::max(), 7));
  EXPECT_EQ(message.device_lists_size(), 1);  // that of the transfers
  EXPECT_THAT(message.results(), ::testing::ElementsAre(8, 3));
  EXPECT_EQ(TextOf(FromWire(message)),
            "program step\n"
            "%0 = argument\n"
            "%1 = argument\n"
            "%2, %3 = call 18446744073709551615(%0, keep %0) from \"t.py:1\"\n"
            "%4 = transfer %2 @4,5 {pinned_host}\n"
            "%5 = view %4[1], %0[0]\n"
            "%6 = replica of %5\n"
            "%7 = call 7(%6)\n"
            "%8 = transfer %7 @4,5\n"
            "result %8\n"
            "result %3\n");
}

TEST(WireFormTest, EntriesThatAreEqualOrNotUsedAreOneOrNone) {
  wire::Program message;
  message.set_arguments(1);
  for (uint64_t handle : {5, 3, 3}) message.add_executables(handle);
  for (uint32_t i = 0; i < 3; ++i) {
    message.add_device_lists()->add_devices(i == 0 ? 9 : 1);
    message.add_sources(i == 0 ? "unused" : "t.py:1");
  }
  for (uint32_t i = 1; i < 3; ++i) {
    message.add_nodes()->mutable_call()->set_executable(i);
    wire::ProgramNode& transfer = *message.add_nodes();
    transfer.mutable_transfer()->set_devices(i);
    transfer.set_source(i);
  }
  const auto program = FromWire(message);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->functions(), std::vector<std::string>{"3"});
  EXPECT_EQ(program->device_lists(), std::vector<Devices>{{1}});
  EXPECT_EQ(program->sources(), std::vector<std::string>{"t.py:1"});
}

// A message of one argument, an executable, a list of devices, and a source.
class HostileMessageTest : public ::testing::Test {
 protected:
  HostileMessageTest() {
    message_.set_arguments(1);
    message_.add_executables(7);
    message_.add_device_lists()->add_devices(0);
    message_.add_sources("t.py:1");
  }
  std::string Error() const { return std::string(FromWire(message_).status().message()); }
  absl::StatusCode Code() const { return FromWire(message_).status().code(); }
  wire::ProgramCall& Call() { return *message_.add_nodes()->mutable_call(); }

  wire::Program message_;
};

TEST_F(HostileMessageTest, IndicesOutsideOfTheTables) {
  Call().set_executable(1);
  EXPECT_EQ(Error(), "node 1 calls executable 1 of 1");
  message_.clear_nodes();
  message_.add_nodes()->mutable_transfer()->set_devices(kMax);
  EXPECT_EQ(Error(), "node 1 names list 4294967295 of 1 lists of devices");
  message_.clear_nodes();
  Call();
  message_.mutable_nodes(0)->set_source(1);
  EXPECT_EQ(Error(), "node 1 names source 1 of 1");
  message_.clear_nodes();
  message_.add_nodes();
  EXPECT_EQ(Error(), "node 1 is of no kind that is known");
  EXPECT_EQ(Code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HostileMessageTest, ValuesThatAreNotDefinedBefore) {
  Call().add_inputs(1);  // its own output
  message_.mutable_nodes(0)->mutable_call()->set_outputs(1);
  EXPECT_EQ(Error(), "node 1 uses %1, which is not defined before it");
  message_.clear_nodes();
  message_.add_nodes()->mutable_transfer()->set_input(kMax);
  EXPECT_EQ(Error(), "node 1 uses %4294967295, which is not defined before it");
  message_.clear_nodes();
  message_.add_nodes()->mutable_view()->add_inputs(2);
  EXPECT_EQ(Error(), "node 1 uses %2, which is not defined before it");
  message_.clear_nodes();
  message_.add_results(1);
  EXPECT_EQ(Error(), "node 1 uses %1, which is not defined before it");
}

TEST_F(HostileMessageTest, NumbersOfOutputsThatAreTooLarge) {
  Call().set_outputs(kMax);
  EXPECT_EQ(Error(), "a program of 4294967296 values exceeds the limit of 1048576");
  EXPECT_EQ(Code(), absl::StatusCode::kResourceExhausted);
  Call().set_outputs(kMax);  // a sum of 32 bits would be small again
  Call().set_outputs(2);
  EXPECT_EQ(Error(), "a program of 8589934593 values exceeds the limit of 1048576");
  message_.clear_nodes();
  Call().set_outputs(kValuesMax);
  EXPECT_EQ(Code(), absl::StatusCode::kResourceExhausted);
  message_.mutable_nodes(0)->mutable_call()->set_outputs(kValuesMax - 1);
  EXPECT_EQ(Code(), absl::StatusCode::kOk);
}

TEST_F(HostileMessageTest, TooManyNodesArgumentsAndResults) {
  message_.set_arguments(kMax);
  EXPECT_EQ(Error(), "a program of 4294967295 arguments exceeds the limit of 16384");
  message_.set_arguments(kNodesMax);
  for (uint32_t i = 0; i < kNodesMax; ++i) {
    Call();
    message_.add_results(i);
  }
  EXPECT_EQ(Code(), absl::StatusCode::kOk);
  message_.add_results(0);
  EXPECT_EQ(Error(), "a program of 16385 results exceeds the limit of 16384");
  Call();
  EXPECT_EQ(Error(), "a program of 16385 nodes exceeds the limit of 16384");
}

TEST_F(HostileMessageTest, TooManyInputsAndDevices) {
  Call().mutable_inputs()->Resize(kInputsMax - 1, 0);
  message_.add_nodes()->mutable_transfer();
  EXPECT_EQ(Code(), absl::StatusCode::kOk);
  message_.add_nodes()->mutable_view()->add_inputs(0);
  EXPECT_EQ(Error(), "a program of 2097153 inputs exceeds the limit of 2097152");
  message_.clear_nodes();
  message_.mutable_device_lists(0)->mutable_devices()->Resize(kInputsMax, 0);
  EXPECT_EQ(Code(), absl::StatusCode::kOk);
  message_.add_device_lists()->add_devices(1);
  EXPECT_EQ(Error(), "a program of 2097153 devices in its lists exceeds the limit of 2097152");
}

// What FromWire leaves to Verify.
TEST_F(HostileMessageTest, WhatDoesNotVerify) {
  message_.add_nodes()->mutable_view()->add_shards(1);
  Call().add_keep(5);
  message_.add_nodes()->mutable_transfer()->set_memory_kind("a b");
  message_.mutable_device_lists(0)->clear_devices();
  for (const char* why : {"node 1 (view) is a view of nothing", "node 1 (call 7) keeps input 5",
                          "node 1 (transfer) names no device"}) {
    const auto program = FromWire(message_);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_THAT(std::string(Verify(*program).message()), ::testing::HasSubstr(why));
    message_.mutable_nodes()->DeleteSubrange(0, 1);
  }
}

}  // namespace
}  // namespace gangway::program
