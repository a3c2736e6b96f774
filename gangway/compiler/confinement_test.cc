// What a confined process can still do. Each test confines a child, which exits with the number of the first
// expectation that does not hold.
#include "gangway/compiler/confinement.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;

// Numbers the expectations of one child.
class Child {
 public:
  void Expect(bool holds) {
    ++number_;
    if (!holds) _exit(number_);
  }

 private:
  int number_ = 0;
};

class ConfinementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "confinement-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* each : {"scratch", "readable", "other"}) {
      fs::create_directory(folder_ / each);
      std::ofstream(folder_ / each / "file") << "text";
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  // The exit status of a child that runs `body`: 0, or the number of what did not hold; 100 and more: a signal.
  static int Run(const std::function<void(Child&)>& body) {
    const pid_t pid = fork();
    if (pid == 0) {
      Child child;
      body(child);
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
  }

  FileAccess Access() const {
    return {.writable = {folder_ / "scratch"}, .readable = {folder_ / "readable"}};
  }
  bool Opens(const char* folder, int flags = O_RDONLY) const {
    const int fd = open((folder_ / folder / "file").c_str(), flags);
    if (fd >= 0) close(fd);
    return fd >= 0;
  }
  bool Makes(const char* folder) const {
    const fs::path path = folder_ / folder / "new";
    const int fd = open(path.c_str(), O_CREAT | O_WRONLY, 0600);
    if (fd >= 0) close(fd);
    return fd >= 0 && unlink(path.c_str()) == 0;
  }

  fs::path folder_;
};

bool Refused(long result) { return result == -1 && errno == EPERM; }

TEST_F(ConfinementTest, OnlyTheFilesThatAreNamedCanBeOpened) {
  if (LandlockVersion() == 0) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(0, Run([&](Child& child) {
              child.Expect(ConfineFiles(Access()).ok());
              child.Expect(Opens("scratch", O_RDWR));
              child.Expect(Makes("scratch"));
              child.Expect(mkdir((folder_ / "scratch" / "sub").c_str(), 0700) == 0);
              child.Expect(Opens("readable"));
              child.Expect(!Opens("readable", O_RDWR));  // 6
              child.Expect(!Makes("readable"));
              child.Expect(!Opens("other"));
              child.Expect(!Makes("other"));
              child.Expect(!fs::exists("/etc/passwd") || open("/etc/passwd", O_RDONLY) < 0);
              child.Expect(open("/proc/1/environ", O_RDONLY) < 0);  // 11
              child.Expect(open("/dev/null", O_RDWR) >= 0);
              child.Expect(link((folder_ / "other" / "file").c_str(),
                                (folder_ / "scratch" / "l").c_str()) != 0);
            }));
  EXPECT_TRUE(Opens("other")) << "this process is not confined";
}

TEST_F(ConfinementTest, ThreadsThatRanBeforeAreConfinedToo) {
  if (LandlockVersion() == 0) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(0, Run([&](Child& child) {
              constexpr int kThreads = 50;
              std::atomic<bool> go = false;
              std::atomic<int> ready = 0, opened = 0;
              std::vector<std::jthread> threads;
              for (int i = 0; i < kThreads; ++i)
                threads.emplace_back([&] {
                  ++ready;
                  ready.notify_one();
                  go.wait(false);
                  if (Opens("other")) ++opened;
                  std::jthread later([&] {
                    if (Opens("other")) ++opened;
                  });
                });
              for (int seen = ready; seen < kThreads; seen = ready) ready.wait(seen);
              child.Expect(ConfineFiles(Access()).ok());
              go = true;
              go.notify_all();
              threads.clear();
              child.Expect(opened == 0);
            }));
}

// The signal that it uses is blocked in one of the threads.
TEST_F(ConfinementTest, AThreadThatBlocksSignalsIsReported) {
  if (LandlockVersion() == 0) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(0, Run([&](Child& child) {
              std::atomic<int> state = 0;
              std::jthread thread([&] {
                sigset_t all;
                sigfillset(&all);
                pthread_sigmask(SIG_BLOCK, &all, nullptr);
                state = 1;
                state.notify_all();
                state.wait(1);
              });
              state.wait(0);
              child.Expect(
                  absl::IsDeadlineExceeded(ConfineFiles(Access(), std::chrono::milliseconds(100))));
              _exit(0);
            }));
}

TEST_F(ConfinementTest, CallsThatReachOthersAreRefused) {
  if (!HasSeccomp()) GTEST_SKIP() << "this kernel takes no filters";
  const pid_t parent = getpid();
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const int network = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(0, Run([&](Child& child) {
              child.Expect(ConfineCalls().ok());
              child.Expect(Refused(socket(AF_INET, SOCK_STREAM, 0)));
              child.Expect(Refused(socket(AF_UNIX, SOCK_STREAM, 0)));
              sockaddr_in address = {};
              address.sin_family = AF_INET;
              address.sin_port = htons(9);
              address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
              child.Expect(Refused(
                  connect(network, reinterpret_cast<sockaddr*>(&address), sizeof(address))));
              child.Expect(Refused(fork()));  // 5
              char* const arguments[] = {const_cast<char*>("/bin/true"), nullptr};
              child.Expect(Refused(execv("/bin/true", arguments)));
              child.Expect(Refused(kill(parent, 0)));
              child.Expect(Refused(ptrace(PTRACE_ATTACH, parent, nullptr, nullptr)));
              child.Expect(Refused(syscall(SYS_pidfd_open, parent, 0)));
              rlimit limit = {};
              child.Expect(Refused(prlimit(parent, RLIMIT_NOFILE, nullptr, &limit)));  // 10
              child.Expect(Refused(chmod("/", 0777)));
              child.Expect(Refused(setuid(0)));
              // The link to the head, the own threads and limits, and a crash's signal.
              child.Expect(write(pair[0], "x", 1) == 1);
              int ran = 0;
              std::thread([&] { ran = 1; }).join();
              child.Expect(ran == 1);
              child.Expect(getrlimit(RLIMIT_NOFILE, &limit) == 0);  // 15
              child.Expect(kill(getpid(), 0) == 0);
            }));
  EXPECT_EQ(100 + SIGABRT, Run([](Child& child) {
              child.Expect(ConfineCalls().ok());
              std::abort();
            }));
  for (const int fd : {pair[0], pair[1], network}) close(fd);
}

TEST_F(ConfinementTest, AFilterHoldsForThreadsThatRanBefore) {
  if (!HasSeccomp()) GTEST_SKIP() << "this kernel takes no filters";
  EXPECT_EQ(0, Run([&](Child& child) {
              std::atomic<int> state = 0;
              bool refused = false;
              std::jthread thread([&] {
                state = 1;
                state.notify_all();
                state.wait(1);
                refused = Refused(socket(AF_INET, SOCK_STREAM, 0));
              });
              state.wait(0);
              child.Expect(ConfineCalls().ok());
              state = 2;
              state.notify_all();
              thread.join();
              child.Expect(refused);
            }));
}

TEST_F(ConfinementTest, FilesAndAddressesAreLimited) {
  EXPECT_EQ(0, Run([&](Child& child) {
              constexpr uint64_t kFile = 1 << 20;
              child.Expect(LimitProcess({.file_bytes_max = kFile}).ok());
              const int fd = open((folder_ / "scratch" / "file").c_str(), O_WRONLY | O_TRUNC);
              const std::string text(2 * kFile, 'x');
              child.Expect(write(fd, text.data(), text.size()) == static_cast<ssize_t>(kFile));
              child.Expect(write(fd, text.data(), text.size()) == -1 && errno == EFBIG);
              rlimit core = {};
              getrlimit(RLIMIT_CORE, &core);
              child.Expect(core.rlim_max == 0);
            }));
#ifndef GANGWAY_IS_SANITIZED  // which reserves addresses, and reports what is too much by itself
  EXPECT_EQ(0, Run([&](Child& child) {
              child.Expect(LimitProcess({.more_address_bytes = uint64_t{64} << 20}).ok());
              void* volatile small = std::malloc(size_t{16} << 20);
              child.Expect(small != nullptr);
              void* volatile large = std::malloc(size_t{256} << 20);
              child.Expect(large == nullptr);
            }));
#endif
}

TEST_F(ConfinementTest, ResidentMemoryIsMeasured) {
  const uint64_t before = ResidentBytes();
  ASSERT_GT(before, 0u);
  const std::string touched(size_t{64} << 20, 'x');
  EXPECT_GT(ResidentBytes(), before + (touched.size() >> 1));
}

}  // namespace
}  // namespace gangway::compiler
