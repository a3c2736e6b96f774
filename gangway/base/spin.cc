// Implementation of spin.h.
#include "gangway/base/spin.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "absl/strings/numbers.h"

#include "gangway/base/cores.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/world.h"

namespace gangway {
namespace {

// Every host has it, all users can open it, and it keeps nothing.
constexpr char kSeatsFile[] = "/dev/null";

SpinRule* of_process = nullptr;  // for the fork's handler

// What is no number counts as not set.
uint32_t LimitFrom(const char* text) {
  uint32_t limit_us = SpinRule::kDefaultUs;
  if (text == nullptr || !absl::SimpleAtoi(text, &limit_us)) return SpinRule::kDefaultUs;
  return limit_us;
}

// Of the host, the calling one included; 0: the system does not say. A tenth of the time of a wake.
size_t RunnableThreads() {
  static const int file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  char text[64];
  const ssize_t size = file < 0 ? -1 : pread(file, text, sizeof(text), 0);
  if (size <= 0) return 0;
  // "2.07 2.38 2.76 3/114 7565": 3 of 114 threads can run.
  const std::string_view line(text, static_cast<size_t>(size));
  const size_t slash = line.find('/');
  if (slash == std::string_view::npos) return 0;
  const size_t begin = line.rfind(' ', slash) + 1;
  size_t count = 0;
  std::from_chars(line.data() + begin, line.data() + slash, count);
  return count;
}

}  // namespace

SpinRule& SpinRule::OfProcess() {
  if (SpinRule* const installed = installed_.load(std::memory_order_relaxed)) return *installed;
  static auto* const rule = [] {
    const size_t cores = std::min(Cores(), CoresOfQuota().value_or(Cores()));
    of_process = new SpinRule(
        {.seats_file = kSeatsFile, .cores = cores, .runnable_threads = RunnableThreads});
    of_process->SetLimit(LimitFrom(std::getenv(kVariable)));
    (void)RunnableThreads();  // opens its file
    pthread_atfork(nullptr, nullptr, [] { of_process->seats_.LeaveParent(); });
    return of_process;
  }();
  return *rule;
}

SpinRule::SpinRule(const Host& host)
    : cores_(host.cores),
      runnable_threads_(host.runnable_threads),
      seats_(host.seats_file, host.cores > 0 ? host.cores - 1 : 0) {}

void SpinRule::SetLimit(uint32_t limit_us) {
  limit_us_.store(std::min(limit_us, kMaxUs), std::memory_order_relaxed);
}

std::optional<size_t> SpinRule::Begin() {
  const size_t runnable = runnable_threads_();
  if (runnable == 0 || runnable > cores_) return std::nullopt;
  return seats_.Take();
}

Spin::Spin(For what, SpinRule& rule) : rule_(rule) {
  const Clock::duration limit = rule.limit() / (what == For::kAnswer ? 1 : 3);
  if (limit.count() == 0 || World::installed() != nullptr || tries_.LeavesOut()) return;
  seat_ = rule.Begin();
  if (seat_) until_ = Clock::now() + limit;
  if (!seat_) tries_.Note(false);
}

Spin::~Spin() {
  if (seat_) End(found_ && Clock::now() < until_);
}

bool Spin::Again() {
  if (!seat_) return false;
  sched_yield();
  if (Clock::now() < until_) return true;
  End(false);
  return false;
}

// Also before the thread sleeps, which may take long: others may spin meanwhile.
void Spin::End(bool was_worth_it) {
  rule_.End(*seat_);
  seat_.reset();
  tries_.Note(was_worth_it);
}

}  // namespace gangway
