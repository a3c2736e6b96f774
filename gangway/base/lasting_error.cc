// Implementation of lasting_error.h.
#include "gangway/base/lasting_error.h"

#include "absl/strings/cord.h"

namespace gangway {
namespace {

constexpr char kMark[] = "gangway/lasting";

}  // namespace

absl::Status Lasting(absl::Status error) {
  error.SetPayload(kMark, absl::Cord());
  return error;
}

bool IsLasting(const absl::Status& error) { return error.GetPayload(kMark).has_value(); }

}  // namespace gangway
