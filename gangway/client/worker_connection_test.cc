// Places that are reserved in a worker's memory, and words that wait for the link (worker_connection.h).
#include "gangway/client/worker_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gangway/transport/bulk/lending_pool.h"
#include "gangway/transport/recording_link_test_util.h"
#include "gangway/transport/shm/descriptor_socket.h"

namespace gangway::client {
namespace {

using ::testing::ElementsAre;

constexpr SessionId kSession(7);
constexpr UploadId kUpload{3};
constexpr size_t kBytes = 5000;

// The worker's end is here, too.
class WorkerConnectionTest : public testing::Test {
 protected:
  WorkerConnectionTest() { Connect(listener_.get()); }

  void Connect(transport::DescriptorListener* listener) {
    wire::HelloReply welcome;
    worker_.emplace();
    worker_->Listen(listener, welcome);
    connection_.emplace(
        kSession,
        std::make_shared<ConfirmingSender>(
            std::make_shared<transport::FrameSender>(link_, transport::FrameSender::Stamp{},
                                                     transport::FrameSender::Bytes::kUncounted),
            Incarnation(5)),
        welcome);
  }
  static Push Wish(uint32_t shard) {
    Push push;
    push.upload = kUpload;
    push.shard = shard;
    push.bytes = kBytes;
    return push;
  }
  void Reserve(uint32_t shard) {
    connection_->Reserve(
        Wish(shard), [this](std::shared_ptr<char> place) { places_.push_back(std::move(place)); });
  }
  wire::PlaceAnswer Grant(size_t bytes = kBytes) {
    blocks_.push_back(pool_.Allocate(*worker_, bytes));
    wire::PlaceAnswer answer;
    *answer.mutable_place() = transport::NameOf(*blocks_.back(), bytes);
    return answer;
  }
  // What the link has taken, each as the name of its field.
  std::vector<std::string> Words() const {
    std::vector<std::string> words;
    for (const wire::Frame& frame : link_->frames) {
      const wire::Bulk& bulk = frame.bulk();
      words.emplace_back(frame.has_host_callback_reply() ? "reply"
                         : bulk.has_dropped()            ? "dropped"
                         : bulk.has_received()           ? "received"
                         : bulk.has_place_request()      ? "place request"
                                                         : "other");
    }
    return words;
  }
  void SayReceived() {
    wire::Bulk word;
    word.mutable_received();
    connection_->Say(std::move(word));
  }

  const std::shared_ptr<transport::RecordingLink> link_ =
      std::make_shared<transport::RecordingLink>();
  std::unique_ptr<transport::DescriptorListener> listener_ = *transport::DescriptorListener::Open();
  transport::LendingPool pool_{
      {.bytes_max = size_t{64} << 20, .writable = true, .drop_later = [] {}}};
  std::vector<std::unique_ptr<transport::SharedBlock>> blocks_;
  std::vector<std::shared_ptr<char>> places_;
  std::deque<UploadId> dropped_;
  std::optional<transport::SegmentExchange> worker_;
  std::optional<WorkerConnection> connection_;
};

TEST_F(WorkerConnectionTest, AReservedPlaceIsTheWorkersMemory) {
  Reserve(1);
  ASSERT_THAT(Words(), ElementsAre("place request"));
  const wire::Bulk& request = link_->frames[0].bulk();
  EXPECT_EQ(request.name().session(), kSession.number());
  EXPECT_EQ(request.name().upload(), 3u);
  EXPECT_EQ(request.name().shard(), 1u);
  EXPECT_EQ(request.place_request().size(), kBytes);
  EXPECT_TRUE(connection_->OnReserved({kUpload, 1}, Grant()));
  ASSERT_EQ(places_.size(), 1u);
  places_[0].get()[kBytes - 1] = 'x';
  EXPECT_EQ(blocks_[0]->bytes()[kBytes - 1], std::byte{'x'});
  Pushing pushing(Wish(1));
  EXPECT_FALSE(connection_->TakeReservation(pushing)) << "it need not wait";
  EXPECT_EQ(reinterpret_cast<char*>(pushing.shard.target().get()), places_[0].get());
  EXPECT_FALSE(connection_->OnReserved({kUpload, 1}, Grant())) << "its push has taken it";
}

TEST_F(WorkerConnectionTest, APushThatComesBeforeTheAnswerWaitsForIt) {
  Reserve(1);
  Pushing pushing(Wish(1)), other(Wish(2));
  EXPECT_FALSE(connection_->TakeReservation(other)) << "it has none";
  EXPECT_TRUE(connection_->TakeReservation(pushing));
  EXPECT_FALSE(connection_->OnReserved({kUpload, 1}, Grant())) << "the answer is the push's";
  EXPECT_TRUE(places_.empty());
}

TEST_F(WorkerConnectionTest, AReservationThatIsNotGrantedIsForgotten) {
  Reserve(1);
  Reserve(2);
  EXPECT_TRUE(connection_->OnReserved({kUpload, 1}, {}));
  EXPECT_TRUE(connection_->OnReserved({kUpload, 2}, Grant(kBytes + 1))) << "of another size";
  EXPECT_TRUE(places_.empty());
  for (uint32_t shard : {1, 2}) {
    Pushing pushing(Wish(shard));
    EXPECT_FALSE(connection_->TakeReservation(pushing));
    EXPECT_EQ(pushing.shard.target(), nullptr);
  }
}

TEST_F(WorkerConnectionTest, AWithdrawnUploadHasNoReservations) {
  Reserve(1);
  connection_->Withdraw(UploadId{4});
  EXPECT_TRUE(connection_->OnReserved({kUpload, 1}, Grant()));
  connection_->Withdraw(kUpload);
  EXPECT_FALSE(connection_->OnReserved({kUpload, 1}, Grant()));
}

TEST_F(WorkerConnectionTest, AWorkerOnAnotherHostIsNotAsked) {
  Connect(nullptr);
  EXPECT_EQ(connection_->RequestPlace(Wish(1), kBytes), PlaceRequest::kNoSharedMemory);
  Reserve(1);
  EXPECT_TRUE(link_->frames.empty());
  EXPECT_FALSE(connection_->OnReserved({kUpload, 1}, {}));
}

TEST_F(WorkerConnectionTest, ARequestThatTheLinkDoesNotTakeReservesNothing) {
  link_->room = 0;
  EXPECT_EQ(connection_->RequestPlace(Wish(1), kBytes), PlaceRequest::kFull);
  Reserve(1);
  EXPECT_FALSE(connection_->OnReserved({kUpload, 1}, Grant()));
}

TEST_F(WorkerConnectionTest, WordsWaitForTheLinkInTheirOrder) {
  SayReceived();
  dropped_ = {kUpload, UploadId{4}};
  connection_->Reply({});
  link_->room = 2;
  EXPECT_FALSE(connection_->SendWords(dropped_));
  EXPECT_THAT(Words(), ElementsAre("reply", "dropped"));
  EXPECT_THAT(dropped_, ElementsAre(UploadId{4}));
  link_->room = SIZE_MAX;
  EXPECT_TRUE(connection_->SendWords(dropped_));
  EXPECT_THAT(Words(), ElementsAre("reply", "dropped", "dropped", "received"));
  EXPECT_EQ(link_->frames[2].bulk().name().upload(), 4u);
  EXPECT_TRUE(connection_->SendWords(dropped_));
  EXPECT_EQ(link_->frames.size(), 4u);
}

TEST_F(WorkerConnectionTest, AReplyThatIsLargeIsCut) {
  wire::HostCallbackReply reply;
  reply.add_results()->assign(size_t{3} << 20, 'x');
  connection_->Reply(std::move(reply));
  EXPECT_TRUE(connection_->SendWords(dropped_));
  ASSERT_GT(link_->frames.size(), 2u);
  EXPECT_TRUE(link_->frames[0].has_piece());
  EXPECT_TRUE(link_->frames.back().has_host_callback_reply());
}

}  // namespace
}  // namespace gangway::client
