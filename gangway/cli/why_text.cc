// Implementation of why_text.h.
#include "gangway/cli/why_text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gangway/cli/json.h"
#include "gangway/scheduler/core/late_text.h"
#include "gangway/wire/failure.h"

namespace gangway::cli {
namespace {

using wire::Wait;

constexpr size_t kAlikeShown = 3;

template <typename List>
std::string Names(const List& list, const char* prefix = "") {
  std::string text;
  for (const auto& each : list) absl::StrAppend(&text, text.empty() ? "" : ", ", prefix, each);
  return text;
}

std::string Program(const std::string& name, const std::string& source) {
  return name.empty() ? ""
                      : absl::StrCat(" (", wire::ToText(wire::ProgramLabel{name, source}), ")");
}

// " that is node 3 of train"
std::string Node(const Wait& wait) {
  if (!wait.has_node()) return "";
  return absl::StrCat(" that is node ", wait.node(), " of ",
                      wait.launched_program().empty() ? "a launch" : wait.launched_program());
}

// "session 2 (train.py)"
std::string Session(const Wait& wait) {
  return absl::StrCat("session ", wait.session(),
                      wait.client().empty() ? "" : absl::StrCat(" (", wait.client(), ")"));
}

// `name` without its first `prefix` characters, in lower case.
std::string EnumText(const std::string& name, size_t prefix) {
  std::string text = name.size() > prefix ? name.substr(prefix) : "";
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string KindText(Wait::Kind kind) {
  return EnumText(Wait::Kind_Name(kind), sizeof("KIND_") - 1);
}

std::string Subject(const Wait& wait) {
  if (wait.kind() == Wait::KIND_WORKER) return Names(wait.workers());
  if (wait.kind() == Wait::KIND_CLIENT)
    return absl::StrCat("the new client ", wait.program(), " (session ", wait.session(), ")");
  if (wait.kind() == Wait::KIND_COMPILE) return absl::StrCat("a compile of ", Session(wait));
  return absl::StrCat("gang ", wait.gang(), ", ", KindText(wait.kind()),
                      Program(wait.program(), wait.source()), Node(wait), " of ", Session(wait),
                      ",");
}

std::string ForGang(const Wait& wait) {
  if (wait.for_gang() == 0) return "an earlier gang";
  return absl::StrCat("gang ", wait.for_gang(), Program(wait.for_program(), wait.for_source()),
                      " of session ", wait.for_session());
}

std::string MemoryText(const Wait& wait) {
  std::string holders;
  for (const Wait::Holder& holder : wait.holders()) {
    absl::StrAppend(&holders, holders.empty() ? "" : ", ", "session ", holder.session(),
                    holder.session() == wait.session() ? " (itself) " : " ", holder.bytes(),
                    " bytes");
  }
  return absl::StrCat(" waits for ", wait.needed_bytes(), " bytes of memory on device ",
                      Names(wait.devices()), ", where ", wait.used_bytes(), " of ",
                      wait.budget_bytes(),
                      " are held: ", holders.empty() ? "by running gangs" : holders);
}

std::string Reason(const Wait& wait) {
  const std::string workers = Names(wait.workers());
  switch (wait.reason()) {
    case Wait::REASON_EXECUTING:
      if (wait.for_gang() != 0) {
        return absl::StrCat(" is with ", workers, ", in the queue of ",
                            Names(wait.devices(), "device "), " behind ", ForGang(wait));
      }
      return absl::StrCat(" is being executed by ", workers, wait.devices().empty() ? "" : " on ",
                          Names(wait.devices(), "device "), ", which sends heartbeats");
    case Wait::REASON_WORKER_SILENT:
      if (wait.kind() == Wait::KIND_WORKER)
        return " is silent: no heartbeat; declared dead after 5 s";
      return absl::StrCat(" waits for ", workers, ", which is silent: no heartbeat");
    case Wait::REASON_WORKER_DOWN:
      if (wait.kind() == Wait::KIND_WORKER) return " is down: not registered";
      return absl::StrCat(" waits for ", workers, ", which is down, to come back");
    case Wait::REASON_STUCK:
      if (wait.kind() == Wait::KIND_WORKER) {
        return absl::StrCat(" sends heartbeats, but ", Names(wait.devices(), "device "),
                            " is stuck in gang ", wait.for_gang(),
                            Program(wait.for_program(), wait.for_source()));
      }
      return absl::StrCat(
          " is stuck on ", Names(wait.devices(), "device "), " of ", workers,
          ": the device runtime does not return, although the worker sends heartbeats");
    case Wait::REASON_COLLECTIVE:
      return absl::StrCat(" stands in ", scheduler::CollectiveText(wait));
    case Wait::REASON_RUNTIME_TURN:
      return absl::StrCat(" is with ", workers,
                          ", whose device runtime runs one program with collectives of its own at ",
                          "a time (those of Gangway run side by side), behind ", ForGang(wait));
    case Wait::REASON_UPLOAD_BYTES:
      return absl::StrCat(" waits for the client of session ", wait.session(), " to send bytes to ",
                          workers);
    case Wait::REASON_MEMORY:
      return MemoryText(wait);
    case Wait::REASON_SLOTS:
      return absl::StrCat(" waits for a slot of device ", Names(wait.devices()),
                          ": all are taken, the oldest by ", ForGang(wait));
    case Wait::REASON_EARLIER_GANG:
      return absl::StrCat(" waits behind ", ForGang(wait), ", which comes first on device ",
                          Names(wait.devices()));
    case Wait::REASON_INPUT:
      return absl::StrCat(" waits for an input that ", ForGang(wait), " produces");
    case Wait::REASON_READERS:
      return absl::StrCat(" waits for ", ForGang(wait),
                          ", which still reads an array that it donates");
    case Wait::REASON_OTHER_ISLAND:
      return " waits for shards from another island, whose part is not released yet";
    case Wait::REASON_COMPILE:
      return wait.workers().empty() ? " waits for the compiler"
                                    : " waits for the compiler, which is down";
    case Wait::REASON_WORKERS_ABSENT:
      return absl::StrCat(" waits for declared workers that are absent: ", workers);
    default:
      return " waits for a reason that this version of gangway does not know";
  }
}

// Equal for waits of one program and session that wait for the same reason, place, program and workers; one that
// executes and those in the queue behind it have one reason.
std::string KeyOf(const Wait& wait) {
  std::string key =
      absl::StrCat(wait.kind(), "\n", wait.session(), "\n", wait.program(), "\n", wait.source(),
                   "\n", wait.reason(), wait.for_gang() == 0, "\n", wait.collective(), "\n",
                   Names(wait.workers()), "\n", Names(wait.devices()), "\n", wait.for_session(),
                   "\n", wait.for_program(), "\n", wait.for_source());
  for (const Wait::Holder& holder : wait.holders()) absl::StrAppend(&key, "\n", holder.session());
  for (const Wait::LateMembers& late : wait.late())
    absl::StrAppend(&key, "\n", late.worker(), " ", late.cause(), " ", late.for_session(), " ",
                    late.for_program(), " ", late.client());
  return key;
}

// Each in the order of its first wait.
std::vector<std::vector<const Wait*>> Groups(const wire::WhyReply& reply,
                                             const wire::WhyRequest& scope) {
  const bool is_chain = scope.gang() != 0 || scope.array() != 0;
  std::vector<std::vector<const Wait*>> groups;
  std::map<std::string, size_t> known;
  for (const Wait& wait : reply.waits()) {
    const auto [group, is_new] = known.try_emplace(KeyOf(wait), groups.size());
    if (is_new || is_chain) groups.emplace_back();
    (is_chain ? groups.back() : groups[group->second]).push_back(&wait);
  }
  return groups;
}

std::string MoreText(std::span<const Wait* const> waits) {
  uint64_t first = UINT64_MAX, last = 0, longest_ms = 0;
  for (const Wait* wait : waits) {
    first = std::min(first, wait->gang());
    last = std::max(last, wait->gang());
    longest_ms = std::max(longest_ms, wait->waited_ms());
  }
  return absl::StrCat("  and ", waits.size(), " more such waits",
                      first == 0 ? "" : absl::StrCat(" (gangs ", first, " to ", last, ")"),
                      ", the longest for ", scheduler::SecondsText(longest_ms), "\n");
}

Json LateJson(const Wait::LateMembers& late) {
  return {{"worker", late.worker()},
          {"devices", late.devices()},
          {"cause", EnumText(Wait::LateMembers::Cause_Name(late.cause()), sizeof("CAUSE_") - 1)},
          {"for_ms", late.for_ms()},
          {"for_gang", late.for_gang()},
          {"for_session", late.for_session()},
          {"for_program", late.for_program()},
          {"for_source", late.for_source()},
          {"client", late.client()}};
}

Json WaitJson(const Wait& wait) {
  std::string reason = EnumText(Wait::Reason_Name(wait.reason()), sizeof("REASON_") - 1);
  Json late = Json::array();
  for (const Wait::LateMembers& each : wait.late()) late.push_back(LateJson(each));
  Json holders = Json::array();
  for (const Wait::Holder& holder : wait.holders())
    holders.push_back({{"session", holder.session()}, {"bytes", holder.bytes()}});
  return {{"kind", KindText(wait.kind())},
          {"session", wait.session()},
          {"client", wait.client()},
          {"gang", wait.gang()},
          {"program", wait.program()},
          {"source", wait.source()},
          {"launched_program", wait.launched_program()},
          {"node", wait.has_node() ? Json(wait.node()) : Json()},
          {"reason", std::move(reason)},
          {"waited_ms", wait.waited_ms()},
          {"limit_ms", wait.limit_ms()},
          {"workers", wait.workers()},
          {"devices", wait.devices()},
          {"for_gang", wait.for_gang()},
          {"for_session", wait.for_session()},
          {"for_program", wait.for_program()},
          {"for_source", wait.for_source()},
          {"needed_bytes", wait.needed_bytes()},
          {"used_bytes", wait.used_bytes()},
          {"budget_bytes", wait.budget_bytes()},
          {"holders", std::move(holders)},
          {"collective", wait.collective()},
          {"members_waiting", wait.members_waiting()},
          {"members", wait.members()},
          {"late", std::move(late)},
          {"late_left_out", wait.late_left_out()},
          {"text", WaitText(wait)}};
}

std::string FindingText(const wire::Finding& finding) {
  const std::string array =
      absl::StrCat("array ", finding.array(), " of session ", finding.session());
  switch (finding.what()) {
    case wire::Finding::FINDING_NO_SESSION:
      return absl::StrCat("there is no session ", finding.session(),
                          "; `gangway status` lists those that are open");
    case wire::Finding::FINDING_NO_ARRAY:
      return absl::StrCat("no session holds an array ", finding.array());
    case wire::Finding::FINDING_ARRAY_READY:
      return absl::StrCat(array, " is ready: it waits for nothing");
    case wire::Finding::FINDING_ARRAY_FAILED:
      return absl::StrCat(array, " is an error: ", finding.failure().message());
    case wire::Finding::FINDING_GANG_ENDED:
      return absl::StrCat("gang ", finding.gang(), " has ended");
    case wire::Finding::FINDING_NO_GANG:
      return absl::StrCat("gang ", finding.gang(), " does not exist yet");
    default:
      return "the controller found something that this version of gangway does not know";
  }
}

std::vector<std::string> FindingTexts(const wire::WhyReply& reply) {
  std::vector<std::string> texts;
  for (const wire::Finding& finding : reply.findings()) texts.push_back(FindingText(finding));
  return texts;
}

std::vector<std::string> MissingTexts(const wire::WhyReply& reply) {
  std::vector<std::string> texts;
  for (const uint32_t island : reply.missing_islands())
    texts.push_back(absl::StrCat("the scheduler of island ", island));
  return texts;
}

}  // namespace

absl::StatusOr<wire::WhyRequest> ParseScope(const std::vector<std::string>& words) {
  wire::WhyRequest request;
  if (words.empty() || (words.size() == 1 && words[0] == "cluster")) return request;
  uint64_t number = 0;
  if (words.size() == 2 && absl::SimpleAtoi(words[1], &number) && number != 0) {
    if (words[0] == "session") request.set_session(number);
    if (words[0] == "gang") request.set_gang(number);
    if (words[0] == "array") request.set_array(number);
    if (request.session() + request.gang() + request.array() != 0) return request;
  }
  std::string given;
  for (const std::string& word : words) absl::StrAppend(&given, given.empty() ? "" : " ", word);
  return absl::InvalidArgumentError(
      absl::StrCat("'", given, "' is no scope: give cluster, session N, gang N or array N"));
}

void Arrange(wire::WhyReply& reply, const wire::WhyRequest& scope) {
  if (scope.gang() != 0 || scope.array() != 0) return;
  std::stable_sort(reply.mutable_waits()->begin(), reply.mutable_waits()->end(),
                   [](const Wait& a, const Wait& b) { return a.waited_ms() > b.waited_ms(); });
}

std::string WaitText(const Wait& wait) {
  std::string text = absl::StrCat(Subject(wait), Reason(wait));
  if (wait.waited_ms() != 0)
    absl::StrAppend(&text, ", for ", scheduler::SecondsText(wait.waited_ms()));
  if (wait.limit_ms() != 0)
    absl::StrAppend(&text, " (at most ", scheduler::SecondsText(wait.limit_ms()), ")");
  return text;
}

std::string WhyText(const wire::WhyReply& reply, const wire::WhyRequest& scope) {
  std::string text;
  for (const std::string& finding : FindingTexts(reply)) absl::StrAppend(&text, finding, "\n");
  for (const std::vector<const Wait*>& alike : Groups(reply, scope)) {
    // A line for one more would be no shorter.
    const size_t shown = alike.size() > kAlikeShown + 1 ? kAlikeShown : alike.size();
    for (size_t i = 0; i < shown; ++i) absl::StrAppend(&text, WaitText(*alike[i]), "\n");
    if (shown < alike.size())
      absl::StrAppend(&text, MoreText({&alike[shown], alike.size() - shown}));
  }
  if (reply.left_out() != 0) absl::StrAppend(&text, "and ", reply.left_out(), " more\n");
  for (const std::string& missing : MissingTexts(reply))
    absl::StrAppend(&text, missing, " did not answer\n");
  return text.empty() ? "nothing waits\n" : text;
}

std::string WhyJson(const wire::WhyReply& reply) {
  Json waits = Json::array();
  for (const Wait& wait : reply.waits()) waits.push_back(WaitJson(wait));
  return ToText(Json{{"waits", std::move(waits)},
                     {"left_out", reply.left_out()},
                     {"remarks", FindingTexts(reply)},
                     {"missing", MissingTexts(reply)}});
}

}  // namespace gangway::cli
