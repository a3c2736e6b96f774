// Tests of flight_record.h.
#include "gangway/collective/execution/flight_record.h"

#include <gtest/gtest.h>

#include <vector>

namespace gangway::collective {
namespace {

using std::chrono::microseconds;

std::vector<TraceRecord> RecordsOf(uint64_t gang) {
  std::vector<TraceRecord> records;
  for (const TraceRecord& record : ReadTrace().records)
    if (record.gang == gang) records.push_back(record);
  return records;
}

TEST(FlightRecordTest, LongCollectivesHaveTheirOwnRecordAndShortOnesShareThem) {
  const Clock::time_point start = Clock::now();
  {
    FlightRecord record(5, 77);
    for (int i = 0; i < 3; ++i)
      record.Add(1, start + microseconds(20 * i), start + microseconds(20 * i + 10));
    record.Add(9, start + microseconds(100), start + microseconds(100) + FlightRecord::kOwn);
    EXPECT_EQ(RecordsOf(77).size(), 2u) << "the run ends before a long one";
    record.Add(1, start + microseconds(500), start + microseconds(510));
  }
  const auto records = RecordsOf(77);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].kind, TraceKind::kCollectives);
  EXPECT_EQ(records[0].place, 5u);
  EXPECT_EQ(SpanNumber(records[0].value), 3u);
  EXPECT_EQ(SpanNs(records[0].value), 50'000u);
  EXPECT_EQ(records[1].kind, TraceKind::kCollective);
  EXPECT_EQ(SpanNumber(records[1].value), 9u);
  EXPECT_EQ(SpanNs(records[1].value), 250'000u);
  EXPECT_EQ(records[1].time_ns - records[0].time_ns, 300'000u) << "of the ends";
  EXPECT_EQ(SpanNumber(records[2].value), 1u);
}

TEST(FlightRecordTest, ALoopOfShortCollectivesWritesARecordPerMillisecond) {
  const Clock::time_point start = Clock::now();
  FlightRecord record(0, 78);
  for (int i = 0; i < 10'000; ++i)
    record.Add(0, start + microseconds(i), start + microseconds(i + 1));
  const auto records = RecordsOf(78);
  ASSERT_EQ(records.size(), 10u);
  EXPECT_EQ(SpanNumber(records[0].value), 1000u);
}

}  // namespace
}  // namespace gangway::collective
