// What it costs to wake a thread that sleeps on an idle core, and what to do where that is slow: an awaited call has
// some six wakes (docs/internals/latency.md). For `gangway doctor`.
//
// Threading: MeasureWakes runs two threads of its own, for some 50 ms, and bounded by 10 s where they do not run.
// Judge is pure. Failure: what cannot be read is left out.
#ifndef GANGWAY_CLI_WAKES_H_
#define GANGWAY_CLI_WAKES_H_

#include <cstdint>
#include <optional>
#include <string>

namespace gangway::cli {

struct Wakes {
  // A round trip of two threads, each of which sleeps until the other wakes it; on different cores, if there are two.
  double round_trip_us = 0;
  std::optional<double> held_us;  // the same while this process holds the latency request
  std::string file;               // of the request; empty: GANGWAY_LATENCY_REQUEST turns it off
  std::string refusal;            // why it is not held, if it is not: "Permission denied"
  // The idle policy; empty: not known.
  std::string governor;  // of cpuidle
  std::optional<int64_t>
      guest_halt_poll_ns;  // of a virtual machine: how long an idle core polls before it halts
};

struct WakesAdvice {
  bool needed = false;  // wakes are slow, and something can be done
  std::string text;
};

Wakes MeasureWakes();
WakesAdvice Judge(const Wakes& wakes);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_WAKES_H_
