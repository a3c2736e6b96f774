// Converts absl::Status to wire::Failure and back (ER-1). A Status made from a Failure carries the
// whole record as a payload, so the round trip loses nothing; a Status without a record gives a
// Failure with code and message only. Context added to such a Status (base/status.h) precedes the
// record's message. Messages come from anywhere (a compiler, the operating system, a user's
// program): bytes that are not UTF-8 are replaced, since a receiver rejects a whole frame that has
// any.
#ifndef GANGWAY_WIRE_FAILURE_H_
#define GANGWAY_WIRE_FAILURE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

#include "gangway/wire/wire.pb.h"

namespace gangway::wire {

absl::Status ToStatus(const Failure& failure);
Failure ToFailure(const absl::Status& status);
Failure MakeFailure(absl::StatusCode code, std::string_view message, std::string_view advice = "");

// How failures and waits name a compiled program. All calls of the program share one label, so that
// a call copies no text.
struct ProgramLabel {
  std::string name;
  std::string source;  // "FILE:LINE", where known
};
using ProgramLabelRef = std::shared_ptr<const ProgramLabel>;

ProgramLabelRef LabelOf(std::string name, std::string source = "");

// "jit_step at train.py:42".
std::string ToText(const ProgramLabel& label);

// A null `label` leaves `failure` unchanged.
void SetProgram(const ProgramLabelRef& label, Failure& failure);

// `text` with every byte that is not part of valid UTF-8 replaced by '?'.
std::string ValidUtf8(std::string_view text);

// One text for people and foreign protocols: the message, then program, gang, worker, device and
// shard as far as known, then the advice.
std::string ToText(const Failure& failure);

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_FAILURE_H_
