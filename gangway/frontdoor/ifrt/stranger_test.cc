// Strangers at the front door: what they may hold before the token is accepted, and for how long.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"

#include "gangway/base/clock.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/frontdoor/ifrt/fake_client.h"
#include "gangway/frontdoor/ifrt/server.h"
#include "gangway/xla/ifrt_service.grpc.pb.h"

namespace gangway::ifrt {
namespace {

namespace proxy = ::xla::ifrt::proxy;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr milliseconds kTokenLimit{400};
constexpr int kStreamsOfAStranger = 3, kStreams = 20, kSessions = 2, kStrangers = 5;

// One stream over a connection of its own, unless it shares the stub of another.
class Stream {
 public:
  using Stub = std::shared_ptr<proxy::GrpcIfrtService::Stub>;

  static Stub Connect(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return proxy::GrpcIfrtService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  Stream(Stub stub, const std::string& token) : stub_(std::move(stub)) {
    proxy::SessionMetadata metadata;
    metadata.mutable_version()->set_protocol(25);
    auto& said = *metadata.mutable_initialization_data()->mutable_attributes();
    said["gangway_token"].set_string_value(token);
    context_.AddMetadata("ifrt-proxy-grpc-ifrt-session-metadata-bin", metadata.SerializeAsString());
    context_.set_deadline(std::chrono::system_clock::now() + seconds(20));
    stream_ = stub_->IfrtSession(&context_);
  }
  ~Stream() { context_.TryCancel(); }

  // The answer to the first request.
  proxy::IfrtResponse Init() {
    proxy::IfrtRequest request;
    request.mutable_request_metadata()->set_op_id(1);
    request.mutable_init();
    stream_->Write(request);
    proxy::IfrtResponse response;
    stream_->Read(&response);
    return response;
  }
  // How the server ended it.
  grpc::Status End() {
    proxy::IfrtResponse response;
    while (stream_->Read(&response)) {
    }
    return stream_->Finish();
  }

 private:
  Stub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proxy::IfrtRequest, proxy::IfrtResponse>> stream_;
};

int Threads() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    count += entry.is_directory() ? 1 : 0;
  return count;
}

class StrangerTest : public ::testing::Test {
 protected:
  explicit StrangerTest(const std::string& host = "127.0.0.1", milliseconds limit = kTokenLimit)
      : host_(host) {
    IfrtServerOptions options;
    options.admit = [](const SessionRequest& request) {
      return request.token == "right" ? absl::OkStatus() : absl::UnauthenticatedError("who is it");
    };
    options.limits = {.strangers_max = kStrangers,
                      .token = limit,
                      .strangers_bytes_max = 1 << 20,
                      .stranger_streams_max = kStreamsOfAStranger,
                      .streams_max = kStreams,
                      .sessions_max = kSessions};
    auto server = IfrtServer::Start(
        absl::StrCat(host_, ":0"),
        [this](const SessionRequest&) -> absl::StatusOr<std::unique_ptr<Client>> {
          ++clients_;
          return std::make_unique<FakeClient>(cluster_);
        },
        options);
    if (server.ok()) server_ = *std::move(server);
  }

  std::string Address() const { return absl::StrCat(host_, ":", server_->port()); }

  FileDescriptor ConnectRaw() {
    FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  // Whether the server ends the connection within `limit`.
  static bool Ends(const FileDescriptor& fd, milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    while (Clock::now() < deadline) {
      pollfd readable = {.fd = fd.get(), .events = POLLIN};
      poll(&readable, 1, 20);
      char bytes[4096];
      const ssize_t count = recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
    }
    return false;
  }

  const std::string host_;
  std::atomic<int> clients_ = 0;  // that were asked for
  FakeCluster cluster_;
  std::unique_ptr<IfrtServer> server_;
};

int Code(const proxy::IfrtResponse& response) {
  return response.response_metadata().status().code();
}

TEST_F(StrangerTest, AWrongTokenCostsNeitherThreadNorSession_SE1) {
  auto stub = Stream::Connect(Address());
  Stream first(stub, "wrong");
  proxy::IfrtResponse answer = first.Init();
  EXPECT_EQ(Code(answer), static_cast<int>(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(answer.response_metadata().status().message(), HasSubstr("who is it"));
  const int threads = Threads();
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 40; ++i)
    streams.push_back(std::make_unique<Stream>(Stream::Connect(Address()), "wrong"));
  EXPECT_LE(Threads(), threads + 8) << "threads of gRPC's pools";
  EXPECT_EQ(clients_, 0);
}

TEST_F(StrangerTest, TheFirstRequestHasADeadline_TM1) {
  const auto began = Clock::now();
  Stream admitted(Stream::Connect(Address()), "right");
  grpc::Status end = admitted.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << end.error_message();
  EXPECT_THAT(end.error_message(), HasSubstr("no request came on this stream"));
  EXPECT_GE(Clock::now() - began, kTokenLimit);
  EXPECT_LT(Clock::now() - began, kTokenLimit + seconds(3));
  EXPECT_EQ(cluster_.clients_alive, 0);
  // A client that has sent it has none.
  Stream speaks(Stream::Connect(Address()), "right");
  EXPECT_EQ(Code(speaks.Init()), 0);
  FileDescriptor stranger = ConnectRaw();
  EXPECT_TRUE(Ends(stranger, kTokenLimit + seconds(3)));
  EXPECT_TRUE(Ends(ConnectRaw(), kTokenLimit + seconds(3)));
  EXPECT_EQ(Code(speaks.Init()), 0);
}

TEST_F(StrangerTest, AStrangersConnectionHasADeadline_SE1) {
  const auto began = Clock::now();
  FileDescriptor silent = ConnectRaw(), half = ConnectRaw();
  EXPECT_EQ(send(half.get(), "PRI * HT", 8, MSG_NOSIGNAL), 8);
  // gRPC itself ends connections without the first bytes of HTTP/2, but not this one.
  FileDescriptor settled = ConnectRaw();
  const std::string http2("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 33);
  EXPECT_EQ(send(settled.get(), http2.data(), http2.size(), MSG_NOSIGNAL), 33);
  Stream refused(Stream::Connect(Address()), "wrong");
  EXPECT_TRUE(Ends(settled, kTokenLimit + seconds(3)));
  EXPECT_TRUE(Ends(silent, kTokenLimit + seconds(3)));
  EXPECT_TRUE(Ends(half, kTokenLimit + seconds(3)));
  EXPECT_GE(Clock::now() - began, kTokenLimit);
  EXPECT_FALSE(refused.End().ok());
  EXPECT_LT(Clock::now() - began, kTokenLimit + seconds(3));
}

TEST_F(StrangerTest, TheOldestStrangerMakesRoom_TM2) {
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < kStrangers; ++i) strangers.push_back(ConnectRaw());
  Stream client(Stream::Connect(Address()), "right");
  EXPECT_EQ(Code(client.Init()), 0);
  EXPECT_TRUE(Ends(strangers[0], kTokenLimit / 2));
}

class PatientStrangerTest : public StrangerTest {
 protected:
  PatientStrangerTest() : StrangerTest("127.0.0.1", seconds(60)) {}
};

TEST_F(PatientStrangerTest, StrangersSendFewBytes_TM2) {
  FileDescriptor stranger = ConnectRaw(), other = ConnectRaw();
  const std::string head("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 33);
  EXPECT_EQ(send(stranger.get(), head.data(), head.size(), MSG_NOSIGNAL), 33);
  // Frames of a type that HTTP/2 does not know, which gRPC skips.
  std::string piece("\0\x40\0\xee\0\0\0\0\0", 9);
  piece.append(0x4000, 'x');
  size_t sent = 0;
  const auto deadline = Clock::now() + seconds(20);
  while (Clock::now() < deadline) {
    const ssize_t count = send(stranger.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (count != static_cast<ssize_t>(piece.size())) break;
    sent += piece.size();
  }
  EXPECT_LT(Clock::now(), deadline) << sent << " bytes, and it is still connected";
  EXPECT_FALSE(Ends(other, milliseconds(200))) << "it has sent nothing";
}

TEST_F(StrangerTest, StreamsOfAConnectionAreLimited_TM2) {
  auto stub = Stream::Connect(Address());
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < kStreamsOfAStranger; ++i)
    streams.push_back(std::make_unique<Stream>(stub, "wrong"));
  Stream one_more(stub, "wrong");
  proxy::IfrtResponse answer = one_more.Init();
  EXPECT_EQ(Code(answer), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(answer.response_metadata().status().message(),
              HasSubstr(absl::StrCat(kStreamsOfAStranger, " streams, the limit")));
}

TEST_F(StrangerTest, SessionsAreLimited_TM2) {
  {
    Stream one(Stream::Connect(Address()), "right"), other(Stream::Connect(Address()), "right");
    EXPECT_EQ(Code(one.Init()), 0);
    EXPECT_EQ(Code(other.Init()), 0);
    proxy::IfrtResponse refused = Stream(Stream::Connect(Address()), "right").Init();
    EXPECT_EQ(Code(refused), static_cast<int>(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(refused.response_metadata().status().message(),
                HasSubstr(absl::StrCat(kSessions, " sessions, its limit")));
  }
  {
    MutexLock lock(cluster_.mutex);
    ASSERT_TRUE(cluster_.changed.WaitFor(cluster_.mutex, seconds(20),
                                         [&] { return cluster_.clients_alive == 0; }));
  }
  // The places are free when gRPC has completed the streams.
  const auto deadline = Clock::now() + seconds(10);
  int code = -1;
  while (code != 0 && Clock::now() < deadline)
    code = Code(Stream(Stream::Connect(Address()), "right").Init());
  EXPECT_EQ(code, 0);
}

class StrangerOverIpv6Test : public StrangerTest {
 protected:
  StrangerOverIpv6Test() : StrangerTest("[::1]") {}
};

void StaysBeyondTheLimit(const std::string& address) {
  Stream client(Stream::Connect(address), "right");
  EXPECT_EQ(Code(client.Init()), 0);
  const auto until = Clock::now() + kTokenLimit * 2;
  while (Clock::now() < until) {
    ASSERT_EQ(client.Init().response_metadata().op_id(), 1u) << "a client was disconnected";
    poll(nullptr, 0, 20);
  }
}

// The doorkeeper finds connections by the address that gRPC reports.
TEST_F(StrangerTest, AClientIsNoStrangerWhileItHasASession) { StaysBeyondTheLimit(Address()); }

// JAX has a connection for its session, and others for its bytes.
TEST_F(StrangerTest, AConnectionWithAClientsBytesIsNoStranger) {
  auto client = std::make_unique<Stream>(Stream::Connect(Address()), "right");
  const uint64_t session = client->Init().init().session_id();
  auto bytes = Stream::Connect(Address());
  auto look = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(20));
    proxy::HostBufferDeleteRequest request;
    request.set_session_id(session);
    proxy::HostBufferDeleteResponse response;
    return bytes->HostBufferDelete(&context, request, &response);
  };
  auto store = [&](uint64_t handle, size_t size) {
    proxy::HostBufferStoreMetadata metadata;
    metadata.set_session_id(session);
    metadata.set_handle(handle);
    metadata.set_buffer_size(static_cast<int64_t>(size));
    grpc::ClientContext context;
    context.AddMetadata("ifrt-proxy-grpc-host-buffer-store-metadata-bin",
                        metadata.SerializeAsString());
    context.set_deadline(std::chrono::system_clock::now() + seconds(20));
    proxy::HostBufferStoreResponse response;
    auto writer = bytes->HostBufferStore(&context, &response);
    proxy::HostBufferStoreRequest chunk;
    chunk.set_data(std::string(size / 4, 'x'));
    for (int i = 0; i < 4; ++i) writer->Write(chunk);
    writer->WritesDone();
    return writer->Finish();
  };
  ASSERT_TRUE(look().ok());  // from here on, it is known
  const auto until = Clock::now() + kTokenLimit * 2;
  for (uint64_t handle = 1; Clock::now() < until; ++handle) {
    const grpc::Status stored = store(handle, 4 << 20);
    ASSERT_TRUE(stored.ok()) << handle << ": " << stored.error_message();
  }
  EXPECT_EQ(Code(client->Init()), 0);
}

TEST_F(StrangerOverIpv6Test, AClientIsNoStrangerWhileItHasASession) {
  if (server_ == nullptr) GTEST_SKIP() << "this machine has no ::1";
  StaysBeyondTheLimit(Address());
}

}  // namespace
}  // namespace gangway::ifrt
