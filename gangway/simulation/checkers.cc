// Implementation of checkers.h.
#include "gangway/simulation/checkers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/wire/failure.h"

namespace gangway::simulation {
namespace {

std::string Name(WorkerKey worker) {
  return absl::StrCat("island", worker.first, "/worker", worker.second);
}

}  // namespace

// --- GS-1 ---

void OrderChecker::OnEnqueue(uint32_t device, uint64_t incarnation, uint64_t ordinal) {
  queues_[{device, incarnation}].push_back(ordinal);
}

// Takes gangs that are first in all their queues until no such gang is left. A gang that remains is
// in or behind a cycle.
void OrderChecker::Finish() {
  std::map<uint64_t, std::set<uint64_t>> after;
  std::map<uint64_t, int> before_count;
  for (const auto& [device, queue] : queues_) {
    for (size_t i = 0; i < queue.size(); ++i) {
      before_count.try_emplace(queue[i], 0);
      if (i > 0 && after[queue[i - 1]].insert(queue[i]).second) ++before_count[queue[i]];
    }
  }
  std::vector<uint64_t> free;
  for (auto [gang, count] : before_count) {
    if (count == 0) free.push_back(gang);
  }
  size_t taken = 0;
  while (!free.empty()) {
    uint64_t gang = free.back();
    free.pop_back();
    ++taken;
    for (uint64_t next : after[gang]) {
      if (--before_count[next] == 0) free.push_back(next);
    }
  }
  if (taken == before_count.size()) return;
  for (auto [gang, count] : before_count) {
    if (count == 0) continue;
    std::vector<std::string> places;
    for (const auto& [device, queue] : queues_) {
      auto at = std::find(queue.begin(), queue.end(), gang);
      if (at == queue.end()) continue;
      std::vector<uint64_t> around(std::max(queue.begin(), at - 3), std::min(queue.end(), at + 4));
      places.push_back(
          absl::StrCat("device ", device.first, ": ...", absl::StrJoin(around, " "), "..."));
    }
    violations_->Add("GS-1",
                     absl::StrCat("no single order fits the devices' queues; gang ", gang,
                                  " is in or behind a cycle: ", absl::StrJoin(places, "; ")));
    return;
  }
}

// --- GS-4 ---

// `to`: a copy's destination. Both islands of shard i, source and destination, count as readers.
void ReleaseChecker::AddInputs(const wire::ArrayRef& ref, const wire::ArraySpec& spec,
                               const wire::ArraySpec* to, std::vector<Input>& inputs) const {
  int position = 0;
  for (const wire::ShardRun& run : ref.runs()) {
    for (uint32_t i = 0; i < run.count() && position < spec.devices_size(); ++i, ++position) {
      uint32_t island = island_of_.at(spec.devices(position));
      inputs.push_back({island, island, run.storage()});
      if (to != nullptr)
        inputs.push_back({island, island_of_.at(to->devices(position)), run.storage()});
    }
  }
}

void ReleaseChecker::OnLoad(const wire::Load& load) {
  *places_[load.executable()].mutable_devices() = load.devices();
}

void ReleaseChecker::OnSent(const wire::Node& node) {
  uint64_t ordinal = node.ordinal();
  std::vector<Input> inputs;
  switch (node.kind_case()) {
    case wire::Node::kLaunch:
      for (uint64_t result : node.launch().results()) producers_[result] = {ordinal, false};
      for (const wire::ArrayRef& argument : node.launch().arguments())
        AddInputs(argument, places_[node.launch().executable()], nullptr, inputs);
      break;
    case wire::Node::kUpload:
      producers_[node.upload().storage()] = {ordinal, true};
      break;
    case wire::Node::kCopy:
      producers_[node.copy().storage()] = {ordinal, false};
      AddInputs(node.copy().source(), node.copy().source_spec(), &node.copy().spec(), inputs);
      break;
    case wire::Node::kFetch:
      AddInputs(node.fetch().source(), node.fetch().spec(), nullptr, inputs);
      break;
    default:
      break;
  }
  inputs_[ordinal] = std::move(inputs);
}

void ReleaseChecker::OnReleased(uint32_t island, const std::set<uint64_t>& ordinals) {
  for (uint64_t ordinal : ordinals) released_.emplace(island, ordinal);
  for (uint64_t ordinal : ordinals) {
    for (const Input& input : inputs_[ordinal]) {
      auto producer = producers_.find(input.storage);
      if (input.reader_island != island || producer == producers_.end()) continue;
      std::pair<uint32_t, uint64_t> key(input.island, producer->second.ordinal);
      if (ended_.count(key) != 0 || (!producer->second.upload && released_.count(key) != 0))
        continue;
      violations_->Add(
          "GS-4",
          absl::StrCat("island ", island, " released node ", ordinal, ", which reads storage ",
                       input.storage, ", before its producer, ",
                       producer->second.upload ? "upload " : "node ", key.second, ", was ",
                       producer->second.upload ? "ended" : "released", " on island ", key.first));
    }
  }
}

// --- OB-1, OB-2 ---

void ReferenceChecker::OnCreate(WorkerKey worker, uint64_t storage) {
  workers_[worker].storages.insert(storage);
}

void ReferenceChecker::OnNode(WorkerKey worker, uint64_t ordinal,
                              const std::set<uint64_t>& storages) {
  State& state = workers_[worker];
  for (uint64_t storage : storages) {
    if (state.storages.count(storage) != 0) continue;
    violations_->Add("OB-1",
                     absl::StrCat("node ", ordinal, " on ", Name(worker), " uses storage ", storage,
                                  ", which is absent: freed too early, or never created"));
  }
  state.nodes[ordinal] = {storages, false};
}

void ReferenceChecker::OnRelease(WorkerKey worker, uint64_t ordinal,
                                 const std::set<uint64_t>& consumed) {
  State& state = workers_[worker];
  state.nodes[ordinal].released = true;
  for (const auto& [other, node] : state.nodes) {
    if (node.released) continue;
    for (uint64_t storage : consumed) {
      if (node.storages.count(storage) == 0) continue;
      violations_->Add("OB-1", absl::StrCat("gang ", ordinal, " was released on ", Name(worker),
                                            " and consumes storage ", storage, ", which node ",
                                            other, " has yet to read"));
    }
  }
}

void ReferenceChecker::OnEnd(WorkerKey worker, uint64_t ordinal) {
  workers_[worker].nodes.erase(ordinal);
}

void ReferenceChecker::OnFree(WorkerKey worker, uint64_t storage) {
  State& state = workers_[worker];
  state.storages.erase(storage);
  for (const auto& [ordinal, node] : state.nodes) {
    if (node.storages.count(storage) == 0) continue;
    violations_->Add("OB-1", absl::StrCat("storage ", storage, " was freed on ", Name(worker),
                                          " while node ", ordinal, " uses it"));
  }
}

void CountChecker::Expect(const std::string& invariant, const std::string& what, uint64_t expected,
                          uint64_t actual) {
  if (expected == actual) return;
  violations_->Add(
      invariant, absl::StrCat("at rest, ", what, ": ", actual, " but ", expected, " are expected"));
}

void CountChecker::OnHeld(WorkerKey worker, const std::vector<std::pair<uint64_t, uint64_t>>& held,
                          const std::set<uint64_t>& live_sessions) {
  for (auto [storage, session] : held) {
    if (live_sessions.count(session) != 0) continue;
    violations_->Add("OB-2", absl::StrCat(Name(worker), " holds storage ", storage, " of session ",
                                          session, ", which has ended"));
  }
}

// --- DF-3 ---

void ResultChecker::OnFetched(uint64_t session, uint32_t result, uint32_t shard,
                              const std::string& bytes) {
  auto [entry, is_new] = fetched_[session].try_emplace({result, shard}, bytes);
  if (is_new) return;
  violations_->Add("DF-3", absl::StrCat("session ", session, " got shard ", shard, " of its fetch ",
                                        result, " twice"));
}

void ResultChecker::Finish(uint64_t session, const program::Program& program,
                           std::vector<program::Array> arguments,
                           const program::Evaluate& evaluate) {
  auto results = program::Interpret(program, std::move(arguments), evaluate);
  if (!results.ok()) {
    violations_->Add("DF-3", absl::StrCat("the reference of session ", session,
                                          " cannot be evaluated: ", results.status().ToString(),
                                          "\n", program::Print(program)));
    return;
  }
  for (const auto& [key, bytes] : fetched_[session]) {
    const program::Array& expected = (*results)[key.first];
    ++compared_count_;
    if (key.second < expected.shards.size() && expected.shards[key.second] == bytes) continue;
    violations_->Add("DF-3",
                     absl::StrCat("session ", session, " got bytes for shard ", key.second,
                                  " of its fetch ", key.first, " that differ from the reference"));
  }
}

// --- Answers, memory ---

void AnswerChecker::OnAsked(uint64_t session, const std::string& kind, uint64_t number,
                            Outcome allowed) {
  open_[{session, kind, number}] = allowed;
}

void AnswerChecker::OnAnswered(uint64_t session, const std::string& kind, uint64_t number,
                               const wire::Failure* failure) {
  Question question(session, kind, number);
  auto it = open_.find(question);
  if (it == open_.end()) {
    violations_->Add("answers", absl::StrCat(kind, " ", number, " of session ", session,
                                             answered_.count(question) != 0 ? " was answered twice"
                                                                            : " was never asked"));
    return;
  }
  if (failure == nullptr && it->second == Outcome::kBad) {
    violations_->Add("answers", absl::StrCat(kind, " ", number, " of session ", session,
                                             " succeeded, but must fail"));
  }
  if (failure != nullptr && it->second == Outcome::kGood) {
    violations_->Add("answers",
                     absl::StrCat(kind, " ", number, " of session ", session,
                                  " failed although nothing went wrong: ", wire::ToText(*failure)));
  }
  if (failure != nullptr && (failure->code() == 0 || failure->message().empty())) {
    violations_->Add("ER-1", absl::StrCat(kind, " ", number, " of session ", session,
                                          " failed without a reason"));
  }
  if (failure != nullptr) ++failures_by_code_[failure->code()];
  open_.erase(it);
  answered_.insert(question);
}

void AnswerChecker::OnUploadFailed(uint64_t session, uint64_t upload, const wire::Failure& failure,
                                   bool withheld) {
  // Skips an upload that waited for a worker.
  if (failure.code() != static_cast<int>(absl::StatusCode::kDeadlineExceeded) ||
      failure.message().find("waited for the client") == std::string::npos) {
    return;
  }
  ++late_upload_count_;
  if (withheld) return;
  violations_->Add("TM-1", absl::StrCat("upload ", upload, " of session ", session,
                                        " reached its deadline although its bytes were sent"));
}

void AnswerChecker::OnSessionEnd(uint64_t session) {
  std::erase_if(open_,
                [session](const auto& entry) { return std::get<0>(entry.first) == session; });
}

void AnswerChecker::Drained() {
  for (const auto& [question, allowed] : open_) {
    auto [session, kind, number] = question;
    violations_->Add("answers", absl::StrCat("at rest, ", kind, " ", number, " of session ",
                                             session, " has no answer"));
  }
}

void MemoryChecker::OnUse(const std::string& who, uint32_t device, int64_t bytes) {
  if (bytes < 0)
    violations_->Add("GS-2", absl::StrCat(who, " holds ", bytes, " bytes on device ", device));
  if (budget_bytes_ == 0 || bytes <= static_cast<int64_t>(budget_bytes_)) return;
  violations_->Add("GS-2", absl::StrCat(who, " has ", bytes, " bytes on device ", device,
                                        ", the budget is ", budget_bytes_));
}

}  // namespace gangway::simulation
