// HostSeats: the limit holds over processes and threads, and a killed process leaves its seat.
#include "gangway/base/host_seats.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gangway/base/clock.h"

namespace gangway {
namespace {

constexpr size_t kSeats = 3;
constexpr int kProcesses = 10;

// Shared by a test and its child processes.
struct Board {
  std::atomic<int> at_once, most, taken;
  std::atomic<bool> is_held;
  std::atomic<pid_t> child;
};

class HostSeatsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/dev/shm/gangway-seats-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    ASSERT_TRUE(std::ofstream(File()).good());
    void* const memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board{};
  }
  void TearDown() override {
    munmap(board_, sizeof(Board));
    unlink(File().c_str());
    rmdir(folder_.c_str());
  }

  std::string File() const { return folder_ + "/seats"; }

  // A process that runs `run`, and then ends without any cleanup.
  static pid_t Start(const std::function<void()>& run) {
    const pid_t child = fork();
    if (child != 0) return child;
    run();
    _exit(0);
  }
  static int StatusOf(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  // Takes and returns a seat again and again, and notes how many hold one.
  void TakeMany(HostSeats& seats) {
    for (int i = 0; i < 2000; ++i) {
      const auto seat = seats.Take();
      if (!seat) {
        std::this_thread::yield();
        continue;
      }
      const int now = ++board_->at_once;
      for (int most = board_->most; now > most && !board_->most.compare_exchange_weak(most, now);)
        continue;
      ++board_->taken;
      std::this_thread::yield();
      --board_->at_once;
      seats.Return(*seat);
    }
  }

  std::string folder_;
  Board* board_ = nullptr;
};

TEST_F(HostSeatsTest, TenProcessesNeverHoldMoreThanThereAre) {
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(Start([this] {
      HostSeats seats(File(), kSeats);
      TakeMany(seats);
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(StatusOf(child), 0);
  EXPECT_GT(board_->taken, 0);
  EXPECT_LE(board_->most, static_cast<int>(kSeats));
  EXPECT_EQ(board_->at_once, 0);
}

TEST_F(HostSeatsTest, NeitherDoTheThreadsOfAProcess) {
  HostSeats seats(File(), kSeats);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kProcesses; ++i) threads.emplace_back([&] { TakeMany(seats); });
  }
  EXPECT_GT(board_->taken, 0);
  EXPECT_LE(board_->most, static_cast<int>(kSeats));
}

TEST_F(HostSeatsTest, AKilledProcessLeavesItsSeats) {
  const pid_t child = Start([this] {
    HostSeats seats(File(), kSeats);
    for (size_t i = 0; i < kSeats; ++i) (void)seats.Take();
    board_->is_held = true;
    pause();
  });
  while (!board_->is_held) std::this_thread::yield();
  HostSeats seats(File(), kSeats);
  EXPECT_FALSE(seats.Take());
  ASSERT_EQ(kill(child, SIGKILL), 0);
  EXPECT_TRUE(WIFSIGNALED(StatusOf(child)));
  std::set<size_t> taken;
  for (size_t i = 0; i < kSeats; ++i) taken.insert(seats.Take().value());
  EXPECT_EQ(taken.size(), kSeats);
  EXPECT_FALSE(seats.Take());
}

TEST_F(HostSeatsTest, AForkedChildHoldsNoneOfItsParents) {
  HostSeats seats(File(), kSeats);
  const size_t mine = seats.Take().value();
  const pid_t child = Start([&] {
    seats.LeaveParent();
    std::set<size_t> taken;
    while (const auto seat = seats.Take()) taken.insert(*seat);
    _exit(taken.size() == kSeats - 1 && taken.count(mine) == 0 ? 0 : 1);
  });
  EXPECT_EQ(StatusOf(child), 0);
  for (size_t i = 1; i < kSeats; ++i) EXPECT_TRUE(seats.Take());
}

// The child's copy of the descriptor would keep the lock.
TEST_F(HostSeatsTest, TheForkedChildOfAKilledProcessKeepsNoSeat) {
  const pid_t parent = Start([this] {
    HostSeats seats(File(), 1);
    (void)seats.Take();
    if (fork() == 0) {
      seats.LeaveParent();
      board_->child = getpid();
    }
    pause();
  });
  while (board_->child == 0) std::this_thread::yield();
  HostSeats seats(File(), 1);
  EXPECT_FALSE(seats.Take());
  ASSERT_EQ(kill(parent, SIGKILL), 0);
  EXPECT_TRUE(WIFSIGNALED(StatusOf(parent)));
  EXPECT_TRUE(seats.Take());
  EXPECT_EQ(kill(board_->child, SIGKILL), 0);
}

TEST_F(HostSeatsTest, AFileThatCannotBeUsedHasNone) {
  EXPECT_FALSE(HostSeats(folder_ + "/absent", kSeats).Take());
  EXPECT_FALSE(HostSeats(folder_, kSeats).Take());
}

TEST_F(HostSeatsTest, ADeviceThatAllCanOpenHasSeats) {
  HostSeats seats("/dev/null", HostSeats::kSeatsMax);
  EXPECT_TRUE(seats.Take());
}

TEST_F(HostSeatsTest, WithoutSeatsThereAreNone) { EXPECT_FALSE(HostSeats(File(), 0).Take()); }

}  // namespace
}  // namespace gangway
