// The client library's interface for this repository's own code: its statuses convert to absl's and back, implicitly,
// with all that an absl::Status carries. Programs of others include gangway/client.h and gangway/connect.h alone.
#ifndef GANGWAY_CLIENT_CLIENT_H_
#define GANGWAY_CLIENT_CLIENT_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/client/include/gangway/client.h"
#include "gangway/client/include/gangway/status.h"

namespace gangway {

Status FailedStatus(const absl::Status& failure);
absl::Status FailedAbslStatus(const Status& failure);

template <>
struct StatusTraits<absl::Status> {
  static Status ToStatus(const absl::Status& status) {
    return status.ok() ? Status() : FailedStatus(status);
  }
  static absl::Status FromStatus(const Status& status) {
    return status.ok() ? absl::OkStatus() : FailedAbslStatus(status);
  }
};

template <typename T>
Result<T> ToResult(absl::StatusOr<T> value) {
  if (!value.ok()) return Status(value.status());
  return *std::move(value);
}

template <typename T>
absl::StatusOr<T> FromResult(Result<T> result) {
  if (!result.ok()) return absl::Status(result.status());
  return std::move(result).value();
}

}  // namespace gangway

#endif  // GANGWAY_CLIENT_CLIENT_H_
