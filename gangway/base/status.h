// Early returns for absl::Status and absl::StatusOr:
//
//   GANGWAY_RETURN_IF_ERROR(Write(file, bytes));
//   GANGWAY_RETURN_IF_ERROR(Write(file, bytes), "cache entry ", key);
//   GANGWAY_ASSIGN_OR_RETURN(auto link, Dial(address));
//   GANGWAY_ASSIGN_OR_RETURN(Config config, Read(path), "line ", number);
//
// Each is one statement, and returns the error from the enclosing function or lambda. The arguments
// after the expression are the context, see AddContext; they are evaluated only on failure.
#ifndef GANGWAY_BASE_STATUS_H_
#define GANGWAY_BASE_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace gangway {

// Prepends "context: " to the message of an error. Its payloads stay, among them the failure record
// (wire/failure.h), which takes the context over when it is read.
absl::Status AddContext(const absl::Status& error, const std::string& context);

// The places that returned the error through the macros, innermost first: "link.cc:12 head.cc:40".
// Status::ToString prints them; they do not leave the process.
std::string PlacesOf(const absl::Status& error);

namespace status_internal {

inline absl::Status StatusOf(absl::Status status) { return status; }
template <typename T>
absl::Status StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

absl::Status ReturnedAt(const char* file, int line, absl::Status error);
absl::Status ReturnedAt(const char* file, int line, const absl::Status& error,
                        const std::string& context);

}  // namespace status_internal
}  // namespace gangway

// Returns the error of `expression`, an absl::Status or absl::StatusOr, if it has one.
#define GANGWAY_RETURN_IF_ERROR(expression, ...)                                                 \
  do {                                                                                           \
    if (absl::Status gangway_error = ::gangway::status_internal::StatusOf(expression);           \
        !gangway_error.ok()) [[unlikely]]                                                        \
      return ::gangway::status_internal::ReturnedAt(                                             \
          __FILE__, __LINE__, std::move(gangway_error) __VA_OPT__(, absl::StrCat(__VA_ARGS__))); \
  } while (false)

// Moves the value of `expression`, an absl::StatusOr, into `target`, which may declare a variable,
// or returns its error.
#define GANGWAY_ASSIGN_OR_RETURN(target, expression, ...)                               \
  GANGWAY_ASSIGN_OR_RETURN_TO_(GANGWAY_STATUS_NAME_(gangway_result_, __LINE__), target, \
                               expression __VA_OPT__(, ) __VA_ARGS__)
#define GANGWAY_ASSIGN_OR_RETURN_TO_(result, target, expression, ...)                            \
  auto result = (expression);                                                                    \
  if (!result.ok()) [[unlikely]]                                                                 \
    return ::gangway::status_internal::ReturnedAt(                                               \
        __FILE__, __LINE__, std::move(result).status() __VA_OPT__(, absl::StrCat(__VA_ARGS__))); \
  target = *std::move(result)
#define GANGWAY_STATUS_NAME_(prefix, line) GANGWAY_STATUS_JOIN_(prefix, line)
#define GANGWAY_STATUS_JOIN_(prefix, line) prefix##line

#endif  // GANGWAY_BASE_STATUS_H_
