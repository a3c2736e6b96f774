// Converts absl::Status to wire::Failure and back (ER-1). A Status made from a Failure carries the
// whole record as a payload, so the round trip loses nothing; a Status without a record gives a
// Failure with code and message only. Context added to such a Status (base/status.h) precedes the
// record's message. Messages come from anywhere (a compiler, the operating system, a user's
// program): bytes that are not UTF-8 are replaced, since a receiver rejects a whole frame that has
// any. Their texts have limits, since a failure is told again for each use of what it spoiled.
#ifndef GANGWAY_WIRE_FAILURE_H_
#define GANGWAY_WIRE_FAILURE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

#include "gangway/base/utf8.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::wire {

// Limits of a failure's texts, in bytes: the message, the advice, and each name.
inline constexpr size_t kFailureTextMax = 4096;
inline constexpr size_t kFailureAdviceMax = 1024;
inline constexpr size_t kNameMax = 512;

using gangway::ValidUtf8;

absl::Status ToStatus(const Failure& failure);
Failure ToFailure(const absl::Status& status);
Failure MakeFailure(absl::StatusCode code, std::string_view message, std::string_view advice = "");

// Cuts the texts that exceed their limits, and escapes the names (base/shown_name.h). Every role does so with failures
// that it receives from clients, compilers and workers; those made here are within the limits.
void Clip(Failure& failure);

// Cuts a longer text to its start and the number of bytes left out, in at most `bytes_max` (64 or more).
void ClipText(std::string& text, size_t bytes_max);

// A failure that many arrays, nodes and waiters share. Null: none.
using FailureRef = std::shared_ptr<const Failure>;

FailureRef Share(Failure failure);

// How failures and waits name a compiled program. All calls of the program share one label, so that
// a call copies no text.
struct ProgramLabel {
  std::string name;
  std::string source;  // "FILE:LINE", where known
};
using ProgramLabelRef = std::shared_ptr<const ProgramLabel>;

// The names come from a user's program: they are escaped, and cut at kNameMax.
ProgramLabelRef LabelOf(const std::string& name, const std::string& source = "");

// "jit_step at train.py:42".
std::string ToText(const ProgramLabel& label);

// A null `label` leaves `failure` unchanged.
void SetProgram(const ProgramLabelRef& label, Failure& failure);

// One text for people and foreign protocols: the message, then program, gang, worker, device and
// shard as far as known, then the advice.
std::string ToText(const Failure& failure);

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_FAILURE_H_
