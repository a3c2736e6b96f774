// Limits of connections whose peers have not shown who they are, with sockets of loopback.
#include "gangway/base/strangers.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/tcp_peer.h"

namespace gangway {
namespace {

constexpr std::chrono::seconds kLimit{10};

class StrangersTest : public ::testing::Test {
 protected:
  struct Stranger {
    FileDescriptor peer, accepted;
    std::string name;
  };

  void SetUp() override {
    listener_ = FileDescriptor(socket(AF_INET, SOCK_STREAM, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    socklen_t size = sizeof(address_);
    ASSERT_EQ(bind(listener_.get(), address, size), 0);
    ASSERT_EQ(listen(listener_.get(), 16), 0);
    ASSERT_EQ(getsockname(listener_.get(), address, &size), 0);
  }

  Stranger Connect() {
    Stranger made{.peer = FileDescriptor(socket(AF_INET, SOCK_STREAM, 0))};
    EXPECT_EQ(
        connect(made.peer.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)),
        0);
    made.accepted = FileDescriptor(accept(listener_.get(), nullptr, nullptr));
    made.name = GrpcPeerName(made.accepted.get());
    strangers_.Watch(made.accepted.get());
    return made;
  }

  static void Send(const Stranger& stranger, size_t bytes) {
    const uint64_t before = BytesReceived(stranger.accepted.get());
    const std::string data(bytes, 'x');
    ASSERT_EQ(send(stranger.peer.get(), data.data(), data.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes));
    const auto end = Clock::now() + kLimit;
    while (BytesReceived(stranger.accepted.get()) < before + bytes && Clock::now() < end)
      std::this_thread::yield();
  }

  // Whether this end has ended the connection.
  static bool IsEnded(const Stranger& stranger) { return HasPeerClosed(stranger.peer.get()); }

  bool IsWatched(const Stranger& stranger) {
    return strangers_.Enter(stranger.name).connection != strangers_.Enter("unix:").connection;
  }

  FileDescriptor listener_;
  sockaddr_in address_ = {};
  int told_ = 0;
  Strangers strangers_{{.connections_max = 3, .bytes_max = 1000, .streams_max = 2},
                       [this] { ++told_; }};
};

TEST_F(StrangersTest, SE1_TheOldestMakesRoom) {
  std::vector<Stranger> all;
  for (int i = 0; i < 3; ++i) all.push_back(Connect());
  EXPECT_FALSE(IsEnded(all[0]));
  const auto known = strangers_.Enter(all[0].name).connection;
  strangers_.Admit(*known);
  all.push_back(Connect());
  EXPECT_FALSE(IsEnded(all[1])) << "the first one is no stranger";
  all.push_back(Connect());
  EXPECT_FALSE(IsEnded(all[0]));
  EXPECT_TRUE(IsEnded(all[1]));
  EXPECT_FALSE(IsEnded(all[2]));
  EXPECT_FALSE(IsWatched(all[1]));
}

TEST_F(StrangersTest, SE1_TheOneThatSentMostEndsOnceAllHaveSentTooMuch) {
  const Stranger a = Connect(), b = Connect();
  Send(a, 400);
  Send(b, 600);
  EXPECT_TRUE(strangers_.Look());
  EXPECT_FALSE(IsEnded(a) || IsEnded(b));
  Send(a, 1);
  EXPECT_TRUE(strangers_.Look());
  EXPECT_TRUE(IsEnded(b));
  EXPECT_FALSE(IsEnded(a));
}

TEST_F(StrangersTest, SE1_BytesOfAnAdmittedLinkDoNotCountUntilItIsOver) {
  const Stranger stranger = Connect();
  const auto refused = strangers_.Enter(stranger.name).connection;
  const auto welcome = strangers_.Enter(stranger.name).connection;
  strangers_.Admit(*welcome);
  strangers_.Leave(*refused);
  Send(stranger, 5000);
  EXPECT_FALSE(strangers_.Look()) << "there is no stranger";
  const int before = told_;
  strangers_.Withdraw(*welcome);
  strangers_.Leave(*welcome);
  EXPECT_EQ(told_, before + 1);
  Send(stranger, 1000);
  EXPECT_TRUE(strangers_.Look());
  EXPECT_FALSE(IsEnded(stranger));
  Send(stranger, 1);
  strangers_.Look();
  EXPECT_TRUE(IsEnded(stranger));
  EXPECT_FALSE(strangers_.Look());
}

TEST_F(StrangersTest, SE1_ARefusedLinkForgivesNoBytes) {
  const Stranger stranger = Connect();
  Send(stranger, 900);
  strangers_.Leave(*strangers_.Enter(stranger.name).connection);
  Send(stranger, 101);
  strangers_.Look();
  EXPECT_TRUE(IsEnded(stranger));
}

TEST_F(StrangersTest, SE1_TooManyStreamsEndAStranger) {
  const Stranger stranger = Connect();
  for (int i = 0; i < 2; ++i) strangers_.Enter(stranger.name);
  EXPECT_FALSE(IsEnded(stranger));
  const Strangers::Entry entry = strangers_.Enter(stranger.name);
  EXPECT_EQ(entry.streams, 3);
  EXPECT_TRUE(entry.is_stranger);
  EXPECT_TRUE(IsEnded(stranger));
}

TEST_F(StrangersTest, SE1_ALateStrangerEnds) {
  const Stranger late = Connect(), known = Connect();
  const auto link = strangers_.Enter(known.name).connection;
  strangers_.Admit(*link);
  const auto now = Clock::now();
  EXPECT_TRUE(strangers_.LookAt(now + std::chrono::seconds(20)));
  EXPECT_FALSE(IsEnded(late)) << "its handshake and its Hello may take so long";
  EXPECT_FALSE(strangers_.LookAt(now + std::chrono::seconds(26)));
  EXPECT_TRUE(IsEnded(late));
  EXPECT_FALSE(IsEnded(known));
  strangers_.Withdraw(*link);
  strangers_.Leave(*link);
  EXPECT_TRUE(strangers_.LookAt(Clock::now() + std::chrono::seconds(20))) << "from then on";
}

TEST_F(StrangersTest, SE1_AConnectionThatCannotBeWatchedEnds) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  Stranger stranger{.peer = FileDescriptor(socket(AF_INET, SOCK_STREAM, 0))};
  ASSERT_EQ(
      connect(stranger.peer.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)),
      0);
  stranger.accepted = FileDescriptor(accept(listener_.get(), nullptr, nullptr));
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  strangers_.Watch(stranger.accepted.get());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(IsEnded(stranger));
}

TEST_F(StrangersTest, WhatKnowsWhatNoStrangerKnowsIsNoneWhileThatLives_SE1) {
  const Stranger stranger = Connect();
  auto session = std::make_shared<int>(1);
  const auto stream = strangers_.Enter(stranger.name).connection;
  for (int i = 0; i < 2; ++i) strangers_.Prove(*stream, session);
  EXPECT_EQ(stream->proven.size(), 1u);
  Send(stranger, 5000);
  const auto now = Clock::now();
  EXPECT_FALSE(strangers_.LookAt(now + std::chrono::seconds(26)));
  session.reset();
  EXPECT_TRUE(strangers_.LookAt(now + std::chrono::seconds(27))) << "from then on";
  EXPECT_FALSE(IsEnded(stranger)) << "what it sent before does not count";
  EXPECT_FALSE(strangers_.LookAt(now + std::chrono::seconds(53)));
  EXPECT_TRUE(IsEnded(stranger));
}

// Nothing else tells the owner to look again: the session's own stream was withdrawn before.
TEST_F(StrangersTest, TheLastStreamThatKnowsASessionMakesStrangersOfAllThatKnewIt_SE1) {
  Stranger own = Connect(), bytes = Connect(), other = Connect();
  auto session = std::make_shared<int>(1);
  const auto link = strangers_.Enter(own.name).connection;
  strangers_.Admit(*link);
  const auto upload = strangers_.Enter(bytes.name).connection;
  const auto lookup = strangers_.Enter(other.name).connection;
  for (const auto& each : {upload, lookup}) strangers_.Prove(*each, session);
  strangers_.Leave(*lookup);
  strangers_.Withdraw(*link);
  strangers_.Leave(*link);
  own.peer.Reset();
  const auto end = Clock::now() + kLimit;
  while (strangers_.Look() && Clock::now() < end) std::this_thread::yield();
  for (Stranger* each : {&bytes, &other}) each->peer.Reset();
  EXPECT_FALSE(strangers_.Look()) << "both are known";
  const int before = told_;
  session.reset();
  strangers_.Leave(*upload);
  EXPECT_EQ(told_, before + 1);
  while (strangers_.Look() && Clock::now() < end) std::this_thread::yield();
  EXPECT_FALSE(IsWatched(bytes) || IsWatched(other)) << "a descriptor of each is left";
}

TEST_F(StrangersTest, ConnectionsThatAreNotWatchedAreNoStrangers) {
  const auto session = std::make_shared<int>(1);
  for (int i = 1; i < 5; ++i) {
    const Strangers::Entry entry = strangers_.Enter("unix:");
    EXPECT_FALSE(entry.is_stranger);
    EXPECT_EQ(entry.streams, i) << "they count together";
    strangers_.Prove(*entry.connection, session);
    EXPECT_TRUE(entry.connection->proven.empty());
  }
  EXPECT_FALSE(strangers_.Look());
}

TEST_F(StrangersTest, AStrangerThatClosesOneDirectionEnds_SE1) {
  const Stranger stranger = Connect();
  ASSERT_EQ(shutdown(stranger.peer.get(), SHUT_WR), 0);
  const auto end = Clock::now() + kLimit;
  while (strangers_.Look() && Clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(IsEnded(stranger));
  EXPECT_FALSE(IsWatched(stranger));
}

TEST_F(StrangersTest, ClosedConnectionsAreForgotten) {
  Stranger stranger = Connect();
  EXPECT_TRUE(strangers_.Look());
  stranger.peer.Reset();
  const auto end = Clock::now() + kLimit;
  while (strangers_.Look() && Clock::now() < end) std::this_thread::yield();
  EXPECT_FALSE(strangers_.Look());
  EXPECT_FALSE(IsWatched(stranger));
}

}  // namespace
}  // namespace gangway
