// Implementation of trace_collection.h.
#include "gangway/wire/trace_collection.h"

#include <algorithm>

#include "gangway/wire/trace.h"

namespace gangway::wire {

int64_t ClockOffset(uint64_t asked_ns, uint64_t time_ns, uint64_t answered_ns) {
  const int64_t low = static_cast<int64_t>(asked_ns - time_ns);
  const int64_t high = static_cast<int64_t>(answered_ns - time_ns);
  return low <= 0 && high >= 0 ? 0 : low + (high - low) / 2;
}

void TraceCollection::Add(const TraceReply& reply) {
  auto same = [&reply](const Process& process) {
    return process.name == reply.process() && process.process_id == reply.process_id();
  };
  auto it = std::find_if(processes_.begin(), processes_.end(), same);
  if (it == processes_.end()) {
    it = processes_.insert(processes_.end(), Process{});
    it->name = reply.process();
    it->process_id = reply.process_id();
    it->offset_ns = ClockOffset(reply.asked_ns(), reply.time_ns(), reply.answered_ns());
    it->uncertain_ns = (reply.answered_ns() - reply.asked_ns()) / 2;
    it->read_ns = reply.time_ns();
  }
  for (int i = 0; i < TraceRecordCount(reply); ++i) it->records.push_back(TraceRecordAt(reply, i));
  for (const auto& name : reply.names())
    it->names[{static_cast<TraceNameOf>(name.what()), name.id()}] = name.name();
  if (reply.last() && reply.recorded() > it->records.size())
    it->overwritten = reply.recorded() - it->records.size();
}

std::map<uint64_t, std::string> TraceCollection::ExecutableNames() const {
  std::map<uint64_t, std::string> names;
  for (const Process& process : processes_) {
    for (const auto& [key, name] : process.names) {
      if (key.first == TraceNameOf::kExecutable) names[key.second] = name;
    }
  }
  return names;
}

std::map<uint64_t, uint64_t> TraceCollection::ExecutablesOfGangs() const {
  std::map<uint64_t, uint64_t> executables;
  for (const Process& process : processes_) {
    for (const TraceRecord& record : process.records) {
      if (const uint64_t executable = ExecutableOf(record)) executables[record.gang] = executable;
    }
  }
  return executables;
}

uint64_t ExecutableOf(const TraceRecord& record) {
  if (record.kind == TraceKind::kPrepare) return record.value;
  return record.kind == TraceKind::kQueue ? record.value / 8 : 0;
}

std::vector<TraceRun> RunsOf(const TraceCollection::Process& process) {
  std::vector<TraceRun> runs;
  std::map<std::pair<uint64_t, uint32_t>, int64_t> open;  // by gang and device
  auto time = [&process](uint64_t ns) { return static_cast<int64_t>(ns) + process.offset_ns; };
  for (const TraceRecord& record : process.records) {
    if (record.kind == TraceKind::kExecuteBegin) {
      open[{record.gang, record.place}] = time(record.time_ns);
    } else if (record.kind == TraceKind::kExecuteEnd) {
      auto begun = open.extract({record.gang, record.place});
      if (begun.empty()) continue;
      runs.push_back(
          {record.gang, record.place, begun.mapped(), time(record.time_ns), /*has_ended=*/true});
    }
  }
  for (const auto& [key, begin] : open)
    runs.push_back({key.first, key.second, begin, time(process.read_ns), /*has_ended=*/false});
  return runs;
}

}  // namespace gangway::wire
