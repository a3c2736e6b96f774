// Spin: a moment in which a thread that is about to sleep tries again instead, since to wake it takes as long as a
// short call. Between the tries, other threads get its core.
//
// SpinRule: which threads of a host may spin, and for how long:
// - for at most the limit (kDefaultUs, or kVariable in the environment) after the last message, which is the caller's
//   to know: a spin begins when it has handled one. A third of it where the next message may not come at all: a loop
//   that spins long for it keeps the seat from the thread that waits for the answer which the loop has just sent;
// - with one of the host's seats (host_seats.h), of which it has one less than cores, so that one core is left to what
//   the spinning threads wait for;
// - while no more threads can run than the host has cores, this one included: otherwise no core is free. Seats alone do
//   not tell, since they count no other program's threads, and such a count alone lets threads that ask at once all in;
// - after a spin in vain, or one that lost its core, a growing number of the thread's next ones is left out
//   (vain_tries.h): a thread that waits long, or on a host that is busy after all, pays next to nothing.
//
// LoopWork: whether the loop of the calling thread has something to spin for.
//
// Threading: a Spin belongs to one thread; a SpinRule is thread-safe. Failure: what cannot be learned of the host lets
// threads spin less: without the file of the seats, none does. In a World, none does.
#ifndef GANGWAY_BASE_SPIN_H_
#define GANGWAY_BASE_SPIN_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "gangway/base/clock.h"
#include "gangway/base/host_seats.h"
#include "gangway/base/vain_tries.h"

namespace gangway {

class SpinRule {
 public:
  static constexpr uint32_t kDefaultUs = 300;
  static constexpr uint32_t kMaxUs = 1000;
  static constexpr char kVariable[] = "GANGWAY_SPIN_US";  // of the environment: the limit

  struct Host {
    std::string seats_file;
    size_t cores = 0;                          // 0: not known, and no thread spins
    std::function<size_t()> runnable_threads;  // of all programs; 0: not known, and no thread spins
  };

  // This process's, on this host. Lives until the process ends, and keeps two files open from the first call on.
  static SpinRule& OfProcess();
  // Instead of it, until null is installed: for tests.
  static void Install(SpinRule* rule) { installed_.store(rule); }

  explicit SpinRule(const Host& host);

  // At most kMaxUs; 0: no thread spins.
  void SetLimit(uint32_t limit_us);

 private:
  friend class Spin;

  static inline constinit std::atomic<SpinRule*> installed_ = nullptr;

  // A seat for a spin that begins now.
  std::optional<size_t> Begin();
  void End(size_t seat) { seats_.Return(seat); }
  std::chrono::microseconds limit() const {
    return std::chrono::microseconds(limit_us_.load(std::memory_order_relaxed));
  }

  const size_t cores_;
  const std::function<size_t()> runnable_threads_;
  HostSeats seats_;
  std::atomic<uint32_t> limit_us_{kDefaultUs};
};

class Spin {
 public:
  enum class For { kAnswer, kNextMessage };

  // Begins one, or leaves it out. `rule` outlives this.
  explicit Spin(For what, SpinRule& rule = SpinRule::OfProcess());
  ~Spin();
  Spin(const Spin&) = delete;
  Spin& operator=(const Spin&) = delete;

  bool has_seat() const { return seat_.has_value(); }  // from its begin to its end
  // Lets other threads run; whether to try again.
  bool Again();  // once it says no, the seat is free
  // What the thread looks for has come.
  void Found() { found_ = true; }

 private:
  void End(bool was_worth_it);

  static inline thread_local constinit VainTries tries_;

  SpinRule& rule_;
  std::optional<size_t> seat_;  // none: left out, or over
  Clock::time_point until_;
  bool found_ = false;
};

class LoopWork {
 public:
  // On a loop's thread: something is under way, as the caller's step has shown. After such a round, and after the next
  // one, which may have ended it, the loop spins before it sleeps, if it has a poller and nothing waits in Await.
  static void Note() { now_ = true; }
  // After a round of the loop: whether it may spin.
  static bool EndRound() {
    const bool before = std::exchange(before_, now_);
    return std::exchange(now_, false) || before;
  }

 private:
  static inline thread_local constinit bool now_ = false, before_ = false;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_SPIN_H_
