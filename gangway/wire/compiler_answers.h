// What a compiler process tells the controller about itself, in messages that are no answers to a lookup.
//
// Hello: worker.index is its number. 0 always runs; the others are spares.
//
// CompileResult: with not_cached and request 0, or with not_cached and a failure, it asks to be ended and replaced.
// With a failure, the compile of that request was cut off at a limit, and goes on there.
#ifndef GANGWAY_WIRE_COMPILER_ANSWERS_H_
#define GANGWAY_WIRE_COMPILER_ANSWERS_H_

#include "gangway/wire/wire.pb.h"

namespace gangway::wire {

inline void AskToBeReplaced(CompileResult& result) { result.set_not_cached(true); }

inline bool AsksToBeReplaced(const CompileResult& result) {
  return result.not_cached() && (result.request() == 0 || result.has_failure());
}

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_COMPILER_ANSWERS_H_
