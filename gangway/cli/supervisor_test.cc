// Runs `gangway up` as a process with fake children (testdata/fake_role.sh): restarts, giving up,
// ending.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "gangway/base/file_descriptor.h"
#include "gangway/base/package.h"
#include "gangway/cli/child_process.h"
#include "gangway/cli/state_dir.h"
#include "gangway/cli/up.h"

namespace gangway::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kLimit{20};

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    std::string pattern = ::testing::TempDir() + "gangway-up-XXXXXX";
    root_ = mkdtemp(pattern.data());
    setenv("GANGWAY_ROLE_BINARY", SourcePath(GANGWAY_TEST_FAKE_ROLE).c_str(), 1);
    setenv("FAKE_ROLE_DIR", root_.c_str(), 1);
    options_.workers = 2;
    options_.port = *ClaimPort(0);
    options_.plugin = "/proc/self/exe";  // any file: no child opens it
    options_.state_root = root_ + "/state";
  }
  ~SupervisorTest() override {
    if (up_ > 0) {
      kill(up_, SIGKILL);
      waitpid(up_, nullptr, 0);
    }
    // A killed child may have children that still write to the folder.
    std::error_code left_over;
    std::filesystem::remove_all(root_, left_over);
  }

  // Runs Up in its own process, with its output into said_.
  void Start() {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    up_ = fork();
    ASSERT_GE(up_, 0);
    if (up_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      for (int fd : ends) close(fd);  // background processes must not hold the pipe
      _exit(Up(options_));
    }
    close(ends[1]);
    output_.Reset(ends[0]);
  }

  // Reads until the output since the start contains `text`; false at its end or at the limit.
  bool Says(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (said_.find(text) == std::string::npos) {
      pollfd fd = {.fd = output_.get(), .events = POLLIN};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      char buffer[4096];
      if (left.count() <= 0 || poll(&fd, 1, static_cast<int>(left.count())) != 1) return false;
      const ssize_t count = read(output_.get(), buffer, sizeof(buffer));
      if (count <= 0) return false;
      said_.append(buffer, static_cast<size_t>(count));
    }
    return true;
  }

  // Waits for the end of the supervisor and returns its exit status.
  int Ended() {
    Says("(never said: reads to the end)");
    int status = -1;
    waitpid(up_, &status, 0);
    up_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // The processes that were started as `name`, in order.
  std::vector<pid_t> Pids(const std::string& name) {
    std::ifstream starts(root_ + "/starts");
    std::vector<pid_t> pids;
    std::string line;
    while (std::getline(starts, line)) {
      std::istringstream words(line);
      std::string who;
      pid_t pid;
      if (words >> who >> pid && (name.empty() || who == name)) pids.push_back(pid);
    }
    return pids;
  }
  void ExpectNobodyLeft() {
    for (pid_t pid : Pids("")) EXPECT_NE(kill(pid, 0), 0) << pid << " is left";
  }
  void Touch(const std::string& name) { std::ofstream(root_ + "/" + name) << "\n"; }
  StateDir State() { return StateDir(options_.state_root, options_.port); }

  UpOptions options_;
  std::string root_;
  pid_t up_ = -1;
  FileDescriptor output_;
  std::string said_;
};

TEST_F(SupervisorTest, StartsAllSaysReadyAndEndsInOrder) {
  Start();
  ASSERT_TRUE(Says("ready: 2 devices on 2 workers")) << said_;
  EXPECT_THAT(said_, HasSubstr("island0/worker0 is up (fake)"));
  EXPECT_EQ(*State().Supervisor(), up_);
  EXPECT_EQ(*State().Read(kControlAddress), "fake:1");
  EXPECT_TRUE(State().Read("island0-worker1.pid").ok());
  kill(up_, SIGTERM);
  EXPECT_EQ(Ended(), 0) << said_;
  ExpectNobodyLeft();
  std::string first;
  std::ifstream(root_ + "/ends") >> first;
  EXPECT_EQ(first, "head") << "clients hear of the end before an array is lost";
  EXPECT_FALSE(State().Supervisor().ok());
  EXPECT_FALSE(State().Read(kControlAddress).ok());
  EXPECT_FALSE(State().Read("head.pid").ok());
}

TEST_F(SupervisorTest, ER2_DeadWorkerAndCompilerAreStartedAgain) {
  Start();
  ASSERT_TRUE(Says("ready")) << said_;
  const pid_t worker = std::stoi(*State().Read("island0-worker1.pid"));
  kill(worker, SIGKILL);
  ASSERT_TRUE(Says("island0/worker1 restarted")) << said_;
  EXPECT_THAT(said_, HasSubstr("was ended by signal 9"));
  EXPECT_THAT(said_, HasSubstr("start 2"));
  EXPECT_NE(std::stoi(*State().Read("island0-worker1.pid")), worker);
  const pid_t compiler = std::stoi(*State().Read("compiler.pid"));
  kill(compiler, SIGKILL);
  ASSERT_TRUE(Says("compiler restarted")) << said_;
  kill(up_, SIGINT);
  EXPECT_EQ(Ended(), 0) << said_;
  ExpectNobodyLeft();
}

TEST_F(SupervisorTest, ER2_AReadyClusterRestartsItsProcessesHoweverOftenTheyCrash) {
  Start();
  ASSERT_TRUE(Says("ready")) << said_;
  for (int crash = 0; crash < RestartPolicy::kShortLivesMax; ++crash) {
    said_.clear();
    for (const char* file : {"compiler.pid", "island0-worker1.pid"})
      kill(std::stoi(*State().Read(file)), SIGKILL);
    for (const char* name : {"compiler", "island0/worker1"})
      ASSERT_TRUE(Says(std::string(name) + " restarted (pid ")) << said_;
  }
  kill(up_, SIGINT);
  EXPECT_EQ(Ended(), 0) << said_;
}

TEST_F(SupervisorTest, ASpareCompilerRunsOnDemandAndItsScratchFolderEndsWithIt) {
  Start();
  ASSERT_TRUE(Says("ready")) << said_;
  EXPECT_TRUE(Pids("compiler1").empty());
  const pid_t head = std::stoi(*State().Read("head.pid"));
  auto want = [&] { std::ofstream(root_ + "/wait-" + std::to_string(head)) << "want\n"; };
  want();
  ASSERT_TRUE(Says("compiler1 started")) << said_;
  const std::string scratch = State().File("scratch-compiler1");
  std::filesystem::create_directory(scratch);
  std::ofstream(scratch + "/program") << "half of it";
  const pid_t first = std::stoi(*State().Read("compiler1.pid"));
  kill(first, SIGKILL);
  ASSERT_TRUE(Says("compiler1 (pid " + std::to_string(first) + ") was ended by signal 9"));
  EXPECT_FALSE(std::filesystem::exists(scratch));
  want();
  ASSERT_TRUE(Says("start 2")) << "only when it is wanted again: " << said_;
  kill(up_, SIGTERM);
  EXPECT_EQ(Ended(), 0) << said_;
  ExpectNobodyLeft();
}

TEST_F(SupervisorTest, NoChildWaitsForASupervisorThatIsStopped) {
  Start();
  ASSERT_TRUE(Says("ready")) << said_;
  const std::string head = *State().Read("head.pid");
  kill(up_, SIGSTOP);
  std::ofstream(root_ + "/wait-" + head) << "flood\n";
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  while (!std::filesystem::exists(root_ + "/flooded") &&
         std::chrono::steady_clock::now() < deadline) {
    poll(nullptr, 0, 20);
  }
  EXPECT_TRUE(std::filesystem::exists(root_ + "/flooded"));
  kill(up_, SIGCONT);
  kill(up_, SIGINT);
  EXPECT_EQ(Ended(), 0) << said_.substr(0, 2000);
}

TEST_F(SupervisorTest, GivesUpOnAWorkerThatCannotLiveAndShowsItsLastWords) {
  Touch("broken-island0-worker0");
  Touch("incomplete");
  Start();
  EXPECT_EQ(Ended(), 1) << said_;
  EXPECT_THAT(said_, HasSubstr("island0/worker0"));
  EXPECT_THAT(said_, HasSubstr("ended with status 3"));
  EXPECT_THAT(said_, HasSubstr("not restarting it"));
  EXPECT_THAT(said_, HasSubstr("device island0-worker0 is on fire"));
  EXPECT_EQ(Pids("island0-worker0").size(), static_cast<size_t>(RestartPolicy::kShortLivesMax));
  ExpectNobodyLeft();
}

TEST_F(SupervisorTest, GivesUpAtOnceOnAWorkerThatAnotherStartDoesNotHelp) {
  Touch("hopeless-island0-worker0");
  Touch("incomplete");
  Start();
  EXPECT_EQ(Ended(), 1) << said_;
  EXPECT_THAT(said_, HasSubstr("gangway up: island0/worker0"));
  EXPECT_THAT(said_, HasSubstr("as it would after another start"));
  EXPECT_THAT(said_, HasSubstr("island0-worker0 has no device"));
  EXPECT_EQ(Pids("island0-worker0").size(), 1u);
  ExpectNobodyLeft();
}

// Then it may be a GPU that is gone for a moment, and the other workers go on.
TEST_F(SupervisorTest, ER2_AReadyClusterStartsSuchAWorkerAgain) {
  Start();
  ASSERT_TRUE(Says("ready")) << said_;
  Touch("hopeless-island0-worker0");
  kill(std::stoi(*State().Read("island0-worker0.pid")), SIGKILL);
  ASSERT_TRUE(Says("island0/worker0 restarted")) << said_;
  ASSERT_TRUE(Says(", start 3)")) << said_;
  kill(up_, SIGINT);
  EXPECT_EQ(Ended(), 0) << said_;
  ExpectNobodyLeft();
}

TEST_F(SupervisorTest, TM1_LateClusterEndsNamingWhoIsAbsent) {
  Touch("incomplete");
  options_.ready_limit_s = 1;
  Start();
  EXPECT_EQ(Ended(), 1) << said_;
  EXPECT_THAT(said_, HasSubstr("still waiting for island0/worker1"));
  ExpectNobodyLeft();
}

TEST_F(SupervisorTest, DeadHeadEndsTheCluster) {
  Start();
  ASSERT_TRUE(Says("ready")) << said_;
  kill(std::stoi(*State().Read("head.pid")), SIGKILL);
  EXPECT_EQ(Ended(), 1) << said_;
  EXPECT_THAT(said_, HasSubstr("the cluster cannot run without it"));
  ExpectNobodyLeft();
}

TEST_F(SupervisorTest, BrokenHeadIsAnErrorAtOnce) {
  Touch("broken-head");
  Start();
  EXPECT_EQ(Ended(), 1);
  EXPECT_THAT(said_, HasSubstr("device head is on fire"));
  EXPECT_TRUE(Pids("compiler").empty());
}

TEST_F(SupervisorTest, StubbornChildrenAreKilledAndASecondSignalHurries) {
  Touch("stubborn-head");
  Touch("stubborn-compiler");
  Start();
  ASSERT_TRUE(Says("ready")) << said_;
  kill(up_, SIGTERM);
  ASSERT_TRUE(Says("ending the cluster")) << said_;
  kill(up_, SIGTERM);
  EXPECT_EQ(Ended(), 0) << said_;
  ExpectNobodyLeft();
}

TEST_F(SupervisorTest, ChildrenDieWithTheSupervisor) {
  Start();
  ASSERT_TRUE(Says("ready")) << said_;
  std::vector<FileDescriptor> watched;
  for (const char* name :
       {"head.pid", "compiler.pid", "island0-worker0.pid", "island0-worker1.pid"}) {
    watched.emplace_back(
        static_cast<int>(syscall(SYS_pidfd_open, std::stoi(*State().Read(name)), 0)));
  }
  kill(up_, SIGKILL);
  for (const FileDescriptor& child : watched) {
    pollfd fd = {.fd = child.get(), .events = POLLIN};
    EXPECT_EQ(poll(&fd, 1, 20000), 1);
  }
}

TEST(ChildProcessTest, InheritsNothingButItsOwnStreams) {
  const FileDescriptor stray(open("/dev/null", O_RDONLY));  // inheritable, as a shell's may be
  ASSERT_TRUE(stray.valid());
  std::string seen;
  auto child = ChildProcess::Start({"/bin/ls", "/proc/self/fd"}, nullptr,
                                   [&seen](const std::string& line) { seen += line; });
  ASSERT_TRUE(child.ok()) << child.status();
  pollfd ended = {.fd = (*child)->pid_fd(), .events = POLLIN};
  ASSERT_EQ(poll(&ended, 1, 10000), 1);
  (*child)->Reap();
  EXPECT_EQ(seen, "0123") << "3 is the folder that ls reads";
}

TEST_F(SupervisorTest, SecondClusterOnThePortIsRefusedNamingTheFirst) {
  Start();
  ASSERT_TRUE(Says("ready")) << said_;
  const pid_t first = up_;
  FileDescriptor first_output = std::move(output_);
  Start();
  EXPECT_EQ(Ended(), 1);
  EXPECT_THAT(said_, HasSubstr("pid " + std::to_string(first)));
  up_ = first;
  output_ = std::move(first_output);
}

TEST_F(SupervisorTest, DetachedReturnsWhenReadyAndLeavesALog) {
  options_.detach = true;
  Start();
  EXPECT_EQ(Ended(), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("ready: "));
  const pid_t supervisor = *State().Supervisor();
  FileDescriptor watched(static_cast<int>(syscall(SYS_pidfd_open, supervisor, 0)));
  kill(supervisor, SIGTERM);
  pollfd fd = {.fd = watched.get(), .events = POLLIN};
  EXPECT_EQ(poll(&fd, 1, 20000), 1);
  ExpectNobodyLeft();
  EXPECT_THAT(*State().Read("logs/up.log"), HasSubstr("ending the cluster"));
}

TEST_F(SupervisorTest, DetachedFailureIsAFailure) {
  options_.detach = true;
  Touch("broken-head");
  Start();
  EXPECT_EQ(Ended(), 1);
  EXPECT_THAT(said_, HasSubstr("device head is on fire"));
  EXPECT_THAT(said_, Not(HasSubstr("ready: ")));
}

TEST_F(SupervisorTest, ALogIsMovedAsideAtItsLimitAndFollowsNoLink) {
  auto made = PrivateFolder::Make(root_ + "/logs");
  ASSERT_TRUE(made.ok()) << made.status();
  auto folder = std::make_shared<const PrivateFolder>(*std::move(made));
  const std::string line(size_t{1} << 20, 'x');
  ASSERT_TRUE(folder->Write("a.log", "before\n").ok());
  auto log = BoundedLog::Open(folder, "a.log");
  ASSERT_TRUE(log.ok()) << log.status();
  for (int i = 0; i < 4; ++i) (*log)->Write(line);
  EXPECT_THAT(*folder->Read("a.log.1"), HasSubstr("before\nxxx"));
  EXPECT_EQ(folder->Read("a.log")->size(), line.size());
  Touch("victim");
  ASSERT_EQ(symlink((root_ + "/victim").c_str(), (root_ + "/logs/b.log").c_str()), 0);
  EXPECT_EQ(BoundedLog::Open(folder, "b.log").status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(SupervisorTest, ALinkInPlaceOfALogIsSaidAndNothingStarts) {
  std::filesystem::create_directories(State().File("logs"));
  Touch("victim");
  ASSERT_EQ(symlink((root_ + "/victim").c_str(), State().File("logs/head.log").c_str()), 0);
  Start();
  EXPECT_EQ(Ended(), 1);
  EXPECT_THAT(said_, HasSubstr("logs/head.log is a link"));
  EXPECT_TRUE(Pids("").empty());
}

}  // namespace
}  // namespace gangway::cli
