// Implementation of trace_file.h.
#include "gangway/cli/trace_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gangway/cli/json_text.h"
#include "gangway/wire/trace.h"

namespace gangway::cli {
namespace {

using Process = TraceCollection::Process;

constexpr int64_t kMomentNs = 100;        // drawn length of an instant, so that arrows attach to it
constexpr uint32_t kIslandGroup = 10000;  // Perfetto's "processes": real ones first, then islands
enum Thread : uint32_t {
  kSubmits = 1,
  kLowering = 2,
  kReleases = 3,
  kEnds = 4,
  kHostWork = 5,
  kUploads = 6,
  kFetches = 7,
  kCompiles = 8,
  kRequests = 1000,   // + session
  kDevices = 100000,  // + device
  kLinks = 200000,    // + 2 * link, + 1 for incoming frames
};

struct TrackId {
  uint32_t group = 0;
  uint32_t thread = 0;
  auto operator<=>(const TrackId&) const = default;
};

struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
  std::string name;
  std::string arguments;               // JSON members
  std::vector<std::string> flows_out;  // JSON members that name an arrow
  std::vector<std::string> flows_in;
};

std::string Flow(const char* category, uint64_t id) {
  return absl::StrCat("\"cat\":\"", category, "\",\"name\":\"", category, "\",\"id\":", id);
}
std::string BatchFlow(uint64_t session, uint64_t batch) {
  return Flow("batch", (session << 32) | (batch & 0xffffffff));
}
std::string ReleaseFlow(uint64_t gang, uint32_t island) {
  return Flow("lowered", gang * 1024 + island % 1024);
}
std::string ExecuteFlow(uint64_t gang, uint32_t device) {
  return Flow("released", gang * 65536 + device % 65536);
}
std::string DoneFlow(uint64_t gang, uint32_t device) {
  return Flow("executed", gang * 65536 + device % 65536);
}

struct Gang {
  std::string name;
  uint32_t island = 0;
  std::set<uint32_t> devices;
  int64_t queued = 0;
  int64_t released = 0;
  int64_t done = 0;
};

class Writer {
 public:
  explicit Writer(const std::vector<Process>& processes) : processes_(processes) {}

  std::string Write() {
    for (const Process& process : processes_) LearnNames(process);
    for (const Process& process : processes_) LearnGangs(process);
    for (uint32_t group = 0; group < processes_.size(); ++group) AddProcess(group + 1);
    text_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    for (auto& [id, slices] : tracks_) WriteTrack(id, slices);
    for (const auto& [ordinal, gang] : gangs_) WriteWait(ordinal, gang);
    WriteNames();
    return text_ + "\n]}\n";
  }

 private:
  static int64_t Time(const Process& process, uint64_t time_ns) {
    return static_cast<int64_t>(time_ns) + process.offset_ns;
  }

  void LearnNames(const Process& process) {
    for (const auto& [key, name] : process.names) {
      if (key.first == TraceNameOf::kExecutable) programs_[key.second] = name;
      if (key.first == TraceNameOf::kSession) sessions_[key.second] = name;
    }
  }

  void LearnGangs(const Process& process) {
    constexpr const char* kKinds[] = {"node", "node", "node", "call", "upload", "copy", "fetch"};
    for (const TraceRecord& record : process.records) {
      if (record.gang == 0) continue;
      int64_t at = Time(process, record.time_ns);
      Gang& gang = gangs_[record.gang];
      if (record.kind == TraceKind::kQueue) {
        uint64_t kind = record.value % 8;
        auto program = programs_.find(record.value / 8);
        gang.name =
            kind == 3 && program != programs_.end() ? program->second : kKinds[kind < 7 ? kind : 0];
        gang.island = record.place;
        if (gang.queued == 0) gang.queued = at;
      } else if (record.kind == TraceKind::kRelease) {
        if (gang.released == 0) gang.released = at;
      } else if (record.kind == TraceKind::kDone) {
        gang.done = at;
      } else if (record.kind == TraceKind::kExecuteBegin) {
        gang.devices.insert(record.place);
      }
    }
  }

  std::string GangName(uint64_t ordinal) const {
    auto it = gangs_.find(ordinal);
    return absl::StrCat(it == gangs_.end() || it->second.name.empty() ? "gang" : it->second.name,
                        " #", ordinal);
  }

  Slice& Add(TrackId track, int64_t begin, int64_t end, std::string name,
             const TraceRecord& record) {
    Slice& slice = tracks_[track].emplace_back();
    slice.begin = begin;
    slice.end = end;
    slice.name = std::move(name);
    if (record.gang != 0) absl::StrAppend(&slice.arguments, "\"gang\":", record.gang);
    if (record.session != 0) {
      absl::StrAppend(&slice.arguments, slice.arguments.empty() ? "" : ",",
                      "\"session\":", record.session);
    }
    return slice;
  }

  void AddProcess(uint32_t group) {
    const Process& process = processes_[group - 1];
    std::map<std::pair<uint64_t, uint32_t>, int64_t> open;  // executes by gang and device
    std::map<uint64_t, int64_t> compiling;
    std::map<uint64_t, int64_t> starts;
    for (const TraceRecord& record : process.records) {
      const int64_t at = Time(process, record.time_ns);
      switch (record.kind) {
        case TraceKind::kExecuteBegin:
          open[{record.gang, record.place}] = at;
          break;
        case TraceKind::kExecuteEnd:
          if (auto it = open.find({record.gang, record.place}); it != open.end()) {
            AddExecute(group, it->second, at, record);
            open.erase(it);
          }
          break;
        case TraceKind::kCompileBegin:
          compiling[record.value] = at;
          break;
        case TraceKind::kCompileEnd:
          if (auto it = compiling.find(record.value); it != compiling.end()) {
            Add({group, kCompiles}, it->second, at, "compile", record);
          }
          break;
        default:
          AddMoment(group, at, record);
      }
    }
    for (const auto& [key, began] : open) {  // still running, or hung
      TraceRecord record{.place = key.second, .gang = key.first};
      AddExecute(group, began, Time(process, process.read_ns), record);
      tracks_[{group, kDevices + key.second}].back().name += " (has not ended)";
    }
  }

  void AddExecute(uint32_t group, int64_t begin, int64_t end, const TraceRecord& record) {
    Slice& slice = Add({group, kDevices + record.place}, begin, end, GangName(record.gang), record);
    slice.flows_in.push_back(ExecuteFlow(record.gang, record.place));
    slice.flows_out.push_back(DoneFlow(record.gang, record.place));
  }

  void AddMoment(uint32_t group, int64_t at, const TraceRecord& record) {
    const int64_t end = at + kMomentNs;
    const uint32_t island = kIslandGroup + record.place;
    switch (record.kind) {
      case TraceKind::kRequest:
        Add({group, static_cast<uint32_t>(kRequests + record.session)}, at,
            at + static_cast<int64_t>(record.value), absl::StrCat("request ", record.place),
            record);
        break;
      case TraceKind::kSubmit:
        Add({group, kSubmits}, at, end, absl::StrCat("batch ", record.value), record)
            .flows_out.push_back(BatchFlow(record.session, record.value));
        break;
      case TraceKind::kLower: {
        Slice& slice = Add({group, kLowering}, at, end, GangName(record.gang), record);
        slice.flows_out.push_back(ReleaseFlow(record.gang, record.place));
        // One arrow per batch, to its first node.
        if (lowered_.insert({record.session, record.value}).second)
          slice.flows_in.push_back(BatchFlow(record.session, record.value));
        break;
      }
      case TraceKind::kRelease: {
        if (!released_.insert({record.gang, record.place}).second) break;  // recorded per worker
        Slice& slice = Add({island, kReleases}, at, end, GangName(record.gang), record);
        slice.flows_in.push_back(ReleaseFlow(record.gang, record.place));
        for (uint32_t device : gangs_[record.gang].devices)
          slice.flows_out.push_back(ExecuteFlow(record.gang, device));
        break;
      }
      case TraceKind::kDone: {
        Slice& slice =
            Add({island, kEnds}, at, end,
                absl::StrCat(GangName(record.gang), record.value == 0 ? "" : " failed"), record);
        for (uint32_t device : gangs_[record.gang].devices)
          slice.flows_in.push_back(DoneFlow(record.gang, device));
        break;
      }
      case TraceKind::kPrepare:
        Add({group, kHostWork}, at, end, GangName(record.gang), record);
        break;
      case TraceKind::kUpload:
      case TraceKind::kFetch:
        Add({group, record.kind == TraceKind::kUpload ? kUploads : kFetches}, at, end,
            absl::StrCat("shard ", record.place, ", ", record.value, " bytes"), record);
        break;
      case TraceKind::kSend:
      case TraceKind::kReceive:
        Add({group, kLinks + 2 * record.place + (record.kind == TraceKind::kReceive ? 1 : 0)}, at,
            end, absl::StrCat(record.value, " bytes"), record);
        break;
      default:
        break;
    }
  }

  void Event(const std::string& members) {
    if (!first_) text_ += ",\n";
    first_ = false;
    absl::StrAppend(&text_, "{", members, "}");
  }

  static std::string Place(TrackId id, int64_t at) {
    return absl::StrFormat("\"pid\":%d,\"tid\":%d,\"ts\":%d.%03d", id.group, id.thread, at / 1000,
                           at % 1000);
  }

  // Slices of a track must not overlap: one that begins before the previous end is drawn from that
  // end. On a device this is accurate: a queued gang begins when the previous one has ended.
  void WriteTrack(TrackId id, std::vector<Slice>& slices) {
    std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return std::pair(a.end, a.begin) < std::pair(b.end, b.begin);
    });
    int64_t free = 0;
    for (const Slice& slice : slices) {
      const int64_t begin = std::max(slice.begin, free);
      const int64_t end = std::max(slice.end, begin + kMomentNs);
      free = end;
      const std::string place = Place(id, begin);
      Event(absl::StrCat(
          "\"ph\":\"X\",", place,
          absl::StrFormat(",\"dur\":%d.%03d", (end - begin) / 1000, (end - begin) % 1000),
          ",\"name\":", Quoted(slice.name), ",\"args\":{", slice.arguments, "}"));
      for (const std::string& flow : slice.flows_in)
        Event(absl::StrCat("\"ph\":\"f\",\"bp\":\"e\",", flow, ",", place));
      for (const std::string& flow : slice.flows_out)
        Event(absl::StrCat("\"ph\":\"s\",", flow, ",", place));
    }
  }

  // An async slice from a node's arrival at its island's scheduler to its end. These may overlap.
  void WriteWait(uint64_t ordinal, const Gang& gang) {
    if (gang.queued == 0 || gang.done == 0) return;
    const TrackId track{kIslandGroup + gang.island, 0};
    const std::string common =
        absl::StrCat("\"cat\":\"gang\",\"id\":", ordinal, ",\"name\":", Quoted(GangName(ordinal)));
    Event(absl::StrCat("\"ph\":\"b\",", common, ",", Place(track, gang.queued)));
    if (gang.released != 0)
      Event(absl::StrCat("\"ph\":\"n\",", common, ",", Place(track, gang.released)));
    Event(absl::StrCat("\"ph\":\"e\",", common, ",", Place(track, gang.done)));
    islands_.insert(track.group);
  }

  std::string ThreadName(TrackId id) const {
    constexpr const char* kNames[] = {"",         "submits", "lowering",
                                      "releases", "ends",    "host-side work",
                                      "uploads",  "fetches", "compiles"};
    if (id.thread < std::size(kNames)) return kNames[id.thread];
    if (id.thread >= kLinks) {
      uint64_t link = (id.thread - kLinks) / 2;
      const auto& names = processes_[id.group - 1].names;
      auto name = names.find({TraceNameOf::kLink, link});
      return absl::StrCat("link ", link, (id.thread - kLinks) % 2 == 0 ? " out, to " : " in, from ",
                          name == names.end() ? "?" : name->second);
    }
    if (id.thread >= kDevices) return absl::StrCat("device ", id.thread - kDevices);
    uint64_t session = id.thread - kRequests;
    auto name = sessions_.find(session);
    return absl::StrCat("requests of session ", session, name == sessions_.end() ? "" : ", ",
                        name == sessions_.end() ? "" : name->second);
  }

  void WriteNames() {
    for (uint32_t group = 1; group <= processes_.size(); ++group) {
      const Process& process = processes_[group - 1];
      NameGroup(group, absl::StrCat(process.name, " (pid ", process.process_id, ")"));
    }
    for (const auto& [id, slices] : tracks_) {
      if (id.group >= kIslandGroup) islands_.insert(id.group);
      Event(absl::StrCat("\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":", id.group, ",\"tid\":",
                         id.thread, ",\"args\":{\"name\":", Quoted(ThreadName(id)), "}"));
    }
    for (uint32_t group : islands_) NameGroup(group, absl::StrCat("island ", group - kIslandGroup));
  }

  void NameGroup(uint32_t group, const std::string& name) {
    Event(absl::StrCat("\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", group,
                       ",\"args\":{\"name\":", Quoted(name), "}"));
  }

  const std::vector<Process>& processes_;
  std::map<uint64_t, std::string> programs_;
  std::map<uint64_t, std::string> sessions_;
  std::map<uint64_t, Gang> gangs_;
  std::map<TrackId, std::vector<Slice>> tracks_;
  std::set<std::pair<uint64_t, uint64_t>> lowered_;
  std::set<std::pair<uint64_t, uint32_t>> released_;
  std::set<uint32_t> islands_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

int64_t ClockOffset(uint64_t asked_ns, uint64_t time_ns, uint64_t answered_ns) {
  const int64_t low = static_cast<int64_t>(asked_ns - time_ns);
  const int64_t high = static_cast<int64_t>(answered_ns - time_ns);
  return low <= 0 && high >= 0 ? 0 : low + (high - low) / 2;
}

void TraceCollection::Add(const wire::TraceReply& reply) {
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
  for (int i = 0; i < wire::TraceRecordCount(reply); ++i)
    it->records.push_back(wire::TraceRecordAt(reply, i));
  for (const auto& name : reply.names())
    it->names[{static_cast<TraceNameOf>(name.what()), name.id()}] = name.name();
  if (reply.last() && reply.recorded() > it->records.size())
    it->overwritten = reply.recorded() - it->records.size();
}

std::string ToPerfetto(const std::vector<TraceCollection::Process>& processes) {
  return Writer(processes).Write();
}

}  // namespace gangway::cli
