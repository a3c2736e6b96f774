// Greet: versions are compared, the first frame must be a Hello, and a rejection says why before
// the link closes.
#include "gangway/transport/handshake/handshake.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

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
        "door",
        Greet(&loop_,
              {.token_needed = true, .verifiers = Verifiers::Same("right"), .memory = memory_},
              [](const std::shared_ptr<Link>& link,
                 const wire::Hello& hello) -> absl::StatusOr<std::unique_ptr<Endpoint>> {
                if (hello.name() == "unwanted") return absl::PermissionDeniedError("not you");
                return std::make_unique<Echo>(link);
              }));
    listener_ = *std::move(listener);
  }

  ~HandshakeTest() override {
    link_.reset();
    listener_.reset();
    // Each end may have one more thing to tell the other. A loop that has stopped takes no more, and
    // the ends of the link would keep each other.
    for (EventLoop* loop : {&loop_, &client_loop_, &loop_, &client_loop_}) Settle(*loop);
    loop_.Stop();
    client_loop_.Stop();
  }

  // Until what `loop` has to do now is done.
  static void Settle(EventLoop& loop) {
    auto done = std::make_shared<std::promise<void>>();
    loop.Post([done] { done->set_value(); });
    EXPECT_EQ(done->get_future().wait_for(kLimit), std::future_status::ready);
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
    frame.mutable_hello()->set_role(wire::ROLE_CLIENT);
    return frame;
  }

  const std::shared_ptr<MemoryBudget> memory_ =
      std::make_shared<MemoryBudget>("the head", "--head-memory", 8);
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

class PiecesTest : public HandshakeTest {
 protected:
  struct Seen {
    std::promise<wire::Frame> frame;
    std::promise<absl::Status> closed;
  };

  void Connect() {
    seen_ = std::make_shared<Seen>();
    LinkEvents events;
    events.executor = &client_loop_;
    events.on_frame = [seen = seen_](wire::Frame reply) {
      seen->frame.set_value(std::move(reply));
    };
    events.on_closed = [seen = seen_](const absl::Status& why) { seen->closed.set_value(why); };
    auto link = transport_->Connect("door", std::move(events), kLimit);
    ASSERT_TRUE(link.ok());
    link_ = *std::move(link);
  }
  void Send(wire::Frame frame) { EXPECT_TRUE(link_->Send(std::move(frame)).ok()); }
  void SendHello(wire::Role role) {
    wire::Frame hello = Hello(wire::kProtocolVersion, "peer");
    hello.mutable_hello()->set_role(role);
    Send(std::move(hello));
  }
  void SendPiece(uint32_t attachment, const std::string& data) {
    wire::Frame frame;
    frame.mutable_piece()->set_attachment(attachment);
    frame.mutable_piece()->set_data(data);
    Send(std::move(frame));
  }
  template <typename T>
  static T Get(std::promise<T>& promise) {
    auto future = promise.get_future();
    if (future.wait_for(kLimit) == std::future_status::ready) return future.get();
    ADD_FAILURE() << "nothing came";
    return {};
  }

  std::shared_ptr<Seen> seen_;
};

TEST_F(PiecesTest, AClientsPiecesAreJoined) {
  Connect();
  SendHello(wire::ROLE_CLIENT);
  SendPiece(0, "ab");
  SendPiece(0, "c");
  wire::Frame frame;
  frame.mutable_compile_request()->set_request(1);
  frame.add_attachments()->set_bytes(3);
  Send(std::move(frame));
  EXPECT_EQ(Get(seen_->frame).compile_request().program(), "abc");
}

TEST_F(PiecesTest, PiecesThatDoNotFitAreDroppedAndTheLinkStays_TM2) {
  for (const char* next : {"abc", "abcdefgh", "abc"}) {
    Connect();
    SendHello(wire::ROLE_CLIENT);
    SendPiece(0, "abcdef");
    SendPiece(0, "ghijk");  // over the limit of 8
    SendPiece(0, "l");
    wire::Frame frame;
    frame.mutable_compile_request()->set_request(1);
    frame.add_attachments()->set_bytes(12);
    Send(frame);
    const wire::Frame dropped = Get(seen_->frame);
    EXPECT_EQ(dropped.compile_request().program(), "");
    ASSERT_EQ(dropped.attachments_size(), 1);
    EXPECT_EQ(dropped.attachments(0).bytes(), 12u);
    EXPECT_EQ(memory_->use().total(), 0u);
    seen_->frame = {};
    SendPiece(0, next);
    frame.mutable_attachments(0)->set_bytes(std::string(next).size());
    Send(std::move(frame));
    EXPECT_EQ(Get(seen_->frame).compile_request().program(), next);
    EXPECT_EQ(memory_->use().total(), 0u);
  }
}

TEST_F(PiecesTest, WhatALinkHeldIsGivenBackWithIt) {
  Connect();
  SendHello(wire::ROLE_CLIENT);
  SendPiece(0, "abcdef");
  wire::Frame beat;
  beat.mutable_heartbeat()->set_time_ns(1);
  Send(std::move(beat));
  EXPECT_TRUE(Get(seen_->frame).has_heartbeat());
  EXPECT_EQ(memory_->use().of(MemoryBudget::Kind::kPieces), 6u);
  link_->Close(absl::CancelledError("enough"));
  link_.reset();
  const auto deadline = Clock::now() + kLimit;
  EXPECT_TRUE(memory_->Acquire(MemoryBudget::Kind::kPieces, 8, deadline).ok());
}

TEST_F(HandshakeTest, ANameIsShownOnOneLine) {
  wire::Frame hello = Hello(wire::kProtocolVersion + 1, "a\n\x1b[2J" + std::string(9999, 'y'));
  hello.mutable_hello()->set_build_version("1\r");
  const std::string said = Ask(std::move(hello)).hello_reply().failure().message();
  EXPECT_EQ(said.find("a\\n\\x1b[2Jyyy"), 0u) << said;
  EXPECT_NE(said.find("yyy... runs Gangway 1\\r (protocol"), std::string::npos) << said;
  EXPECT_LT(said.size(), 600u);
}

TEST_F(PiecesTest, NoOtherRoleSendsPieces) {
  for (wire::Role role : {wire::ROLE_WORKER, wire::ROLE_SCHEDULER, wire::ROLE_TOOL}) {
    Connect();
    SendHello(role);
    SendPiece(0, "a");
    const absl::Status why = Get(seen_->closed);
    EXPECT_NE(why.message().find("the limit of 0 bytes"), std::string::npos) << why;
  }
}

TEST_F(PiecesTest, BeforeTheHelloPiecesAreRefused) {
  Connect();
  SendPiece(0, "a");
  EXPECT_NE(Get(seen_->frame).hello_reply().failure().message().find("must be a Hello"),
            std::string::npos);
}

TEST(ClusterTokenTest, NothingIsNoToken) {
  for (wire::Role role : kTokenRoles) {
    EXPECT_FALSE(Verifiers().Check(role, "", "who").ok());
    EXPECT_FALSE(Verifiers::Same("").Check(role, "", "who").ok());
    EXPECT_FALSE(Verifiers::Of("secret").Check(role, "", "who").ok());
    EXPECT_FALSE(Verifiers::Of("secret").Check(role, "secret", "who").ok());
  }
  EXPECT_EQ(NewClusterToken().size(), 64u);
  EXPECT_NE(NewClusterToken(), NewClusterToken());
}

TEST(ClusterTokenTest, ATokenOpensItsOwnRoleOnly_SE1) {
  const std::string secret = NewClusterToken();
  const auto verifiers = Verifiers::FromText(Verifiers::Of(secret).ToText());
  ASSERT_TRUE(verifiers.ok()) << verifiers.status();
  for (wire::Role own : kTokenRoles) {
    const std::string token = RoleToken(secret, own);
    EXPECT_EQ(token.size(), 64u);
    EXPECT_TRUE(verifiers->Check(wire::ROLE_PROBE, token, "who").ok());
    for (wire::Role role : kTokenRoles) {
      const absl::Status status = verifiers->Check(role, token, "train.py");
      EXPECT_EQ(status.ok(), role == own) << RoleName(role) << " with " << RoleName(own);
      if (role == own) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
      for (const std::string& part : {std::string("train.py"), "the token of role " + RoleName(own),
                                      "does not open role " + RoleName(role)})
        EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
    }
    for (wire::Role role : {wire::ROLE_UNKNOWN, wire::ROLE_DATA, wire::ROLE_PEER})
      EXPECT_FALSE(verifiers->Check(role, token, "who").ok()) << role;
    for (const std::string& wrong :
         {token.substr(1), token + "0", RoleToken(NewClusterToken(), own), secret}) {
      EXPECT_EQ(verifiers->Check(own, wrong, "who").code(), absl::StatusCode::kUnauthenticated);
      EXPECT_FALSE(verifiers->Check(wire::ROLE_PROBE, wrong, "who").ok());
    }
    // What a listener knows does not open anything.
    EXPECT_FALSE(verifiers->Check(own, Verifiers::Of(secret).ToText(), "who").ok());
  }
}

TEST(ClusterTokenTest, TextThatIsNoVerifiersIsRefused) {
  for (const char* text : {"worker", "worker 12",
                           "cook "
                           "0000000000000000000000000000000000000000000000000000000000000000",
                           "worker 0 1"})
    EXPECT_EQ(Verifiers::FromText(text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  auto none = Verifiers::FromText("");
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->Check(wire::ROLE_PROBE, "", "who").ok());
}

TEST(CertificateTest, ACertificateOpensItsOwnRoleOnly_SE1) {
  auto check = [](const char* certificate, wire::Role role) {
    wire::Hello hello;
    hello.set_name("somebody");
    hello.set_role(role);
    return CheckCertificate({.certificate = certificate}, hello);
  };
  for (wire::Role role : kTokenRoles) {
    for (const char* certificate : {"", "Gangway cluster"})
      EXPECT_TRUE(check(certificate, role).ok()) << certificate;
    const absl::Status status = check("worker/a.example", role);
    EXPECT_EQ(status.ok(), role == wire::ROLE_WORKER) << status;
    if (role == wire::ROLE_WORKER) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_NE(status.message().find("worker/a.example"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(RoleName(role)), absl::string_view::npos) << status;
  }
  EXPECT_TRUE(check("worker/a", wire::ROLE_PEER).ok());
  EXPECT_TRUE(check("worker/a", wire::ROLE_PROBE).ok());
  EXPECT_TRUE(check("client/a", wire::ROLE_DATA).ok());
  EXPECT_FALSE(check("client/a", wire::ROLE_PEER).ok());
  for (wire::Role role : {wire::ROLE_COMPILER, wire::ROLE_TOOL, wire::ROLE_DATA})
    EXPECT_TRUE(check("controller/head", role).ok()) << role;
  for (wire::Role role : {wire::ROLE_WORKER, wire::ROLE_SCHEDULER, wire::ROLE_PEER})
    EXPECT_FALSE(check("controller/head", role).ok()) << role;
  EXPECT_FALSE(check("worker/a", wire::ROLE_DATA).ok());
}

TEST_F(HandshakeTest, AProbeIsAnsweredAndGone) {
  wire::Frame hello = Hello(wire::kProtocolVersion, "unwanted");
  hello.mutable_hello()->set_role(wire::ROLE_PROBE);
  wire::Frame reply = Ask(hello);
  EXPECT_EQ(reply.hello_reply().failure().code(), 0) << "the service would refuse it";
  EXPECT_EQ(reply.hello_reply().protocol_version(), wire::kProtocolVersion);
  hello.mutable_hello()->set_token("wrong");
  EXPECT_EQ(Ask(hello).hello_reply().failure().code(),
            static_cast<int>(absl::StatusCode::kUnauthenticated));
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
