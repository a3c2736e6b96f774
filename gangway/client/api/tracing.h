// One run of a traced function: it records what the calls and copies of its thread do, and makes a program of that.
// Arrays of the trace stand for the program's values; those of the session that calls use become held arguments.
//
// Threading: one thread, on which it is the current one while the function runs. Arrays that outlive it only read
// session().
// Failure: the first mistake is kept, and is the trace's: nothing is recorded after it.
#ifndef GANGWAY_CLIENT_API_TRACING_H_
#define GANGWAY_CLIENT_API_TRACING_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/client/api/array_state.h"
#include "gangway/client/api/callee.h"
#include "gangway/client/api/function_state.h"
#include "gangway/program/program.h"

namespace gangway::api {

class Tracing : public std::enable_shared_from_this<Tracing> {
 public:
  // What became of a trace.
  struct Recorded {
    program::Program program;
    std::vector<Array> held;        // its arguments behind those of the caller
    std::vector<uint32_t> donated;  // arguments of the caller that some call gives away, increasing
    std::vector<ArrayTypeRef> result_types;
    std::vector<std::shared_ptr<const FunctionState>> functions;  // that it calls
  };

  Tracing(std::shared_ptr<Session> session, std::string name)
      : session_(std::move(session)), name_(std::move(name)) {}

  // Of this thread. Null: none.
  static Tracing* Current();
  // Makes it the current one of this thread, for as long as this lives.
  class Scope {
   public:
    explicit Scope(Tracing* tracing);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  const std::shared_ptr<Session>& session() const { return session_; }

  // Before all else: an array that stands for the next argument.
  Array AddArgument(ArrayTypeRef type);

  // While it is the current one.
  void Call(const std::shared_ptr<const FunctionState>& function,
            std::span<const Argument> arguments, std::span<Array> results,
            const std::source_location& where);
  Array Copy(const Array& array, const Sharding& sharding, const std::source_location& where);
  // Notes a mistake; the array stands for nothing.
  Array Fail(ArrayTypeRef type, const absl::Status& why);

  // Once, at the end.
  absl::StatusOr<Recorded> Finish(std::span<const Array> results);

 private:
  // What a node takes: a value of the trace, or a held array.
  struct Input {
    bool is_held = false;
    uint32_t index = 0;
  };
  // A call, or a copy to `devices` if there is no function.
  struct Node {
    const FunctionState* function = nullptr;
    std::vector<Input> inputs;
    std::vector<uint32_t> kept;
    uint32_t outputs = 1;
    program::Devices devices;
    std::string source;
  };

  absl::StatusOr<Input> InputOf(const std::string& callee, size_t index, const ArrayState* array,
                                const std::source_location& where);
  absl::Status Record(const std::shared_ptr<const FunctionState>& function,
                      std::span<const Argument> arguments, const std::source_location& where);
  absl::Status NoteDonation(const FunctionState& function, const Node& node,
                            const std::source_location& where);
  Array NewValue(ArrayTypeRef type);
  // The program's number of what a node takes: held arguments are behind those of the caller.
  program::ValueId NumberOf(const Input& input) const;

  const std::shared_ptr<Session> session_;
  const std::string name_;
  uint32_t arguments_ = 0;
  uint32_t values_ = 0;  // the arguments first, then the outputs of nodes
  std::vector<Node> nodes_;
  std::vector<Array> held_;
  absl::flat_hash_map<const ArrayState*, uint32_t> held_index_;
  std::vector<bool> is_given_away_;  // by argument
  std::vector<std::shared_ptr<const FunctionState>> functions_;
  absl::Status mistake_;
};

}  // namespace gangway::api

#endif  // GANGWAY_CLIENT_API_TRACING_H_
