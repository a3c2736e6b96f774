// Runs the conformance suite on the gRPC transport, and tests its own promises: only loopback
// without credentials (SE-1), and a killed peer is noticed at once.
#include "gangway/transport/grpc/grpc.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <future>

#include "gangway/base/serving_thread.h"
#include "gangway/transport/conformance/conformance.h"

namespace gangway::transport {
namespace {

std::unique_ptr<Transport> Make() {
  auto transport = NewGrpcTransport();
  EXPECT_TRUE(transport.ok());
  return *std::move(transport);
}

const Implementation kTcp{"tcp", Make, "127.0.0.1:0", "127.0.0.1:1"};

INSTANTIATE_TEST_SUITE_P(Grpc, TransportAddresses, ::testing::Values(kTcp),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Grpc, TransportConformance, ::testing::Values(kTcp),
                         [](const auto& info) { return info.param.name; });

TEST(GrpcTransport, SE1_OnlyLoopbackWithoutCredentials) {
  auto transport = Make();
  EventLoop loop("test");
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.com:80", "128.0.0.1:0",
                              "127.0.0.1.evil.org:1", "localhost.evil.org:1", "nonsense", ":80",
                              "127.0.0.1:", "127.0.0.1:99999", "unix:", "unix:/run/gangway", ""}) {
    auto listener = transport->Listen(address, [&](auto) { return LinkEvents{&loop}; });
    EXPECT_EQ(listener.status().code(), absl::StatusCode::kInvalidArgument)
        << address << listener.status();
    auto link = transport->Connect(address, LinkEvents{&loop}, std::chrono::seconds(1));
    EXPECT_EQ(link.status().code(), absl::StatusCode::kInvalidArgument) << address << link.status();
  }
  for (const char* address : {"127.0.0.1:0", "localhost:0", "127.1.2.3:0"}) {
    auto listener = transport->Listen(address, [&](auto) { return LinkEvents{&loop}; });
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_NE((*listener)->address(), address);
  }
}

TEST(GrpcTransport, AStrangersPortIsNotAccepted) {
  auto transport = Make();
  EventLoop loop("test");
  GrpcOptions one_sided;
  one_sided.server_credentials = grpc::InsecureServerCredentials();
  EXPECT_EQ(NewGrpcTransport(one_sided).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      transport->Connect("127.0.0.1:0", LinkEvents{&loop}, std::chrono::seconds(1)).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(GrpcTransport, AcceptsOnAThreadThatServes) {
  auto transport = Make();
  EventLoop loop("test");
  std::promise<bool> serves;
  std::shared_ptr<Link> accepted;
  auto listener = transport->Listen("127.0.0.1:0", [&](std::shared_ptr<Link> link) {
    accepted = std::move(link);
    serves.set_value(IsServing());
    return LinkEvents{.executor = &loop};
  });
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto link = transport->Connect((*listener)->address(), LinkEvents{.executor = &loop},
                                 std::chrono::seconds(20));
  ASSERT_TRUE(link.ok()) << link.status();
  auto answer = serves.get_future();
  ASSERT_EQ(answer.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(answer.get());
  link->reset();
  accepted.reset();
}

// The child's main: connects, sends one frame, then lives until killed.
[[noreturn]] void ConnectAndHang(const char* address) {
  alarm(30);
  EventLoop loop("child");
  auto transport = NewGrpcTransport();
  auto link = (*transport)->Connect(address, LinkEvents{&loop}, std::chrono::seconds(10));
  if (!link.ok() || !(*link)->Send(wire::Frame()).ok()) _exit(2);
  while (true) pause();
}

class KilledPeer : public ::testing::Test {
 protected:
  void Spawn(const std::string& address) {
    std::string flag = "--connect", where = address, name = "child";
    char* arguments[] = {name.data(), flag.data(), where.data(), nullptr};
    ASSERT_EQ(posix_spawn(&child_, "/proc/self/exe", nullptr, nullptr, arguments, environ), 0);
  }
  void Kill() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  void TearDown() override { Kill(); }

  pid_t child_ = -1;
};

TEST_F(KilledPeer, IsUnavailableAtOnce) {
  EventLoop loop("test");
  End server(&loop);
  auto transport = Make();
  auto listener = transport->Listen("127.0.0.1:0", [&](std::shared_ptr<Link> link) {
    server.link = std::move(link);
    return server.Events();
  });
  ASSERT_TRUE(listener.ok()) << listener.status();
  Spawn((*listener)->address());
  ASSERT_TRUE(server.WaitFrames(1));
  auto begin = std::chrono::steady_clock::now();
  Kill();
  ASSERT_TRUE(server.WaitClosed());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
  EXPECT_EQ(server.closed().code(), absl::StatusCode::kUnavailable) << server.closed();
  EXPECT_EQ(server.link->Send(wire::Frame()).code(), absl::StatusCode::kUnavailable);
  listener->reset();
  loop.Stop();
}

}  // namespace
}  // namespace gangway::transport

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--connect") == 0)
    gangway::transport::ConnectAndHang(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
