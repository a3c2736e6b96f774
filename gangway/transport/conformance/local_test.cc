// Runs the conformance suite on the transport over unix sockets, and tests its own promises: a
// killed peer is noticed at once, no process takes over a listener's socket, and strangers disturb
// no other link.
#include "gangway/transport/local/local.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <future>

#include "gangway/base/file_descriptor.h"
#include "gangway/base/nightly_test_util.h"
#include "gangway/base/serving_thread.h"
#include "gangway/transport/batch.pb.h"
#include "gangway/transport/conformance/conformance.h"
#include "gangway/transport/local/connection.h"
#include "gangway/transport/traffic.h"

namespace gangway::transport {
namespace {

constexpr std::chrono::seconds kLimit{20};

std::string SocketPath(const char* name) {
  return std::string("unix:/tmp/gangway-") + name + "-" + std::to_string(getpid());
}
std::string AbstractName(const char* name) {
  return std::string("unix-abstract:gangway-") + name + "-" + std::to_string(getpid());
}
std::unique_ptr<Transport> Make() { return NewLocalTransport(); }

const Implementation kFile{"file", Make, SocketPath("listen"), SocketPath("nobody")};
const Implementation kAbstract{"abstract", Make, AbstractName("listen"), AbstractName("nobody")};

INSTANTIATE_TEST_SUITE_P(Local, TransportAddresses, ::testing::Values(kFile, kAbstract),
                         [](const auto& info) { return info.param.name; });
// The name of a socket changes nothing after its connection.
INSTANTIATE_TEST_SUITE_P(Local, TransportConformance,
                         ::testing::ValuesIn(IsNightly() ? std::vector{kFile, kAbstract}
                                                         : std::vector{kFile}),
                         [](const auto& info) { return info.param.name; });

// The transport's own thread reads for an executor that is no event loop.
class Posts final : public Executor {
 public:
  explicit Posts(EventLoop* loop) : loop_(loop) {}
  void Post(std::function<void()> task) override {
    if (IsServing() && !in_task_) has_served_ = true;
    loop_->Post([task = std::move(task)] {
      in_task_ = true;
      task();
      in_task_ = false;
    });
  }
  // A thread that serves has posted, and it was not the loop's.
  bool has_served() const { return has_served_; }

 private:
  static inline thread_local bool in_task_ = false;
  EventLoop* const loop_;
  std::atomic<bool> has_served_ = false;
};

TEST(LocalTransport, ServesExecutorsThatAreNoEventLoop) {
  EventLoop loop("test");
  Posts posts(&loop);
  auto transport = NewLocalTransport();
  auto listener = transport->Listen(SocketPath("posts"), [&](std::shared_ptr<Link> link) {
    LinkEvents events;
    events.executor = &posts;
    events.on_frame = [link](const wire::Frame& frame) { (void)link->Send(frame); };
    return events;
  });
  ASSERT_TRUE(listener.ok()) << listener.status();
  End client(&loop);
  LinkEvents events = client.Events();
  events.executor = &posts;
  auto link = transport->Connect((*listener)->address(), std::move(events), kLimit);
  ASSERT_TRUE(link.ok()) << link.status();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE((*link)->Send(wire::Frame()).ok());
  EXPECT_TRUE(client.WaitFrames(100));
  EXPECT_TRUE(posts.has_served());
  link->reset();
  listener->reset();
  transport.reset();
}

TEST(LocalTransport, CountsWhatItsLinksSendAndReceive) {
  EventLoop loop("test");
  auto transport = NewLocalTransport();
  auto listener = transport->Listen(SocketPath("counts"), [&](std::shared_ptr<Link> link) {
    LinkEvents events;
    events.executor = &loop;
    events.on_frame = [link](const wire::Frame& frame) { (void)link->Send(frame); };
    return events;
  });
  ASSERT_TRUE(listener.ok()) << listener.status();
  End client(&loop);
  auto link = transport->Connect((*listener)->address(), client.Events(), kLimit);
  ASSERT_TRUE(link.ok()) << link.status();
  wire::Frame frame, beat;
  frame.set_sequence(7);
  beat.mutable_heartbeat();
  const Traffic before = TrafficOfProcess();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE((*link)->Send(frame).ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE((*link)->Send(beat).ok());
  ASSERT_TRUE(client.WaitFrames(60));
  const Traffic after = TrafficOfProcess();  // of both ends
  EXPECT_EQ(after.frames_sent - before.frames_sent, 100u);
  EXPECT_EQ(after.bytes_sent - before.bytes_sent, 100 * frame.ByteSizeLong());
  EXPECT_EQ(after.frames_received - before.frames_received, 120u);
  EXPECT_GE(after.bytes_received - before.bytes_received, 100 * frame.ByteSizeLong());
  link->reset();
  listener->reset();
  transport.reset();
}

TEST(LocalTransport, WhatComesWithTheGreetingIsReadByWhoeverReads) {
  EventLoop loop("test");
  Posts posts(&loop);
  for (Executor* executor : {static_cast<Executor*>(&loop), static_cast<Executor*>(&posts)}) {
    auto transport = NewLocalTransport();
    std::promise<void> framed;
    std::shared_ptr<Link> accepted;
    auto listener = transport->Listen(SocketPath("greeting"), [&](std::shared_ptr<Link> link) {
      accepted = std::move(link);
      LinkEvents events;
      events.executor = executor;
      events.on_frame = [&](const wire::Frame&) { framed.set_value(); };
      return events;
    });
    ASSERT_TRUE(listener.ok()) << listener.status();
    FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    const std::string path = SocketPath("greeting").substr(5);
    std::memcpy(address.sun_path, path.data(), path.size());
    ASSERT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    Batch batch;
    batch.add_frames()->set_epoch(1);
    const std::string message = batch.SerializeAsString();
    const auto header = MessageHeader(message.size());
    const std::string all =
        std::string(kGreeting) + std::string(header.data(), header.size()) + message;
    ASSERT_EQ(send(socket.get(), all.data(), all.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(all.size()));
    EXPECT_EQ(framed.get_future().wait_for(kLimit), std::future_status::ready);
    accepted.reset();
    listener->reset();
    transport.reset();
  }
  loop.Stop();
}

// Both ends' loops end while bytes are on their way to them; then the links are closed.
TEST(LocalTransport, LinksMayOutliveTheLoopsThatReadThem) {
  auto transport = NewLocalTransport();
  EventLoop accepting("accepting");
  std::shared_ptr<Link> accepted;
  std::promise<void> arrived;
  auto listener = transport->Listen(SocketPath("outlive"), [&](std::shared_ptr<Link> link) {
    accepted = link;
    arrived.set_value();
    LinkEvents events;
    events.executor = &accepting;
    return events;
  });
  ASSERT_TRUE(listener.ok()) << listener.status();
  EventLoop connecting("connecting");
  LinkEvents events;
  events.executor = &connecting;
  auto link = transport->Connect((*listener)->address(), std::move(events), kLimit);
  ASSERT_TRUE(link.ok()) << link.status();
  arrived.get_future().get();
  connecting.Stop();
  accepting.Stop();
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE((*link)->Send(wire::Frame()).ok());
    EXPECT_TRUE(accepted->Send(wire::Frame()).ok());
  }
  link->reset();
  accepted.reset();
  const auto before = std::chrono::steady_clock::now();
  listener->reset();
  transport.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
}

// A server that echoes, and strangers that connect to it without a transport.
class LocalStrangers : public ::testing::Test {
 protected:
  void SetUp() override {
    transport_ = NewLocalTransport({.message_bytes_max = 1 << 20});
    auto listener = transport_->Listen(SocketPath("server"), [this](std::shared_ptr<Link> link) {
      LinkEvents events;
      events.executor = &loop_;
      events.on_frame = [link](const wire::Frame& frame) { (void)link->Send(frame); };
      events.on_closed = [this, link](const absl::Status& status) {
        MutexLock lock(mutex_);
        ends_.push_back(status);
        changed_.NotifyAll();
      };
      return events;
    });
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }

  void TearDown() override {
    End client(&loop_);
    auto link = transport_->Connect(listener_->address(), client.Events(), kLimit);
    ASSERT_TRUE(link.ok()) << link.status();
    ASSERT_TRUE((*link)->Send(wire::Frame()).ok());
    EXPECT_TRUE(client.WaitFrames(1)) << "the server still serves";
    link->reset();
    listener_.reset();
    transport_.reset();
    loop_.Stop();
  }

  FileDescriptor ConnectRaw() {
    FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = listener_->address().substr(5);
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const timeval wait{.tv_sec = kLimit.count(), .tv_usec = 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    return socket;
  }

  static void Say(const FileDescriptor& socket, std::string_view bytes) {
    EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  static void HearGreeting(const FileDescriptor& socket) {
    std::string heard(kGreeting.size(), '\0');
    EXPECT_EQ(recv(socket.get(), heard.data(), heard.size(), MSG_WAITALL),
              static_cast<ssize_t>(heard.size()));
    EXPECT_EQ(heard, kGreeting);
  }

  // Reads until the server closes the connection, within the limit.
  static std::string HearAll(const FileDescriptor& socket) {
    std::string all;
    char bytes[4096];
    ssize_t count;
    while ((count = recv(socket.get(), bytes, sizeof(bytes), 0)) > 0) all.append(bytes, count);
    EXPECT_TRUE(count == 0 || errno == ECONNRESET) << std::strerror(errno);
    return all;
  }

  static std::string Message(const std::string& bytes) {
    const auto header = MessageHeader(bytes.size());
    return std::string(header.data(), header.size()) + bytes;
  }

  absl::Status WaitEnd() {
    MutexLock lock(mutex_);
    if (!changed_.WaitFor(mutex_, kLimit, [this]() GANGWAY_NO_ANALYSIS { return !ends_.empty(); }))
      return absl::DeadlineExceededError("no link has ended");
    absl::Status end = ends_.front();
    ends_.erase(ends_.begin());
    return end;
  }

  EventLoop loop_{"test"};
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::Status> ends_ GANGWAY_GUARDED_BY(mutex_);
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(LocalStrangers, AnotherProtocolIsEndedAtOnce) {
  for (const char* bytes :
       {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "gangway\x02 of another version", "x"}) {
    FileDescriptor socket = ConnectRaw();
    Say(socket, bytes);
    EXPECT_EQ(HearAll(socket), "");
  }
}

TEST_F(LocalStrangers, ASilentOneAndOneThatLeavesHinderNobody) {
  FileDescriptor silent = ConnectRaw(), half = ConnectRaw();
  Say(half, "gang");
  ConnectRaw();
}

TEST_F(LocalStrangers, BytesThatAreNoFramesEndTheirLinkOnly) {
  for (std::string bytes : {std::string("\xff\xff\xff\xff\xff\xff"),
                            std::string("\x0a\x7f short", 8), std::string(1000, '\x0b')}) {
    FileDescriptor socket = ConnectRaw();
    Say(socket, std::string(kGreeting) + Message(bytes));
    EXPECT_EQ(HearAll(socket).substr(0, kGreeting.size()), kGreeting);
    const absl::Status end = WaitEnd();
    EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument) << end;
  }
}

TEST_F(LocalStrangers, AMessageOverTheLimitEndsItsLinkOnly) {
  FileDescriptor socket = ConnectRaw();
  const auto header = MessageHeader((1 << 20) + 1);
  Say(socket, std::string(kGreeting) + std::string(header.data(), header.size()));
  HearAll(socket);
  const absl::Status end = WaitEnd();
  EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument) << end;
  auto link = transport_->Connect(listener_->address(), LinkEvents{&loop_}, kLimit);
  ASSERT_TRUE(link.ok()) << link.status();
  wire::Frame frame;
  frame.mutable_bulk()->mutable_bytes()->set_data(std::string(2 << 20, 'x'));
  EXPECT_EQ((*link)->Send(frame).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(LocalStrangers, AnEndInTheMiddleOfAMessageIsUnavailable) {
  Batch batch;
  batch.add_frames()->mutable_hello()->set_name("somebody with a name");
  {
    FileDescriptor socket = ConnectRaw();
    Say(socket, std::string(kGreeting) + Message(batch.SerializeAsString()).substr(0, 12));
    HearGreeting(socket);
  }
  const absl::Status end = WaitEnd();
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
  EXPECT_NE(end.message().find("was lost"), std::string::npos) << end;
}

TEST_F(LocalStrangers, AKilledPeerIsUnavailableAtOnce) {
  FileDescriptor socket = ConnectRaw();
  Batch batch;
  batch.add_frames();
  Say(socket, std::string(kGreeting) + Message(batch.SerializeAsString()));
  HearGreeting(socket);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // the child holds the socket and does nothing
    alarm(60);
    while (true) pause();
  }
  socket.Reset();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status end = WaitEnd();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
}

// Frames that a loop leaves to the end of its round go out with another thread's frame: heartbeats
// do not wait for a stalled loop.
TEST_F(LocalStrangers, AnotherThreadsFrameTakesAlongWhatALoopHasLeftForLater) {
  End client(&loop_);
  auto link = transport_->Connect(listener_->address(), client.Events(), kLimit);
  ASSERT_TRUE(link.ok()) << link.status();
  EventLoop busy("busy");
  Gate sent, stay;
  busy.Post([&] {
    for (int i = 0; i < 100; ++i) EXPECT_TRUE((*link)->Send(wire::Frame()).ok());
    sent.Open();
    stay.Pass();
  });
  sent.Pass();
  EXPECT_TRUE(client.WaitFrames(1)) << "the first goes at once";
  EXPECT_TRUE((*link)->Send(wire::Frame()).ok());
  EXPECT_TRUE(client.WaitFrames(101));
  busy.Post([&] {
    for (int i = 0; i < 100; ++i) EXPECT_TRUE((*link)->Send(wire::Frame()).ok());
  });
  stay.Open();
  EXPECT_TRUE(client.WaitFrames(201));
  link->reset();
  busy.Stop();
}

TEST(LocalTransport, AddressesThatAreNone) {
  auto transport = Make();
  EventLoop loop("test");
  for (std::string address : {std::string("127.0.0.1:0"), std::string("unix:"), std::string(),
                              "unix:/" + std::string(200, 'x'), std::string("unix:/a\0b", 9),
                              std::string("unix:\0abstract", 14)}) {
    auto listener = transport->Listen(address, [&](auto) { return LinkEvents{&loop}; });
    EXPECT_EQ(listener.status().code(), absl::StatusCode::kInvalidArgument) << address;
    auto link = transport->Connect(address, LinkEvents{&loop}, std::chrono::seconds(1));
    EXPECT_EQ(link.status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

TEST(LocalTransport, ASocketThatSomebodyMayListenAtIsNotTakenAway) {
  const std::string path = SocketPath("taken").substr(5);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  ASSERT_EQ(bind(socket.get(), generic, sizeof(address)), 0);
  ASSERT_EQ(listen(socket.get(), 0), 0);
  FileDescriptor waiting(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(waiting.get(), generic, sizeof(address)), 0);  // the backlog is full
  auto transport = Make();
  EventLoop loop("test");
  auto refused = transport->Listen("unix:" + path, [&](auto) { return LinkEvents{&loop}; });
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << refused.status();
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  waiting.Reset();
  socket.Reset();  // its file stays
  auto taken = transport->Listen("unix:" + path, [&](auto) { return LinkEvents{&loop}; });
  EXPECT_TRUE(taken.ok()) << taken.status();
}

TEST(LocalTransport, TheSystemChoosesANameAndNothingIsLeftOfIt) {
  auto transport = Make();
  EventLoop loop("test");
  std::string address;
  {
    auto listener = transport->Listen("unix-abstract:", [&](auto) { return LinkEvents{&loop}; });
    auto second = transport->Listen("unix-abstract:", [&](auto) { return LinkEvents{&loop}; });
    ASSERT_TRUE(listener.ok() && second.ok()) << listener.status() << second.status();
    address = (*listener)->address();
    EXPECT_NE(address, (*second)->address());
    auto link = transport->Connect(address, LinkEvents{&loop}, kLimit);
    EXPECT_TRUE(link.ok()) << link.status();
  }
  EXPECT_EQ(transport->Connect(address, LinkEvents{&loop}, kLimit).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(transport->Connect("unix-abstract:", LinkEvents{&loop}, kLimit).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LocalTransport, WhoDoesNotAnswerIsUnavailableWithinTheLimit) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = AbstractName("mute").substr(14);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address),
                 offsetof(sockaddr_un, sun_path) + 1 + name.size()),
            0);
  ASSERT_EQ(listen(socket.get(), 1), 0);
  auto transport = Make();
  EventLoop loop("test");
  const auto begin = std::chrono::steady_clock::now();
  auto link = transport->Connect(AbstractName("mute"), LinkEvents{&loop}, std::chrono::seconds(1));
  EXPECT_EQ(link.status().code(), absl::StatusCode::kUnavailable) << link.status();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

}  // namespace
}  // namespace gangway::transport
