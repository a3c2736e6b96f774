// Compiles one request with a device runtime and describes the result. Has no cache and no state.
//
// A program over several workers is partitioned by a runtime that is opened for it, with a device per position; its
// collectives are taken out, and it is compiled for one position. So is one inside a worker, if Gangway's own
// collectives are asked for and the runtime has them.
#ifndef GANGWAY_COMPILER_COMPILE_H_
#define GANGWAY_COMPILER_COMPILE_H_

#include "absl/status/statusor.h"

#include "gangway/compiler/partition.h"
#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::compiler {

// Compiles for logical positions 0..device_count-1: the executable loads
// on any list of device_count devices. Blocks until the compiler is done. Errors: those of
// Backend::Compile; INVALID_ARGUMENT if device_count is 0, or, naming the instruction, for a collective whose groups or
// pairs do not fit the program's positions; FAILED_PRECONDITION if `backend` has fewer devices than the program needs.
//
// A program with calls that only its client can partition (xla/sharded_calls.proto) yields, without answers, a result
// whose info has nothing but what is asked; UNIMPLEMENTED if its client cannot be asked.
//
// Over several workers also: a result that is a refusal (UNIMPLEMENTED) if the runtime cannot (not XLA CPU, or `open`
// is null), or for a collective that workers cannot run, naming it; RESOURCE_EXHAUSTED beyond kSpanMax positions; the
// errors of `open`. A simulated program spans workers if it has collectives of Gangway's own.
//
// Nothing is compiled that CheckRequest (checked_program.h) does not let pass; its errors are ours. `converter`: XLA's
// CPU runtime with two devices or more. Null: `backend`, if it is XLA CPU; on other platforms StableHLO is unchecked.
absl::StatusOr<wire::CompileResult> Compile(device::Backend& backend,
                                            const wire::CompileRequest& request,
                                            const OpenBackend& open = nullptr,
                                            device::Backend* converter = nullptr);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_COMPILE_H_
