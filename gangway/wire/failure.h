// absl::Status <-> wire::Failure (ER-1). A Status made from a Failure carries the whole record as a
// payload, so that turning it back loses nothing; one that never had a record gives a Failure with
// code and message only. Messages come from anywhere (a compiler, the operating system, a user's
// program): what is not UTF-8 in them is replaced, since a receiver refuses the whole frame for it.
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

// A compiled program as failures and waits name it. Shared by all its calls, so that a call copies
// no text.
struct ProgramLabel {
  std::string name;
  std::string source;  // "FILE:LINE", where known
};
using ProgramLabelRef = std::shared_ptr<const ProgramLabel>;

ProgramLabelRef LabelOf(std::string name, std::string source = "");

// "jit_step at train.py:42".
std::string ToText(const ProgramLabel& label);

// `label` may be null: `failure` stays as it is.
void SetProgram(const ProgramLabelRef& label, Failure& failure);

// `text` with every byte that is not part of valid UTF-8 replaced by '?'.
std::string ValidUtf8(std::string_view text);

// One text for people and foreign protocols: message, then what is known of program, gang, worker,
// device, then advice.
std::string ToText(const Failure& failure);

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_FAILURE_H_
