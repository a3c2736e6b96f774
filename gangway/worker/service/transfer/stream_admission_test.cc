// Whose data streams a worker takes (stream_admission.h).
#include "gangway/worker/service/transfer/stream_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/transport/handshake/data_token.h"
#include "gangway/worker/service/transfer/peer_streams.h"

namespace gangway::worker {
namespace {

using ::testing::HasSubstr;
using transport::DataToken;

constexpr char kKey[] = "of the test";
constexpr SessionId kOne(1), kTwo(2), kThree(3);

class StreamAdmissionTest : public testing::Test {
 protected:
  StreamAdmissionTest() { admission_.SetKey(kKey); }

  absl::StatusCode CodeOf(SessionId session) const {
    return admission_.Check(session, DataToken(kKey, session)).code();
  }

  StreamAdmission admission_;
};

TEST_F(StreamAdmissionTest, OB3_ATokenOpensItsOwnSessionOnly) {
  EXPECT_EQ(CodeOf(kOne), absl::StatusCode::kOk);
  const absl::Status other = admission_.Check(kOne, DataToken(kKey, kTwo));
  EXPECT_EQ(other.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(other.message()), HasSubstr("does not match session 1"));
  EXPECT_FALSE(admission_.Check(kOne, "").ok());
  EXPECT_FALSE(admission_.Check(kOne, DataToken("another key", kOne)).ok());
}

TEST_F(StreamAdmissionTest, OB3_AClientIsNoWorkerAndAWorkerNoClient) {
  EXPECT_TRUE(admission_.CheckPeer(DataToken(kKey, kPeerSession)).ok());
  EXPECT_EQ(admission_.CheckPeer(DataToken(kKey, kOne)).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(admission_.Check(kOne, DataToken(kKey, kPeerSession)).ok());
}

TEST(StreamAdmissionWithoutKeyTest, NoTokenIsRightBeforeTheKeyHasCome) {
  StreamAdmission admission;
  EXPECT_FALSE(admission.has_key());
  EXPECT_FALSE(admission.Check(kOne, DataToken("", kOne)).ok());
  EXPECT_FALSE(admission.CheckPeer(DataToken("", kPeerSession)).ok());
  admission.SetKey(kKey);
  EXPECT_TRUE(admission.has_key());
  EXPECT_TRUE(admission.Check(kOne, DataToken(kKey, kOne)).ok());
}

TEST_F(StreamAdmissionTest, ATokenOfASessionThatHasEndedOpensNothing) {
  admission_.End(kTwo);
  EXPECT_TRUE(admission_.HasEnded(kTwo));
  EXPECT_EQ(CodeOf(kTwo), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(kOne), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(kThree), absl::StatusCode::kOk);
}

TEST_F(StreamAdmissionTest, SessionsThatEndedBeforeTheWorkerStartedHaveEnded) {
  wire::EndedSessions::Runs runs;
  runs.Add()->set_first(1);
  runs[0].set_last(2);
  admission_.SetEnded(runs);
  EXPECT_EQ(CodeOf(kOne), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(kTwo), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(kThree), absl::StatusCode::kOk);
}

TEST_F(StreamAdmissionTest, SessionsWaitForNothingUnlessTheWorkerIsIsolated) {
  EXPECT_TRUE(admission_.IsAdmitted(kOne));
  EXPECT_FALSE(admission_.Admit(kOne)) << "nothing waits";
}

TEST_F(StreamAdmissionTest, AnIsolatedWorkerTakesAdmittedSessionsOnlyUntilTheyEnd) {
  admission_.Isolate();
  EXPECT_FALSE(admission_.IsAdmitted(kOne));
  EXPECT_TRUE(admission_.Admit(kOne));
  EXPECT_FALSE(admission_.Admit(kOne)) << "its streams wait no longer";
  EXPECT_TRUE(admission_.IsAdmitted(kOne));
  EXPECT_FALSE(admission_.IsAdmitted(kTwo));
  admission_.End(kOne);
  EXPECT_FALSE(admission_.IsAdmitted(kOne));
  EXPECT_FALSE(admission_.Admit(kOne)) << "a late admission opens nothing";
  EXPECT_FALSE(admission_.IsAdmitted(kOne));
}

}  // namespace
}  // namespace gangway::worker
