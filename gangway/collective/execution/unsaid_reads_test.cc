// Each worker is told once, and in order, what was read of its devices, also if two threads tell it.
#include "gangway/collective/execution/unsaid_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/futex.h"
#include "gangway/base/thread.h"

namespace gangway::collective {
namespace {

// What it was given, in order: "5" for a message, "d0<1:7" if device 0 has read the source 1 up to 7.
class Recorder final : public Courier {
 public:
  absl::Status Send(const Published* message, std::span<const ReadUpTo> reads) override {
    YieldCore();  // so that another thread may come before
    MutexLock lock(mutex_);
    if (message != nullptr) words_.push_back(absl::StrCat(message->sequence));
    for (const ReadUpTo& read : reads) {
      words_.push_back(absl::StrCat("d", read.device, "<", read.source, ":", read.sequence));
      went_back_ |= read.sequence < last_;
      last_ = read.sequence;
    }
    return absl::OkStatus();
  }
  void SendLeft(std::span<const LeftUpTo>) override {}
  void Begin() override {}

  std::vector<std::string> TakeWords() {
    MutexLock lock(mutex_);
    return std::exchange(words_, {});
  }
  bool went_back() const {
    MutexLock lock(mutex_);
    return went_back_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> words_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t last_ GANGWAY_GUARDED_BY(mutex_) = 0;
  bool went_back_ GANGWAY_GUARDED_BY(mutex_) = false;
};

struct Other {
  explicit Other(uint32_t index)
      : peer(std::make_shared<Peer>(absl::StrCat("worker", index), index, *Arena::Create(1),
                                    courier)) {}

  std::shared_ptr<Recorder> courier = std::make_shared<Recorder>();
  std::shared_ptr<Peer> peer;
};

using Words = std::vector<std::string>;

TEST(UnsaidReads, TravelWithTheNextMessageOfTheDevice) {
  Other near(1), far(2);
  UnsaidReads reads(3);
  reads.Note(near.peer, 0, 7);
  reads.Note(near.peer, 1, 9);
  reads.Note(far.peer, 0, 2);
  EXPECT_EQ(near.courier->TakeWords(), Words());
  EXPECT_TRUE(reads.Send(*near.peer, Published{.device = 3, .sequence = 5}).ok());
  EXPECT_EQ(near.courier->TakeWords(), (Words{"5", "d3<0:7", "d3<1:9"}));
  EXPECT_TRUE(reads.Send(*near.peer, Published{.device = 3, .sequence = 6}).ok());
  EXPECT_EQ(near.courier->TakeWords(), (Words{"6"}));
  EXPECT_EQ(far.courier->TakeWords(), Words());
}

TEST(UnsaidReads, AreSaidAfterSomeMessagesOfOneSource) {
  Other other(1);
  UnsaidReads reads(0);
  for (uint64_t sequence = 1; sequence < kSlots; ++sequence) reads.Note(other.peer, 0, sequence);
  EXPECT_NE(other.courier->TakeWords(), Words());
}

TEST(UnsaidReads, AreAllSaidAtOnce) {
  Other near(1), far(2);
  UnsaidReads reads(0);
  reads.Note(near.peer, 0, 7);
  reads.Note(far.peer, 4, 8);
  reads.Say();
  EXPECT_EQ(near.courier->TakeWords(), (Words{"d0<0:7"}));
  EXPECT_EQ(far.courier->TakeWords(), (Words{"d0<4:8"}));
  reads.Say();
  EXPECT_EQ(near.courier->TakeWords(), Words());
}

// What it is given first stays under way for a while, unless something else overtakes it.
class Slow final : public Courier {
 public:
  absl::Status Send(const Published*, std::span<const ReadUpTo> reads) override {
    const bool is_first = !is_under_way_.exchange(true);
    if (is_first) {
      under_way_.set_value();
      overtaken_.get_future().wait_for(std::chrono::milliseconds(200));
    }
    MutexLock lock(mutex_);
    for (const ReadUpTo& read : reads) order_.push_back(read.sequence);
    if (!is_first && order_.size() == reads.size()) overtaken_.set_value();
    return absl::OkStatus();
  }
  void SendLeft(std::span<const LeftUpTo>) override {}
  void Begin() override {}

  void WaitUnderWay() { under_way_.get_future().wait(); }
  std::vector<uint64_t> order() const {
    MutexLock lock(mutex_);
    return order_;
  }

 private:
  std::atomic<bool> is_under_way_ = false;
  std::promise<void> under_way_, overtaken_;
  mutable Mutex mutex_;
  std::vector<uint64_t> order_ GANGWAY_GUARDED_BY(mutex_);
};

TEST(UnsaidReads, AreNotOvertakenByWhatAnotherThreadSaysLater) {
  const auto courier = std::make_shared<Slow>();
  const auto peer = std::make_shared<Peer>("worker1", 1, *Arena::Create(1), courier);
  UnsaidReads reads(0);
  reads.Note(peer, 0, 1);
  Thread first("first", [&] { reads.Say(); });
  courier->WaitUnderWay();
  reads.Note(peer, 0, 2);
  reads.Say();
  first.Join();
  EXPECT_EQ(courier->order(), (std::vector<uint64_t>{1, 2}));
}

TEST(UnsaidReads, NeverGoBackWhenSeveralThreadsSayThem) {
  constexpr uint64_t kReads = 2'000;
  Other other(1);
  UnsaidReads reads(0);
  {
    Thread reader("reader", [&] {
      for (uint64_t sequence = 1; sequence <= kReads; ++sequence)
        reads.Note(other.peer, 0, sequence);
    });
    Thread sender("sender", [&] {
      for (uint64_t i = 0; i < kReads; ++i)
        EXPECT_TRUE(reads.Send(*other.peer, Published{.sequence = 1}).ok());
    });
    Thread ending("ending", [&] {
      for (uint64_t i = 0; i < kReads; ++i) reads.Say();
    });
    reader.Join();
    sender.Join();
    ending.Join();
  }
  reads.Say();
  EXPECT_FALSE(other.courier->went_back());
  EXPECT_THAT(other.courier->TakeWords(), testing::Contains(absl::StrCat("d0<0:", kReads)));
}

}  // namespace
}  // namespace gangway::collective
