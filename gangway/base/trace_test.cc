// The flight recorder's ring: order, laps, concurrent readers, names.
#include "gangway/base/trace.h"

#include <gtest/gtest.h>

#include <stop_token>
#include <thread>
#include <vector>

namespace gangway {
namespace {

TEST(TraceTest, TheLastRecordsAreLeftInOrder) {
  const uint64_t before = ReadTrace().recorded;
  for (uint64_t i = 1; i <= kTraceCapacity + 10; ++i)
    Trace(TraceKind::kRelease, 3, SessionId(5), Ordinal(i), i * 2);
  TraceSnapshot snapshot = ReadTrace();
  EXPECT_EQ(snapshot.recorded, before + kTraceCapacity + 10);
  ASSERT_EQ(snapshot.records.size(), kTraceCapacity);
  for (size_t i = 0; i < snapshot.records.size(); ++i) {
    const TraceRecord& record = snapshot.records[i];
    ASSERT_EQ(record.gang, i + 11);
    ASSERT_EQ(record.value, record.gang * 2);
    ASSERT_EQ(record.kind, TraceKind::kRelease);
    ASSERT_EQ(record.place, 3u);
    ASSERT_EQ(record.session, 5u);
    if (i > 0) {
      ASSERT_GE(record.time_ns, snapshot.records[i - 1].time_ns);
    }
  }
}

// There are more writers than cores, so that some are stopped inside a record for whole laps.
TEST(TraceTest, ReadersOfABusyRingSeeWholeRecordsOnly) {
  constexpr uint64_t kWriters = 16;
  std::vector<std::jthread> writers;
  for (uint64_t thread = 1; thread <= kWriters; ++thread) {
    writers.emplace_back([thread](const std::stop_token& stop) {
      for (uint64_t i = thread; !stop.stop_requested(); i += kWriters)
        Trace(TraceKind::kSend, static_cast<uint32_t>(i), SessionId(i), Ordinal(i), i);
    });
  }
  for (int round = 0; round < 50; ++round) {
    for (const TraceRecord& record : ReadTrace().records) {
      if (record.kind != TraceKind::kSend) continue;
      ASSERT_EQ(record.session, record.gang);
      ASSERT_EQ(record.value, record.gang);
      ASSERT_EQ(record.place, static_cast<uint32_t>(record.gang));
    }
  }
}

TEST(TraceTest, NamesAreKeptUpToALimit) {
  for (uint64_t id = 0; id < 5000; ++id) NameTrace(TraceNameOf::kExecutable, id, "program");
  NameTrace(TraceNameOf::kLink, 7, std::string(1000, 'x'));
  size_t executables = 0;
  for (const TraceName& name : ReadTrace().names) {
    if (name.what == TraceNameOf::kExecutable) {
      ++executables;
      EXPECT_GE(name.id, 5000u - 4096u);
    } else {
      EXPECT_EQ(name.name, std::string(125, 'x') += "...");
    }
  }
  EXPECT_EQ(executables, 4096u);
}

}  // namespace
}  // namespace gangway
