// The name of the payload by which an absl::Status carries a failure record (wire/failure.h), for code that only needs
// to know whether an error has one, and so is what a cluster says.
#ifndef GANGWAY_BASE_FAILURE_RECORD_H_
#define GANGWAY_BASE_FAILURE_RECORD_H_

namespace gangway {

inline constexpr char kFailureRecord[] = "gangway/failure";

}  // namespace gangway

#endif  // GANGWAY_BASE_FAILURE_RECORD_H_
