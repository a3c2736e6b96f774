// Implementation of compile_backlog.h.
#include "gangway/controller/core/compile_backlog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"

namespace gangway::controller {

using absl::StatusCode;

PendingCompile CompileBacklog::Entry::Answered() const {
  PendingCompile answered;
  answered.session = compile.session;
  answered.handle = compile.handle;
  answered.request.set_request(compile.request.request());
  answered.since = compile.since;
  return answered;
}

std::optional<wire::Failure> CompileBacklog::CheckRoom(const PendingCompile& compile) const {
  if (entries_.size() >= limits_.compiles_max) {
    return wire::MakeFailure(StatusCode::kResourceExhausted,
                             absl::StrCat(entries_.size(), " compiles are queued already"),
                             "Try again later.");
  }
  const uint64_t bytes = compile.request.program().size();
  auto own = shares_.find(compile.session);
  if (own != shares_.end() && own->second.program_bytes + bytes > limits_.session_bytes_max) {
    return wire::MakeFailure(
        StatusCode::kResourceExhausted,
        absl::StrCat("programs of ", own->second.program_bytes,
                     " bytes of this session are queued for the ", "compiler, and this one of ",
                     bytes, " would exceed the limit of ", limits_.session_bytes_max),
        "Compile fewer large programs at a time.");
  }
  if (!entries_.empty() && program_bytes_ + bytes > limits_.program_bytes_max) {
    return wire::MakeFailure(
        StatusCode::kResourceExhausted,
        absl::StrCat("programs of ", program_bytes_, " bytes are queued for the compiler, and ",
                     "this one of ", bytes, " would exceed the limit of ",
                     limits_.program_bytes_max),
        "Try again later.");
  }
  return std::nullopt;
}

void CompileBacklog::Add(PendingCompile compile) {
  const uint64_t request = compile.request.request();
  const uint64_t bytes = compile.request.program().size();
  Share& share = shares_[compile.session];
  ++share.compiles;
  share.program_bytes += bytes;
  program_bytes_ += bytes;
  waiting_[compile.session].push_back(request);
  if (!limits_.isolates) to_look_up_.push_back(request);
  entries_[request].compile = std::move(compile);
}

void CompileBacklog::Remove(Iterator entry) {
  const PendingCompile& compile = entry->second.compile;
  const uint64_t bytes = entry->second.bytes();
  program_bytes_ -= bytes;
  auto own = shares_.find(compile.session);
  own->second.program_bytes -= bytes;
  if (--own->second.compiles == 0) shares_.erase(own);
  if (entry->second.state == State::kLookup) looking_up_bytes_ -= bytes;
  TakeFromLine(compile.session, entry->first);
  entries_.erase(entry);
}

void CompileBacklog::TakeFromLine(SessionId session, uint64_t request) {
  const auto own = waiting_.find(session);
  if (own == waiting_.end()) return;
  std::erase(own->second, request);
  if (own->second.empty()) waiting_.erase(own);
}

// Lookups are not repeated: should one of them have been the cause, it is found alone at its turn.
void CompileBacklog::Requeue(Iterator entry) {
  if (entry->second.state == State::kLookup) looking_up_bytes_ -= entry->second.bytes();
  if (entry->second.state == State::kRunning)
    waiting_[entry->second.compile.session].push_front(entry->first);
  entry->second.state = State::kMissed;
}

std::vector<uint64_t> CompileBacklog::OfSession(SessionId session) const {
  std::vector<uint64_t> own;
  for (const auto& [request, entry] : entries_) {
    if (entry.compile.session == session) own.push_back(request);
  }
  return own;
}

bool CompileBacklog::AnyWaits() const {
  return std::ranges::any_of(waiting_, [this](const auto& own) {
    return std::ranges::any_of(own.second, [this](uint64_t request) {
      return entries_.at(request).state != State::kLookup;
    });
  });
}

void CompileBacklog::BeginRun(Iterator entry, uint32_t compiler) {
  entry->second.state = State::kRunning;
  entry->second.compiler = compiler;
}

CompileBacklog::Iterator CompileBacklog::BeginLookup(uint32_t compiler) {
  while (!to_look_up_.empty()) {
    const Iterator entry = entries_.find(to_look_up_.front());
    if (entry == entries_.end() || entry->second.state != State::kQueued) {
      to_look_up_.pop_front();
      continue;
    }
    const uint64_t bytes = entry->second.bytes();
    if (looking_up_bytes_ > 0 && looking_up_bytes_ + bytes > limits_.lookup_bytes_max) break;
    to_look_up_.pop_front();
    looking_up_bytes_ += bytes;
    entry->second.state = State::kLookup;
    entry->second.compiler = compiler;
    return entry;
  }
  return entries_.end();
}

void CompileBacklog::EndLookup(Iterator entry) {
  looking_up_bytes_ -= entry->second.bytes();
  entry->second.state = State::kMissed;
}

}  // namespace gangway::controller
