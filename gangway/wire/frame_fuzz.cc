// Frames from a peer: any bytes parse or are rejected, a parsed frame survives a round trip, and
// its failure record survives one through absl::Status (ER-1).
#include <google/protobuf/stubs/logging.h>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  wire::Frame hello;
  hello.mutable_hello()->set_name("train.py");
  hello.mutable_hello()->mutable_worker()->set_data_address("127.0.0.1:1");
  wire::Frame refused;
  *refused.mutable_hello_reply()->mutable_failure() =
      wire::MakeFailure(absl::StatusCode::kDataLoss, "array lost", "Make it again.");
  refused.mutable_hello_reply()->mutable_failure()->set_worker("island0/worker1");
  refused.mutable_hello_reply()->mutable_failure()->set_device(3);
  wire::Frame chunk;
  chunk.mutable_bulk()->mutable_bytes()->set_data("0123456789");
  wire::Frame batch;
  batch.mutable_session_batch()->add_ops()->mutable_upload()->set_array(1);
  batch.mutable_session_batch()->add_ops()->mutable_drop()->add_handles(1);
  return {hello.SerializeAsString(), refused.SerializeAsString(), chunk.SerializeAsString(),
          batch.SerializeAsString()};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static auto* const before = google::protobuf::SetLogHandler(nullptr);
  gangway::wire::Frame frame;
  if (!frame.ParseFromArray(data, static_cast<int>(size))) return 0;
  gangway::wire::Frame again;
  GANGWAY_CHECK(again.ParseFromString(frame.SerializeAsString()), "a parsed frame parses again");
  GANGWAY_CHECK(again.ByteSizeLong() == frame.ByteSizeLong(), "and keeps its size");
  const gangway::wire::Failure& failure = frame.hello_reply().failure();
  const absl::Status status = gangway::wire::ToStatus(failure);
  GANGWAY_CHECK(status.ok() == (failure.code() == 0), "only code 0 is success");
  if (!status.ok()) {
    GANGWAY_CHECK(
        gangway::wire::ToFailure(status).SerializeAsString() == failure.SerializeAsString(),
        "ER-1: the record survives");
  }
  return 0;
}
