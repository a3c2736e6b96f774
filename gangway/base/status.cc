// Implementation of status.h.
#include "gangway/base/status.h"

#include <cstring>

#include "absl/strings/cord.h"

namespace gangway {
namespace {

constexpr char kPlaces[] = "gangway/places";

const char* FileName(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

}  // namespace

absl::Status AddContext(const absl::Status& error, const std::string& context) {
  if (error.ok() || context.empty()) return error;
  absl::Status added(error.code(), absl::StrCat(context, ": ", error.message()));
  error.ForEachPayload([&added](absl::string_view type, const absl::Cord& payload) {
    added.SetPayload(type, payload);
  });
  return added;
}

std::string PlacesOf(const absl::Status& error) {
  return std::string(error.GetPayload(kPlaces).value_or(absl::Cord()));
}

namespace status_internal {

absl::Status ReturnedAt(const char* file, int line, absl::Status error) {
  std::string places = PlacesOf(error);
  absl::StrAppend(&places, places.empty() ? "" : " ", FileName(file), ":", line);
  error.SetPayload(kPlaces, absl::Cord(std::move(places)));
  return error;
}

absl::Status ReturnedAt(const char* file, int line, const absl::Status& error,
                        const std::string& context) {
  return ReturnedAt(file, line, AddContext(error, context));
}

}  // namespace status_internal
}  // namespace gangway
