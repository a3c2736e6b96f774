// Tests of segment_exchange.h: both ends in this process, each with its own descriptors.
#include "gangway/transport/bulk/segment_exchange.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "gangway/base/clock.h"

namespace gangway::transport {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class SegmentExchangeTest : public ::testing::Test {
 protected:
  void Connect() {
    wire::HelloReply answer;
    near_.Listen(listener_.get(), answer);
    far_.Connect(answer);
    ASSERT_TRUE(near_.IsConnected() && far_.IsConnected());
  }
  static wire::SharedBlock Block(uint64_t segment, uint64_t offset, uint64_t size) {
    wire::SharedBlock block;
    block.set_segment(segment);
    block.set_offset(offset);
    block.set_size(size);
    return block;
  }

  std::unique_ptr<DescriptorListener> listener_ = *DescriptorListener::Open();
  std::shared_ptr<SharedPool> pool_ =
      SharedPool::Make({.bytes_max = 8 * kMiB, .segment_bytes = kMiB, .writable = true});
  SegmentExchange near_, far_;
};

TEST_F(SegmentExchangeTest, EitherEndMayOwnTheMemory) {
  Connect();
  auto block = pool_->Allocate(5000), other = pool_->Allocate(kMiB);
  ASSERT_TRUE(near_.HandOver(*block) && far_.HandOver(*other));
  auto seen = far_.Find(NameOf(*block, 5000));
  ASSERT_NE(seen, nullptr);
  seen.get()[4999] = std::byte{7};
  EXPECT_EQ(block->bytes()[4999], std::byte{7});
  EXPECT_NE(near_.Find(NameOf(*other, kMiB)), nullptr);
  EXPECT_EQ(near_.Find(NameOf(*block, 5000)), nullptr) << "its owner was handed nothing";
}

TEST_F(SegmentExchangeTest, ADescriptorPassesOncePerSegment) {
  Connect();
  auto first = pool_->Allocate(4096), second = pool_->Allocate(4096);
  ASSERT_EQ(first->segment(), second->segment());
  int unmapped = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(near_.HandOver(*first) && near_.HandOver(*second));
    EXPECT_NE(far_.Find(NameOf(*second, 4096), [&](const absl::Status&) { ++unmapped; }), nullptr);
  }
  EXPECT_EQ(unmapped, 0) << "a second descriptor of a segment is refused";
}

TEST_F(SegmentExchangeTest, ABlockOutsideItsSegmentIsNotFound) {
  Connect();
  auto block = pool_->Allocate(4096);
  const uint64_t segment = block->segment();
  ASSERT_TRUE(near_.HandOver(*block));
  EXPECT_NE(far_.Find(Block(segment, 0, kMiB)), nullptr);
  EXPECT_NE(far_.Find(Block(segment, kMiB, 0)), nullptr);
  EXPECT_EQ(far_.Find(Block(segment + 1, 0, 1)), nullptr);
  EXPECT_EQ(far_.Find(Block(segment, 0, kMiB + 1)), nullptr);
  EXPECT_EQ(far_.Find(Block(segment, 1, kMiB)), nullptr);
  EXPECT_EQ(far_.Find(Block(segment, kMiB + 1, 0)), nullptr);
  EXPECT_EQ(far_.Find(Block(segment, ~uint64_t{0}, 2)), nullptr) << "the sum wraps";
  EXPECT_EQ(far_.Find(Block(segment, 2, ~uint64_t{0})), nullptr) << "the sum wraps";
}

TEST_F(SegmentExchangeTest, WhatIsGoneIsSaidOnceAndMayComeAgain) {
  Connect();
  auto block = pool_->Allocate(4096);
  const uint64_t segment = block->segment();
  ASSERT_TRUE(near_.HandOver(*block));
  auto seen = far_.Find(NameOf(*block, 4096));
  const std::vector<uint64_t> dropped = {segment + 7, segment};
  EXPECT_EQ(near_.TakeGone(dropped), std::vector<uint64_t>{segment});
  EXPECT_TRUE(near_.TakeGone(dropped).empty());
  EXPECT_TRUE(far_.TakeGone(dropped).empty()) << "it has handed nothing over";
  far_.Forget(segment);
  EXPECT_EQ(far_.Find(NameOf(*block, 4096)), nullptr);
  seen.get()[0] = std::byte{1};  // still mapped
  ASSERT_TRUE(near_.HandOver(*block));
  EXPECT_NE(far_.Find(NameOf(*block, 4096)), nullptr);
}

TEST_F(SegmentExchangeTest, WhatIsGoneBeforeItWasLookedForIsNotMapped) {
  Connect();
  auto block = pool_->Allocate(4096);
  ASSERT_TRUE(near_.HandOver(*block));
  far_.Forget(block->segment());
  EXPECT_EQ(far_.Find(NameOf(*block, 4096)), nullptr);
}

TEST_F(SegmentExchangeTest, EndsOfDifferentHostsHaveNoMemoryInCommon) {
  auto block = pool_->Allocate(4096);
  wire::HelloReply answer;
  near_.Listen(nullptr, answer);
  EXPECT_FALSE(answer.has_descriptors());
  far_.Connect(answer);
  answer.mutable_descriptors()->set_name("gangway-1-of-another-host");
  far_.Connect(answer);
  for (SegmentExchange* end : {&near_, &far_}) {
    EXPECT_FALSE(end->IsConnected());
    EXPECT_FALSE(end->HandOver(*block));
    EXPECT_EQ(end->Find(NameOf(*block, 4096)), nullptr);
  }
}

TEST_F(SegmentExchangeTest, AConnectionThatWasNeverUsedIsClosed) {
  wire::HelloReply answer;
  auto listening = std::make_unique<SegmentExchange>();
  listening->Listen(listener_.get(), answer);
  far_.Connect(answer);
  listening.reset();
  auto block = pool_->Allocate(4096);
  EXPECT_FALSE(far_.HandOver(*block));
}

TEST_F(SegmentExchangeTest, WhatCannotBeMappedIsSaidWithTheReason) {
  wire::HelloReply answer;
  near_.Listen(listener_.get(), answer);
  auto hostile = ConnectDescriptors(answer.descriptors().name(), answer.descriptors().secret());
  ASSERT_TRUE(hostile.ok());
  ASSERT_TRUE(SendDescriptor(*hostile, {1, 4096}, STDIN_FILENO).ok());
  auto block = pool_->Allocate(4096);
  ASSERT_TRUE(SendDescriptor(*hostile, {2, 2 * kMiB}, block->descriptor()).ok());
  int unmapped = 0;
  EXPECT_EQ(near_.Find(Block(1, 0, 1),
                       [&](const absl::Status& why) {
                         EXPECT_TRUE(absl::IsInvalidArgument(why));
                         ++unmapped;
                       }),
            nullptr);
  EXPECT_EQ(unmapped, 2);
  EXPECT_EQ(near_.Find(Block(2, 0, 1)), nullptr) << "not of the size that it was said to be";
}

}  // namespace
}  // namespace gangway::transport
