// Implementation of compiler_processes.h.
#include "gangway/controller/core/compiler_processes.h"

#include <algorithm>
#include <utility>

namespace gangway::controller {

void CompilerProcesses::OnUp(uint32_t compiler, Time now) {
  processes_[compiler] = {.state = State::kUp, .since = now};
  ever_up_ |= compiler == 0;
}

CompilerProcesses::Process CompilerProcesses::OnDown(uint32_t compiler, Time now) {
  return std::exchange(processes_[compiler], Process{.since = now});
}

void CompilerProcesses::OnLinkEnding(uint32_t compiler) {
  State& state = processes_[compiler].state;
  if (state == State::kUp) state = State::kDown;
}

void CompilerProcesses::BeginRun(uint32_t compiler, uint64_t request, Time now) {
  Process& process = processes_[compiler];
  process.running = request;
  process.since = now;
  process.unwanted_since.reset();
}

void CompilerProcesses::EndRun(uint32_t compiler, Time now) {
  Process& process = processes_[compiler];
  process.running.reset();
  process.unwanted_since.reset();
  process.since = now;
}

bool CompilerProcesses::MayAskFor(uint32_t spare) const {
  return !processes_[spare].up() && !processes_[spare].asked_for;
}

void CompilerProcesses::AskFor(uint32_t spare, Time now) {
  Process& process = processes_[spare];
  process.asked_for = now;
  if (process.state == State::kDown) process.state = State::kStarting;
}

bool CompilerProcesses::NoteLateStart(uint32_t spare, Time now) {
  Process& process = processes_[spare];
  if (process.state == State::kStarting && now >= *process.asked_for + kSpareStartMax) {
    process.state = State::kOverdue;
    return true;
  }
  if (process.state == State::kOverdue && process.asked_for &&
      now >= *process.asked_for + kSpareIdle)
    process.asked_for.reset();
  return false;
}

bool CompilerProcesses::AnyUp() const { return std::ranges::any_of(processes_, &Process::up); }

bool CompilerProcesses::AnyStarting() const {
  return std::ranges::any_of(
      processes_, [](const Process& process) { return process.state == State::kStarting; });
}

bool CompilerProcesses::AnyFree() const { return std::ranges::any_of(processes_, &Process::free); }

bool CompilerProcesses::AllAtWork() const {
  return std::ranges::none_of(processes_, [](const Process& process) {
    return process.free() || process.state == State::kStarting;
  });
}

bool CompilerProcesses::AnySpareUnasked() const {
  for (uint32_t spare = 1; spare < count(); ++spare)
    if (MayAskFor(spare)) return true;
  return false;
}

size_t CompilerProcesses::UsableCount() const {
  return static_cast<size_t>(std::ranges::count_if(
      processes_, [](const Process& process) { return process.state != State::kOverdue; }));
}

std::optional<uint32_t> CompilerProcesses::ForLookups() const {
  auto process = std::ranges::find_if(processes_, &Process::free);
  if (process == processes_.end()) process = std::ranges::find_if(processes_, &Process::accepts);
  if (process == processes_.end()) return std::nullopt;
  return static_cast<uint32_t>(process - processes_.begin());
}

std::optional<Time> CompilerProcesses::IdleEndOf(uint32_t compiler) const {
  const Process& process = processes_[compiler];
  const auto free = std::ranges::count_if(processes_, &Process::free);
  if (compiler == 0 || !process.free() || free < 2) return std::nullopt;
  return process.since + kSpareIdle;
}

}  // namespace gangway::controller
