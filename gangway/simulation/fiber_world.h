// FiberWorld: a World in one thread of the system, for a whole cluster in one process. Its threads are fibers. One runs
// at a time, until it waits; which one is next comes from the seed and the order, and the time that each takes from the
// seed. When all wait, the time jumps to the next deadline. So a run is a function of seed, order and code.
//
// Threads belong to processes, which can be stopped and continued, as SIGSTOP and SIGCONT do. A process that exits does
// not unwind its stacks, whose memory is lost. To kill many processes, cut their links, and let them end by themselves.
#ifndef GANGWAY_SIMULATION_FIBER_WORLD_H_
#define GANGWAY_SIMULATION_FIBER_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"

#include "gangway/base/world.h"
#include "gangway/simulation/random.h"

namespace gangway::simulation {

class FiberWorld final : public World {
 public:
  // Which of the threads that are ready is next.
  enum class Order {
    kAnyThread,
    // One of the process that runs, until none of its own is ready, then of the next process, as on a core that
    // processes share in turns: each finds its memory in the core's cache. A process that polls another one starves it.
    // For measurements.
    kByProcess,
  };

  // Of a run, between threads. A simulated cluster makes some 10,000 while it works, and few when it is idle.
  static constexpr uint64_t kTurnsMax = 10'000'000;

  explicit FiberWorld(uint64_t seed, Order order = Order::kAnyThread);
  ~FiberWorld() override;

  // Installs the world and runs `main` as the first thread of process 1, until all threads have ended.
  // DEADLINE_EXCEEDED, naming the threads that are left: they did not end within `limit` of virtual time, nothing can
  // wake them, or some of them wake again and again: threads took turns more than `turns_max` times. Their stacks are
  // then lost.
  absl::Status Run(std::function<void()> main, std::chrono::nanoseconds limit,
                   uint64_t turns_max = kTurnsMax);

  // Only in Run, on one of its threads.
  uint64_t NewProcess() { return next_process_++; }
  ThreadId StartIn(uint64_t process, const std::string& name, std::function<void()> run);
  void Stop(uint64_t process);
  void Continue(uint64_t process);
  // Ends the process of the calling thread, as _exit does. Its threads count as ended. Does not return.
  void Exit();
  Random& random() { return random_; }
  uint64_t switches() const { return switches_; }

  Time Now() override { return now_; }
  uint64_t RandomBits() override { return random_.Next(); }
  uint64_t ProcessId() override;
  ThreadId Start(const std::string& name, std::function<void()> run) override;
  void Join(ThreadId thread) override;
  void*& Local() override;
  void Wait(const void* address, Time deadline) override;
  void NotifyOne(const void* address) override;
  void NotifyAll(const void* address) override;

 private:
  class Stack;
  struct Fiber;
  using Timer = std::pair<Time, ThreadId>;

  // False: no thread can run any more.
  bool RunNext();
  void TakeTurn();  // of the next process that has threads to run, if there is one
  void Resume(Fiber& fiber);
  void MakeReady(Fiber& fiber);
  std::vector<Fiber*>& ReadyOf(uint64_t process);
  void Forget(Fiber& fiber);  // what it waits for
  std::string Left() const;
  static std::vector<std::unique_ptr<Fiber>>& Lost();

  const Order order_;
  Random random_;
  Time now_;
  uint64_t switches_ = 0;
  uint64_t next_thread_ = 1;
  uint64_t next_process_ = 1;
  Fiber* running_ = nullptr;
  std::map<ThreadId, std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> ready_;  // with kByProcess, those of process turn_
  uint64_t turn_ = 0;
  std::map<uint64_t, std::vector<Fiber*>> behind_;  // with kByProcess, of all others that have any
  std::set<Timer> timers_;
  absl::flat_hash_map<const void*, absl::InlinedVector<Fiber*, 1>> waiting_;
  std::map<uint64_t, std::vector<Fiber*>> stopped_;  // by process, with its threads that are ready
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_FIBER_WORLD_H_
