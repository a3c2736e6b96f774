// Implementation of identity.h.
#include "gangway/worker/core/identity.h"

namespace gangway::worker {

wire::Failure Identity::Fail(absl::StatusCode code, std::string_view message, Ordinal ordinal,
                             const wire::ProgramLabelRef& program) const {
  wire::Failure failure = wire::MakeFailure(code, message);
  Locate(ordinal, program, failure);
  return failure;
}

void Identity::Locate(Ordinal ordinal, const wire::ProgramLabelRef& program,
                      wire::Failure& failure) const {
  wire::SetProgram(program, failure);
  failure.set_gang(ordinal.number());
  failure.set_worker(name);
  failure.set_incarnation(incarnation.number());
}

}  // namespace gangway::worker
