// Implementation of fiber_world.h.
#include "gangway/simulation/fiber_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

#include "gangway/base/check.h"
#include "gangway/base/cores.h"

#if defined(__SANITIZE_ADDRESS__)
#define GANGWAY_ASAN_FIBERS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GANGWAY_ASAN_FIBERS
#endif
#endif
#ifdef GANGWAY_ASAN_FIBERS
#include <sanitizer/common_interface_defs.h>
#endif

namespace gangway::simulation {
namespace {

#ifdef GANGWAY_ASAN_FIBERS
constexpr size_t kStackBytes = size_t{1} << 20;
#else
constexpr size_t kStackBytes = size_t{256} << 10;
#endif
constexpr std::chrono::hours kStart{1};
// Between two waits of a thread, in virtual time.
constexpr uint64_t kStepNanosMin = 100, kStepNanosMax = 3000;
constexpr size_t kCores = 2;  // on every machine, so that threads take the same turns

// What ASan must know of a stack that runs.
struct StackState {
  void* fake = nullptr;
  const void* bottom = nullptr;
  size_t size = 0;
};

void BeginSwitch([[maybe_unused]] void** fake, [[maybe_unused]] const StackState& to) {
#ifdef GANGWAY_ASAN_FIBERS
  __sanitizer_start_switch_fiber(fake, to.bottom, to.size);
#endif
}

void EndSwitch([[maybe_unused]] void* fake, [[maybe_unused]] StackState* from) {
#ifdef GANGWAY_ASAN_FIBERS
  __sanitizer_finish_switch_fiber(fake, from == nullptr ? nullptr : &from->bottom,
                                  from == nullptr ? nullptr : &from->size);
#endif
}

}  // namespace

// A stack, and what runs on it. When that has ended, the stack waits for something else: it is never unwound, and lives
// as long as the process.
class FiberWorld::Stack {
 public:
  static Stack* Take() {
    std::vector<Stack*>& idle = Idle();
    if (idle.empty()) return new Stack;
    Stack* stack = idle.back();
    idle.pop_back();
    return stack;
  }
  void GiveBack() { Idle().push_back(this); }

  // Runs `work` until it calls Suspend or, with true, has ended. Later calls go on where it stopped.
  bool Resume(std::function<void()>* work) {
    if (work != nullptr) work_ = work;
    void* fake = nullptr;
    BeginSwitch(&fake, own_);
    context_ = std::move(context_).resume();
    EndSwitch(fake, nullptr);
    return work_ == nullptr;
  }

  void Suspend() {
    BeginSwitch(&own_.fake, caller_state_);
    caller_ = std::move(caller_).resume();
    EndSwitch(own_.fake, &caller_state_);
  }

 private:
  Stack() {
    boost::context::protected_fixedsize_stack allocator(kStackBytes);
    const boost::context::stack_context memory = allocator.allocate();
    own_.bottom = static_cast<char*>(memory.sp) - memory.size;
    own_.size = memory.size;
    context_ = boost::context::fiber(std::allocator_arg,
                                     boost::context::preallocated(memory.sp, memory.size, memory),
                                     allocator, [this](boost::context::fiber&& caller) {
                                       EndSwitch(nullptr, &caller_state_);
                                       caller_ = std::move(caller);
                                       while (true) {
                                         (*work_)();
                                         *work_ = nullptr;  // destroys what it held
                                         work_ = nullptr;
                                         Suspend();
                                       }
                                       return std::move(caller_);
                                     });
  }

  static std::vector<Stack*>& Idle() {
    static auto* const idle = new std::vector<Stack*>;
    return *idle;
  }

  std::function<void()>* work_ = nullptr;
  boost::context::fiber context_;  // while it does not run
  boost::context::fiber caller_;   // while it runs
  StackState own_, caller_state_;
};

struct FiberWorld::Fiber {
  ThreadId id = 0;
  uint64_t process = 0;
  std::string name;
  std::function<void()> run;
  Stack* stack = nullptr;  // from its first step until it has ended
  void* local = nullptr;
  const void* waits_for = nullptr;
  Time deadline = Time::max();
  bool ended = false;
  bool exited = false;  // with its process: its stack stays as it is
};

// A thread that has not ended refers to what may be gone, so it is not unwound but kept.
std::vector<std::unique_ptr<FiberWorld::Fiber>>& FiberWorld::Lost() {
  static auto* const lost = new std::vector<std::unique_ptr<Fiber>>;
  return *lost;
}

FiberWorld::FiberWorld(uint64_t seed, Order order)
    : order_(order), random_(seed), now_(Time() + kStart) {}

FiberWorld::~FiberWorld() {
  for (auto& [id, fiber] : fibers_) {
    if (!fiber->ended || fiber->exited) Lost().push_back(std::move(fiber));
  }
}

absl::Status FiberWorld::Run(std::function<void()> main, std::chrono::nanoseconds limit,
                             uint64_t turns_max) {
  GANGWAY_CHECK(installed() == nullptr, "one world at a time");
  Install(this);
  SetCores(kCores);
  StartIn(NewProcess(), "main", std::move(main));
  const Time end = now_ + limit;
  const uint64_t last_switch = switches_ + turns_max;
  bool in_time = true, spins = false;
  while (RunNext()) {
    in_time = now_ < end;
    spins = switches_ > last_switch;
    if (!in_time || spins) break;
  }
  Install(nullptr);
  SetCores(0);
  const std::string left = Left();
  if (left.empty()) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(spins     ? "something wakes again and again"
                                                  : in_time ? "nothing can wake"
                                                            : "have not ended in time",
                                                  ": ", left));
}

std::string FiberWorld::Left() const {
  std::string left;
  for (const auto& [id, fiber] : fibers_) {
    if (!fiber->ended)
      absl::StrAppend(&left, left.empty() ? "" : ", ", fiber->name, " of ", fiber->process);
  }
  return left;
}

World::ThreadId FiberWorld::Start(const std::string& name, std::function<void()> run) {
  return StartIn(running_->process, name, std::move(run));
}

World::ThreadId FiberWorld::StartIn(uint64_t process, const std::string& name,
                                    std::function<void()> run) {
  auto fiber = std::make_unique<Fiber>();
  Fiber* raw = fiber.get();
  raw->id = next_thread_++;
  raw->process = process;
  raw->name = name;
  raw->run = std::move(run);
  fibers_.emplace(raw->id, std::move(fiber));
  MakeReady(*raw);
  return raw->id;
}

void FiberWorld::Join(ThreadId thread) {
  auto found = fibers_.find(thread);
  GANGWAY_CHECK(found != fibers_.end(), "a thread is joined once");
  while (!found->second->ended) Wait(found->second.get(), Time::max());
  if (!found->second->exited) fibers_.erase(found);
}

uint64_t FiberWorld::ProcessId() { return running_->process; }

void*& FiberWorld::Local() { return running_->local; }

void FiberWorld::Wait(const void* address, Time deadline) {
  Fiber& fiber = *running_;
  fiber.waits_for = address;
  fiber.deadline = deadline;
  waiting_[address].push_back(&fiber);
  if (deadline != Time::max()) timers_.emplace(deadline, fiber.id);
  fiber.stack->Suspend();
}

void FiberWorld::NotifyOne(const void* address) {
  auto found = waiting_.find(address);
  if (found != waiting_.end()) MakeReady(*found->second.front());
}

void FiberWorld::NotifyAll(const void* address) {
  for (auto found = waiting_.find(address); found != waiting_.end(); found = waiting_.find(address))
    MakeReady(*found->second.front());
}

void FiberWorld::Forget(Fiber& fiber) {
  if (fiber.deadline != Time::max()) timers_.erase({fiber.deadline, fiber.id});
  fiber.deadline = Time::max();
  if (fiber.waits_for == nullptr) return;
  auto found = waiting_.find(fiber.waits_for);
  found->second.erase(std::find(found->second.begin(), found->second.end(), &fiber));
  if (found->second.empty()) waiting_.erase(found);
  fiber.waits_for = nullptr;
}

void FiberWorld::MakeReady(Fiber& fiber) {
  Forget(fiber);
  ReadyOf(fiber.process).push_back(&fiber);
}

std::vector<FiberWorld::Fiber*>& FiberWorld::ReadyOf(uint64_t process) {
  auto stopped = stopped_.find(process);
  if (stopped != stopped_.end()) return stopped->second;
  return order_ == Order::kAnyThread || process == turn_ ? ready_ : behind_[process];
}

void FiberWorld::Stop(uint64_t process) {
  std::vector<Fiber*>& held = stopped_[process];
  auto behind = behind_.extract(process);
  if (!behind.empty()) held.insert(held.end(), behind.mapped().begin(), behind.mapped().end());
  auto stays = std::stable_partition(ready_.begin(), ready_.end(), [process](const Fiber* fiber) {
    return fiber->process != process;
  });
  held.insert(held.end(), stays, ready_.end());
  ready_.erase(stays, ready_.end());
}

void FiberWorld::Continue(uint64_t process) {
  auto stopped = stopped_.extract(process);
  if (stopped.empty() || stopped.mapped().empty()) return;
  std::vector<Fiber*>& ready = ReadyOf(process);
  ready.insert(ready.end(), stopped.mapped().begin(), stopped.mapped().end());
}

void FiberWorld::Exit() {
  const uint64_t process = running_->process;
  Stop(process);
  for (auto& [id, fiber] : fibers_) {
    if (fiber->process != process || fiber->ended) continue;
    fiber->ended = fiber->exited = true;
    NotifyAll(fiber.get());
  }
  while (true) running_->stack->Suspend();
}

bool FiberWorld::RunNext() {
  if (ready_.empty() && behind_.empty() && !timers_.empty())
    now_ = std::max(now_, timers_.begin()->first);
  while (!timers_.empty() && timers_.begin()->first <= now_)
    MakeReady(*fibers_.at(timers_.begin()->second));
  if (ready_.empty()) TakeTurn();
  if (ready_.empty()) return !timers_.empty();
  Fiber*& picked = ready_[random_.Below(ready_.size())];
  Fiber* fiber = std::exchange(picked, ready_.back());
  ready_.pop_back();
  now_ += std::chrono::nanoseconds(random_.Between(kStepNanosMin, kStepNanosMax));
  Resume(*fiber);
  return true;
}

void FiberWorld::TakeTurn() {
  if (behind_.empty()) return;
  auto next = behind_.upper_bound(turn_);
  if (next == behind_.end()) next = behind_.begin();
  turn_ = next->first;
  ready_ = std::move(next->second);
  behind_.erase(next);
}

void FiberWorld::Resume(Fiber& fiber) {
  ++switches_;
  running_ = &fiber;
  const bool begins = fiber.stack == nullptr;
  if (begins) fiber.stack = Stack::Take();
  const bool over = fiber.stack->Resume(begins ? &fiber.run : nullptr);
  running_ = nullptr;
  if (!over) return;
  fiber.ended = true;
  std::exchange(fiber.stack, nullptr)->GiveBack();
  NotifyAll(&fiber);
}

}  // namespace gangway::simulation
