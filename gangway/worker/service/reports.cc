// Implementation of reports.h.
#include "gangway/worker/service/reports.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"

namespace gangway::worker {

Reports::Reports(Options options) : options_(std::move(options)) {}

wire::Report& Reports::Add() {
  options_.on_added();
  return *waiting_.add_reports();
}

void Reports::AddUsage(uint64_t probe) {
  wire::Usage& usage = *Add().mutable_usage();
  usage = options_.usage();
  usage.set_probe(probe);
}

void Reports::AddUsageIfChanged() {
  const wire::Usage usage = options_.usage();
  uint64_t bytes = 0;
  for (const wire::DeviceUsage& device : usage.devices()) bytes += device.bytes();
  std::string data = usage.data().SerializeAsString();
  if (bytes == reported_bytes_ && data == reported_data_) return;
  reported_bytes_ = bytes;
  reported_data_ = std::move(data);
  *Add().mutable_usage() = usage;
}

void Reports::AddBroken(SessionId session, const std::string& found) {
  const Identity& worker = options_.identity;
  wire::BrokenBooks& broken = *Add().mutable_broken_books();
  broken.set_session(session.number());
  *broken.mutable_failure() =
      wire::MakeFailure(absl::StatusCode::kInternal,
                        absl::StrCat(worker.name, " found the memory sums of session ", session,
                                     " broken: ", found, "; so that session ends"),
                        "This is a bug of Gangway: report it with the worker's log. Other sessions "
                        "go on; connect again.");
  broken.mutable_failure()->set_worker(worker.name);
  broken.mutable_failure()->set_incarnation(worker.incarnation.number());
  spdlog::error("{}", broken.failure().message());
}

void Reports::Send(wire::ReportBatch batch) {
  auto& waiting = *waiting_.mutable_reports();
  std::move(waiting.begin(), waiting.end(),
            google::protobuf::RepeatedPtrFieldBackInserter(batch.mutable_reports()));
  waiting_.Clear();
  wire::Frame frame;
  frame.mutable_report_batch()->Swap(&batch);
  options_.send(std::move(frame));
}

void Reports::Flush() {
  if (waiting_.reports_size() != 0) Send({});
}

}  // namespace gangway::worker
