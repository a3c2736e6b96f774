// Implementation of trace.h.
#include "gangway/wire/trace.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/thread.h"

namespace gangway::wire {
namespace {

constexpr size_t kRecordsPerFrame = 8192;  // 320 KiB

void AddRecord(const TraceRecord& record, TraceReply& reply) {
  reply.add_words(record.time_ns);
  reply.add_words((uint64_t{static_cast<uint8_t>(record.kind)} << 32) | record.place);
  reply.add_words(record.session);
  reply.add_words(record.gang);
  reply.add_words(record.value);
}

uint64_t NowNs() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
          .count());
}

void Begin(const TraceRequest& request, const std::string& process, uint64_t now_ns,
           TraceReply& reply) {
  reply.set_probe(request.probe());
  reply.set_process(process);
  reply.set_process_id(ProcessId());
  reply.set_time_ns(now_ns);
}

}  // namespace

std::string SchedulerTraceName(uint32_t island) { return absl::StrCat("scheduler ", island); }

std::vector<Frame> TraceFrames(const TraceRequest& request, const std::string& process) {
  const uint64_t now_ns = NowNs();
  const TraceSnapshot snapshot = ReadTrace();
  std::vector<Frame> frames;
  size_t done = 0;
  do {
    TraceReply& reply = *frames.emplace_back().mutable_trace_reply();
    Begin(request, process, now_ns, reply);
    reply.set_recorded(snapshot.recorded);
    const size_t end = std::min(done + kRecordsPerFrame, snapshot.records.size());
    reply.mutable_words()->Reserve(static_cast<int>((end - done) * kTraceWords));
    for (; done < end; ++done) AddRecord(snapshot.records[done], reply);
  } while (done < snapshot.records.size());
  TraceReply& last = *frames.back().mutable_trace_reply();
  for (const TraceName& name : snapshot.names) {
    TraceReply::Name& out = *last.add_names();
    out.set_what(static_cast<uint32_t>(name.what));
    out.set_id(name.id);
    out.set_name(name.name);
  }
  last.set_last(true);
  return frames;
}

Frame NoTraceFrame(const TraceRequest& request, const std::string& process) {
  Frame frame;
  TraceReply& reply = *frame.mutable_trace_reply();
  Begin(request, process, NowNs(), reply);
  reply.set_last(true);
  return frame;
}

TraceRecord TraceRecordAt(const TraceReply& reply, int index) {
  const int first = index * kTraceWords;
  return {.time_ns = reply.words(first),
          .kind = static_cast<TraceKind>((reply.words(first + 1) >> 32) & 0xff),
          .place = static_cast<uint32_t>(reply.words(first + 1)),
          .session = reply.words(first + 2),
          .gang = reply.words(first + 3),
          .value = reply.words(first + 4)};
}

}  // namespace gangway::wire
