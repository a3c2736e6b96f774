// CapturedPrograms: the runs of operations that a session sends again and again, each of which becomes a program that
// the controller knows and one operation launches. It is given the operations of a run, in their order, and replaces
// them by what to send instead.
//
// A run is known by its key (captured_run.h), which is compared as a whole. It is sent as it came until the controller
// has accepted its program: so a refusal, for a limit or for a node that is at fault, spoils nothing, and the run is
// sent as it came from then on. A program knows nothing of its arguments' types: as for a call, the controller finds at
// the launch whether they fit.
//
// Bounded (TM-2): a run beyond the limits of one program is sent as it came. Of all keys those that were not used for
// the longest time make room, and their programs are dropped. A program goes before an executable that it calls does.
//
// Pure; not thread-safe. The count of nodes is the same in all forms (CapturedRun::NodesOf).
#ifndef GANGWAY_CLIENT_CAPTURED_PROGRAMS_H_
#define GANGWAY_CLIENT_CAPTURED_PROGRAMS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"

#include "gangway/client/captured_run.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class CapturedPrograms {
 public:
  using Ops = CapturedRun::Ops;
  struct Limits {
    CapturedRun::Limits run;
    uint64_t program_nodes_min = 2;  // below, a launch would replace one operation by another
    size_t keys = 256;
    size_t all_key_bytes = size_t{16} << 20;
  };
  // When the program of a run is registered: with the first run of its key, or with the second.
  enum class Register { kFirstTime, kSecondTime };
  enum class Sent { kAsTheyCame, kByALaunch };

  // `new_program` numbers programs; never 0.
  explicit CapturedPrograms(std::function<uint64_t()> new_program)
      : CapturedPrograms(std::move(new_program), Limits()) {}
  CapturedPrograms(std::function<uint64_t()> new_program, const Limits& limits)
      : new_program_(std::move(new_program)), limits_(limits) {}

  // `run`: operations that CapturedRun takes. Afterwards, what to send.
  Sent Replace(Ops& run, Register when);

  // The programs whose keys have made room since the last call, to be dropped behind all that was made here before.
  std::vector<uint64_t> TakeEvicted() { return std::exchange(evicted_, {}); }

  // The controller's answer. One of a program that is none of these, or was dropped, changes nothing.
  void OnRegistered(uint64_t program, bool is_accepted);

  // The programs that call one of these, to be dropped before them. They are not here any more.
  std::vector<uint64_t> Forget(const google::protobuf::RepeatedField<uint64_t>& executables);

  bool empty() const { return keys_.empty(); }

 private:
  enum class State { kSeen, kRegistering, kAccepted, kRefused };
  struct Key {
    State state = State::kSeen;
    std::optional<uint64_t> program;  // unless it was only seen
    std::vector<uint64_t> executables;
    std::list<const std::string*>::iterator used;
  };
  using Keys = absl::node_hash_map<std::string, Key>;

  Key& Add(std::string_view key);
  void RegisterProgram(Key& key, Ops& run);
  void MakeRoom(size_t bytes);
  // The program to drop.
  std::optional<uint64_t> Remove(Keys::iterator key);

  const std::function<uint64_t()> new_program_;
  const Limits limits_;
  CapturedRun run_;
  Keys keys_;
  std::list<const std::string*> used_;               // the texts of all keys, latest first
  absl::flat_hash_map<uint64_t, Key*> registering_;  // by program
  size_t key_bytes_ = 0;                             // of all keys
  std::vector<uint64_t> evicted_;
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CAPTURED_PROGRAMS_H_
