// Hostile peers of the gRPC transport: their input harms only their own link.
#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/batch.pb.h"
#include "gangway/transport/grpc/grpc.h"

namespace gangway::transport {
namespace {

constexpr std::chrono::seconds kLimit{20};

// A server that echoes and records how links ended.
class HostileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    transport_ = *NewGrpcTransport();
    listener_ = *transport_->Listen("127.0.0.1:0", [this](std::shared_ptr<Link> link) {
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
    ASSERT_TRUE(Echo());  // before any hostility
  }

  void TearDown() override {
    EXPECT_TRUE(Echo());  // the server still serves
    listener_.reset();
    transport_.reset();
    loop_.Stop();
  }

  bool Echo() {
    Mutex mutex;
    CondVar changed;
    bool echoed = false;
    LinkEvents events;
    events.executor = &loop_;
    events.on_frame = [&](const wire::Frame&) {
      MutexLock lock(mutex);
      echoed = true;
      changed.NotifyAll();
    };
    auto link = transport_->Connect(listener_->address(), events, kLimit);
    if (!link.ok() || !(*link)->Send(wire::Frame()).ok()) return false;
    bool result;
    {
      MutexLock lock(mutex);
      result = changed.WaitFor(mutex, kLimit, [&] { return echoed; });
    }
    (*link)->Close(absl::CancelledError("echoed"));
    return result && WaitEnd(absl::StatusCode::kCancelled);
  }

  // Waits for the next end of a link and checks its code.
  bool WaitEnd(absl::StatusCode code) {
    MutexLock lock(mutex_);
    if (!changed_.WaitFor(mutex_, kLimit, [this]() GANGWAY_NO_ANALYSIS { return !ends_.empty(); }))
      return false;
    absl::Status end = ends_.front();
    ends_.erase(ends_.begin());
    EXPECT_EQ(end.code(), code) << end;
    return end.code() == code;
  }

  int ConnectRaw() {
    int port = 0;
    EXPECT_TRUE(
        absl::SimpleAtoi(listener_->address().substr(listener_->address().rfind(':') + 1), &port));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  // Sends `bytes` and closes the connection.
  void SendRaw(const std::string& bytes) {
    int fd = ConnectRaw();
    (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(fd);
  }

  // One call of `method` with one message of `bytes`; returns how the server ended it.
  grpc::Status Call(const std::string& method, const std::string& bytes) {
    auto channel =
        grpc::CreateChannel("ipv4:" + listener_->address(), grpc::InsecureChannelCredentials());
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kLimit);
    auto call = grpc::GenericStub(channel).PrepareCall(&context, method, &queue);
    auto next = [&queue] {
      void* tag;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    next();
    grpc::Slice slice(bytes);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    next();
    grpc::ByteBuffer answer;
    do {
      call->Read(&answer, nullptr);
    } while (next());
    grpc::Status status;
    call->Finish(&status, nullptr);
    next();
    queue.Shutdown();
    while (next()) {
    }
    return status;
  }

  EventLoop loop_{"test"};
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::Status> ends_ GANGWAY_GUARDED_BY(mutex_);
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(HostileTest, RawBytesOnTheSocket) {
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::string bytes(random() % 5000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 3 == 1) bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes;
    if (i % 3 == 2) bytes = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    SendRaw(bytes);
  }
}

TEST_F(HostileTest, ASilentConnectionHindersNobody) {
  int fd = ConnectRaw();
  EXPECT_TRUE(Echo());
  close(fd);
}

// TM-1: 10 s for the handshake.
TEST_F(HostileTest, ASilentConnectionIsEnded) {
  int fd = ConnectRaw(), half = ConnectRaw();
  EXPECT_EQ(send(half, "PRI * HT", 8, MSG_NOSIGNAL), 8);
  const auto deadline = Clock::now() + std::chrono::seconds(15);
  for (int each : {fd, half}) {
    bool ended = false;
    while (!ended && Clock::now() < deadline) {
      pollfd readable = {.fd = each, .events = POLLIN};
      poll(&readable, 1, 1000);
      char bytes[4096];
      const ssize_t count = recv(each, bytes, sizeof(bytes), MSG_DONTWAIT);
      ended = count == 0 || (count < 0 && errno != EAGAIN);
    }
    EXPECT_TRUE(ended);
    close(each);
  }
}

// Descriptors of this process.
size_t Descriptors() {
  const std::filesystem::directory_iterator each("/proc/self/fd"), none;
  return static_cast<size_t>(std::distance(each, none));
}

// A process that stands still, or whose network is cut: it takes connections, and answers, if at all, when the other
// end has given up.
TEST_F(HostileTest, AServerThatAnswersTooLateCostsNoDescriptors_TM_1) {
  const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&name), size), 0);
  ASSERT_EQ(listen(silent, 16), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));

  const size_t before = Descriptors();
  std::vector<int> taken;
  for (int i = 0; i < 16; ++i) {  // gRPC loses some of those whose channel is gone
    LinkEvents events;
    events.executor = &loop_;
    EXPECT_EQ(transport_->Connect(address, events, std::chrono::milliseconds(100)).status().code(),
              absl::StatusCode::kUnavailable);
    taken.push_back(accept4(silent, nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_GE(taken.back(), 0);
  }
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);  // an empty HTTP/2 frame
  for (size_t i = 0; i + 1 < taken.size(); ++i)
    EXPECT_EQ(send(taken[i], settings.data(), settings.size(), MSG_NOSIGNAL), 9);
  for (int each : taken) {  // until the other end has read it
    pollfd answered = {.fd = each, .events = POLLIN};
    poll(&answered, 1, 50);
    close(each);
  }
  // What gRPC opens once for all connections stays.
  const auto deadline = Clock::now() + kLimit;
  while (Descriptors() > before + 1 && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(Descriptors(), before + 1);
  close(silent);
}

TEST_F(HostileTest, BytesThatAreNoFrames) {
  for (std::string bytes : {std::string("\xff\xff\xff\xff\xff\xff"),
                            std::string("\x0a\x7f short", 8), std::string(1000, '\x0b')}) {
    Call("/gangway.Link/Open", bytes);
    EXPECT_TRUE(WaitEnd(absl::StatusCode::kInvalidArgument)) << bytes.size();
  }
}

TEST_F(HostileTest, ATruncatedFrame) {
  Batch batch;
  for (int i = 0; i < 10; ++i)
    batch.add_frames()->mutable_hello()->set_name("somebody with a name");
  std::string bytes = batch.SerializeAsString();
  for (size_t cut : {1, 2, 5, 30, 100}) {
    Call("/gangway.Link/Open", bytes.substr(0, bytes.size() - cut));
    EXPECT_TRUE(WaitEnd(absl::StatusCode::kInvalidArgument)) << cut;
  }
}

TEST_F(HostileTest, AnotherMethodIsUnimplemented) {
  EXPECT_EQ(Call("/gangway.Link/Other", "x").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Call("/", "x").error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(HostileTest, AMessageOverTheLimitEndsItsLinkOnly) {
  GrpcOptions options;
  options.message_bytes_max = 1 << 20;
  listener_.reset();
  transport_ = *NewGrpcTransport(options);
  listener_ = *transport_->Listen("127.0.0.1:0", [this](std::shared_ptr<Link> link) {
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
  Batch batch;
  batch.add_frames()->mutable_bulk()->mutable_bytes()->set_data(std::string(2 << 20, 'x'));
  EXPECT_NE(Call("/gangway.Link/Open", batch.SerializeAsString()).error_code(),
            grpc::StatusCode::OK);
  EXPECT_TRUE(WaitEnd(absl::StatusCode::kUnavailable));
  auto link = transport_->Connect(listener_->address(), LinkEvents{&loop_}, kLimit);
  ASSERT_TRUE(link.ok()) << link.status();
  wire::Frame frame;
  *frame.mutable_bulk() = batch.frames(0).bulk();
  EXPECT_EQ((*link)->Send(frame).code(), absl::StatusCode::kInvalidArgument);
  link->reset();
  EXPECT_TRUE(WaitEnd(absl::StatusCode::kCancelled));
}

// A server that admits a peer by the name in its Hello, and answers each frame by an empty one.
class StrangersLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    transport_ = *NewGrpcTransport({.admits_peers = true});
    listener_ = *transport_->Listen("127.0.0.1:0", [this](std::shared_ptr<Link> link) {
      return LinkEvents{.executor = &loop_,
                        .on_frame =
                            [link](const wire::Frame& frame) {
                              if (frame.hello().name() == "known") link->Admit();
                              (void)link->Send({});
                            },
                        .on_closed = [](const absl::Status&) {}};
    });
  }

  void TearDown() override {
    listener_.reset();
    transport_.reset();
    loop_.Stop();
  }

  std::shared_ptr<Link> Connect() {
    auto link = transport_->Connect(listener_->address(),
                                    {.executor = &loop_,
                                     .on_frame =
                                         [this](const wire::Frame&) {
                                           MutexLock lock(mutex_);
                                           ++answers_;
                                           changed_.NotifyAll();
                                         },
                                     .on_closed =
                                         [this](const absl::Status& status) {
                                           MutexLock lock(mutex_);
                                           end_ = status;
                                           changed_.NotifyAll();
                                         }},
                                    kLimit);
    EXPECT_TRUE(link.ok()) << link.status();
    return link.ok() ? *std::move(link) : nullptr;
  }

  // Sends messages of 16 MiB, each after the answer to the one before it; false: the link has ended. Strangers may
  // send 64 MiB together.
  bool SendMuch(Link& link, const std::string& name, int messages) {
    wire::Frame hello, frame;
    hello.mutable_hello()->set_name(name);
    frame.mutable_bulk()->mutable_bytes()->set_data(std::string(16 << 20, 'x'));
    for (int i = 0; i < messages; ++i) {
      if (!link.Send(i == 0 ? hello : frame).ok()) return false;
      MutexLock lock(mutex_);
      const bool come = changed_.WaitFor(
          mutex_, kLimit, [&]() GANGWAY_NO_ANALYSIS { return answers_ > i || !end_.ok(); });
      if (!come) ADD_FAILURE() << "neither an answer nor an end came";
      if (answers_ <= i) return false;
    }
    return true;
  }

  EventLoop loop_{"strangers"};
  Mutex mutex_;
  CondVar changed_;
  int answers_ GANGWAY_GUARDED_BY(mutex_) = 0;
  absl::Status end_ GANGWAY_GUARDED_BY(mutex_);
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(StrangersLinkTest, APeerThatWasAdmittedSendsWhatItLikes_SE1) {
  const auto link = Connect();
  ASSERT_NE(link, nullptr);
  EXPECT_TRUE(SendMuch(*link, "known", 10));
}

TEST_F(StrangersLinkTest, AStrangerThatSendsMuchIsDisconnected_SE1) {
  const auto link = Connect();
  ASSERT_NE(link, nullptr);
  EXPECT_FALSE(SendMuch(*link, "unknown", 1000));  // until the next look at strangers
  MutexLock lock(mutex_);
  EXPECT_TRUE(changed_.WaitFor(mutex_, kLimit, [&]() GANGWAY_NO_ANALYSIS { return !end_.ok(); }));
  EXPECT_EQ(end_.code(), absl::StatusCode::kUnavailable) << end_;
}

}  // namespace
}  // namespace gangway::transport
