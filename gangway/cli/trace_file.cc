// Implementation of trace_file.h.
#include "gangway/cli/trace_file.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/cli/json.h"

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
  kRequests = 1000,         // + session
  kDevices = 100000,        // + device
  kInCollectives = 150000,  // + device
  kLinks = 200000,          // + 2 * link, + 1 for incoming frames
};

struct TrackId {
  uint32_t group = 0;
  uint32_t thread = 0;
  auto operator<=>(const TrackId&) const = default;
};

// An arrow.
struct Flow {
  const char* category = "";
  uint64_t id = 0;
};

struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
  std::string name;
  uint64_t gang = 0;     // 0: none
  uint64_t session = 0;  // likewise
  std::vector<Flow> flows_out;
  std::vector<Flow> flows_in;
};

Flow BatchFlow(uint64_t session, uint64_t batch) {
  return {"batch", (session << 32) | (batch & 0xffffffff)};
}
Flow ReleaseFlow(uint64_t gang, uint32_t island) {
  return {"lowered", gang * 1024 + island % 1024};
}
Flow ExecuteFlow(uint64_t gang, uint32_t device) {
  return {"released", gang * 65536 + device % 65536};
}
Flow DoneFlow(uint64_t gang, uint32_t device) {
  return {"executed", gang * 65536 + device % 65536};
}

struct Gang {
  std::string name;
  ExecutableId executable;                                // of a call
  std::optional<std::pair<uint64_t, uint32_t>> launched;  // a program's id, and its node
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
      if (key.first == TraceNameOf::kExecutable) executables_[key.second] = name;
      if (key.first == TraceNameOf::kProgram) programs_[key.second] = name;
      if (key.first == TraceNameOf::kSession) sessions_[key.second] = name;
      if (key.first == TraceNameOf::kCollective) collectives_[key.second] = name;
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
        if (kind == 3) gang.executable = ExecutableId(record.value / 8);
        auto executable = executables_.find(record.value / 8);
        gang.name = kind == 3 && executable != executables_.end() ? executable->second
                                                                  : kKinds[kind < 7 ? kind : 0];
        gang.island = record.place;
        if (gang.queued == 0) gang.queued = at;
      } else if (record.kind == TraceKind::kLaunched) {
        gang.launched = {record.value, record.place};
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

  std::string CollectiveName(const TraceRecord& record) const {
    const uint32_t number = SpanNumber(record.value);
    if (record.kind == TraceKind::kCollectives) return absl::StrCat(number, " short collectives");
    auto gang = gangs_.find(record.gang);
    auto name = gang == gangs_.end()
                    ? collectives_.end()
                    : collectives_.find(CollectiveNameId(gang->second.executable, number));
    return name == collectives_.end() ? absl::StrCat("collective ", number) : name->second;
  }

  Slice& Add(TrackId track, int64_t begin, int64_t end, std::string name,
             const TraceRecord& record) {
    Slice& slice = tracks_[track].emplace_back();
    slice.begin = begin;
    slice.end = end;
    slice.name = std::move(name);
    slice.gang = record.gang;
    slice.session = record.session;
    return slice;
  }

  void AddProcess(uint32_t group) {
    const Process& process = processes_[group - 1];
    std::map<uint64_t, int64_t> compiling;
    for (const TraceRecord& record : process.records) {
      const int64_t at = Time(process, record.time_ns);
      switch (record.kind) {
        case TraceKind::kCompileBegin:
          compiling[record.value] = at;
          break;
        case TraceKind::kCompileEnd:
          if (auto it = compiling.find(record.value); it != compiling.end()) {
            Add({group, kCompiles}, it->second, at, "compile", record);
          }
          break;
        case TraceKind::kCollective:
        case TraceKind::kCollectives:
          Add({group, kInCollectives + record.place},
              at - static_cast<int64_t>(SpanNs(record.value)), at, CollectiveName(record), record);
          break;
        default:
          AddMoment(group, at, record);
      }
    }
    for (const wire::TraceRun& run : wire::RunsOf(process)) AddExecute(group, run);
  }

  void AddExecute(uint32_t group, const wire::TraceRun& run) {
    const TraceRecord record{.place = run.device, .gang = run.gang};
    // One that has not ended still runs, or hangs.
    Slice& slice = Add({group, kDevices + run.device}, run.begin_ns, run.end_ns,
                       GangName(run.gang) + (run.has_ended ? "" : " (has not ended)"), record);
    slice.flows_in.push_back(ExecuteFlow(run.gang, run.device));
    slice.flows_out.push_back(DoneFlow(run.gang, run.device));
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

  // Written one by one: a trace has up to millions of them.
  void Event(const Json& event) {
    if (!first_) text_ += ",\n";
    first_ = false;
    text_ += ToText(event);
  }

  static double Microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

  static Json Place(const char* phase, TrackId id, int64_t at) {
    return {{"ph", phase}, {"pid", id.group}, {"tid", id.thread}, {"ts", Microseconds(at)}};
  }

  static Json Arrow(const char* phase, const Flow& flow, TrackId id, int64_t at) {
    Json arrow = Place(phase, id, at);
    arrow["cat"] = flow.category;
    arrow["name"] = flow.category;
    arrow["id"] = flow.id;
    return arrow;
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
      Json event = Place("X", id, begin);
      event["dur"] = Microseconds(end - begin);
      event["name"] = slice.name;
      Json& arguments = event["args"] = Json::object();
      if (slice.gang != 0) arguments["gang"] = slice.gang;
      AddLaunched(slice.gang, arguments);
      if (slice.session != 0) arguments["session"] = slice.session;
      if (const auto name = sessions_.find(slice.session); name != sessions_.end())
        arguments["client"] = name->second;
      Event(event);
      for (const Flow& flow : slice.flows_in) {
        Json arrow = Arrow("f", flow, id, begin);
        arrow["bp"] = "e";
        Event(arrow);
      }
      for (const Flow& flow : slice.flows_out) Event(Arrow("s", flow, id, begin));
    }
  }

  void AddLaunched(uint64_t ordinal, Json& arguments) const {
    const auto gang = gangs_.find(ordinal);
    if (gang == gangs_.end() || !gang->second.launched) return;
    const auto& [id, node] = *gang->second.launched;
    const auto name = programs_.find(id);
    arguments["launched_program"] = name == programs_.end() ? "" : name->second;
    arguments["node"] = node;
  }

  // An async slice from a node's arrival at its island's scheduler to its end. These may overlap.
  void WriteWait(uint64_t ordinal, const Gang& gang) {
    if (gang.queued == 0 || gang.done == 0) return;
    const TrackId track{kIslandGroup + gang.island, 0};
    auto mark = [&](const char* phase, int64_t at) {
      Json event = Place(phase, track, at);
      event["cat"] = "gang";
      event["id"] = ordinal;
      event["name"] = GangName(ordinal);
      Event(event);
    };
    mark("b", gang.queued);
    if (gang.released != 0) mark("n", gang.released);
    mark("e", gang.done);
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
    if (id.thread >= kInCollectives)
      return absl::StrCat("collectives of device ", id.thread - kInCollectives);
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
      Event({{"ph", "M"},
             {"name", "thread_name"},
             {"pid", id.group},
             {"tid", id.thread},
             {"args", {{"name", ThreadName(id)}}}});
    }
    for (uint32_t group : islands_) NameGroup(group, absl::StrCat("island ", group - kIslandGroup));
  }

  void NameGroup(uint32_t group, const std::string& name) {
    Event({{"ph", "M"}, {"name", "process_name"}, {"pid", group}, {"args", {{"name", name}}}});
  }

  const std::vector<Process>& processes_;
  std::map<uint64_t, std::string> executables_;
  std::map<uint64_t, std::string> programs_;
  std::map<uint64_t, std::string> sessions_;
  std::map<uint64_t, std::string> collectives_;
  std::map<uint64_t, Gang> gangs_;
  std::map<TrackId, std::vector<Slice>> tracks_;
  std::set<std::pair<uint64_t, uint64_t>> lowered_;
  std::set<uint32_t> islands_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

std::string ToPerfetto(const std::vector<TraceCollection::Process>& processes) {
  return Writer(processes).Write();
}

}  // namespace gangway::cli
