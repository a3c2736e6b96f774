// Shared memory between processes of a host: the owner's pool, the writer's mappings and the socket
// between them. Both sides run in this process, each with its own descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/shm/descriptor_mail.h"
#include "gangway/transport/shm/descriptor_socket.h"
#include "gangway/transport/shm/mapped_segments.h"
#include "gangway/transport/shm/shared_pool.h"

namespace gangway::transport {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

ReceivedDescriptor Received(const SharedBlock& block) {
  return {{block.segment(), block.segment_bytes()}, FileDescriptor(dup(block.descriptor()))};
}

std::shared_ptr<SharedPool> Pool(size_t bytes_max, std::function<void()> on_idle = {}) {
  return SharedPool::Make(
      {.bytes_max = bytes_max, .segment_bytes = kMiB, .on_idle = std::move(on_idle)});
}

Clock::time_point Later() { return Clock::now() + std::chrono::hours(1); }

TEST(SharedPool, WhatTheWriterWritesIsReadInPlace) {
  auto pool = Pool(8 * kMiB);
  std::vector<std::unique_ptr<SharedBlock>> blocks;
  MappedSegments writer;
  for (size_t bytes : {size_t{1}, size_t{5000}, kMiB / 2, 3 * kMiB + 1}) {
    auto block = pool->Allocate(bytes);
    ASSERT_NE(block, nullptr) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->bytes().data()) % 64, 0u);
    ASSERT_EQ(block->bytes().size(), bytes);
    auto target = writer.Find(block->segment(), block->offset(), bytes);
    if (target == nullptr) {
      ASSERT_TRUE(writer.Add(Received(*block)).ok());
      target = writer.Find(block->segment(), block->offset(), bytes);
    }
    ASSERT_NE(target, nullptr);
    std::memset(target.get(), static_cast<int>(blocks.size() + 1), bytes);
    blocks.push_back(std::move(block));
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (std::byte byte : blocks[i]->bytes()) ASSERT_EQ(static_cast<size_t>(byte), i + 1);
  }
  EXPECT_EQ(pool->segment_count(), 2u);  // the small ones share one
}

// What a device runtime has pinned.
struct Pinned {
  Mutex mutex;
  CondVar changed;
  std::map<std::byte*, size_t> bytes GANGWAY_GUARDED_BY(mutex);

  std::shared_ptr<void> Pin(std::span<std::byte> memory) {
    memory[memory.size() - 1] = std::byte{1};  // it has its pages
    MutexLock lock(mutex);
    bytes.emplace(memory.data(), memory.size());
    changed.NotifyAll();
    return {memory.data(), [this](void* data) {
              auto* const first = static_cast<std::byte*>(data);
              MutexLock in(mutex);
              EXPECT_EQ(first[bytes.at(first) - 1], std::byte{1}) << "it is still mapped";
              bytes.erase(first);
            }};
  }
  std::map<std::byte*, size_t> Await(size_t count) {
    MutexLock lock(mutex);
    EXPECT_TRUE(changed.WaitFor(mutex, std::chrono::seconds(30),
                                [&]() GANGWAY_NO_ANALYSIS { return bytes.size() >= count; }));
    return bytes;
  }
  size_t count() {
    MutexLock lock(mutex);
    return bytes.size();
  }
};

TEST(SharedPool, SegmentsThatAreUsedAgainArePinnedWhole) {
  Pinned pinned;
  auto pool = SharedPool::Make(
      {.bytes_max = 64 * kMiB, .segment_bytes = 4 * kMiB, .pin = [&](std::span<std::byte> memory) {
         return pinned.Pin(memory);
       }});
  pool->Allocate(5000).reset();  // too little to be worth it
  auto first = pool->Allocate(2 * kMiB);
  auto* const segment = const_cast<std::byte*>(first->bytes().data());
  EXPECT_EQ(first->writable(), nullptr);
  EXPECT_EQ(pinned.count(), 0u) << "a first use, which may be the only one, costs nothing";
  first.reset();
  EXPECT_EQ(pinned.Await(1), (std::map<std::byte*, size_t>{{segment, 4 * kMiB}}));
  pool->Allocate(3 * kMiB).reset();
  auto large = pool->Allocate(7 * kMiB);
  auto* const own = const_cast<std::byte*>(large->bytes().data());
  large.reset();
  EXPECT_EQ(pinned.Await(2), (std::map<std::byte*, size_t>{{segment, 4 * kMiB}, {own, 8 * kMiB}}));
  pool->Close();  // the thread keeps no segment
  EXPECT_EQ(pool->Drop(Later()).segments.size(), 2u);
  EXPECT_EQ(pinned.count(), 0u);
  pool->Allocate(2 * kMiB).reset();
  EXPECT_EQ(pinned.count(), 0u) << "not after Close";
}

TEST(SharedPool, PlacesAreUsedAgain) {
  auto pool = Pool(4 * kMiB);
  for (int i = 0; i < 100; ++i) {
    auto a = pool->Allocate(kMiB / 4), b = pool->Allocate(kMiB / 2), c = pool->Allocate(kMiB / 4);
    ASSERT_TRUE(a && b && c);
    EXPECT_EQ(a->segment(), 1u);
    EXPECT_EQ(c->segment(), 1u);
    EXPECT_EQ(a->offset(), 0u);
    b.reset();  // the middle first, then its neighbours: merged into one place
    a.reset();
  }
  auto whole = pool->Allocate(kMiB);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->segment(), 1u);
  EXPECT_EQ(pool->bytes(), kMiB);
}

TEST(SharedPool, IsBoundedAndGivesWhatIsIdleToWhoNeedsIt_TM2) {
  auto pool = Pool(4 * kMiB);
  EXPECT_EQ(pool->Allocate(0), nullptr);
  EXPECT_EQ(pool->Allocate(4 * kMiB + 1), nullptr);
  std::vector<std::unique_ptr<SharedBlock>> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool->Allocate(kMiB));
  ASSERT_NE(blocks.back(), nullptr);
  EXPECT_EQ(pool->Allocate(1), nullptr);
  EXPECT_EQ(pool->bytes(), 4 * kMiB);
  blocks.clear();
  auto large = pool->Allocate(4 * kMiB);  // the four idle segments make room
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(pool->segment_count(), 1u);
  EXPECT_EQ(pool->Drop(Later()).segments.size(), 4u);
}

TEST(SharedPool, NothingOfASegmentInDoubtIsGivenOutAgain) {
  auto pool = Pool(4 * kMiB);
  auto doubtful = pool->Allocate(4096), other = pool->Allocate(4096);
  EXPECT_EQ(doubtful->segment(), other->segment());
  doubtful->Retire();
  doubtful.reset();
  auto next = pool->Allocate(4096);
  EXPECT_NE(next->segment(), other->segment());
  other.reset();  // the last one in it
  EXPECT_EQ(pool->segment_count(), 1u);
  EXPECT_EQ(pool->Drop(Clock::time_point()).segments, std::vector<uint64_t>{1});
}

TEST(SharedPool, IdleSegmentsGoWhenToldAndAreAnnouncedOnce) {
  int told = 0;
  auto pool = Pool(4 * kMiB, [&told] { ++told; });
  for (int i = 0; i < 3; ++i) ASSERT_NE(pool->Allocate(4096), nullptr);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(pool->Drop(Clock::time_point()).idle_left);  // not idle for long enough
  EXPECT_EQ(pool->segment_count(), 1u);
  SharedPool::Dropped dropped = pool->Drop(Later());
  EXPECT_EQ(dropped.segments, std::vector<uint64_t>{1});
  EXPECT_FALSE(dropped.idle_left);
  EXPECT_EQ(pool->bytes(), 0u);
  EXPECT_EQ(told, 1);
  pool->Allocate(4096).reset();
  EXPECT_EQ(told, 2);
  pool->Drop(Later());
  pool->Close();
  pool->Allocate(4096).reset();
  EXPECT_EQ(told, 2);
}

TEST(SharedPool, ABlockOutlivesItsPool) {
  auto pool = Pool(4 * kMiB);
  auto block = pool->Allocate(4096);
  pool.reset();
  EXPECT_EQ(block->bytes()[4095], std::byte{0});
}

TEST(MappedSegments, WhatIsNoSealedMemoryOfItsSizeIsRefused) {
  MappedSegments writer;
  auto add = [&writer](uint64_t id, uint64_t bytes, int fd) {
    return writer.Add({{id, bytes}, FileDescriptor(fd)}).code();
  };
  const int unsealed = memfd_create("unsealed", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(unsealed, 4096), 0);
  EXPECT_EQ(add(1, 4096, unsealed), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(add(1, 4096, open("/dev/null", O_RDWR)), absl::StatusCode::kInvalidArgument);
  auto pool = Pool(kMiB);
  auto block = pool->Allocate(4096);
  EXPECT_EQ(add(1, 2 * kMiB, dup(block->descriptor())), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(add(1, 0, dup(block->descriptor())), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(add(1, kMiB, dup(block->descriptor())), absl::StatusCode::kOk);
  EXPECT_EQ(add(1, kMiB, dup(block->descriptor())), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(writer.Find(2, 0, 1), nullptr);
  EXPECT_EQ(writer.Find(1, kMiB, 1), nullptr);
  EXPECT_EQ(writer.Find(1, 1, kMiB), nullptr);
  EXPECT_EQ(writer.Find(1, ~size_t{0}, 2), nullptr);
  auto kept = writer.Find(1, kMiB - 4096, 4096);
  ASSERT_NE(kept, nullptr);
  writer.Remove(1);
  EXPECT_EQ(writer.Find(1, 0, 1), nullptr);
  kept.get()[4095] = std::byte{1};  // still mapped
}

TEST(DescriptorSocket, DescriptorsReachWhoKnowsTheSecret) {
  auto listener = DescriptorListener::Open();
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string secret = NewDescriptorSecret(), other = NewDescriptorSecret();
  EXPECT_FALSE((*listener)->Take(secret).valid());
  auto first = ConnectDescriptors((*listener)->name(), other);
  auto sender = ConnectDescriptors((*listener)->name(), secret);
  ASSERT_TRUE(first.ok() && sender.ok()) << sender.status();
  auto pool = Pool(4 * kMiB);
  auto block = pool->Allocate(kMiB), second = pool->Allocate(kMiB);
  for (const auto* each : {block.get(), second.get()}) {
    ASSERT_TRUE(
        SendDescriptor(*sender, {each->segment(), each->segment_bytes()}, each->descriptor()).ok());
  }
  FileDescriptor receiver = (*listener)->Take(secret);
  ASSERT_TRUE(receiver.valid());
  EXPECT_FALSE((*listener)->Take(secret).valid()) << "taken already";
  MappedSegments writer;
  for (uint64_t id : {1, 2}) {
    auto received = ReceiveDescriptor(receiver);
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(received->name.segment, id);
    EXPECT_TRUE(writer.Add(*received).ok());
  }
  EXPECT_FALSE(ReceiveDescriptor(receiver).has_value());
  *writer.Find(2, 0, 1) = std::byte{7};
  EXPECT_EQ(second->bytes()[0], std::byte{7});
  EXPECT_TRUE((*listener)->Take(other).valid()) << "the other one was kept";
}

TEST(DescriptorSocket, StrangersAreForgottenAndNobodyWaits_TM2) {
  auto listener = DescriptorListener::Open();
  ASSERT_TRUE(listener.ok());
  EXPECT_FALSE(ConnectDescriptors("gangway-nobody-has-this-name", "x").ok());
  EXPECT_FALSE(ConnectDescriptors(std::string(200, 'x'), "x").ok());
  EXPECT_FALSE(ConnectDescriptors("", "x").ok());
  const std::string secret = NewDescriptorSecret();
  std::vector<FileDescriptor> strangers;
  for (int round = 0; round < 2; ++round) {
    absl::Status refused;
    while (refused.ok() && strangers.size() < 1000) {
      auto stranger = ConnectDescriptors((*listener)->name(), NewDescriptorSecret());
      refused = stranger.status();
      if (stranger.ok()) strangers.push_back(*std::move(stranger));
    }
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << "the backlog is full";
    EXPECT_FALSE((*listener)->Take(secret).valid());
  }
  auto is_open = [](const FileDescriptor& socket) {
    return send(socket.get(), "?", 1, MSG_NOSIGNAL) == 1;
  };
  EXPECT_FALSE(is_open(strangers.front())) << "the oldest";
  EXPECT_TRUE(is_open(strangers.back())) << "the latest";
  auto sender = ConnectDescriptors((*listener)->name(), secret);
  ASSERT_TRUE(sender.ok()) << sender.status();
  EXPECT_TRUE((*listener)->Take(secret).valid());
}

TEST(DescriptorSocket, AMessageWithoutADescriptorIsNone) {
  auto listener = DescriptorListener::Open();
  ASSERT_TRUE(listener.ok());
  const std::string secret = NewDescriptorSecret();
  auto sender = ConnectDescriptors((*listener)->name(), secret);
  ASSERT_TRUE(sender.ok());
  FileDescriptor receiver = (*listener)->Take(secret);
  SegmentName name{1, 4096};
  ASSERT_GT(write(sender->get(), &name, sizeof(name)), 0);
  ASSERT_GT(write(sender->get(), "?", 1), 0);
  EXPECT_FALSE(ReceiveDescriptor(receiver).has_value());
  EXPECT_FALSE(ReceiveDescriptor(receiver).has_value());
  receiver.Reset();
  EXPECT_FALSE(SendDescriptor(*sender, name, STDIN_FILENO).ok());
}

TEST(DescriptorMail, ReachesWhoTheSenderKnows) {
  auto box = DescriptorMailbox::Open(), other = DescriptorMailbox::Open();
  ASSERT_TRUE(box.ok() && other.ok()) << box.status();
  EXPECT_FALSE((*box)->Receive().has_value());
  auto pool = Pool(4 * kMiB);
  auto block = pool->Allocate(kMiB);
  const std::string name = (*box)->name(), secret = (*box)->secret();
  const std::vector<int> one = {STDIN_FILENO}, two = {block->descriptor(), STDIN_FILENO};
  EXPECT_TRUE((*other)->Send(name, NewDescriptorSecret(), 1, one).ok());
  EXPECT_TRUE((*other)->Send(name, secret, 7, two).ok());
  auto mail = (*box)->Receive();
  ASSERT_TRUE(mail.has_value()) << "the wrong secret is dropped";
  EXPECT_EQ(mail->sender, 7u);
  ASSERT_EQ(mail->descriptors.size(), 2u);
  MappedSegments mapped;
  EXPECT_TRUE(mapped.Add({{1, block->segment_bytes()}, std::move(mail->descriptors[0])}).ok());
  EXPECT_FALSE((*box)->Receive().has_value());
  EXPECT_TRUE(absl::IsUnavailable((*other)->Send("gangway-nobody", secret, 1, one)))
      << "no box has this name";
  EXPECT_TRUE(absl::IsUnavailable((*other)->Send(name, "short", 1, one)));
  const std::vector<int> none, many(kMailDescriptorsMax + 1, STDIN_FILENO);
  for (const auto& wrong : {none, many})
    EXPECT_TRUE(absl::IsInvalidArgument((*other)->Send(name, secret, 1, wrong)));
  box->reset();
  EXPECT_TRUE(absl::IsUnavailable((*other)->Send(name, secret, 1, one)));
}

TEST(DescriptorMail, OneOfWhichOnlyAPartFitsHasNoDescriptors_TM2) {
  auto box = DescriptorMailbox::Open(), other = DescriptorMailbox::Open();
  ASSERT_TRUE(box.ok() && other.ok());
  const std::vector<int> two = {STDIN_FILENO, STDIN_FILENO};
  EXPECT_TRUE((*other)->Send((*box)->name(), (*box)->secret(), 1, two).ok());
  EXPECT_TRUE((*other)->Send((*box)->name(), (*box)->secret(), 2, two).ok());
  const int next = FileDescriptor(dup(STDIN_FILENO)).get();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit one_more{static_cast<rlim_t>(next) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  const auto partial = (*box)->Receive();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(partial.has_value());
  EXPECT_EQ(partial->sender, 1u);
  EXPECT_TRUE(partial->descriptors.empty()) << partial->descriptors.size() << " of 2";
  EXPECT_EQ(FileDescriptor(dup(STDIN_FILENO)).get(), next) << "a descriptor is left";
}

TEST(DescriptorMail, AFullBoxIsSaidAndEmptiedLater_TM2) {
  auto box = DescriptorMailbox::Open(), other = DescriptorMailbox::Open();
  ASSERT_TRUE(box.ok() && other.ok());
  const std::vector<int> one = {STDIN_FILENO};
  absl::Status sent;
  size_t count = 0;
  for (; sent.ok() && count < 100'000; ++count)
    sent = (*other)->Send((*box)->name(), (*box)->secret(), count, one);
  EXPECT_TRUE(absl::IsResourceExhausted(sent)) << sent;
  for (size_t i = 0; i + 1 < count; ++i) {
    auto mail = (*box)->Receive();
    ASSERT_TRUE(mail.has_value());
    EXPECT_EQ(mail->sender, i);
  }
  EXPECT_FALSE((*box)->Receive().has_value());
  EXPECT_TRUE((*other)->Send((*box)->name(), (*box)->secret(), 1, one).ok());
}

}  // namespace
}  // namespace gangway::transport
