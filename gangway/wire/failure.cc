// Implementation of failure.h.
#include "gangway/wire/failure.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace gangway::wire {
namespace {
constexpr char kPayload[] = "gangway/failure";
}  // namespace

absl::Status ToStatus(const Failure& failure) {
  if (failure.code() == 0) return absl::OkStatus();
  absl::Status status(static_cast<absl::StatusCode>(failure.code()), ToText(failure));
  status.SetPayload(kPayload, absl::Cord(failure.SerializeAsString()));
  return status;
}

Failure ToFailure(const absl::Status& status) {
  Failure failure;
  if (status.ok()) return failure;
  if (auto payload = status.GetPayload(kPayload)) {
    if (failure.ParseFromString(std::string(*payload)) && failure.code() != 0) return failure;
    failure.Clear();
  }
  failure.set_code(static_cast<int>(status.code()));
  failure.set_message(std::string(status.message()));
  return failure;
}

Failure MakeFailure(absl::StatusCode code, std::string_view message, std::string_view advice) {
  Failure failure;
  failure.set_code(static_cast<int>(code));
  failure.set_message(std::string(message));
  failure.set_advice(std::string(advice));
  return failure;
}

std::string ToText(const Failure& failure) {
  std::string text = failure.message();
  std::string where;
  auto add = [&where](const auto&... parts) {
    absl::StrAppend(&where, where.empty() ? "" : ", ", parts...);
  };
  if (!failure.program().empty()) add("program ", failure.program());
  if (!failure.source().empty()) add("at ", failure.source());
  if (failure.gang() != 0) add("gang ", failure.gang());
  if (!failure.worker().empty()) add("worker ", failure.worker());
  if (failure.incarnation() != 0) add("incarnation ", failure.incarnation());
  if (failure.device() != 0) add("device ", failure.device() - 1);
  if (failure.shard() != 0) add("shard ", failure.shard() - 1);
  if (!where.empty()) absl::StrAppend(&text, " [", where, "]");
  if (!failure.advice().empty()) absl::StrAppend(&text, " ", failure.advice());
  return text;
}

}  // namespace gangway::wire
