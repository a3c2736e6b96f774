// What many links carry is serialized once, and is not copied for each of them where that would cost more.
#include "gangway/transport/outbox.h"

#include <gtest/gtest.h>

#include <string>

#include "gangway/transport/batch.pb.h"

namespace gangway::transport {
namespace {

constexpr size_t kLarge = 100'000;

FramePartRef NodeOf(uint64_t ordinal, size_t devices) {
  wire::Frame frame;
  wire::Node& node = *frame.mutable_island_batch()->add_items()->mutable_node();
  node.set_ordinal(ordinal);
  for (size_t i = 0; i < devices; ++i)
    node.mutable_upload()->mutable_spec()->add_devices(static_cast<uint32_t>(i));
  return std::make_shared<const FramePart>(std::move(frame));
}

void Append(uint64_t incarnation, FrameParts parts, Outbox& outbox) {
  wire::Frame head;
  head.set_incarnation(incarnation);
  const size_t bytes = head.ByteSizeLong() + BytesOf(parts);
  outbox.Append(std::move(head), parts, bytes);
}

TEST(OutboxTest, LinksReferToTheSameBytesOfALargePart) {
  const std::vector<FramePartRef> parts = {NodeOf(1, 3), NodeOf(2, kLarge), NodeOf(3, 0)};
  const char* const bytes = parts[1]->bytes().data();
  for (uint64_t incarnation = 1; incarnation <= 3; ++incarnation) {  // three workers
    Outbox outbox;
    Append(incarnation, parts, outbox);
    Append(incarnation, {&parts[0], 1}, outbox);
    const Outbox::Message message = outbox.Take();
    EXPECT_TRUE(outbox.empty());
    std::string whole;
    size_t copied = 0;
    bool refers = false;
    for (const Outbox::Piece& piece : message.pieces) {
      whole += piece.bytes();
      refers |= piece.bytes().data() == bytes;
      copied += piece.own.size();
    }
    EXPECT_TRUE(refers);
    EXPECT_LT(copied, 200u) << "the link's own bytes, and small parts";

    Batch batch;
    ASSERT_TRUE(batch.ParseFromString(whole));
    ASSERT_EQ(batch.frames_size(), 2);
    EXPECT_EQ(batch.frames(0).incarnation(), incarnation);
    const auto& items = batch.frames(0).island_batch().items();
    ASSERT_EQ(items.size(), 3);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(items[i].node().ordinal(), static_cast<uint64_t>(i) + 1);
    EXPECT_EQ(items[1].node().upload().spec().devices_size(), static_cast<int>(kLarge));
    EXPECT_EQ(batch.frames(1).island_batch().items_size(), 1);
  }
}

}  // namespace
}  // namespace gangway::transport
