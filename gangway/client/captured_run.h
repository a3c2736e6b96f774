// CapturedRun: the canonical form of a run of operations: two runs that do the same to whatever arrays they are given
// have the same key, and so the same program. Calls, copies and regroups are its nodes, in their order. What they name
// and no node before makes is an argument, in the order of first use; what they make and the run does not drop is a
// result. Handles are not in the key, nor is what says nothing of values (drops of what is no node's, drops of shards,
// and TellEnds): that follows a launch.
//
// The key is the program, written as words: CapturedRun::ToProgram reads it, so keys that are equal cannot mean
// different programs.
//
// Pure; not thread-safe. It keeps its memory from one run to the next.
#ifndef GANGWAY_CLIENT_CAPTURED_RUN_H_
#define GANGWAY_CLIENT_CAPTURED_RUN_H_

#include <google/protobuf/repeated_ptr_field.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class CapturedRun {
 public:
  using Ops = google::protobuf::RepeatedPtrField<wire::Op>;
  struct Limits {
    uint64_t nodes = 4096;
    size_t key_bytes = size_t{1} << 20;
  };

  // Whether an operation can be part of a run: it needs no answer, and belongs to no host callback.
  static bool Takes(const wire::Op& op);
  // What a session counts for it.
  static uint64_t NodesOf(const wire::Op& op);
  // What it adds to the nodes of a program.
  static uint64_t ProgramNodesOf(const wire::Op& op);

  // False: these operations are no program. They use an array after its drop, or define one twice; a limit is passed;
  // or they are malformed.
  bool Read(const Ops& ops, const Limits& limits);

  // Of what was read.
  std::string_view key() const;
  uint64_t nodes() const { return nodes_; }                  // that the session counts
  uint64_t program_nodes() const { return program_nodes_; }  // views are among them
  const std::vector<uint64_t>& executables() const { return executables_; }  // each once
  void MakeLaunch(uint64_t program, wire::LaunchOp& launch) const;
  // Moves what is to follow the launch out of the run.
  void TakeRest(Ops& run, Ops& rest) const;

  // The program of a key.
  static void ToProgram(std::string_view key, wire::Program& program);

 private:
  struct Defined {
    uint64_t array = 0;
    bool is_dropped = false;
  };

  void Clear();
  bool ReadOp(const wire::Op& op);
  bool ReadCall(const wire::CallOp& call);
  bool ReadCopy(const wire::CopyOp& copy);
  bool ReadRegroup(const wire::RegroupOp& regroup);
  void ReadDrop(const wire::DropOp& drop);
  // Defines a value that has no handle.
  template <typename Arrays, typename Shards>
  std::optional<uint32_t> ReadView(const Arrays& arrays, const Shards& shards);
  bool ReadGathered(const wire::CallOp& call);

  // None: it was dropped, or is the handle that names none.
  std::optional<uint32_t> Use(uint64_t array);
  bool Define(uint64_t array);
  uint32_t ExecutableIndex(uint64_t executable);
  uint32_t DevicesIndex(const wire::CopyOp& copy);
  uint32_t KindIndex(const std::string& memory_kind);
  void Write(uint32_t word) { words_.push_back(word); }

  std::vector<uint32_t> words_;
  uint64_t nodes_ = 0;
  uint64_t program_nodes_ = 0;
  absl::flat_hash_map<uint64_t, uint32_t> values_;  // by array
  std::vector<uint64_t> arguments_;
  std::vector<Defined> defined_;
  absl::flat_hash_set<uint64_t> internal_;  // arrays that only this run has
  std::vector<uint64_t> dropped_;           // the others that it drops
  std::vector<uint64_t> executables_;
  absl::flat_hash_map<uint64_t, uint32_t> executable_index_;
  std::vector<std::vector<uint32_t>> device_lists_;
  std::vector<std::string> memory_kinds_;
  std::vector<uint32_t> inputs_;  // of the operation that is being read
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CAPTURED_RUN_H_
