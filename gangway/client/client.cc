// Statuses of the client library and absl's, into each other (client.h).
#include "gangway/client/client.h"

#include <memory>
#include <string>

#include "gangway/wire/failure.h"

namespace gangway {

Status FailedStatus(const absl::Status& failure) {
  return Status(static_cast<StatusCode>(failure.code()), std::string(failure.message()),
                std::make_shared<const absl::Status>(failure));
}

absl::Status FailedAbslStatus(const Status& failure) {
  if (failure.origin() != nullptr) return *static_cast<const absl::Status*>(failure.origin());
  return absl::Status(static_cast<absl::StatusCode>(failure.code()), failure.message());
}

FailureRecord Status::record() const {
  const wire::Failure failure = wire::ToFailure(*this);
  FailureRecord record{.advice = failure.advice(),
                       .program = failure.program(),
                       .source = failure.source(),
                       .worker = failure.worker(),
                       .gang = failure.gang(),
                       .incarnation = failure.incarnation()};
  if (failure.has_device()) record.device = failure.device();
  if (failure.has_shard()) record.shard = failure.shard();
  record.launched_program = failure.launched_program();
  if (failure.has_node()) record.node = failure.node();
  return record;
}

}  // namespace gangway
