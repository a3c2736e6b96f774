// Tests of uploads.h: when an upload is complete or has failed, and when its bytes go.
#include "gangway/worker/core/uploads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/worker/core/core_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SessionId kSession(3);
constexpr UploadKey kKey{kSession, UploadId(7)};
constexpr uint64_t kBytes = 16;

class UploadsTest : public ::testing::Test {
 protected:
  // The node wants the shards 0 and 1.
  bool Claim(Ordinal node = Ordinal(1), const UploadKey& key = kKey) {
    return uploads_.Claim(key, node, kBytes, {0, 1}, actions_);
  }
  void Stage(uint32_t shard, uint64_t bytes = kBytes, const UploadKey& key = kKey) {
    uploads_.Stage(key, shard, bytes, actions_);
  }
  void Refuse(const std::string& text, bool unwanted = false) {
    uploads_.Refuse(kKey, wire::MakeFailure(absl::StatusCode::kResourceExhausted, text), unwanted);
  }
  bool IsComplete() const { return uploads_.ProgressOf(kKey).value().complete; }
  // Of an upload that has failed.
  const wire::Failure& Failure() const { return *uploads_.ProgressOf(kKey).value().failure; }
  size_t Drops() { return All<DropUpload>(Taken(actions_)).size(); }

  Uploads uploads_{{.name = "island0/worker0", .incarnation = Incarnation(77), .device_count = 2}};
  std::vector<Action> actions_;
};

TEST_F(UploadsTest, NodeAndBytesComeInEitherOrder) {
  Stage(1);
  EXPECT_FALSE(uploads_.ProgressOf(kKey)) << "no node has come";
  EXPECT_TRUE(Claim());
  EXPECT_EQ(uploads_.ProgressOf(kKey)->node, Ordinal(1));
  EXPECT_FALSE(IsComplete());
  Stage(0);
  EXPECT_TRUE(IsComplete());
  EXPECT_EQ(uploads_.ProgressOf(kKey)->failure, nullptr);
  uploads_.Take(kKey);
  EXPECT_EQ(uploads_.size(), 0u);
  EXPECT_EQ(Drops(), 0u) << "the service fills the storage with the bytes";
}

TEST_F(UploadsTest, OneNodeClaimsAnUpload) {
  EXPECT_TRUE(Claim());
  EXPECT_FALSE(Claim(Ordinal(2)));
  EXPECT_EQ(uploads_.ProgressOf(kKey)->node, Ordinal(1));
}

TEST_F(UploadsTest, BytesOfTheWrongSizeAreDroppedAtOnceAndOnce_TM2) {
  Claim();
  Stage(0, kBytes - 1);
  EXPECT_EQ(Drops(), 1u);
  EXPECT_THAT(Failure().message(), HasSubstr("Shard 0 of upload 7 arrived with 15 bytes"));
  EXPECT_EQ(Failure().worker(), "island0/worker0");
  Stage(1, kBytes - 1);
  EXPECT_EQ(Drops(), 0u);
  EXPECT_THAT(Failure().message(), HasSubstr("Shard 0"));
}

TEST_F(UploadsTest, TheSizeOfBytesThatCameBeforeTheNodeIsCheckedWithIt) {
  Stage(1, kBytes + 1);
  EXPECT_EQ(Drops(), 0u);
  Claim();
  EXPECT_EQ(Drops(), 1u);
  EXPECT_THAT(Failure().message(), HasSubstr("arrived with 17 bytes"));
}

TEST_F(UploadsTest, ARefusalFailsTheUploadBeforeAndAfterItsNode) {
  Refuse("full");
  Claim(Ordinal(4));
  EXPECT_EQ(Failure().message(), "full");
  Refuse("full again");
  EXPECT_EQ(Failure().message(), "full") << "the first reason stays";
  uploads_.Take(kKey);
  Claim(Ordinal(5));
  Stage(0);
  Stage(1);
  Refuse("closed");
  EXPECT_EQ(Failure().message(), "closed");
  EXPECT_EQ(Failure().gang(), 5u);
  EXPECT_EQ(Failure().incarnation(), 77u);
  EXPECT_FALSE(IsComplete()) << "the bytes were dropped";
}

TEST_F(UploadsTest, WhatNoNodeWillUseLeavesNoRecord_TM2) {
  Refuse("not wanted", /*unwanted=*/true);
  EXPECT_EQ(uploads_.size(), 0u);
  Stage(0);
  Refuse("not wanted", /*unwanted=*/true);
  EXPECT_EQ(uploads_.size(), 0u);
  Claim();
  Refuse("not wanted", /*unwanted=*/true);
  EXPECT_EQ(Failure().message(), "not wanted") << "its node has come nevertheless";
}

TEST_F(UploadsTest, RecordsOfRefusedUploadsAreLimited_TM2) {
  constexpr uint64_t kMax = 65'536;
  for (uint64_t upload = 0; upload < kMax; ++upload)
    uploads_.Refuse({kSession, UploadId(upload + 100)}, {}, false);
  EXPECT_EQ(uploads_.size(), kMax);
  Refuse("one too many");
  EXPECT_EQ(uploads_.size(), kMax);
  Claim();
  Refuse("its node has come");
  EXPECT_EQ(Failure().message(), "its node has come");
}

TEST_F(UploadsTest, AForgottenUploadIsDropped) {
  Claim();
  Stage(0);
  uploads_.Forget(kKey, actions_);
  EXPECT_EQ(Drops(), 1u);
  EXPECT_FALSE(uploads_.ProgressOf(kKey));
  uploads_.Forget(kKey, actions_);
  EXPECT_EQ(Drops(), 0u);
}

TEST_F(UploadsTest, OnlyBytesThatNoNodeHasClaimedAreDroppedForAFailedNode) {
  Stage(0);
  uploads_.DropUnclaimed(kKey, actions_);
  EXPECT_EQ(uploads_.size(), 0u);
  EXPECT_EQ(Drops(), 1u);
  uploads_.DropUnclaimed(kKey, actions_);
  EXPECT_EQ(Drops(), 1u) << "bytes may still come";
  Claim();
  uploads_.DropUnclaimed(kKey, actions_);
  EXPECT_EQ(Drops(), 0u);
  EXPECT_TRUE(uploads_.ProgressOf(kKey));
}

TEST_F(UploadsTest, ASessionsEndLeavesItsCompleteUploads) {
  const UploadKey partial{kSession, UploadId(8)}, unclaimed{kSession, UploadId(9)};
  const UploadKey others{SessionId(4), UploadId(7)};
  Claim();
  Stage(0);
  Stage(1);
  Claim(Ordinal(2), partial);
  Stage(0, kBytes, partial);
  Stage(0, kBytes, unclaimed);
  Claim(Ordinal(3), others);
  EXPECT_THAT(uploads_.KeysOf(kSession), ElementsAre(kKey, partial, unclaimed));
  EXPECT_EQ(uploads_.Abandon(kKey, actions_), std::nullopt);
  EXPECT_EQ(Drops(), 0u);
  EXPECT_EQ(uploads_.Abandon(partial, actions_), Ordinal(2));
  EXPECT_EQ(Drops(), 1u);
  EXPECT_EQ(uploads_.Abandon(unclaimed, actions_), std::nullopt);
  EXPECT_EQ(Drops(), 1u);
  EXPECT_THAT(uploads_.KeysOf(kSession), ElementsAre(kKey));
  EXPECT_THAT(uploads_.KeysOf(SessionId(4)), ElementsAre(others));
  EXPECT_THAT(uploads_.KeysOf(SessionId(5)), IsEmpty());
}

}  // namespace
}  // namespace gangway::worker
