// Implementation of wakes.h.
#include "gangway/cli/wakes.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gangway/base/clock.h"
#include "gangway/base/futex.h"
#include "gangway/base/latency_request.h"
#include "gangway/base/thread.h"

namespace gangway::cli {
namespace {

constexpr char kGovernorFile[] = "/sys/devices/system/cpu/cpuidle/current_governor";
constexpr char kHaltPollFile[] = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
constexpr int kWarmUpRounds = 20, kRounds = 200;
constexpr std::chrono::seconds kLimit{5};
constexpr std::chrono::milliseconds kLook{100};
constexpr double kFastUs = 30;       // two wakes: what cores take that poll, or sleep lightly
constexpr double kMuchBetter = 0.7;  // of the round trip without the request

// The first two cores that this process may use; the same one twice if there is only one.
std::array<int, 2> TwoCores() {
  std::array<int, 2> cores = {-1, -1};
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  for (int core = 0; core < CPU_SETSIZE && cores[1] < 0; ++core) {
    if (CPU_ISSET(core, &allowed)) cores[cores[0] < 0 ? 0 : 1] = core;
  }
  if (cores[1] < 0) cores[1] = cores[0];
  return cores;
}

// Where it fails, the thread runs where it is.
void StayOn(int core) {
  if (core < 0) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  (void)sched_setaffinity(0, sizeof(only), &only);
}

// Sleeps until the ball is on `side`. False: the deadline has passed.
bool Await(const FutexWord& ball, uint32_t side, Clock::time_point deadline) {
  while (ball.load(std::memory_order_acquire) != side) {
    if (Clock::now() >= deadline) return false;
    FutexWait(ball, 1 - side, kLook);
  }
  return true;
}

void Throw(FutexWord& ball, uint32_t side) {
  ball.store(side, std::memory_order_release);
  FutexWake(ball);
}

// The median round trip.
double PingPongUs() {
  const std::array<int, 2> cores = TwoCores();
  const auto deadline = Clock::now() + kLimit;
  FutexWord ball{0};
  std::vector<double> times_us;
  Thread there("gw-ping", [&] {
    StayOn(cores[0]);
    for (int round = 0; round < kWarmUpRounds + kRounds; ++round) {
      const auto began = Clock::now();
      Throw(ball, 1);
      if (!Await(ball, 0, deadline)) return;
      const std::chrono::duration<double, std::micro> took = Clock::now() - began;
      if (round >= kWarmUpRounds) times_us.push_back(took.count());
    }
  });
  Thread back("gw-pong", [&] {
    StayOn(cores[1]);
    for (int round = 0; round < kWarmUpRounds + kRounds; ++round) {
      if (!Await(ball, 1, deadline)) return;
      Throw(ball, 0);
    }
  });
  there.Join();
  back.Join();
  if (times_us.empty()) return std::chrono::duration<double, std::micro>(kLimit).count();
  const auto middle = times_us.begin() + static_cast<ptrdiff_t>(times_us.size() / 2);
  std::nth_element(times_us.begin(), middle, times_us.end());
  return *middle;
}

std::string Policy(const Wakes& wakes) {
  if (wakes.guest_halt_poll_ns) {
    return absl::StrCat("cpuidle governor ", wakes.governor,
                        ", guest_halt_poll_ns = ", *wakes.guest_halt_poll_ns);
  }
  return wakes.governor.empty() ? "" : absl::StrCat("cpuidle governor ", wakes.governor);
}

// An idle core of this virtual machine goes to the host at once, and comes back by an interrupt.
bool HaltsAtOnce(const Wakes& wakes) {
  return wakes.governor == "haltpoll" && wakes.guest_halt_poll_ns == 0;
}

std::string Us(double us) { return absl::StrFormat("%.0f us", us); }

std::string Remedies(const Wakes& wakes) {
  std::string text;
  if (wakes.file.empty()) {
    text = "unset GANGWAY_LATENCY_REQUEST";
  } else {
    text = absl::StrCat(
        "run the cluster and its scripts where they may open ", wakes.file,
        ": as root, or in a group to which a udev rule gives it (KERNEL==\"cpu_dma_latency\", "
        "GROUP=\"NAME\", MODE=\"0660\"); a container needs the device, too");
  }
  if (HaltsAtOnce(wakes)) {
    absl::StrAppend(&text, "; or, as root, let idle cores poll: echo 200000 > ", kHaltPollFile);
  }
  return text;
}

}  // namespace

Wakes MeasureWakes() {
  Wakes wakes{.file = LatencyRequestFile()};
  std::ifstream(kGovernorFile) >> wakes.governor;
  if (int64_t ns = 0; std::ifstream(kHaltPollFile) >> ns) wakes.guest_halt_poll_ns = ns;
  wakes.round_trip_us = PingPongUs();
  if (wakes.file.empty()) return wakes;
  const FileDescriptor request = OpenLatencyRequest(wakes.file);
  if (request.valid()) {
    wakes.held_us = PingPongUs();
  } else {
    wakes.refusal = std::strerror(errno);
  }
  return wakes;
}

WakesAdvice Judge(const Wakes& wakes) {
  const std::string trip =
      absl::StrCat("a round trip of two sleeping threads takes ", Us(wakes.round_trip_us));
  const std::string policy = Policy(wakes);
  const std::string named = policy.empty() ? "" : absl::StrCat(" (", policy, ")");
  if (wakes.round_trip_us <= kFastUs)
    return {.text = absl::StrCat(trip, ": idle cores wake at once", named)};
  const std::string why =
      HaltsAtOnce(wakes) ? absl::StrCat("an idle core halts this virtual machine at once", named)
                         : absl::StrCat("idle cores are slow to wake", named);
  if (!wakes.held_us) {
    const std::string refused =
        wakes.file.empty() ? "GANGWAY_LATENCY_REQUEST turns the latency request off"
                           : absl::StrCat(wakes.file, " cannot be opened: ", wakes.refusal);
    return {.needed = true,
            .text = absl::StrCat(trip, ", and an awaited call has three of them: ", why, ", and ",
                                 refused, ". To do: ", Remedies(wakes))};
  }
  if (*wakes.held_us <= std::max(kFastUs, kMuchBetter * wakes.round_trip_us)) {
    return {.text = absl::StrCat(trip, " when idle", named, ", and ", Us(*wakes.held_us),
                                 " while work is under way, when processes hold ", wakes.file)};
  }
  return {
      .needed = true,
      .text = absl::StrCat(trip, ", and ", Us(*wakes.held_us), " with ", wakes.file, " held", named,
                           ": other work keeps the cores busy, or the virtual machine's host "
                           "is slow to run it. To do: end other programs; look at the host")};
}

}  // namespace gangway::cli
