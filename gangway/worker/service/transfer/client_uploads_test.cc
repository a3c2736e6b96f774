// What the worker keeps of clients' uploads, and what it says of them (client_uploads.h).
#include "gangway/worker/service/transfer/client_uploads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gangway/worker/service/transfer/client_stream_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SessionId kOne(1), kTwo(2);
constexpr UploadId kFive{5}, kSix{6};
constexpr size_t kStagingBytes = size_t{1} << 20;

class ClientUploadsTest : public testing::Test {
 protected:
  ~ClientUploadsTest() override {
    uploads_.Clear();
    memory_->Close();
    loop_.Stop();
  }

  static wire::Bulk About(UploadId upload, uint32_t shard) {
    wire::Bulk bulk;
    bulk.mutable_name()->set_upload(NumberOf(upload));
    bulk.mutable_name()->set_shard(shard);
    return bulk;
  }
  static wire::Bulk Bytes(UploadId upload, uint32_t shard, std::string_view data,
                          uint64_t offset = 0, bool last = true) {
    wire::Bulk bulk = About(upload, shard);
    bulk.mutable_bytes()->set_offset(offset);
    bulk.mutable_bytes()->set_data(std::string(data));
    bulk.mutable_bytes()->set_last(last);
    return bulk;
  }
  // The place that the client is granted; none: it is to send the bytes.
  std::optional<wire::SharedBlock> RequestPlace(UploadId upload, size_t size) {
    wire::Bulk bulk = About(upload, 0);
    bulk.mutable_place_request()->set_size(size);
    EXPECT_TRUE(uploads_.OnBulk(near_.stream, bulk).ok());
    const wire::Bulk& answer = near_.link->frames.back().bulk();
    EXPECT_TRUE(answer.has_place_answer());
    EXPECT_EQ(answer.name().upload(), NumberOf(upload));
    if (!answer.place_answer().has_place()) return std::nullopt;
    return answer.place_answer().place();
  }

  EventLoop loop_{"test"};
  std::shared_ptr<StagingMemory> memory_ =
      StagingMemory::Make({.bytes_max = kStagingBytes, .loop = &loop_});
  transport::LendingPool pool_{
      {.bytes_max = size_t{64} << 20, .writable = true, .drop_later = [] {}}};
  std::unique_ptr<transport::DescriptorListener> listener_ = *transport::DescriptorListener::Open();
  std::vector<UploadShardStaged> staged_;
  std::vector<UploadRefused> refused_;
  ClientUploads uploads_{
      memory_,
      &pool_,
      {.on_staged = [this](UploadShardStaged event) { staged_.push_back(event); },
       .on_refused = [this](UploadRefused event) { refused_.push_back(std::move(event)); }}};
  TestStream near_{kOne, listener_.get()};  // of a client on this host
  TestStream far_{kTwo};
};

TEST_F(ClientUploadsTest, AShardIsStagedOnceAllItsBytesAreThere) {
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, Bytes(kFive, 3, "abc", 0, /*last=*/false)).ok());
  EXPECT_THAT(staged_, IsEmpty());
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, Bytes(kFive, 3, "de", 3)).ok());
  ASSERT_EQ(staged_.size(), 1u);
  EXPECT_EQ(staged_[0].session, kTwo);
  EXPECT_EQ(staged_[0].upload, kFive);
  EXPECT_EQ(staged_[0].shard, 3u);
  EXPECT_EQ(staged_[0].bytes, 5u);
  EXPECT_EQ(uploads_.received_bytes(), 5u);
  EXPECT_EQ(uploads_.received_shared_bytes(), 0u);
  EXPECT_EQ(uploads_.Take(kTwo, kFive).size(), 1u);
  EXPECT_EQ(uploads_.count(), 0u);
}

TEST_F(ClientUploadsTest, OB3_SessionsDoNotMeetInANumber) {
  EXPECT_TRUE(uploads_.OnBulk(near_.stream, Bytes(kFive, 0, "abc")).ok());
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, Bytes(kFive, 1, "defg")).ok());
  EXPECT_EQ(uploads_.count(), 2u);
  const UploadStaging::Shards own = uploads_.Take(kTwo, kFive);
  ASSERT_EQ(own.size(), 1u);
  EXPECT_TRUE(own.contains(1));
  EXPECT_TRUE(uploads_.Take(SessionId(3), kFive).empty());
}

TEST_F(ClientUploadsTest, PiecesOutOfOrderAreTheStreamsEnd) {
  const absl::Status taken = uploads_.OnBulk(far_.stream, Bytes(kFive, 0, "de", 3));
  EXPECT_EQ(taken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused_, IsEmpty());
}

TEST_F(ClientUploadsTest, TM2_AnUploadThatExceedsTheStagingMemoryIsRefusedAndLeavesNothing) {
  const std::string large(kStagingBytes, 'x');
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, Bytes(kFive, 0, "abc")).ok());
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, Bytes(kFive, 1, large)).ok()) << "the stream goes on";
  ASSERT_EQ(refused_.size(), 1u);
  EXPECT_EQ(refused_[0].session, kTwo);
  EXPECT_EQ(refused_[0].upload, kFive);
  EXPECT_EQ(refused_[0].failure.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(refused_[0].unwanted);
  EXPECT_EQ(uploads_.count(), 0u);
  EXPECT_EQ(memory_->used(), 0u);
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, Bytes(kFive, 2, "abc")).ok());
  EXPECT_EQ(staged_.size(), 1u) << "what still arrives is dropped";
}

TEST_F(ClientUploadsTest, AnUploadThatItsClientGaveUpIsUnwanted) {
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, Bytes(kFive, 0, "abc")).ok());
  wire::Bulk bulk = About(kFive, 0);
  bulk.mutable_dropped();
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, bulk).ok());
  ASSERT_EQ(refused_.size(), 1u);
  EXPECT_TRUE(refused_[0].unwanted);
  EXPECT_EQ(refused_[0].failure.code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_EQ(memory_->used(), 0u);
}

TEST_F(ClientUploadsTest, BytesOfAnUploadThatTheWorkerRefusedBeforeAreDropped) {
  uploads_.Refuse(kTwo, kFive);
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, Bytes(kFive, 0, "abc")).ok());
  EXPECT_THAT(staged_, IsEmpty());
  EXPECT_EQ(memory_->used(), 0u);
}

TEST_F(ClientUploadsTest, AClientOnThisHostWritesWhereItIsTold) {
  const auto place = RequestPlace(kFive, 5000);
  ASSERT_TRUE(place.has_value());
  const auto bytes = near_.client.Find(*place);
  ASSERT_NE(bytes, nullptr);
  std::memset(bytes.get(), 7, 5000);
  EXPECT_EQ(uploads_.received_bytes(), 0u);
  wire::Bulk placed = About(kFive, 0);
  placed.mutable_placed();
  EXPECT_TRUE(uploads_.OnBulk(near_.stream, placed).ok());
  ASSERT_EQ(staged_.size(), 1u);
  EXPECT_EQ(staged_[0].bytes, 5000u);
  EXPECT_EQ(uploads_.received_bytes(), 5000u);
  EXPECT_EQ(uploads_.received_shared_bytes(), 5000u);
}

TEST_F(ClientUploadsTest, AnUploadThatIsRefusedGetsNoPlace) {
  uploads_.Refuse(kOne, kFive);
  EXPECT_FALSE(RequestPlace(kFive, 5000).has_value());
  EXPECT_TRUE(RequestPlace(kSix, 5000).has_value());
}

TEST_F(ClientUploadsTest, AClientOnAnotherHostIsToldToSendTheBytes) {
  wire::Bulk bulk = About(kFive, 0);
  bulk.mutable_place_request()->set_size(5000);
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, bulk).ok());
  ASSERT_EQ(far_.link->frames.size(), 1u);
  EXPECT_TRUE(far_.link->frames[0].bulk().has_place_answer());
  EXPECT_FALSE(far_.link->frames[0].bulk().place_answer().has_place());
}

TEST_F(ClientUploadsTest, AShardThatWasGrantedNoPlaceCannotBeInIt) {
  wire::Bulk placed = About(kFive, 0);
  placed.mutable_placed();
  EXPECT_EQ(uploads_.OnBulk(near_.stream, placed).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(uploads_.received_bytes(), 0u);
}

TEST_F(ClientUploadsTest, UploadsHaveMovedOnceForTheirBytes) {
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, Bytes(kFive, 0, "abc", 0, /*last=*/false)).ok());
  EXPECT_TRUE(uploads_.OnBulk(near_.stream, Bytes(kSix, 0, "abc")).ok());
  const std::vector<UploadsMoved> moved = uploads_.TakeMoved();
  ASSERT_EQ(moved.size(), 2u);
  EXPECT_EQ(moved[0].session, kOne);
  EXPECT_THAT(moved[0].uploads, ElementsAre(kSix));
  EXPECT_THAT(moved[1].uploads, ElementsAre(kFive));
  EXPECT_THAT(uploads_.TakeMoved(), IsEmpty());
}

TEST_F(ClientUploadsTest, OB2_ASessionsEndFreesItsBytesOnly) {
  EXPECT_TRUE(uploads_.OnBulk(near_.stream, Bytes(kFive, 0, "abc")).ok());
  EXPECT_TRUE(uploads_.OnBulk(far_.stream, Bytes(kFive, 0, "defg")).ok());
  uploads_.EndSession(kOne);
  EXPECT_EQ(memory_->used(), 4u);
  EXPECT_EQ(uploads_.count(), 1u);
}

}  // namespace
}  // namespace gangway::worker
