// The tests of conformance.h.
#include "gangway/transport/conformance/conformance.h"

#include <atomic>
#include <filesystem>
#include <thread>
#include <utility>

#include "gangway/base/clock.h"

namespace gangway::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit{20};  // generous: a test that waits that long fails

wire::Frame Numbered(uint64_t sequence) {
  wire::Frame frame;
  frame.set_sequence(sequence);
  frame.mutable_heartbeat()->set_time_ns(sequence * 3);
  return frame;
}

wire::Frame Bulk(uint64_t sequence, size_t bytes) {
  wire::Frame frame;
  frame.set_sequence(sequence);
  frame.set_epoch(7);
  auto* chunk = frame.mutable_bulk();
  chunk->mutable_name()->set_session(3);
  chunk->mutable_name()->set_fetch(11);
  chunk->mutable_name()->set_shard(2);
  chunk->mutable_bytes()->set_offset(sequence);
  chunk->mutable_bytes()->set_last(true);
  std::string data(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>((i * 131 + sequence) >> 3);
  chunk->mutable_bytes()->set_data(std::move(data));
  return frame;
}

// The same bytes as what a device has published in a collective.
wire::Frame Published(uint64_t sequence, size_t bytes) {
  wire::Frame frame = Bulk(sequence, bytes);
  std::string data = std::move(*frame.mutable_bulk()->mutable_bytes()->mutable_data());
  wire::Published& published = *frame.mutable_bulk()->mutable_published();
  published.set_sequence(sequence);
  published.add_offsets(5);
  published.add_sizes(static_cast<uint32_t>(bytes));
  published.set_data(std::move(data));
  published.add_reads()->set_source(9);
  return frame;
}

size_t ThreadCount() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

}  // namespace

LinkEvents End::Events() {
  LinkEvents events;
  events.executor = executor_;
  events.on_frame = [this](wire::Frame frame) {
    if (on_frame) on_frame(frame);
    MutexLock lock(mutex_);
    if (closed_.has_value()) ++events_after_closed_;
    frames_.push_back(std::move(frame));
    changed_.NotifyAll();
  };
  events.on_writable = [this] {
    MutexLock lock(mutex_);
    if (closed_.has_value()) ++events_after_closed_;
    ++writable_count_;
    changed_.NotifyAll();
  };
  events.on_closed = [this](const absl::Status& status) {
    MutexLock lock(mutex_);
    if (closed_.has_value()) ++events_after_closed_;
    closed_ = status;
    changed_.NotifyAll();
  };
  return events;
}

bool End::WaitFrames(size_t count) {
  MutexLock lock(mutex_);
  return changed_.WaitFor(mutex_, kLimit,
                          [&]() GANGWAY_NO_ANALYSIS { return frames_.size() >= count; });
}

bool End::WaitClosed() {
  MutexLock lock(mutex_);
  return changed_.WaitFor(mutex_, kLimit,
                          [&]() GANGWAY_NO_ANALYSIS { return closed_.has_value(); });
}

bool End::WaitWritable(int count) {
  MutexLock lock(mutex_);
  return changed_.WaitFor(mutex_, kLimit,
                          [&]() GANGWAY_NO_ANALYSIS { return writable_count_ >= count; });
}

std::vector<wire::Frame> End::frames() {
  MutexLock lock(mutex_);
  return frames_;
}

absl::Status End::closed() {
  MutexLock lock(mutex_);
  return closed_.value_or(absl::OkStatus());
}

int End::events_after_closed() {
  MutexLock lock(mutex_);
  return events_after_closed_;
}

void Gate::Pass() {
  MutexLock lock(mutex_);
  changed_.WaitFor(mutex_, kLimit, [this]() GANGWAY_NO_ANALYSIS { return open_; });
}

void Gate::Open() {
  MutexLock lock(mutex_);
  open_ = true;
  changed_.NotifyAll();
}

void TransportConformance::SetUp() { transport_ = GetParam().make(); }

void TransportConformance::TearDown() {
  gate_.Open();
  if (link_) link_->Close(absl::CancelledError("test over"));
  listener_.reset();
  transport_.reset();
  client_loop_.Stop();
  server_loop_.Stop();
  EXPECT_EQ(client_.events_after_closed(), 0);
  EXPECT_EQ(server_.events_after_closed(), 0);
}

void TransportConformance::Listen(LinkOptions options) {
  auto listener = transport_->Listen(
      GetParam().listen_address,
      [this](std::shared_ptr<Link> link) {
        MutexLock lock(mutex_);
        is_accepted_ = true;
        server_.link = std::move(link);
        accepted_.NotifyAll();
        return server_.Events();
      },
      options);
  ASSERT_TRUE(listener.ok()) << listener.status();
  listener_ = *std::move(listener);
}

void TransportConformance::Connect(LinkOptions options) {
  auto link = transport_->Connect(listener_->address(), client_.Events(), kLimit, options);
  ASSERT_TRUE(link.ok()) << link.status();
  link_ = *std::move(link);
  ASSERT_TRUE(WaitAccepted());
}

bool TransportConformance::WaitAccepted() {
  MutexLock lock(mutex_);
  return accepted_.WaitFor(mutex_, kLimit, [this]() GANGWAY_NO_ANALYSIS { return is_accepted_; });
}

TEST_P(TransportAddresses, FramesArriveInOrderAndUnchanged) {
  Listen();
  Connect();
  constexpr uint64_t kCount = 20000;
  for (uint64_t i = 1; i <= kCount; ++i) ASSERT_TRUE(link_->Send(Numbered(i)).ok());
  ASSERT_TRUE(server_.WaitFrames(kCount));
  auto frames = server_.frames();
  ASSERT_EQ(frames.size(), kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(frames[i].sequence(), i + 1);
    ASSERT_EQ(frames[i].heartbeat().time_ns(), (i + 1) * 3);
  }
}

TEST_P(TransportConformance, EchoGoesBothWays) {
  server_.on_frame = [this](const wire::Frame& frame) {
    EXPECT_TRUE(server_.link->Send(frame).ok());
  };
  Listen();
  Connect();
  for (uint64_t i = 1; i <= 200; ++i) {
    ASSERT_TRUE(link_->Send(Numbered(i)).ok());
    ASSERT_TRUE(client_.WaitFrames(i));
  }
  for (uint64_t i = 201; i <= 5000; ++i) ASSERT_TRUE(link_->Send(Numbered(i)).ok());
  ASSERT_TRUE(client_.WaitFrames(5000));
  EXPECT_EQ(client_.frames().back().sequence(), 5000u);
}

TEST_P(TransportConformance, LargeFramesKeepTheirBytesAndPlace) {
  Listen();
  Connect();
  const std::vector<size_t> sizes = {0, 1, 100, 16 << 10, (1 << 20) - 7, 4 << 20, 48 << 20};
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(link_->Send(Numbered(1000 + i)).ok());
    ASSERT_TRUE(link_->Send(Bulk(i, sizes[i])).ok());
    ASSERT_TRUE(link_->Send(Published(i, sizes[i])).ok());
  }
  ASSERT_TRUE(server_.WaitFrames(3 * sizes.size()));
  auto frames = server_.frames();
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(frames[3 * i].sequence(), 1000 + i);
    EXPECT_EQ(frames[3 * i + 1].SerializeAsString(), Bulk(i, sizes[i]).SerializeAsString())
        << sizes[i];
    EXPECT_EQ(frames[3 * i + 2].SerializeAsString(), Published(i, sizes[i]).SerializeAsString())
        << sizes[i];
  }
}

TEST_P(TransportConformance, AFrameOfPartsArrivesAsOneOnEachLink) {
  Listen();
  Connect();
  std::vector<FramePartRef> parts;
  wire::Frame whole;
  for (const size_t bytes : {0, 10, 100'000, 20}) {
    wire::Frame part;
    part.mutable_island_batch()->add_items()->mutable_load()->set_name(std::string(bytes, 'x'));
    whole.MergeFrom(part);
    parts.push_back(std::make_shared<const FramePart>(std::move(part)));
  }
  constexpr uint64_t kTimes = 3;
  for (uint64_t i = 1; i <= kTimes; ++i) {
    wire::Frame head;
    head.set_epoch(i);
    ASSERT_TRUE(link_->SendParts(std::move(head), parts).ok());
    ASSERT_TRUE(link_->Send(Numbered(i)).ok());
  }
  ASSERT_TRUE(server_.WaitFrames(2 * kTimes));
  const auto frames = server_.frames();
  ASSERT_EQ(frames.size(), 2 * kTimes);
  for (uint64_t i = 1; i <= kTimes; ++i) {
    whole.set_epoch(i);
    EXPECT_EQ(frames[2 * (i - 1)].SerializeAsString(), whole.SerializeAsString());
    EXPECT_EQ(frames[2 * i - 1].sequence(), i);
  }
}

TEST_P(TransportConformance, SendersOnManyThreadsKeepTheirOwnOrder) {
  Listen();
  Connect();
  constexpr uint64_t kThreads = 4, kEach = 2000;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (uint64_t i = 0; i < kEach; ++i) EXPECT_TRUE(link_->Send(Numbered(t * kEach + i)).ok());
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(server_.WaitFrames(kThreads * kEach));
  std::vector<uint64_t> next(kThreads, 0);
  for (const auto& frame : server_.frames()) {
    ASSERT_EQ(frame.sequence() % kEach, next[frame.sequence() / kEach]++);
  }
}

TEST_P(TransportConformance, CloseByTheClientIsSeenOnceWithItsReasonAfterTheFrames) {
  Listen();
  Connect();
  for (uint64_t i = 1; i <= 1000; ++i) ASSERT_TRUE(link_->Send(Numbered(i)).ok());
  link_->Close(absl::InternalError("enough of this"));
  ASSERT_TRUE(server_.WaitClosed());
  EXPECT_EQ(server_.closed().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(server_.closed().message(), "enough of this");
  EXPECT_EQ(server_.frames().size(), 1000u);
  EXPECT_EQ(link_->Send(Numbered(1)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_.link->Send(Numbered(1)).code(), absl::StatusCode::kUnavailable);
}

TEST_P(TransportConformance, CloseByTheServerIsSeenOnceWithItsReasonAfterTheFrames) {
  Listen();
  Connect();
  for (uint64_t i = 1; i <= 1000; ++i) ASSERT_TRUE(server_.link->Send(Numbered(i)).ok());
  server_.link->Close(absl::UnauthenticatedError("no token"));
  server_.link->Close(absl::InternalError("the second reason does not count"));
  ASSERT_TRUE(client_.WaitClosed());
  EXPECT_EQ(client_.closed().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client_.closed().message(), "no token");
  EXPECT_EQ(client_.frames().size(), 1000u);
  EXPECT_EQ(link_->Send(Numbered(1)).code(), absl::StatusCode::kUnavailable);
}

TEST_P(TransportConformance, NoEventAfterTheOwnersClose) {
  std::atomic<int> seen = 0;
  server_.on_frame = [this, &seen](const wire::Frame&) {
    if (++seen == 10) server_.link->Close(absl::CancelledError("ten is enough"));
  };
  Listen();
  Connect();
  for (uint64_t i = 1; i <= 1000; ++i) {
    if (!link_->Send(Numbered(i)).ok()) break;
  }
  ASSERT_TRUE(client_.WaitClosed());
  EXPECT_EQ(client_.closed().message(), "ten is enough");
  EXPECT_EQ(seen, 10);
  EXPECT_TRUE(server_.closed().ok());
}

TEST_P(TransportConformance, DroppingTheLastReferenceCloses) {
  Listen();
  Connect();
  ASSERT_TRUE(link_->Send(Numbered(1)).ok());
  link_.reset();
  ASSERT_TRUE(server_.WaitClosed());
  EXPECT_EQ(server_.frames().size(), 1u);
  EXPECT_EQ(server_.closed().code(), absl::StatusCode::kCancelled);
}

TEST_P(TransportConformance, CallbacksMayHoldTheLinkAndAreReleased) {
  auto guard = std::make_shared<int>(1);
  std::weak_ptr<int> released = guard;
  Listen();
  struct Holder {
    std::shared_ptr<Link> link;
    std::shared_ptr<int> guard;
  };
  auto holder = std::make_shared<Holder>();
  holder->guard = std::move(guard);
  LinkEvents events = client_.Events();
  events.on_frame = [holder](const wire::Frame&) {};
  auto link = transport_->Connect(listener_->address(), std::move(events), kLimit);
  ASSERT_TRUE(link.ok()) << link.status();
  holder->link = *std::move(link);
  holder.reset();
  ASSERT_TRUE(WaitAccepted());
  server_.link->Close(absl::CancelledError("bye"));
  ASSERT_TRUE(client_.WaitClosed());
  client_loop_.Stop();
  EXPECT_TRUE(released.expired());
}

TEST_P(TransportConformance, AFullQueueRefusesAndBecomesWritable) {
  server_.on_frame = [this](const wire::Frame&) { gate_.Pass(); };
  Listen();
  LinkOptions options;
  options.queue_bytes_max = 4 << 20;
  Connect(options);
  absl::Status status;
  size_t sent = 0;
  // The network and the receiver each take a bounded amount, maybe late: a queue that has just
  // rejected a frame may fall below its limit again. In the end it is full.
  for (bool is_full = false; !is_full && sent < 1000;) {
    status = link_->Send(Bulk(sent, 1 << 20));
    if (status.ok()) {
      ++sent;
      continue;
    }
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    ASSERT_GE(sent << 20, options.queue_bytes_max) << "rejected too early";
    is_full = link_->queued_bytes() >= options.queue_bytes_max;
  }
  ASSERT_FALSE(status.ok()) << "took " << sent << " MiB";
  gate_.Open();
  // The queue may have drained and filled again before: an event follows each rejection.
  for (int count = 1; !(status = link_->Send(Numbered(1))).ok(); ++count) {
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    ASSERT_TRUE(client_.WaitWritable(count));
  }
  ASSERT_TRUE(server_.WaitFrames(sent + 1));
  auto frames = server_.frames();
  for (size_t i = 0; i < sent; ++i) EXPECT_EQ(frames[i].bulk().bytes().offset(), i);
}

TEST_P(TransportConformance, WritableComesBelowALimitOfItsOwn) {
  server_.on_frame = [this](const wire::Frame&) { gate_.Pass(); };
  Listen();
  LinkOptions options;
  options.writable_bytes_max = 2 << 20;  // far below half of the queue's limit
  Connect(options);
  EXPECT_EQ(link_->writable_bytes(), options.writable_bytes_max);
  EXPECT_GT(link_->frame_bytes_max(), size_t{1} << 20);
  size_t sent = 0;
  // The network may take some of it late: then events come before the gate opens.
  for (bool is_over = false; !is_over; ++sent) {
    ASSERT_LT(sent, 200u) << "the network and the receiver take all of it";
    ASSERT_TRUE(link_->Send(Bulk(sent, 1 << 20)).ok());
    is_over = link_->queued_bytes() > options.writable_bytes_max;
  }
  gate_.Open();
  ASSERT_TRUE(client_.WaitWritable(1));
  for (int count = 2; link_->queued_bytes() > options.writable_bytes_max; ++count) {
    ASSERT_TRUE(
        client_.WaitWritable(count));  // the earlier ones were of what the network took late
  }
  ASSERT_TRUE(server_.WaitFrames(sent));
}

TEST_P(TransportConformance, ABlockedReceiverDoesNotHinderClose) {
  server_.on_frame = [this](const wire::Frame&) { gate_.Pass(); };
  Listen();
  Connect();
  size_t sent = 0;
  while (sent < 200 && link_->Send(Bulk(sent, 1 << 20)).ok()) ++sent;
  auto begin = Clock::now();
  link_.reset();
  EXPECT_LT(Clock::now() - begin, milliseconds(500));
  transport_.reset();  // waits for pending operations
  EXPECT_LT(Clock::now() - begin, seconds(5));
}

TEST_P(TransportAddresses, NobodyThereIsUnavailableWithinTheLimit) {
  auto begin = Clock::now();
  auto link = transport_->Connect(GetParam().nobody_address, client_.Events(), milliseconds(3000));
  EXPECT_EQ(link.status().code(), absl::StatusCode::kUnavailable) << link.status();
  EXPECT_NE(link.status().message().find(GetParam().nobody_address), std::string::npos)
      << link.status();
  EXPECT_LT(Clock::now() - begin, milliseconds(3500));
}

TEST_P(TransportAddresses, AnAddressInUseIsUnavailable) {
  Listen();
  auto second = transport_->Listen(listener_->address(), [this](auto) { return server_.Events(); });
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << second.status();
  EXPECT_NE(second.status().message().find(listener_->address()), std::string::npos)
      << second.status();
  auto other = GetParam().make();
  std::string address = listener_->address();
  listener_.reset();
  auto again = transport_->Listen(address, [this](auto) { return server_.Events(); });
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST_P(TransportConformance, TheEndOfAListenerClosesItsLinks) {
  Listen();
  Connect();
  std::string address = listener_->address();
  listener_.reset();
  ASSERT_TRUE(client_.WaitClosed());
  ASSERT_TRUE(server_.WaitClosed());
  EXPECT_EQ(client_.closed().code(), absl::StatusCode::kCancelled) << client_.closed();
  EXPECT_EQ(transport_->Connect(address, client_.Events(), milliseconds(1000)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_P(TransportConformance, HandlesOutliveTheirTransport) {
  Listen();
  Connect();
  listener_.reset();
  transport_.reset();
  EXPECT_EQ(link_->Send(Numbered(1)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_.link->Send(Numbered(1)).code(), absl::StatusCode::kUnavailable);
  link_->Close(absl::CancelledError("late"));
  EXPECT_EQ(link_->queued_bytes(), 0u);
}

TEST_P(TransportConformance, ARefusedLinkIsClosedWithTheReason) {
  auto listener = transport_->Listen(GetParam().listen_address, [this](std::shared_ptr<Link> link) {
    link->Close(absl::PermissionDeniedError("not you"));
    return server_.Events();
  });
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto link = transport_->Connect((*listener)->address(), client_.Events(), kLimit);
  ASSERT_TRUE(link.ok()) << link.status();
  ASSERT_TRUE(client_.WaitClosed());
  EXPECT_EQ(client_.closed().message(), "not you");
}

TEST_P(TransportConformance, ManyLinksAtOnce) {
  Mutex mutex;
  std::vector<std::shared_ptr<Link>> accepted;
  std::atomic<int> received = 0;
  auto listener = transport_->Listen(GetParam().listen_address, [&](std::shared_ptr<Link> link) {
    LinkEvents events;
    events.executor = &server_loop_;
    events.on_frame = [&received, raw = link.get()](const wire::Frame& frame) {
      ++received;
      EXPECT_TRUE(raw->Send(frame).ok());
    };
    MutexLock lock(mutex);
    accepted.push_back(std::move(link));
    return events;
  });
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::vector<std::shared_ptr<Link>> links;
  for (int i = 0; i < 64; ++i) {
    auto link = transport_->Connect((*listener)->address(), client_.Events(), kLimit);
    ASSERT_TRUE(link.ok()) << link.status();
    links.push_back(*std::move(link));
  }
  for (uint64_t round = 0; round < 20; ++round) {
    for (auto& link : links) ASSERT_TRUE(link->Send(Numbered(round)).ok());
  }
  ASSERT_TRUE(client_.WaitFrames(size_t{64} * 20));
  EXPECT_EQ(received, 64 * 20);
  for (auto& link : links) link->Close(absl::CancelledError("done"));
  *listener = nullptr;
  server_loop_.Stop();
  MutexLock lock(mutex);
  EXPECT_EQ(accepted.size(), 64u);
}

TEST_P(TransportConformance, ThreadsAreGoneAfterwards) {
  size_t before = 0;
  for (int round = 0; round < 3; ++round) {
    End client(&client_loop_), server(&server_loop_);
    auto transport = GetParam().make();
    auto listener =
        transport->Listen(GetParam().listen_address, [&server](std::shared_ptr<Link> link) {
          server.link = std::move(link);
          return server.Events();
        });
    ASSERT_TRUE(listener.ok()) << listener.status();
    auto link = transport->Connect((*listener)->address(), client.Events(), kLimit);
    ASSERT_TRUE(link.ok()) << link.status();
    ASSERT_TRUE((*link)->Send(Numbered(round)).ok());
    ASSERT_TRUE(server.WaitFrames(1));
    link->reset();
    ASSERT_TRUE(server.WaitClosed());
    listener->reset();
    transport.reset();
    server.link.reset();
    // Threads that the implementation's library keeps exist after the first round; later rounds
    // must not add any.
    auto deadline = Clock::now() + kLimit;
    while (round > 0 && ThreadCount() > before && Clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(5));
    if (round == 0) before = ThreadCount();
    EXPECT_LE(ThreadCount(), before);
  }
}

}  // namespace gangway::transport
