// Tests of socket_watches.h, on a pair of sockets.
#include "gangway/transport/local/socket_watches.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <optional>

#include "gangway/base/file_descriptor.h"

namespace gangway::transport {
namespace {

using std::chrono::milliseconds;

// Counts what is reported, on either thread.
class Reports final : public IoThread::Watched {
 public:
  void OnReady(uint32_t epoll_events) override GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if ((epoll_events & EPOLLIN) != 0) ++reads_;
    if ((epoll_events & EPOLLOUT) != 0) ++rooms_;
    changed_.NotifyAll();
  }
  Clock::time_point OnTick(Clock::time_point) override { return Clock::time_point::max(); }

  bool AwaitReads(int count, milliseconds limit = milliseconds(20'000)) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return changed_.WaitFor(mutex_, limit,
                            [this, count]() GANGWAY_NO_ANALYSIS { return reads_ >= count; });
  }
  bool AwaitRooms(int count) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return changed_.WaitFor(mutex_, milliseconds(20'000),
                            [this, count]() GANGWAY_NO_ANALYSIS { return rooms_ >= count; });
  }
  int reads() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return reads_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  int reads_ GANGWAY_GUARDED_BY(mutex_) = 0;
  int rooms_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

class SocketWatchesTest : public testing::Test {
 protected:
  SocketWatchesTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    socket_ = FileDescriptor(ends[0]);
    peer_ = FileDescriptor(ends[1]);
    watches_.emplace(io_.get(), socket_.get());
  }
  ~SocketWatchesTest() override { watches_->End(); }
  void Arrive() { EXPECT_EQ(send(peer_.get(), "x", 1, MSG_DONTWAIT), 1); }

  const std::shared_ptr<IoThread> io_ = *IoThread::Start();
  const std::shared_ptr<Reports> link_ = std::make_shared<Reports>();
  FileDescriptor socket_, peer_;
  std::optional<SocketWatches> watches_;
};

TEST_F(SocketWatchesTest, TheIoThreadReportsWhatArrivesOnceAndAgainWhenAsked) {
  watches_->WatchAgain();  // nothing is watched yet
  ASSERT_EQ(watches_->Begin(link_), absl::OkStatus());
  Arrive();
  ASSERT_TRUE(link_->AwaitReads(1));
  EXPECT_FALSE(link_->AwaitReads(2, milliseconds(50))) << "it was not asked for more";
  watches_->WatchReadsAgain();
  EXPECT_TRUE(link_->AwaitReads(2));
  EXPECT_FALSE(watches_->HasUnread()) << "of the loop";
}

TEST_F(SocketWatchesTest, RoomIsReportedWhileItIsAwaited) {
  ASSERT_EQ(watches_->Begin(link_), absl::OkStatus());
  EXPECT_FALSE(watches_->awaits_room());
  watches_->AwaitRoom();
  EXPECT_TRUE(watches_->awaits_room());
  EXPECT_TRUE(link_->AwaitRooms(1));
  watches_->StopAwaitingRoom();
  EXPECT_FALSE(watches_->awaits_room());
}

TEST_F(SocketWatchesTest, OnceReadsHaveMovedTheLoopAloneReportsWhatArrives) {
  const std::shared_ptr<Poller> loop = *Poller::Create();
  const auto reader = std::make_shared<Reports>();
  ASSERT_EQ(watches_->Begin(link_), absl::OkStatus());
  watches_->MoveReads(reader);
  EXPECT_FALSE(watches_->loop_reads()) << "there is no loop";
  watches_->SetLoop(loop);
  watches_->MoveReads(reader);
  EXPECT_TRUE(watches_->loop_reads());
  Arrive();
  EXPECT_TRUE(watches_->HasUnread());
  loop->Poll(Clock::now() + milliseconds(20'000));
  EXPECT_EQ(reader->reads(), 1);
  watches_->WatchReadsAgain();
  loop->Poll(Clock::now() + milliseconds(20'000));
  EXPECT_EQ(reader->reads(), 2);
  watches_->ForgetReads();
  EXPECT_FALSE(watches_->loop_reads());
  Arrive();
  loop->Poll(Clock::now());
  EXPECT_EQ(reader->reads(), 2);
  EXPECT_EQ(link_->reads(), 0);
}

}  // namespace
}  // namespace gangway::transport
