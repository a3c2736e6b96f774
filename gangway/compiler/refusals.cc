// Implementation of refusals.h.
#include "gangway/compiler/refusals.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gangway/wire/failure.h"

namespace gangway::compiler {
namespace {

struct Row {
  absl::string_view said;  // a part of the runtime's text
  std::string_view advice;
};

// The first row that fits counts, so the particular ones come first.
constexpr Row kRows[] = {
    // Custom calls.
    {"xla_buffer_python_",
     "Buffers of a worker are not in the script's process: use jax.pure_callback or "
     "jax.experimental.io_callback."},
    {"annotate_device_placement",
     "The devices' runtime cannot place values in another kind of memory inside of a program: call "
     "jax.device_put(result, sharding.with_memory_kind(...)) outside of the jit."},
    {"tpu_custom_call",
     "This is a Pallas kernel for TPUs: pass interpret=True to pallas_call, or another "
     "implementation of the function."},
    {"triton",
     "This is a kernel for GPUs: pass interpret=True to pallas_call, or another implementation of "
     "the function."},
    {"__cudnn$", "cuDNN needs GPUs: choose another implementation (implementation=\"xla\")."},
    {"No FFI handler registered for",
     "The workers have no such function. Compute this part in the script's own process, on arrays "
     "of jax.devices(\"host\")[0]."},
    {"No registered implementation for untyped custom call to",
     "The workers have no such function. Compute this part in the script's own process, on arrays "
     "of jax.devices(\"host\")[0]."},
    {"Side-effect ops cannot be replicated",
     "Call the operation inside of jax.shard_map, which says on which device it runs."},
    // Types and shapes.
    {"for datatype",
     "Convert the array to a wider type before this operation (x.astype(jnp.int8)), and back after "
     "it."},
    {"does not support custom element sizes on non-sub-byte types",
     "Convert the operands to the result's type first (x.astype(jnp.int32))."},
    {"Invalid element type",
     "XLA has no such element type: convert the values to another (dequantize them) first."},
    {"Unsupported reduction computation",
     "Collectives add, multiply, and take the minimum, the maximum, the and or the or: use "
     "jax.lax.all_gather, and reduce on each device."},
    {"nbounded dynamism", "Compile the program for arrays of fixed shapes."},
    // What a program exchanges with the host while it runs.
    {"opcode `send`",
     "Pass arrays as arguments and results, or use jax.pure_callback or "
     "jax.experimental.io_callback."},
    {"opcode `recv`",
     "Pass arrays as arguments and results, or use jax.pure_callback or "
     "jax.experimental.io_callback."},
    // Options and versions.
    {"No such compile option",
     "Leave the option out, or correct its name: options are those of the XLA of the devices' "
     "plugin."},
    {"While setting option", "Correct the option's value, or leave it out."},
    {"forward incompatibility",
     "If the program is well-formed, it is newer than the devices' plugin: use an older JAX, or "
     "start the cluster with a newer plugin (gangway up --plugin)."},
};

// Most refusals of XLA's are the same in every process.
constexpr std::string_view kOtherwise =
    "If the script fails in the same way on JAX's own CPU (JAX_PLATFORMS=cpu, without gangway "
    "run), "
    "the program or XLA has to change; else please report it with this text.";

}  // namespace

std::string_view AdviceOn(std::string_view refusal) {
  const absl::string_view text(refusal.data(), refusal.size());
  for (const Row& row : kRows) {
    if (absl::StrContains(text, row.said)) return row.advice;
  }
  return kOtherwise;
}

absl::Status Explain(const absl::Status& refusal) {
  if (refusal.ok()) return refusal;
  const absl::string_view said = absl::StripAsciiWhitespace(refusal.message());
  return wire::ToStatus(
      wire::MakeFailure(refusal.code(),
                        absl::StrCat("the devices' runtime does not compile the program: ", said,
                                     absl::EndsWith(said, ".") ? "" : "."),
                        AdviceOn({said.data(), said.size()})));
}

}  // namespace gangway::compiler
