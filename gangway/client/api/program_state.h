// What a Program shares with its copies: a program that the session has registered, which it drops at its end, with the
// functions that it calls and the arrays that it holds.
//
// Threading: constant. Failure: as Callee.
#ifndef GANGWAY_CLIENT_API_PROGRAM_STATE_H_
#define GANGWAY_CLIENT_API_PROGRAM_STATE_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/client/api/callee.h"
#include "gangway/client/api/tracing.h"
#include "gangway/client/include/gangway/program.h"

namespace gangway::api {

class ProgramState final : public Callee {
 public:
  // Runs `traced` with arrays of the examples' types, registers what it did, and waits for the answer. See Trace.
  static absl::StatusOr<Program> Trace(const std::shared_ptr<Session>& session, std::string name,
                                       const Traced& traced, std::span<const Array> examples,
                                       Dispatch dispatch);
  ~ProgramState() override;

  void Call(std::span<const Argument> arguments, std::span<Array> results,
            const std::source_location& where) const override;

  const program::Program& program() const { return recorded_.program; }
  size_t held_count() const { return recorded_.held.size(); }

 private:
  ProgramState(const std::shared_ptr<Session>& session, std::string name,
               std::vector<ArrayTypeRef> taken, Tracing::Recorded recorded, ProgramHandle handle)
      : Callee(session, std::move(name), taken.size(), recorded.result_types),
        taken_(std::move(taken)),
        recorded_(std::move(recorded)),
        handle_(handle) {}

  absl::Status CheckArgument(size_t index, const Argument& argument,
                             const std::source_location& where) const;

  const std::vector<ArrayTypeRef> taken_;  // by argument of the caller
  const Tracing::Recorded recorded_;
  const ProgramHandle handle_;
};

}  // namespace gangway::api

#endif  // GANGWAY_CLIENT_API_PROGRAM_STATE_H_
