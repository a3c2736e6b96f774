// Tests the pure parts of `gangway trace` and `gangway why`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gangway/cli/json.h"
#include "gangway/cli/metrics.h"
#include "gangway/cli/trace_file.h"
#include "gangway/cli/why_text.h"
#include "gangway/wire/trace.h"

namespace gangway::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ClockOffsetTest, OneClockIsLeftAloneAndAnotherIsMovedToTheMiddle) {
  EXPECT_EQ(ClockOffset(1000, 1040, 1100), 0);
  EXPECT_EQ(ClockOffset(1000, 5050, 1100), -4000);
  EXPECT_EQ(ClockOffset(5000, 50, 5100), 5000);
}

TraceCollection::Process Process(const std::string& name, std::vector<TraceRecord> records) {
  return {.name = name, .process_id = 7, .read_ns = 9000, .records = std::move(records)};
}

std::vector<Json> Events(const std::string& trace) {
  return Json::parse(trace)["traceEvents"].get<std::vector<Json>>();
}

MATCHER_P(HasMembersOf, part, part.dump()) {
  const Json& event = arg;
  return std::all_of(part.items().begin(), part.items().end(), [&event](const auto& member) {
    return event.contains(member.key()) && event[member.key()] == member.value();
  });
}
auto Has(Json part) { return HasMembersOf(std::move(part)); }

TEST(TraceFileTest, AGangIsJoinedFromItsReleaseToItsDevicesAndItsEnd) {
  auto head = Process(
      "controller",
      {{.time_ns = 1000, .kind = TraceKind::kSubmit, .session = 4, .value = 2},
       {.time_ns = 1500, .kind = TraceKind::kLower, .session = 4, .gang = 9, .value = 2},
       {.time_ns = 1600, .kind = TraceKind::kQueue, .session = 4, .gang = 9, .value = 5 * 8 + 3},
       {.time_ns = 1700, .kind = TraceKind::kRelease, .gang = 9},
       {.time_ns = 4000, .kind = TraceKind::kDone, .gang = 9}});
  head.names[{TraceNameOf::kExecutable, 5}] = "jit_\"step\"";
  auto worker = Process("island0/worker0",
                        {{.time_ns = 2000, .kind = TraceKind::kExecuteBegin, .place = 0, .gang = 9},
                         {.time_ns = 2100, .kind = TraceKind::kExecuteBegin, .place = 1, .gang = 9},
                         {.time_ns = 3000, .kind = TraceKind::kExecuteEnd, .place = 0, .gang = 9}});
  const std::vector<Json> events = Events(ToPerfetto({head, worker}));
  EXPECT_THAT(events, Contains(Has({{"ph", "X"},
                                    {"name", "jit_\"step\" #9"},
                                    {"pid", 2},
                                    {"tid", 100000},
                                    {"ts", 2.0},
                                    {"dur", 1.0},
                                    {"args", {{"gang", 9}}}})));
  EXPECT_THAT(events, Contains(Has({{"ph", "X"}, {"name", "jit_\"step\" #9 (has not ended)"}})));
  for (const char* flow : {"lowered", "released", "executed"}) {
    EXPECT_THAT(events, Contains(Has({{"ph", "s"}, {"cat", flow}})));
    EXPECT_THAT(events, Contains(Has({{"ph", "f"}, {"bp", "e"}, {"cat", flow}})));
  }
}

TEST(TraceFileTest, WhatIsGivenToABusyDeviceIsDrawnBehindIt) {
  auto worker = Process("w", {{.time_ns = 1000, .kind = TraceKind::kExecuteBegin, .gang = 1},
                              {.time_ns = 1100, .kind = TraceKind::kExecuteBegin, .gang = 2},
                              {.time_ns = 3000, .kind = TraceKind::kExecuteEnd, .gang = 1},
                              {.time_ns = 5000, .kind = TraceKind::kExecuteEnd, .gang = 2}});
  const std::vector<Json> events = Events(ToPerfetto({worker}));
  EXPECT_THAT(events, Contains(Has({{"ts", 1.0}, {"dur", 2.0}, {"name", "gang #1"}})));
  EXPECT_THAT(events, Contains(Has({{"ts", 3.0}, {"dur", 2.0}, {"name", "gang #2"}})));
}

TEST(TraceFileTest, CollectivesAreNamedByTheirPrograms) {
  auto head = Process(
      "controller",
      {{.time_ns = 100, .kind = TraceKind::kQueue, .session = 4, .gang = 9, .value = 5 * 8 + 3}});
  auto worker = Process("island0/worker0", {{.time_ns = 5000,
                                             .kind = TraceKind::kCollective,
                                             .place = 2,
                                             .gang = 9,
                                             .value = PackSpan(1, 3000)},
                                            {.time_ns = 9000,
                                             .kind = TraceKind::kCollectives,
                                             .place = 2,
                                             .gang = 9,
                                             .value = PackSpan(37, 2000)}});
  worker.names[{TraceNameOf::kCollective, CollectiveNameId(ExecutableId(5), 1)}] =
      "64 bytes, all-reduce.7 at train.py:57";
  const std::vector<Json> events = Events(ToPerfetto({head, worker}));
  EXPECT_THAT(events, Contains(Has({{"ph", "X"},
                                    {"name", "64 bytes, all-reduce.7 at train.py:57"},
                                    {"pid", 2},
                                    {"tid", 150002},
                                    {"ts", 2.0},
                                    {"dur", 3.0},
                                    {"args", {{"gang", 9}}}})));
  EXPECT_THAT(events, Contains(Has({{"name", "37 short collectives"}, {"ts", 7.0}})));
  EXPECT_THAT(
      events,
      Contains(
          Has({{"ph", "M"}, {"tid", 150002}, {"args", {{"name", "collectives of device 2"}}}})));
}

TEST(TraceFramesTest, RecordsGoThereAndBackInPieces) {
  for (uint64_t i = 1; i <= kTraceCapacity; ++i)
    Trace(TraceKind::kRelease, 3, SessionId(5), Ordinal(i), i);
  wire::TraceRequest request;
  request.set_probe(8);
  TraceCollection collection;
  const std::vector<wire::Frame> frames = wire::TraceFrames(request, "me");
  EXPECT_GT(frames.size(), 1u);
  for (const wire::Frame& frame : frames) {
    EXPECT_EQ(frame.trace_reply().probe(), 8u);
    EXPECT_LT(frame.ByteSizeLong(), size_t{1} << 20);
    EXPECT_EQ(frame.trace_reply().last(), &frame == &frames.back());
    collection.Add(frame.trace_reply());
  }
  ASSERT_EQ(collection.processes().size(), 1u);
  const auto& records = collection.processes()[0].records;
  ASSERT_EQ(records.size(), kTraceCapacity);
  EXPECT_EQ(records.back().gang, kTraceCapacity);
  EXPECT_EQ(records.back().place, 3u);
  EXPECT_EQ(records.back().kind, TraceKind::kRelease);
}

TEST(TraceCollectionTest, AReplyThatIsCutShortIsNoCrash) {
  wire::TraceReply reply;
  reply.set_process("x");
  for (int i = 0; i < 7; ++i) reply.add_words(i);
  TraceCollection collection;
  collection.Add(reply);
  EXPECT_EQ(collection.processes()[0].records.size(), 1u);
}

TEST(ScopeTest, WordsAreScopes) {
  EXPECT_EQ(ParseScope({})->session(), 0u);
  EXPECT_EQ(ParseScope({"session", "3"})->session(), 3u);
  EXPECT_EQ(ParseScope({"gang", "12"})->gang(), 12u);
  EXPECT_EQ(ParseScope({"array", "9"})->array(), 9u);
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"gang"}, {"gang", "x"}, {"gang", "0"}, {"devices", "3"}}) {
    EXPECT_FALSE(ParseScope(wrong).ok()) << wrong[0];
  }
}

TEST(MetricsTest, StatusBecomesFamilies) {
  wire::StatusReply status;
  status.set_messages_received(12);
  auto& worker = *status.add_workers();
  worker.mutable_state()->set_up(true);
  worker.mutable_state()->mutable_worker()->set_index(3);
  worker.mutable_state()->mutable_worker()->add_devices(0);
  worker.mutable_state()->add_stuck()->set_device(0);
  worker.mutable_state()->mutable_claim()->set_session(4);
  worker.add_devices()->set_bytes(77);
  status.add_sessions()->set_arrays(4);
  status.add_sessions()->set_arrays(5);
  (*status.mutable_counters())["head_frames_sent"] = 7;
  (*status.mutable_counters())["head_frame_bytes_received"] = 900;
  std::map<std::string, double> values;
  for (const auto& family : ToMetrics(status)) {
    ASSERT_EQ(family.metric.size(), 1u) << family.name;
    const bool counter = family.type == prometheus::MetricType::Counter;
    const auto& metric = family.metric[0];
    values[family.name] = counter ? metric.counter.value : metric.gauge.value;
    if (family.name == "gangway_worker_up") {
      EXPECT_EQ(metric.label[0].value, "island0/worker3");
    }
  }
  EXPECT_EQ(values["gangway_worker_up"], 1);
  EXPECT_EQ(values["gangway_device_bytes"], 77);
  EXPECT_EQ(values["gangway_device_stuck"], 1);
  EXPECT_EQ(values["gangway_worker_draining"], 0);
  EXPECT_EQ(values["gangway_worker_claimed"], 1);
  EXPECT_EQ(values["gangway_arrays"], 9);
  EXPECT_EQ(values["gangway_sessions"], 2);
  EXPECT_EQ(values["gangway_frames_from_clients_total"], 12);
  EXPECT_EQ(values["gangway_head_frames_sent_total"], 7);
  EXPECT_EQ(values["gangway_head_frame_bytes_received_total"], 900);
  EXPECT_EQ(values["gangway_compiler_up"], 0);
}

TEST(WhyTextTest, SaysWhatWaitsHowLongAndForWhom) {
  wire::Wait wait;
  wait.set_kind(wire::Wait::KIND_CALL);
  wait.set_gang(7);
  wait.set_session(2);
  wait.set_client("trainer");
  wait.set_program("step");
  wait.set_source("train.py:42");
  wait.set_reason(wire::Wait::REASON_EARLIER_GANG);
  wait.set_waited_ms(2500);
  wait.add_devices(3);
  wait.set_for_gang(5);
  wait.set_for_session(1);
  wait.set_for_program("train");
  wait.set_for_source("other.py:7");
  EXPECT_EQ(WaitText(wait),
            "gang 7, call (step at train.py:42) of session 2 (trainer), waits behind gang 5 (train "
            "at other.py:7) of session 1, which comes first on device 3, for 2.5 s");
  wire::WhyReply reply;
  EXPECT_EQ(WhyText(reply, {}), "nothing waits\n");
  *reply.add_waits() = wait;
  EXPECT_THAT(WhyJson(reply), HasSubstr(R"("reason":"earlier_gang")"));
  EXPECT_THAT(WhyJson(reply), HasSubstr(R"("client":"trainer")"));
  EXPECT_THAT(WhyJson(reply), HasSubstr(R"("source":"train.py:42")"));
  EXPECT_THAT(WhyJson(reply), HasSubstr(R"("for_source":"other.py:7")"));
  EXPECT_THAT(WhyText(reply, {}), Not(HasSubstr("nothing")));
}

// A hundred calls of one program in a queue, with one of another among them.
wire::WhyReply Queue() {
  wire::WhyReply reply;
  for (uint64_t gang = 5; gang < 106; ++gang) {
    wire::Wait& wait = *reply.add_waits();
    wait.set_kind(wire::Wait::KIND_CALL);
    wait.set_gang(gang);
    wait.set_session(2);
    wait.set_program(gang == 9 ? "other" : "step");
    wait.set_reason(wire::Wait::REASON_EARLIER_GANG);
    wait.set_waited_ms(9000 - 10 * gang);
    wait.add_devices(3);
    wait.set_for_gang(gang - 1);
    wait.set_for_session(2);
  }
  return reply;
}

TEST(WhyTextTest, OfWaitsThatAreAlikeTheFirstAreShownAndTheRestCounted) {
  auto line = [](int gang, const char* program, const char* seconds) {
    return absl::StrCat("gang ", gang, ", call (", program, ") of session 2, waits behind gang ",
                        gang - 1, " of session 2, which comes first on device 3, for ", seconds,
                        " s\n");
  };
  EXPECT_EQ(WhyText(Queue(), {}),
            absl::StrCat(line(5, "step", "8.9"), line(6, "step", "8.9"), line(7, "step", "8.9"),
                         "  and 97 more such waits (gangs 8 to 105), the longest for 8.9 s\n",
                         line(9, "other", "8.9")));
}

TEST(WhyTextTest, WaitsWithDifferentCausesAreNotAlike) {
  wire::WhyReply reply;
  for (uint64_t index = 0; index < 5; ++index) {
    wire::Wait& behind = *reply.add_waits();
    behind.set_kind(wire::Wait::KIND_CALL);
    behind.set_reason(wire::Wait::REASON_EARLIER_GANG);
    behind.set_for_gang(index + 1);
    behind.set_for_session(index);
    wire::Wait& collective = *reply.add_waits();
    collective.set_kind(wire::Wait::KIND_CALL);
    collective.set_reason(wire::Wait::REASON_COLLECTIVE);
    collective.add_late()->set_worker(absl::StrCat("island0/worker", index));
    wire::Wait& memory = *reply.add_waits();
    memory.set_kind(wire::Wait::KIND_CALL);
    memory.set_reason(wire::Wait::REASON_MEMORY);
    memory.add_holders()->set_session(index);
  }
  const std::string text = WhyText(reply, {});
  EXPECT_THAT(text, Not(HasSubstr("more such")));
  for (int index = 0; index < 5; ++index)
    EXPECT_THAT(text, HasSubstr(absl::StrCat("island0/worker", index)));
}

TEST(WhyTextTest, AChainIsShownWhole) {
  for (bool of_array : {false, true}) {
    wire::WhyRequest scope;
    if (of_array) scope.set_array(1);
    if (!of_array) scope.set_gang(105);
    const std::string text = WhyText(Queue(), scope);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 101);
  }
}

TEST(WhyTextTest, AGangThatWaitsForItsTurnInTheRuntimeNamesTheOneBeforeIt) {
  wire::Wait wait;
  wait.set_kind(wire::Wait::KIND_CALL);
  wait.set_gang(12);
  wait.set_session(3);
  wait.set_reason(wire::Wait::REASON_RUNTIME_TURN);
  wait.add_workers("island0/worker0");
  wait.set_for_gang(9);
  wait.set_for_session(2);
  EXPECT_EQ(WaitText(wait),
            "gang 12, call of session 3, is with island0/worker0, whose device runtime runs one "
            "program with collectives of its own at a time (those of Gangway run side by side), "
            "behind gang 9 of session 2");
}

TEST(WhyTextTest, SaysWhatWasFoundAndWhoDidNotAnswer) {
  wire::WhyReply reply;
  const auto add = [&reply](wire::Finding::What what) -> wire::Finding& {
    wire::Finding& finding = *reply.add_findings();
    finding.set_what(what);
    finding.set_session(3);
    finding.set_array(5);
    finding.set_gang(7);
    return finding;
  };
  add(wire::Finding::FINDING_NO_SESSION);
  add(wire::Finding::FINDING_NO_ARRAY);
  add(wire::Finding::FINDING_ARRAY_READY);
  add(wire::Finding::FINDING_ARRAY_FAILED).mutable_failure()->set_message("it broke");
  add(wire::Finding::FINDING_GANG_ENDED);
  add(wire::Finding::FINDING_NO_GANG);
  reply.add_missing_islands(1);
  EXPECT_EQ(WhyText(reply, {}),
            "there is no session 3; `gangway status` lists those that are open\n"
            "no session holds an array 5\n"
            "array 5 of session 3 is ready: it waits for nothing\n"
            "array 5 of session 3 is an error: it broke\n"
            "gang 7 has ended\n"
            "gang 7 does not exist yet\n"
            "the scheduler of island 1 did not answer\n");
  EXPECT_THAT(WhyJson(reply), HasSubstr(R"("missing":["the scheduler of island 1"])"));
  EXPECT_THAT(WhyJson(reply), HasSubstr(R"("no session holds an array 5")"));
}

TEST(WhyTextTest, AGangThatStandsInACollectiveIsExplainedByItsLateMembers) {
  wire::WhyReply reply;
  wire::Wait& wait = *reply.add_waits();
  wait.set_kind(wire::Wait::KIND_CALL);
  wait.set_gang(12);
  wait.set_session(3);
  wait.set_program("jit_step");
  wait.set_reason(wire::Wait::REASON_COLLECTIVE);
  wait.set_collective("all-reduce.7 at train.py:57");
  wait.set_waited_ms(2500);
  wait.set_limit_ms(300000);
  wait.set_members(8);
  wait.set_members_waiting(4);
  wire::Wait::LateMembers& silent = *wait.add_late();
  silent.set_worker("island0/worker2");
  silent.add_devices(4);
  silent.add_devices(5);
  silent.set_cause(wire::Wait::LateMembers::CAUSE_SILENT);
  silent.set_for_ms(2100);
  wire::Wait::LateMembers& behind = *wait.add_late();
  behind.set_worker("island0/worker3");
  behind.add_devices(6);
  behind.set_cause(wire::Wait::LateMembers::CAUSE_BEHIND_GANG);
  behind.set_for_gang(9);
  behind.set_for_session(2);
  behind.set_for_program("jit_eval");
  behind.set_for_source("eval.py:3");
  wait.set_late_left_out(1);
  EXPECT_EQ(WaitText(wait),
            "gang 12, call (jit_step) of session 3, stands in collective all-reduce.7 at "
            "train.py:57, where 4 of 8 members wait for device 4, device 5 of island0/worker2, "
            "which is silent (no heartbeat for 2.1 s); device 6 of island0/worker3, which is "
            "behind gang 9 (jit_eval at eval.py:3) of session 2; and 1 more, for 2.5 s (at most "
            "300 s)");
  const std::string json = WhyJson(reply);
  EXPECT_THAT(json, HasSubstr(R"("reason":"collective")"));
  EXPECT_THAT(json, HasSubstr(R"("cause":"behind_gang")"));
  EXPECT_THAT(json, HasSubstr(R"("devices":[4,5])"));
}

}  // namespace
}  // namespace gangway::cli
