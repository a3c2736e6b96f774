// Which push is sent next, and what becomes of those whose place is requested (push_queue.h).
#include "gangway/client/push_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gangway::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr UploadId kOne{1}, kTwo{2};
constexpr size_t kPieceBytes = size_t{1} << 10;

class PushQueueTest : public testing::Test {
 protected:
  Pushing Of(UploadId upload, uint32_t shard, const std::string& data) {
    Push push;
    push.upload = upload;
    push.shard = shard;
    push.data = data;
    push.released = [this, shard] { released_.push_back(shard); };
    return Pushing(std::move(push));
  }
  Pushing Small(UploadId upload, uint32_t shard) { return Of(upload, shard, small_); }
  Pushing Large(UploadId upload, uint32_t shard) { return Of(upload, shard, large_); }
  bool Activate(PlaceRequest outcome = PlaceRequest::kNoSharedMemory) {
    return queue_.Activate([&](const Push& push) {
      if (outcome == PlaceRequest::kSent) requested_.push_back(push.shard);
      return outcome;
    });
  }
  // The shards of the next pieces that are sent; a push goes when it is done.
  std::vector<uint32_t> Next(size_t pieces) {
    std::vector<uint32_t> shards;
    for (; pieces > 0 && queue_.has_begun(); --pieces) {
      auto turn = queue_.Take();
      Pushing& pushing = turn->item;
      shards.push_back(pushing.push.shard);
      pushing.shard.Advance(pushing.shard.Next(kPieceBytes));
      if (!pushing.shard.done()) queue_.Again(*std::move(turn));
    }
    return shards;
  }
  std::shared_ptr<std::byte> Memory() {
    return {memory_, reinterpret_cast<std::byte*>(memory_->data())};
  }

  const std::string small_ = std::string(100, 'x'), large_ = std::string(kPlacedBytesMin, 'x');
  const std::shared_ptr<std::string> memory_ = std::make_shared<std::string>(kPlacedBytesMin, 0);
  std::vector<uint32_t> released_, requested_;
  PushQueue queue_;
};

TEST_F(PushQueueTest, ASmallPushBeginsAtOnceAndPassesALargeOne) {
  queue_.Add(Large(kOne, 1));
  EXPECT_FALSE(queue_.has_begun());
  EXPECT_FALSE(queue_.empty());
  EXPECT_TRUE(Activate());
  queue_.Add(Small(kOne, 2));
  EXPECT_THAT(Next(3), ElementsAre(2, 1, 1));
}

TEST_F(PushQueueTest, AFewLargePushesTakeTurnsAndTheOthersWait) {
  for (uint32_t shard = 0; shard < PushQueue::kInterleaved + 2; ++shard)
    queue_.Add(Large(kOne, shard));
  EXPECT_TRUE(Activate());
  EXPECT_THAT(Next(6), ElementsAre(0, 1, 2, 3, 0, 1));
}

TEST_F(PushQueueTest, APushThatTheLinkDidNotTakeIsTheNextOneAgain) {
  queue_.Add(Small(kOne, 1));
  queue_.Add(Small(kOne, 2));
  queue_.Undo(*queue_.Take());
  EXPECT_THAT(Next(2), ElementsAre(1, 2));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(PushQueueTest, ALargePushRequestsAPlaceOnceAndIsWrittenThere) {
  queue_.Add(Large(kOne, 1));
  EXPECT_TRUE(Activate(PlaceRequest::kSent));
  EXPECT_TRUE(Activate(PlaceRequest::kSent));
  EXPECT_THAT(requested_, ElementsAre(1));
  EXPECT_FALSE(queue_.has_begun()) << "it waits for its place";
  EXPECT_FALSE(queue_.OnPlace({kOne, 2}, [this](size_t) { return Memory(); }));
  EXPECT_FALSE(queue_.OnPlace({kTwo, 1}, [this](size_t) { return Memory(); }));
  size_t asked = 0;
  EXPECT_TRUE(queue_.OnPlace({kOne, 1}, [&](size_t size) {
    asked = size;
    return Memory();
  }));
  EXPECT_EQ(asked, kPlacedBytesMin);
  EXPECT_FALSE(queue_.OnPlace({kOne, 1}, [this](size_t) { return Memory(); }));
  EXPECT_THAT(Next(1), ElementsAre(1));
  EXPECT_EQ(*memory_,
            large_.substr(0, kPieceBytes) + std::string(kPlacedBytesMin - kPieceBytes, 0));
}

TEST_F(PushQueueTest, PushesThatWaitForTheirPlaceCountAmongTheFewThatTakeTurns) {
  for (uint32_t shard = 0; shard < PushQueue::kInterleaved + 1; ++shard)
    queue_.Add(Large(kOne, shard));
  EXPECT_TRUE(Activate(PlaceRequest::kSent));
  EXPECT_THAT(requested_, ElementsAre(0, 1, 2, 3));
  queue_.OnPlace({kOne, 2}, [this](size_t) { return Memory(); });
  EXPECT_TRUE(Activate(PlaceRequest::kSent));
  EXPECT_EQ(requested_.size(), 4u) << "it takes its turn now";
  EXPECT_EQ(Next(1000).size(), kPlacedBytesMin / kPieceBytes);
  EXPECT_TRUE(Activate(PlaceRequest::kSent));
  EXPECT_EQ(requested_.back(), 4u);
}

TEST_F(PushQueueTest, AFullLinkKeepsWhatWaitsInItsOrder) {
  queue_.Add(Large(kOne, 1));
  queue_.Add(Large(kOne, 2));
  EXPECT_FALSE(Activate(PlaceRequest::kFull));
  EXPECT_FALSE(queue_.has_begun());
  EXPECT_TRUE(Activate());
  EXPECT_THAT(Next(2), ElementsAre(1, 2));
}

TEST_F(PushQueueTest, APushWithoutAPlaceIsSent) {
  queue_.Add(Large(kOne, 1));
  EXPECT_TRUE(Activate(PlaceRequest::kSent));
  EXPECT_TRUE(queue_.OnPlace({kOne, 1}, [](size_t) { return nullptr; }));
  EXPECT_THAT(Next(1), ElementsAre(1));
  EXPECT_EQ(memory_->at(0), '\0');
}

TEST_F(PushQueueTest, ALostLinkTakesThePlacesWithIt) {
  queue_.Add(Large(kOne, 1));
  queue_.Add(Large(kOne, 2));
  EXPECT_TRUE(Activate(PlaceRequest::kSent));
  queue_.OnPlace({kOne, 1}, [this](size_t) { return Memory(); });
  queue_.Add(Large(kOne, 3));
  queue_.LosePlaces();
  EXPECT_FALSE(queue_.OnPlace({kOne, 2}, [this](size_t) { return Memory(); }));
  requested_.clear();
  EXPECT_TRUE(Activate(PlaceRequest::kSent));
  EXPECT_THAT(requested_, IsEmpty()) << "none asks again";
  EXPECT_THAT(Next(3), ElementsAre(1, 2, 3));
  EXPECT_EQ(memory_->at(0), '\0') << "the worker may use this memory otherwise";
}

TEST_F(PushQueueTest, WhatIsTakenOffIsReleasedAndNamedOnce) {
  queue_.Add(Small(kOne, 1));
  queue_.Add(Large(kOne, 2));
  queue_.Add(Large(kTwo, 3));
  queue_.AddPlacing(Large(kOne, 4));
  EXPECT_TRUE(Activate());
  queue_.Add(Large(kOne, 5));
  EXPECT_THAT(queue_.TakeIf([](const Pushing& each) { return each.push.upload == kOne; }),
              ElementsAre(kOne));
  EXPECT_THAT(released_, ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(Next(1), ElementsAre(3));
  EXPECT_THAT(queue_.TakeIf([](const Pushing& each) { return !each.shard.begun(); }), IsEmpty());
  EXPECT_THAT(queue_.TakeAll(), ElementsAre(kTwo));
  EXPECT_EQ(released_.back(), 3u);
  EXPECT_TRUE(queue_.empty());
}

}  // namespace
}  // namespace gangway::client
