// LatencyRequest: opened once for all, closed a moment after the last, and never where that is not possible.
#include "gangway/base/latency_request.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gangway/base/world.h"

namespace gangway {
namespace {

using std::chrono::milliseconds;
constexpr std::chrono::seconds kLimit{10};
constexpr std::chrono::hours kNever{1};

class LatencyRequestTest : public ::testing::Test {
 protected:
  LatencyRequestTest() {
    std::string pattern = ::testing::TempDir() + "gangway-latency-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    file_ = folder_ + "/request";
    std::ofstream(file_).close();
  }
  ~LatencyRequestTest() override { std::filesystem::remove_all(folder_); }

  // The descriptors of this process that lead to the file.
  std::vector<int> Open() const {
    std::vector<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code closed;
      if (std::filesystem::read_symlink(entry, closed) == file_)
        found.push_back(std::stoi(entry.path().filename()));
    }
    return found;
  }
  bool IsClosedInTime() const {
    const auto deadline = Clock::now() + kLimit;
    while (!Open().empty() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    return Open().empty();
  }
  std::string Content() const {
    std::ifstream file(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_, file_;
};

// Runs `task` on the loop and waits for it.
void On(EventLoop& loop, std::function<void()> task) {
  std::promise<void> done;
  loop.Post([&] {
    task();
    done.set_value();
  });
  ASSERT_EQ(done.get_future().wait_for(kLimit), std::future_status::ready);
}

TEST_F(LatencyRequestTest, OpensOnceForManyAndClosesAMomentAfterTheLast) {
  constexpr milliseconds kLinger{100};
  LatencyRequest request(file_, kLinger);
  EventLoop loop("test");
  LatencyHold first(&request), second(&request), unused(&request);
  first.Use(&loop);
  second.Use(&loop);
  unused.Set(true);
  EXPECT_TRUE(Open().empty()) << "a hold without Use opened the file";
  first.Set(true);
  second.Set(true);
  ASSERT_EQ(Open().size(), 1u);
  EXPECT_TRUE(request.is_open());
  EXPECT_TRUE((fcntl(Open()[0], F_GETFD) & FD_CLOEXEC) != 0);
  EXPECT_EQ(Content(), std::string(4, '\0'));
  first.Set(false);
  first.Set(false);
  EXPECT_EQ(Open().size(), 1u) << "closed while a hold was busy";
  const auto idle = Clock::now();
  On(loop, [&] { second.Set(false); });
  EXPECT_TRUE(IsClosedInTime());
  EXPECT_GE(Clock::now() - idle, kLinger);
  second.Set(true);
  EXPECT_EQ(Open().size(), 1u) << "not opened again";
  second.Set(false);
  EXPECT_TRUE(IsClosedInTime());
}

TEST_F(LatencyRequestTest, WorkWithinTheLingerKeepsTheFile) {
  LatencyRequest request(file_, kNever);
  EventLoop loop("test");
  LatencyHold hold(&request);
  hold.Use(&loop);
  hold.Set(true);
  std::filesystem::resize_file(file_, 0);  // an opening would write again
  for (int i = 0; i < 1000; ++i) {
    hold.Set(false);
    hold.Set(true);
  }
  EXPECT_EQ(Open().size(), 1u);
  EXPECT_EQ(Content(), "");
}

// The loop runs nothing once the file is closed, although work has come and gone many times.
TEST_F(LatencyRequestTest, NothingRunsWhenIdle) {
  constexpr milliseconds kLinger{10};
  LatencyRequest request(file_, kLinger);
  EventLoop loop("test");
  LatencyHold hold(&request);
  hold.Use(&loop);
  for (int i = 0; i < 100; ++i) {
    hold.Set(true);
    hold.Set(false);
  }
  EXPECT_TRUE(IsClosedInTime());
  uint64_t before = 0, after = 0;
  On(loop, [&] { before = loop.round(); });
  std::promise<void> later;
  loop.PostAt(Clock::now() + 10 * kLinger, [&] {
    after = loop.round();
    later.set_value();
  });
  ASSERT_EQ(later.get_future().wait_for(kLimit), std::future_status::ready);
  EXPECT_EQ(after, before + 1);
}

TEST_F(LatencyRequestTest, TheLastHoldClosesAtItsEndIfItsLoopCannot) {
  LatencyRequest request(file_, kNever);
  EventLoop other("other");
  LatencyHold stays(&request);
  stays.Use(&other);
  {
    EventLoop loop("test");
    std::optional<LatencyHold> hold(std::in_place, &request);
    hold->Use(&loop);
    hold->Set(true);
    stays.Set(true);
    stays.Set(false);
    hold->Set(false);  // its loop has the timer
    loop.Stop();
    hold.reset();
  }
  EXPECT_FALSE(request.is_open());
  stays.Set(true);
  EXPECT_TRUE(request.is_open());
}

TEST_F(LatencyRequestTest, AHoldThatEndsWhileBusyCountsNoMore) {
  LatencyRequest request(file_, kNever);
  EventLoop loop("test");
  LatencyHold stays(&request);
  stays.Use(&loop);
  stays.Set(true);
  {
    LatencyHold hold(&request);
    hold.Use(&loop);
    hold.Set(true);
  }
  EXPECT_TRUE(request.is_open()) << "another hold is busy";
  {
    LatencyHold hold(&request);
    hold.Use(&loop);
    hold.Set(true);
    stays.Set(false);
  }
  EXPECT_FALSE(request.is_open());
}

TEST_F(LatencyRequestTest, AFileThatCannotBeOpenedIsTriedOnce) {
  const std::string absent = folder_ + "/absent";
  LatencyRequest request(absent, milliseconds(0)), none("", milliseconds(0));
  EventLoop loop("test");
  LatencyHold hold(&request), of_none(&none);
  hold.Use(&loop);
  of_none.Use(&loop);
  hold.Set(true);
  of_none.Set(true);
  EXPECT_FALSE(request.is_open() || none.is_open());
  std::ofstream(absent).close();
  hold.Set(false);
  On(loop, [] {});
  hold.Set(true);
  EXPECT_FALSE(request.is_open());
  mkfifo((folder_ + "/fifo").c_str(), 0600);
  EXPECT_FALSE(OpenLatencyRequest(folder_ + "/fifo").valid()) << "and does not wait";
}

TEST_F(LatencyRequestTest, WithoutADescriptorTheNextPeriodOfWorkTriesAgain) {
  LatencyRequest request(file_, milliseconds(1));
  EventLoop loop("test");
  LatencyHold hold(&request);
  hold.Use(&loop);
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int lowest = dup(STDERR_FILENO);
  close(lowest);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest), .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  hold.Set(true);
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_FALSE(request.is_open());
  const auto deadline = Clock::now() + kLimit;
  while (!request.is_open() && Clock::now() < deadline) {
    hold.Set(false);
    std::this_thread::sleep_for(milliseconds(5));  // longer than the linger: the period has ended
    hold.Set(true);
  }
  EXPECT_TRUE(request.is_open());
}

TEST_F(LatencyRequestTest, AForkedChildHoldsNothing) {
  setenv("GANGWAY_LATENCY_REQUEST", file_.c_str(), 1);
  LatencyRequest& request = LatencyRequest::OfProcess();
  unsetenv("GANGWAY_LATENCY_REQUEST");
  EventLoop loop("test");
  LatencyHold hold(&request);
  hold.Use(&loop);
  hold.Set(true);
  ASSERT_EQ(Open().size(), 1u);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool inherited = !Open().empty();
    hold.Set(false);
    hold.Set(true);
    _exit(inherited || !Open().empty() ? 1 : 0);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Open().size(), 1u) << "the parent's is still open";
}

TEST(LatencyRequestFileTest, TheEnvironmentNamesIt) {
  const std::pair<const char*, const char*> cases[] = {{"", "/dev/cpu_dma_latency"},
                                                       {"1", "/dev/cpu_dma_latency"},
                                                       {"0", ""},
                                                       {"/a/file", "/a/file"}};
  for (const auto& [value, file] : cases) {
    setenv("GANGWAY_LATENCY_REQUEST", value, 1);
    EXPECT_EQ(LatencyRequestFile(), file) << value;
  }
  unsetenv("GANGWAY_LATENCY_REQUEST");
  EXPECT_EQ(LatencyRequestFile(), "/dev/cpu_dma_latency");
}

// Of which only the presence counts.
class NoWorld final : public World {
 public:
  NoWorld() { Install(this); }
  ~NoWorld() override { Install(nullptr); }
  Time Now() override { return {}; }
  uint64_t RandomBits() override { return 0; }
  uint64_t ProcessId() override { return 1; }
  ThreadId Start(const std::string&, std::function<void()>) override { return 1; }
  void Join(ThreadId) override {}
  void*& Local() override { return local_; }
  void Wait(const void*, Time) override {}
  void NotifyOne(const void*) override {}
  void NotifyAll(const void*) override {}

 private:
  void* local_ = nullptr;
};

TEST_F(LatencyRequestTest, AWorldOpensNothing) {
  LatencyRequest request(file_);
  LatencyHold hold(&request);
  {
    NoWorld world;
    hold.Use(reinterpret_cast<EventLoop*>(&world));  // not used; a real one would run in the world
  }
  hold.Set(true);
  EXPECT_FALSE(request.is_open());
}

}  // namespace
}  // namespace gangway
