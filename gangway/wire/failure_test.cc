// ER-1: a failure record survives the trip through absl::Status.
#include "gangway/wire/failure.h"

#include <gtest/gtest.h>

#include "gangway/base/status.h"

namespace gangway::wire {
namespace {

TEST(FailureTest, ER1_RecordSurvivesTheTripThroughStatus) {
  Failure failure = MakeFailure(absl::StatusCode::kDataLoss, "array lost", "Make it again.");
  failure.set_worker("island0/worker1");
  failure.set_incarnation(7);
  failure.set_device(2);
  failure.set_gang(42);
  absl::Status status = ToStatus(failure);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ToFailure(status).SerializeAsString(), failure.SerializeAsString());
  EXPECT_EQ(
      ToText(failure),
      "array lost [gang 42, worker island0/worker1, incarnation 7, device 2]. Make it again.");
}

TEST(FailureTest, ContextAddedToTheStatusPrecedesTheRecordsMessage_ER1) {
  Failure failure = MakeFailure(absl::StatusCode::kDataLoss, "array lost", "Make it again.");
  failure.set_gang(42);
  absl::Status status = AddContext(AddContext(ToStatus(failure), "inner"), "outer");
  EXPECT_EQ(status.message(), "outer: inner: array lost [gang 42]. Make it again.");
  Failure read = ToFailure(status);
  EXPECT_EQ(read.message(), "outer: inner: array lost");
  EXPECT_EQ(read.gang(), 42u);
  EXPECT_EQ(read.advice(), "Make it again.");
  EXPECT_EQ(ToText(read), status.message());
}

TEST(FailureTest, StatusWithoutRecordKeepsCodeAndMessage) {
  Failure failure = ToFailure(absl::NotFoundError("no such thing"));
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(failure.message(), "no such thing");
  EXPECT_TRUE(ToStatus(Failure()).ok());
}

TEST(FailureTest, BytesThatAreNoTextDoNotSpoilTheRecord) {
  const std::string good = "gr\u00fc\u00df \u20ac \U0001f600";
  EXPECT_EQ(ValidUtf8(good), good);
  EXPECT_EQ(ValidUtf8(""), "");
  EXPECT_EQ(ValidUtf8("a\xff\x80z"), "a??z");
  EXPECT_EQ(ValidUtf8("\xc3"), "?");                 // cut off
  EXPECT_EQ(ValidUtf8("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(ValidUtf8("\xe0\x80\xaf"), "???");       // overlong
  EXPECT_EQ(ValidUtf8("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(ValidUtf8("\xf4\x90\x80\x80"), "????");  // above the last code point
  EXPECT_EQ(ValidUtf8("\xe2\x82"
                      "euro"),
            "??euro");
  for (const Failure& failure :
       {ToFailure(absl::InternalError("bad \xfe bytes")),
        MakeFailure(absl::StatusCode::kInternal, "bad \xfe bytes", "\xfe"),
        ToFailure(ToStatus(MakeFailure(absl::StatusCode::kInternal, "\xfe")))}) {
    Failure again;
    EXPECT_TRUE(again.ParseFromString(failure.SerializeAsString()));
    EXPECT_EQ(again.message(), failure.message());
  }
}

TEST(FailureTest, NamesOfOthersAreEscaped) {
  Failure received;
  received.set_message("two\nlines");
  received.set_program("jit_f\x1b[2J");
  received.set_source("a\nb.py:1");
  received.set_worker("w\r");
  Clip(received);
  EXPECT_EQ(ToText(received), "two\nlines [program jit_f\\x1b[2J, at a\\nb.py:1, worker w\\r]");
  EXPECT_EQ(ToText(*LabelOf("f\n", "x\u202e.py:1")), "f\\n at x\\u202e.py:1");
  EXPECT_EQ(LabelOf(std::string(9999, 'x'))->name.size(), kNameMax);
}

TEST(FailureTest, TextsHaveLimits) {
  std::string text(kFailureTextMax - 50, 'x');
  for (int i = 0; i < 50; ++i) text += "\u20ac";
  const Failure made = MakeFailure(absl::StatusCode::kInternal, text, text);
  EXPECT_LE(made.message().size(), kFailureTextMax);
  EXPECT_LE(made.advice().size(), kFailureAdviceMax);
  EXPECT_NE(made.message().find(" bytes left out)"), std::string::npos);
  EXPECT_EQ(ValidUtf8(made.message()), made.message()) << "cut between characters";
  EXPECT_EQ(ToFailure(absl::InternalError(text)).message(), made.message());
  Failure received;
  received.set_message(text);
  received.set_program(text);
  received.set_source(text);
  received.set_worker(text);
  Clip(received);
  EXPECT_EQ(received.message(), made.message());
  EXPECT_LE(received.ByteSizeLong(), kFailureTextMax + 3 * kNameMax + 32);
  const Failure before = received;
  Clip(received);
  EXPECT_EQ(received.SerializeAsString(), before.SerializeAsString());
}

}  // namespace
}  // namespace gangway::wire
