// What every kind of source owes its reader: the bytes of its messages and of its reduced parts, in their order; a wait
// that ends with the message, or with the reason why it never comes; and that the source goes on once it has been read.
#include "gangway/collective/execution/source.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/thread.h"
#include "gangway/collective/execution/member_test_util.h"
#include "gangway/collective/execution/offer.h"
#include "gangway/collective/execution/sender.h"
#include "gangway/collective/execution/waiter.h"

namespace gangway::collective {
namespace {

using xla::Collective;

enum class Kind { kSlot, kShown, kHeap, kMirror };

std::unique_ptr<Host> HostOf(Kind kind) {
  switch (kind) {
    case Kind::kSlot:
      return std::make_unique<Host>(2, 1);
    case Kind::kShown:
      return std::make_unique<Host>(1, 2);
    case Kind::kHeap:
      return std::make_unique<Host>(2, 1, Sight::kHeaps);
    case Kind::kMirror:
      return std::make_unique<Host>(2, 1, Sight::kMirrored);
  }
  return nullptr;
}

// More messages than slots, of an operand that two positions reduce in parts.
constexpr size_t kMessages = kSlots + 2;

std::shared_ptr<const Plan> SumOfTwo() {
  xla::CollectiveTable table = Table(2, {{0, 1}});
  Add(table, Collective::ALL_REDUCE, {{1, kMessages * kMessageBytes / sizeof(float)}});
  return *Plan::Make(table);
}

// A position's side of one call.
struct Side {
  Side(Host& host, const std::vector<std::shared_ptr<Launch>>& launches, uint32_t position)
      : launch(launches[position * launches.size() / 2]),
        waiter(launch, host.shared(position)),
        sender(waiter),
        inputs(Inputs(launch->plan().at(0), position)),
        outputs(Expected(launch->plan().at(0), position)),
        operands(inputs.begin(), inputs.end()),
        results(outputs.begin(), outputs.end()),
        call{.planned = launch->plan().at(0),
             .role = launch->plan().at(0).roles[position],
             .position = position,
             .key = {.gang = launch->gang().order},
             .operands = operands,
             .results = results} {}

  const Segment& segment(size_t message) const {
    return call.planned.messages[message].segments[0];
  }

  std::shared_ptr<Launch> launch;
  Waiter waiter;
  Sender sender;
  Arrays inputs, outputs;
  std::vector<std::span<const std::byte>> operands;
  std::vector<std::span<std::byte>> results;
  Call call;
};

class SourceTest : public ::testing::TestWithParam<Kind> {
 protected:
  explicit SourceTest(std::chrono::milliseconds wait_max = kWaitMax)
      : host_(HostOf(GetParam())),
        launches_(host_->Begin(SumOfTwo(), wait_max)),
        writer_(*host_, launches_, 0),
        side_(*host_, launches_, 1),
        reader_(side_.waiter, side_.call),
        slot_(reader_, 0) {
    if (GetParam() == Kind::kSlot) source_ = std::make_unique<SlotSource>(reader_, 0);
    if (GetParam() == Kind::kMirror) source_ = std::make_unique<MirrorSource>(reader_, 0);
    if (GetParam() == Kind::kShown)
      source_ = std::make_unique<ShownSource>(side_.waiter, side_.call, 0);
  }
  ~SourceTest() override { source_.reset(); }

  // A source in the heap is made of its first message.
  absl::Status Await(size_t message) {
    if (source_ != nullptr) return source_->Await(message);
    if (absl::Status status = slot_.Await(message); !status.ok()) return status;
    auto made = HeapSource::Make(slot_);
    if (!made.ok()) return made.status();
    source_ = *std::move(made);
    return source_->Await(message);
  }
  // Of a message, this reader is sent only the part that it reduces.
  bool IsRightWhole(size_t message) const {
    const Segment& segment = side_.segment(message);
    const ByteRange own = side_.call.PartOf(segment, 1);
    return IsAt(writer_.inputs[0], segment.begin + own.offset, own.bytes,
                source_->Whole(segment) + own.offset);
  }
  bool IsRightPart(size_t message) const {
    const Segment& segment = side_.segment(message);
    const ByteRange part = side_.call.PartOf(segment, 0);
    return IsAt(writer_.outputs[0], segment.begin + part.offset, part.bytes,
                source_->Part(segment, part));
  }
  static bool IsAt(const Bytes& array, size_t offset, size_t bytes, const std::byte* found) {
    return std::memcmp(array.data() + offset, found, bytes) == 0;
  }
  bool ReportsNow(size_t message) const {
    return source_->reports() == Source::Reports::kEachMessage || side_.call.EndsRound(message);
  }

  // The writer's call, each part right after its message.
  absl::Status Write() {
    Offer offer(writer_.waiter, writer_.sender, writer_.call, nullptr);
    offer.Open();
    absl::Status status;
    for (size_t i = 0; i < kMessages && status.ok(); ++i) {
      status = offer.Send(i);
      if (status.ok()) status = offer.SendPart(i, writer_.segment(i));
    }
    return offer.End(status);
  }
  absl::Status ReadAll() {
    for (size_t i = 0; i < kMessages; ++i) {
      if (absl::Status status = Await(i); !status.ok()) return status;
      if (!IsRightWhole(i)) return absl::DataLossError(absl::StrCat("operands ", i));
      if (absl::Status status = source_->EndMessage(); !status.ok()) return status;
      reader_.TellReads();
      if (!ReportsNow(i)) continue;
      if (absl::Status status = source_->AwaitPart(i); !status.ok()) return status;
      if (!IsRightPart(i)) return absl::DataLossError(absl::StrCat("part ", i));
      if (absl::Status status = source_->EndPart(); !status.ok()) return status;
      reader_.TellReads();
    }
    if (source_->Leave()) side_.waiter.Wake(*side_.call.role.sources, Deed::kRead);
    return absl::OkStatus();
  }

  std::unique_ptr<Host> host_;
  std::vector<std::shared_ptr<Launch>> launches_;
  Side writer_, side_;
  MessageReader reader_;
  SlotSource slot_;
  std::unique_ptr<Source> source_;
};

TEST_P(SourceTest, GivesItsMessagesAndPartsInTheirOrder) {
  absl::Status written;
  Thread writer("writer", [&] { written = Write(); });
  EXPECT_EQ(ReadAll(), absl::OkStatus());
  writer.Join();
  EXPECT_EQ(written, absl::OkStatus());
}

TEST_P(SourceTest, IsAwaitedUntilItWrites) {
  absl::Status read;
  std::atomic<bool> is_read = false;
  Thread reader("reader", [&] {
    read = ReadAll();
    is_read = true;
  });
  while (!host_->local(1).waiting()) YieldCore();  // it sleeps
  EXPECT_FALSE(is_read);
  EXPECT_EQ(Write(), absl::OkStatus());
  reader.Join();
  EXPECT_EQ(read, absl::OkStatus());
}

TEST_P(SourceTest, GoesOnOnlyWhenItHasBeenRead) {
  std::atomic<bool> is_written = false;
  Thread writer("writer", [&] {
    EXPECT_EQ(Write(), absl::OkStatus());
    is_written = true;
  });
  while (!host_->local(0).waiting()) YieldCore();  // for its reader
  EXPECT_FALSE(is_written);
  EXPECT_EQ(ReadAll(), absl::OkStatus());
  writer.Join();
}

TEST_P(SourceTest, AnAbortEndsTheWaitForIt) {
  absl::Status read;
  Thread reader("reader", [&] { read = ReadAll(); });
  while (!host_->local(1).waiting()) YieldCore();
  for (const auto& launch : launches_) launch->Abort(absl::CancelledError("enough"));
  reader.Join();
  EXPECT_EQ(read.message(), "enough");
}

class FailingSourceTest : public SourceTest {
 protected:
  FailingSourceTest() : SourceTest(std::chrono::milliseconds(300)) {}
};

// It has sent the first message, reduced nothing, and failed. Its reader learns that, or waits for the reason in vain.
TEST_P(FailingSourceTest, ThatHasFailedGivesNoPart) {
  Offer offer(writer_.waiter, writer_.sender, writer_.call, nullptr);
  offer.Open();
  ASSERT_EQ(offer.Send(0), absl::OkStatus());
  ASSERT_EQ(Await(0), absl::OkStatus());
  EXPECT_TRUE(absl::IsInternal(offer.End(absl::InternalError("a bit flipped"))));
  const absl::Status read = source_->EndMessage();
  const absl::Status part = read.ok() ? source_->AwaitPart(0) : read;
  EXPECT_FALSE(part.ok());
  if (GetParam() == Kind::kShown) {
    EXPECT_EQ(part.message(), "a bit flipped");
  }
  source_->Leave();  // before its memory goes
}

// The writer has left the gang well, and never ran the collective.
TEST_P(FailingSourceTest, ThatEndsWithoutTheCollectiveIsNamed) {
  host_->local(0).Leave(launches_[0]->gang().order, LocalDevice::Ending::kUnread);
  const absl::Status awaited = Await(0);
  EXPECT_TRUE(absl::IsInvalidArgument(awaited)) << awaited;
  EXPECT_NE(awaited.message().find("worker0, local device 0, has ended the program without it"),
            std::string::npos)
      << awaited;
}

std::string NameOf(const ::testing::TestParamInfo<Kind>& kind) {
  return std::vector<std::string>{"slot", "shown", "heap",
                                  "mirror"}[static_cast<size_t>(kind.param)];
}
constexpr Kind kKinds[] = {Kind::kSlot, Kind::kShown, Kind::kHeap, Kind::kMirror};
INSTANTIATE_TEST_SUITE_P(Kinds, SourceTest, ::testing::ValuesIn(kKinds), NameOf);
INSTANTIATE_TEST_SUITE_P(Kinds, FailingSourceTest, ::testing::ValuesIn(kKinds), NameOf);

}  // namespace
}  // namespace gangway::collective
