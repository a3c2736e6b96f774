// The compiler processes, by their numbers: which are up, which program each of them compiles, and whom it works for.
// The first always runs; the others are spares, which are asked for and end when they have no work. What is compiled
// where is decided elsewhere (compile_queue.h).
//
// Pure; not thread-safe. Knows no other part of the controller.
#ifndef GANGWAY_CONTROLLER_CORE_COMPILER_PROCESSES_H_
#define GANGWAY_CONTROLLER_CORE_COMPILER_PROCESSES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gangway/controller/core/end_counts.h"
#include "gangway/controller/core/owner.h"

namespace gangway::controller {

inline constexpr std::chrono::seconds kSpareIdle{60};
inline constexpr std::chrono::seconds kSpareStartMax{10};  // then compiles no longer wait for it

class CompilerProcesses {
 public:
  enum class State {
    kDown,
    kStarting,  // a spare that was asked for
    kOverdue,   // a spare that did not start in time: compiles do not wait for it
    kUp,
    kEnding,  // it was told to end
  };
  struct Process {
    State state = State::kDown;
    std::optional<Time> asked_for;       // when a spare was asked for, until it is up
    std::optional<uint64_t> running;     // request; still held by the process, wanted or not
    Time since;                          // since when it runs, or the process has no work
    std::optional<Time> unwanted_since;  // of `running`
    std::optional<Owner> owner;          // that it compiles for, where owners share none
    Time owned_since;
    bool up() const { return state == State::kUp || state == State::kEnding; }
    bool accepts() const { return state == State::kUp; }
    bool free() const { return accepts() && !running; }
  };

  // At least one.
  explicit CompilerProcesses(uint32_t count) : processes_(count) {}

  uint32_t count() const { return static_cast<uint32_t>(processes_.size()); }
  Process& operator[](uint32_t compiler) { return processes_[compiler]; }
  const Process& operator[](uint32_t compiler) const { return processes_[compiler]; }
  auto begin() const { return processes_.begin(); }
  auto end() const { return processes_.end(); }

  void OnUp(uint32_t compiler, Time now);
  // Returns what it was.
  Process OnDown(uint32_t compiler, Time now);
  // Its link takes nothing more, and OnDown follows. One that was told to end stays so.
  void OnLinkEnding(uint32_t compiler);

  void BeginRun(uint32_t compiler, uint64_t request, Time now);
  void EndRun(uint32_t compiler, Time now);

  // A spare is asked for: it is down, and was not asked for yet.
  bool MayAskFor(uint32_t spare) const;
  void AskFor(uint32_t spare, Time now);
  // True: it becomes overdue now. An overdue one may be asked for again after kSpareIdle.
  bool NoteLateStart(uint32_t spare, Time now);

  bool AnyUp() const;
  // Whether the first has been up since the start.
  bool ever_up() const { return ever_up_; }
  // No process has room, or starts.
  bool AllAtWork() const;
  bool AnyFree() const;
  bool AnyStarting() const;
  bool AnySpareUnasked() const;
  // How many there are without the overdue ones.
  size_t UsableCount() const;
  // One without work, if there is one, since another may stand still. nullopt: none takes requests.
  std::optional<uint32_t> ForLookups() const;
  // When a spare without work ends. It stays while no other process is free.
  std::optional<Time> IdleEndOf(uint32_t compiler) const;

 private:
  std::vector<Process> processes_;
  bool ever_up_ = false;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_COMPILER_PROCESSES_H_
