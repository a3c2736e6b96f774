// CapturedBursts: which operations of a session become launches without a word from its caller: those that are sent in
// one frame, and come again in another one (captured_programs.h). A frame's operations are those of a burst, so in a
// loop many frames are alike.
//
// Most bursts of most sessions never repeat. So a run that could be a program is only looked at first: which
// executables it calls, in which order, and how many arrays each operation names. Its arrays are looked up once such a
// run came before. A run is launched the fourth time at the earliest.
//
// Pure; not thread-safe. Bounded: what was seen is kept in a table of hashes, where one overwrites another; then its
// run counts as new.
#ifndef GANGWAY_CLIENT_CAPTURED_BURSTS_H_
#define GANGWAY_CLIENT_CAPTURED_BURSTS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "gangway/client/captured_programs.h"

namespace gangway::client {

class CapturedBursts {
 public:
  using Ops = CapturedRun::Ops;
  // Of a run: below, what a launch saves is less than what the look at its arrays costs.
  static constexpr uint64_t kNodesMin = 16;

  // Shares the programs with the blocks of the session.
  explicit CapturedBursts(CapturedPrograms* programs) : programs_(*programs) {}

  // `ops`: of one frame. Afterwards, what to send.
  void Replace(Ops& ops);

 private:
  static constexpr size_t kSeen = 1024;

  // The operations of a run, from `begin` to before `end`, among those of a frame.
  struct Run {
    int begin = 0;
    int end = 0;
    uint64_t nodes = 0;
    uint64_t hash = 0;
  };

  // The run that begins at `begin` or later; empty: there is none.
  static Run RunFrom(int begin, const Ops& ops);
  bool CameBefore(uint64_t hash);

  CapturedPrograms& programs_;
  std::array<uint64_t, kSeen> seen_{};
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CAPTURED_BURSTS_H_
