// Tests of HostCalls: what ends the wait of a host callback.
#include "gangway/worker/service/launch/host_calls.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/thread.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {
namespace {

constexpr SessionId kSession(7), kOther(8);

class HostCallsTest : public testing::Test {
 protected:
  void MakeCalls(std::chrono::milliseconds limit) {
    calls_ = std::make_unique<HostCalls>(
        limit, [this](SessionId, wire::HostCallback callback) { OnSent(std::move(callback)); });
  }

  // Calls function 3 with one operand of two bytes, for a result of two bytes.
  absl::Status Call() {
    const std::array<std::byte, 2> operand{std::byte{1}, std::byte{2}};
    device::HostCall call{.function = 3};
    call.operands.emplace_back(operand);
    call.results.emplace_back(result_);
    return calls_->Call({.session = kSession, .gang = Ordinal(5), .device = DeviceId(2)}, call,
                        unwanted_);
  }

  wire::HostCallbackReply Reply(const std::string& result) const {
    wire::HostCallbackReply reply;
    reply.set_call(sent_.call());
    reply.add_results(result);
    return reply;
  }

  virtual void OnSent(wire::HostCallback callback) {
    sent_ = std::move(callback);
    if (on_sent_) on_sent_();
  }

  std::unique_ptr<HostCalls> calls_;
  wire::HostCallback sent_;
  std::function<void()> on_sent_;
  std::function<absl::Status()> unwanted_ = [] { return absl::OkStatus(); };
  std::array<std::byte, 2> result_{};
};

TEST_F(HostCallsTest, TheReplyOfTheSessionEndsTheWait) {
  MakeCalls(std::chrono::seconds(20));
  on_sent_ = [this] {
    calls_->OnReply(kOther, Reply("xy"));  // another session's is not taken
    calls_->OnReply(kSession, Reply("ab"));
  };
  ASSERT_EQ(Call(), absl::OkStatus());
  EXPECT_EQ(std::memcmp(result_.data(), "ab", 2), 0);
  EXPECT_EQ(sent_.operands(0), std::string("\1\2"));
  EXPECT_EQ(sent_.callback(), 3);
  EXPECT_EQ(sent_.gang(), 5);
  EXPECT_EQ(sent_.device(), 2);
  EXPECT_TRUE(calls_->Waiting().empty());
}

TEST_F(HostCallsTest, TheClientsFailureIsTheCallers) {
  MakeCalls(std::chrono::seconds(20));
  on_sent_ = [this] {
    wire::HostCallbackReply reply = Reply("");
    *reply.mutable_failure() = wire::MakeFailure(absl::StatusCode::kInternal, "ValueError: no");
    calls_->OnReply(kSession, std::move(reply));
  };
  const absl::Status status = Call();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("ValueError: no"), std::string::npos) << status;
}

TEST_F(HostCallsTest, ResultsOfOtherSizesAreRefused) {
  MakeCalls(std::chrono::seconds(20));
  on_sent_ = [this] { calls_->OnReply(kSession, Reply("abc")); };
  EXPECT_EQ(Call().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HostCallsTest, AClientThatDoesNotReplyIsNamedAfterTheLimit_TM_1) {
  MakeCalls(std::chrono::milliseconds(20));
  on_sent_ = [this] { calls_->Name(kSession, "train.py"); };
  const absl::Status status = Call();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("train.py"), std::string::npos) << status;
  calls_->OnReply(kSession, Reply("ab"));  // too late
  EXPECT_EQ(result_[0], std::byte{0});
}

TEST_F(HostCallsTest, TheEndOfTheSessionEndsTheWait) {
  MakeCalls(std::chrono::seconds(20));
  on_sent_ = [this] {
    calls_->Fail(kOther, absl::CancelledError("another"));
    calls_->Fail(kSession, absl::CancelledError("this"));
  };
  EXPECT_EQ(Call().message(), "this");
}

TEST_F(HostCallsTest, AnAbortOfTheGangEndsTheWait) {
  MakeCalls(std::chrono::seconds(20));
  on_sent_ = [this] {
    calls_->FailGang(Ordinal(4), absl::CancelledError("another"));
    calls_->FailGang(Ordinal(5), absl::CancelledError("this"));
  };
  EXPECT_EQ(Call().message(), "this");
}

TEST_F(HostCallsTest, AGangThatWasAbortedJustBeforeItCallsDoesNotWait) {
  MakeCalls(std::chrono::seconds(20));
  bool has_failed = false;
  unwanted_ = [&] {
    if (has_failed) return absl::DataLossError("the gang has ended");
    has_failed = true;  // just after it was asked
    calls_->FailGang(Ordinal(5), absl::DataLossError("nothing waits yet"));
    return absl::OkStatus();
  };
  on_sent_ = [] { FAIL() << "the client was asked"; };
  EXPECT_EQ(Call().message(), "the gang has ended");
}

TEST_F(HostCallsTest, AWorkerThatStopsEndsWhatWaitsAndWhatComes) {
  MakeCalls(std::chrono::seconds(20));
  Thread stopper;
  on_sent_ = [this, &stopper] {
    stopper = Thread("stopper", [this] { calls_->Stop(absl::UnavailableError("stops")); });
  };
  EXPECT_EQ(Call().code(), absl::StatusCode::kUnavailable);
  stopper.Join();
  on_sent_ = [] { FAIL(); };
  EXPECT_EQ(Call().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace gangway::worker
