// The client library with scripted workers on its own host: uploads and fetches through shared
// memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "gangway/base/ids.h"
#include "gangway/client/array_literal.h"
#include "gangway/client/scripted_cluster.h"
#include "gangway/transport/shm/shared_pool.h"

namespace gangway::client {
namespace {

constexpr size_t kBytes = 300'000;

class SharedDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.listener = *transport::DescriptorListener::Open();
    client_ = *Connect(cluster_.Options());
    // Of an array that the client does not know, so that it connects to all workers.
    client_->Fetch(99_array, {0}, {.on_done = [](const absl::Status&) {}});
    ASSERT_TRUE(worker().WaitHellos(1) && cluster_.worker(1).WaitHellos(1));
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (!socket_.valid() && std::chrono::steady_clock::now() < deadline) {
      socket_ = cluster_.listener->Take(ScriptedCluster::kSecret);
      std::this_thread::yield();  // the socket has no event to wait for
    }
    ASSERT_TRUE(socket_.valid());
  }

  ScriptedRole& worker() { return cluster_.worker(0); }
  // Of the operations after the first one.
  uint64_t FetchOf(size_t op) {
    return cluster_.controller().Ops(op + 2).at(op + 1).fetch().fetch();
  }

  // A block of the worker. The first one also sends the segment to the client.
  std::unique_ptr<transport::SharedBlock> MakeBlock(char fill) {
    auto block = pool_->Allocate(kBytes);
    std::memset(block->writable(), fill, kBytes);
    if (!std::exchange(handed_, true)) {
      EXPECT_TRUE(transport::SendDescriptor(socket_, {block->segment(), block->segment_bytes()},
                                            block->descriptor())
                      .ok());
    }
    return block;
  }
  static void SetPlace(const transport::SharedBlock& block, wire::SharedBlock& place) {
    place.set_segment(block.segment());
    place.set_offset(block.offset());
    place.set_size(block.bytes().size());
  }
  static wire::Frame Lend(uint64_t fetch, const transport::SharedBlock& block) {
    wire::Frame frame;
    frame.mutable_bulk()->mutable_name()->set_fetch(fetch);
    SetPlace(block, *frame.mutable_bulk()->mutable_lent());
    return frame;
  }
  static bool IsWord(const wire::Frame& frame) {
    const wire::Bulk& bulk = frame.bulk();
    return bulk.has_place_request() || bulk.has_received() || bulk.has_resend();
  }
  // The client's messages about places; waits until there are `count`.
  std::vector<wire::Bulk> Words(size_t count) {
    auto all = [](const std::vector<wire::Frame>& frames) {
      std::vector<wire::Bulk> words;
      for (const wire::Frame& frame : frames) {
        if (IsWord(frame)) words.push_back(frame.bulk());
      }
      return words;
    };
    EXPECT_TRUE(worker().Wait([&](const auto& frames) { return all(frames).size() >= count; }));
    return all(worker().frames());
  }
  OperationId Declare() {
    return client_->Upload(ArrayHandle(next_array_++),
                           {.element_type = 3,
                            .shard_dims = {static_cast<int64_t>(kBytes)},
                            .devices = {0},
                            .shard_bytes = kBytes});
  }
  void AnswerWish(const wire::Bulk& wish, const transport::SharedBlock* block) {
    wire::Frame frame;
    *frame.mutable_bulk()->mutable_name() = wish.name();
    wire::PlaceAnswer& answer = *frame.mutable_bulk()->mutable_place_answer();
    if (block != nullptr) SetPlace(*block, *answer.mutable_place());
    worker().Send(std::move(frame));
  }
  // Reserves a place and pushes before the worker has answered. Returns the request.
  wire::Bulk PushBehindReserve(const std::string& bytes, Arrival<bool>& released) {
    const OperationId upload = Declare(), next = Declare();
    client_->Reserve(upload, 0, [](const std::shared_ptr<char>&) { ADD_FAILURE() << "too late"; });
    wire::Bulk wish = Words(1).at(0);
    client_->Push(upload, 0, bytes, [&released] { released.Set(true); });
    client_->Reserve(next, 0, [](const std::shared_ptr<char>&) {});
    Words(2);  // everything submitted before is sent
    return wish;
  }

  ScriptedCluster cluster_;
  std::unique_ptr<Client> client_;
  std::shared_ptr<transport::SharedPool> pool_ =
      transport::SharedPool::Make({.bytes_max = size_t{64} << 20, .writable = true});
  FileDescriptor socket_;
  bool handed_ = false;
  uint64_t next_array_ = 1;
};

TEST_F(SharedDataTest, AFetchedShardIsReadInPlaceAndGivenBackByItsLastReader) {
  Arrival<std::shared_ptr<const char>> placed;
  Arrival<absl::Status> done;
  client_->Fetch(1_array, {0},
                 {.on_place =
                      [&](size_t, std::shared_ptr<const char> bytes, size_t size) {
                        EXPECT_EQ(size, kBytes);
                        placed.Set(std::move(bytes));
                      },
                  .on_done = [&](absl::Status status) { done.Set(status); }});
  auto block = MakeBlock('x');
  worker().Send(Lend(FetchOf(0), *block));
  ASSERT_TRUE(done.Get().ok());
  std::shared_ptr<const char> bytes = placed.Get();
  EXPECT_EQ(std::string(bytes.get(), kBytes), std::string(kBytes, 'x'));
  for (const wire::Frame& frame : worker().frames())
    EXPECT_FALSE(IsWord(frame)) << "a reader still holds it";
  placed.Clear();
  std::thread([&] { bytes.reset(); }).join();
  const wire::Bulk word = Words(1).at(0);
  EXPECT_EQ(word.name().fetch(), FetchOf(0));
  EXPECT_TRUE(word.has_received());
}

TEST_F(SharedDataTest, WhoTakesNoPlacesGetsTheBytes) {
  std::string bytes;
  Arrival<absl::Status> done;
  client_->Fetch(1_array, {0},
                 {.on_data = [&](size_t, uint64_t, std::string_view data) { bytes = data; },
                  .on_done = [&](absl::Status status) { done.Set(status); }});
  auto block = MakeBlock('y');
  worker().Send(Lend(FetchOf(0), *block));
  ASSERT_TRUE(done.Get().ok());
  EXPECT_EQ(bytes, std::string(kBytes, 'y'));
  EXPECT_TRUE(Words(1).at(0).has_received());
}

TEST_F(SharedDataTest, APlaceThatIsNotKnownIsSentInstead) {
  std::string bytes;
  Arrival<absl::Status> done;
  client_->Fetch(1_array, {0},
                 {.on_data = [&](size_t, uint64_t, std::string_view data) { bytes = data; },
                  .on_done = [&](absl::Status status) { done.Set(status); }});
  const uint64_t fetch = FetchOf(0);
  handed_ = true;  // so MakeBlock does not send the segment
  auto block = MakeBlock('z');
  worker().Send(Lend(fetch, *block));
  const wire::Bulk word = Words(1).at(0);
  EXPECT_EQ(word.name().fetch(), fetch);
  EXPECT_TRUE(word.has_resend());
  wire::Frame frame;
  frame.mutable_bulk()->mutable_name()->set_fetch(fetch);
  frame.mutable_bulk()->mutable_bytes()->set_data("sent");
  frame.mutable_bulk()->mutable_bytes()->set_last(true);
  worker().Send(std::move(frame));
  ASSERT_TRUE(done.Get().ok());
  EXPECT_EQ(bytes, "sent");
}

TEST_F(SharedDataTest, BytesOutliveTheClientAndItsWorker) {
  Arrival<std::shared_ptr<const char>> placed;
  Arrival<absl::Status> done;
  client_->Fetch(1_array, {0},
                 {.on_place = [&](size_t, std::shared_ptr<const char> bytes,
                                  size_t) { placed.Set(std::move(bytes)); },
                  .on_done = [&](absl::Status status) { done.Set(status); }});
  auto block = MakeBlock('w');
  worker().Send(Lend(FetchOf(0), *block));
  ASSERT_TRUE(done.Get().ok());
  std::shared_ptr<const char> bytes = placed.Get();
  placed.Clear();
  client_.reset();
  block->Retire();
  block.reset();
  pool_.reset();
  EXPECT_EQ(std::string(bytes.get(), kBytes), std::string(kBytes, 'w'));
  bytes.reset();
}

TEST_F(SharedDataTest, BytesWrittenAheadIntoTheirPlaceAreNotSent) {
  Arrival<std::shared_ptr<char>> placed;
  Arrival<bool> released;
  const OperationId upload = Declare();
  client_->Reserve(upload, 0, [&](std::shared_ptr<char> place) { placed.Set(std::move(place)); });
  const wire::Bulk wish = Words(1).at(0);
  EXPECT_EQ(wish.name().upload(), NumberOf(upload));
  EXPECT_EQ(wish.place_request().size(), kBytes);
  auto block = MakeBlock('-');
  AnswerWish(wish, block.get());
  std::shared_ptr<char> place = placed.Get();
  std::memset(place.get(), 'u', kBytes);
  client_->Push(upload, 0, {place.get(), kBytes}, [&] { released.Set(true); });
  const wire::Bulk chunk = worker().Chunks(1).at(0);
  EXPECT_TRUE(chunk.has_placed());
  EXPECT_TRUE(released.Get());
  EXPECT_EQ(std::memcmp(block->bytes().data(), std::string(kBytes, 'u').data(), kBytes), 0);
  EXPECT_EQ(Words(1).size(), 1u) << "requested once";
}

TEST_F(SharedDataTest, APushThatDoesNotWaitForItsPlaceUsesItsAnswer) {
  const std::string bytes(kBytes, 'v');
  Arrival<bool> released;
  const wire::Bulk wish = PushBehindReserve(bytes, released);
  auto block = MakeBlock('-');
  AnswerWish(wish, block.get());
  EXPECT_TRUE(released.Get());
  EXPECT_TRUE(worker().Chunks(1).at(0).has_placed());
  EXPECT_EQ(std::memcmp(block->bytes().data(), bytes.data(), kBytes), 0);
}

TEST_F(SharedDataTest, WhereNoPlaceIsGivenBytesAreSent) {
  const std::string bytes(kBytes, 'v');
  Arrival<bool> released;
  const wire::Bulk wish = PushBehindReserve(bytes, released);
  AnswerWish(wish, nullptr);
  EXPECT_TRUE(released.Get());
  EXPECT_EQ(worker().Chunks(1).at(0).bytes().data(), bytes);
}

TEST_F(SharedDataTest, ALostStreamForgetsItsPlacesAndSends) {
  Arrival<std::shared_ptr<char>> placed;
  const OperationId upload = Declare();
  client_->Reserve(upload, 0, [&](std::shared_ptr<char> place) { placed.Set(std::move(place)); });
  auto block = MakeBlock('-');
  AnswerWish(Words(1).at(0), block.get());
  std::shared_ptr<char> place = placed.Get();
  std::memset(place.get(), 'u', kBytes);
  cluster_.listener.reset();  // the next stream is like that of another host
  worker().Cut();
  ASSERT_TRUE(worker().WaitHellos(2));
  Arrival<bool> released;
  client_->Push(upload, 0, {place.get(), kBytes}, [&] { released.Set(true); });
  EXPECT_TRUE(released.Get());
  EXPECT_EQ(worker().Chunks(1).at(0).bytes().data(), std::string(kBytes, 'u'));
}

}  // namespace
}  // namespace gangway::client
