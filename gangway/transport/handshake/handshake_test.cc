// Greet: versions are compared, the first frame must be a Hello, and a rejection says why before
// the link closes.
#include "gangway/transport/handshake/handshake.h"

#include <gtest/gtest.h>

#include <future>

#include "gangway/transport/handshake/cluster_token.h"
#include "gangway/transport/inproc/inproc.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::transport {
namespace {

constexpr std::chrono::seconds kLimit{5};

class Echo final : public Endpoint {
 public:
  explicit Echo(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  void OnFrame(wire::Frame frame) override { EXPECT_TRUE(link_->Send(std::move(frame)).ok()); }
  void OnClosed(const absl::Status&) override {}

 private:
  std::shared_ptr<Link> link_;
};

class HandshakeTest : public testing::Test {
 protected:
  HandshakeTest() : loop_("server"), client_loop_("client"), transport_(NewInprocTransport()) {
    auto listener = transport_->Listen(
        "door", Greet(&loop_, {.token_needed = true, .token = "right"},
                      [](const std::shared_ptr<Link>& link,
                         const wire::Hello& hello) -> absl::StatusOr<std::unique_ptr<Endpoint>> {
                        if (hello.name() == "unwanted")
                          return absl::PermissionDeniedError("not you");
                        return std::make_unique<Echo>(link);
                      }));
    listener_ = *std::move(listener);
  }

  ~HandshakeTest() override {
    link_.reset();
    listener_.reset();
    loop_.Stop();
    client_loop_.Stop();
  }

  // The first frame that comes back after `frame`.
  wire::Frame Ask(wire::Frame frame) {
    auto answer = std::make_shared<std::promise<wire::Frame>>();
    auto answered = std::make_shared<bool>(false);
    LinkEvents events;
    events.executor = &client_loop_;
    events.on_frame = [answer, answered](wire::Frame reply) {
      if (!*answered) answer->set_value(std::move(reply));
      *answered = true;
    };
    events.on_closed = [](const absl::Status&) {};
    auto link = transport_->Connect("door", std::move(events), kLimit);
    EXPECT_TRUE(link.ok());
    link_ = *std::move(link);
    EXPECT_TRUE(link_->Send(std::move(frame)).ok());
    auto future = answer->get_future();
    if (future.wait_for(kLimit) != std::future_status::ready) {
      ADD_FAILURE() << "no answer";
      return {};
    }
    return future.get();
  }

  static wire::Frame Hello(uint32_t version, const std::string& name) {
    wire::Frame frame;
    frame.mutable_hello()->set_protocol_version(version);
    frame.mutable_hello()->set_build_version("9.9.9");
    frame.mutable_hello()->set_name(name);
    frame.mutable_hello()->set_token("right");
    return frame;
  }

  EventLoop loop_;
  EventLoop client_loop_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<Link> link_;
};

TEST_F(HandshakeTest, WithoutTheClustersTokenNobodyIsWelcome) {
  for (const char* token : {"", "wrong", "right and more"}) {
    wire::Frame hello = Hello(wire::kProtocolVersion, "a stranger");
    hello.mutable_hello()->set_token(token);
    wire::Frame reply = Ask(std::move(hello));
    ASSERT_TRUE(reply.has_hello_reply()) << token;
    const wire::Failure& failure = reply.hello_reply().failure();
    EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kUnauthenticated)) << token;
    EXPECT_NE(failure.message().find("a stranger presented"), std::string::npos);
    EXPECT_NE(failure.message().find("--state-dir"), std::string::npos) << failure.message();
  }
}

TEST(ClusterTokenTest, NothingIsNoToken) {
  EXPECT_FALSE(CheckClusterToken("", "", "who").ok());
  const std::string token = NewClusterToken();
  EXPECT_EQ(token.size(), 64u);
  EXPECT_NE(token, NewClusterToken());
  EXPECT_TRUE(CheckClusterToken(token, token, "who").ok());
  EXPECT_FALSE(CheckClusterToken(token, token.substr(1), "who").ok());
}

TEST_F(HandshakeTest, AnotherProtocolVersionIsRefusedNamingBoth) {
  wire::Frame reply = Ask(Hello(wire::kProtocolVersion + 1, "old worker"));
  ASSERT_TRUE(reply.has_hello_reply());
  const wire::Failure& failure = reply.hello_reply().failure();
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  for (const char* part : {"old worker", "9.9.9", wire::kBuildVersion, "same version"}) {
    EXPECT_NE(failure.message().find(part), std::string::npos) << failure.message();
  }
}

TEST_F(HandshakeTest, WhatIsNoHelloIsRefused) {
  wire::Frame frame;
  frame.mutable_heartbeat()->set_time_ns(1);
  wire::Frame reply = Ask(std::move(frame));
  EXPECT_EQ(reply.hello_reply().failure().code(),
            static_cast<int>(absl::StatusCode::kInvalidArgument));
}

TEST_F(HandshakeTest, TheServicesRefusalReachesThePeer) {
  wire::Frame reply = Ask(Hello(wire::kProtocolVersion, "unwanted"));
  EXPECT_EQ(reply.hello_reply().failure().message(), "not you");
}

// TM-2: silent links make room, the oldest first, so they keep no peer out.
TEST_F(HandshakeTest, SilentLinksAreLimited_TM2) {
  auto refused = std::make_shared<std::promise<wire::Frame>>();
  std::vector<std::shared_ptr<Link>> silent;
  for (int i = 0; i < 1024; ++i) {
    LinkEvents events;
    events.executor = &client_loop_;
    events.on_frame = [refused, i](wire::Frame frame) {
      EXPECT_EQ(i, 0) << "only the oldest is refused";
      refused->set_value(std::move(frame));
    };
    events.on_closed = [](const absl::Status&) {};
    auto link = transport_->Connect("door", std::move(events), kLimit);
    ASSERT_TRUE(link.ok()) << link.status();
    silent.push_back(*std::move(link));
  }
  EXPECT_EQ(Ask(Hello(wire::kProtocolVersion, "unwanted")).hello_reply().failure().message(),
            "not you");
  auto future = refused->get_future();
  ASSERT_EQ(future.wait_for(kLimit), std::future_status::ready);
  const wire::Failure failure = future.get().hello_reply().failure();
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_NE(failure.message().find("1024"), std::string::npos) << failure.message();
}

TEST_F(HandshakeTest, AWelcomedLinkBelongsToTheService) {
  (void)listener_;
  wire::Frame hello = Hello(wire::kProtocolVersion, "client");
  auto got = std::make_shared<std::promise<uint64_t>>();
  LinkEvents events;
  events.executor = &client_loop_;
  events.on_frame = [got](wire::Frame frame) { got->set_value(frame.heartbeat().time_ns()); };
  events.on_closed = [](const absl::Status&) {};
  auto link = transport_->Connect("door", std::move(events), kLimit);
  ASSERT_TRUE(link.ok());
  link_ = *std::move(link);
  ASSERT_TRUE(link_->Send(std::move(hello)).ok());
  wire::Frame beat;
  beat.mutable_heartbeat()->set_time_ns(42);
  ASSERT_TRUE(link_->Send(std::move(beat)).ok());
  auto future = got->get_future();
  ASSERT_EQ(future.wait_for(kLimit), std::future_status::ready);
  EXPECT_EQ(future.get(), 42u);
}

}  // namespace
}  // namespace gangway::transport
