// Tests of outgoing_message.h, on a pair of sockets.
#include "gangway/transport/local/outgoing_message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <climits>
#include <string>

#include "gangway/base/file_descriptor.h"

namespace gangway::transport {
namespace {

class OutgoingMessageTest : public testing::Test {
 protected:
  OutgoingMessageTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    from_ = FileDescriptor(ends[0]);
    to_ = FileDescriptor(ends[1]);
  }
  std::string Receive() {
    std::string bytes(1 << 20, '\0');
    const ssize_t count = recv(to_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return bytes;
  }
  static std::string WithHeader(const std::string& bytes) {
    const auto header = MessageHeader(bytes.size());
    return std::string(header.data(), header.size()) + bytes;
  }

  FileDescriptor from_, to_;
  OutgoingMessage message_;
};

TEST_F(OutgoingMessageTest, WhatTheSocketDidNotTakeFollowsOnceThereIsRoom) {
  Outbox::Message large;
  std::string whole;
  for (int piece = 0; piece < 2 * IOV_MAX; ++piece) {  // more than one call writes
    large.pieces.push_back({.own = std::string(1000, static_cast<char>('a' + piece % 26))});
    whole += large.pieces.back().own;
  }
  EXPECT_TRUE(message_.is_written());
  message_.Set(std::move(large));
  std::string received;
  bool was_full = false;
  while (!message_.is_written()) {
    const OutgoingMessage::Written written = message_.WriteTo(from_.get());
    if (written.error == 0) continue;
    ASSERT_EQ(written.error, EAGAIN);
    was_full = true;
    received += Receive();
  }
  for (std::string more = Receive(); !more.empty(); more = Receive()) received += more;
  EXPECT_TRUE(was_full);
  EXPECT_EQ(received, WithHeader(whole));
}

TEST_F(OutgoingMessageTest, AnEmptyMessageIsAHeader) {
  message_.Set({});
  EXPECT_EQ(message_.WriteTo(from_.get()).bytes, kMessageHeaderBytes);
  EXPECT_TRUE(message_.is_written());
  EXPECT_EQ(Receive(), WithHeader(""));
}

TEST_F(OutgoingMessageTest, APeerThatHasLeftIsAnError) {
  to_.Reset();
  message_.Set({});
  EXPECT_EQ(message_.WriteTo(from_.get()).error, EPIPE);
  EXPECT_FALSE(message_.is_written());
}

}  // namespace
}  // namespace gangway::transport
