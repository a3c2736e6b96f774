// Implementation of worker_service.h: what it tells the scheduler of itself, beside the ends of nodes.
#include <spdlog/spdlog.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/worker_service.h"

namespace gangway::worker {
namespace {

constexpr std::chrono::seconds kReportInterval{1};
constexpr std::chrono::seconds kLongGang{1};  // from then on, heartbeats tell what its members do

}  // namespace

wire::ReportBatch& WorkerService::UsageReports() {
  EndRoundLater();
  return usage_reports_;
}

void WorkerService::ReportBroken(SessionId session, const std::string& found) {
  wire::BrokenBooks& broken = *UsageReports().add_reports()->mutable_broken_books();
  broken.set_session(session.number());
  *broken.mutable_failure() =
      wire::MakeFailure(absl::StatusCode::kInternal,
                        absl::StrCat(options_.identity.name, " found the memory sums of session ",
                                     session, " broken: ", found, "; so that session ends"),
                        "This is a bug of Gangway: report it with the worker's log. Other sessions "
                        "go on; connect again.");
  broken.mutable_failure()->set_worker(options_.identity.name);
  broken.mutable_failure()->set_incarnation(options_.identity.incarnation.number());
  spdlog::error("{}", broken.failure().message());
}

wire::DataBytes WorkerService::MakeDataBytes() const {
  wire::DataBytes data;
  data.set_from_clients(streams_.received_bytes() + tasks_.put_bytes());
  data.set_to_clients(streams_.sent_bytes());
  data.set_from_workers(transfers_.received_bytes());
  data.set_to_workers(transfers_.sent_bytes());
  data.set_from_workers_shared(transfers_.received_shared_bytes());
  data.set_to_workers_shared(transfers_.sent_shared_bytes());
  data.set_from_clients_shared(streams_.received_shared_bytes());
  data.set_to_clients_shared(streams_.sent_shared_bytes());
  data.set_staged_bytes(staging_->used());
  data.set_staged_bytes_max(staging_->bytes_max());
  data.set_staged_uploads(streams_.upload_count());
  return data;
}

wire::Usage WorkerService::MakeUsage(uint64_t probe) const {
  wire::Usage usage;
  usage.set_probe(probe);
  usage.set_nodes(core_.counts().nodes);
  usage.set_storages(core_.counts().storages);
  *usage.mutable_data() = MakeDataBytes();
  const std::vector<DeviceId>& device_ids = tasks_.environment().device_ids;
  for (size_t i = 0; i < device_ids.size() && i < devices_.size(); ++i) {
    wire::DeviceUsage& device = *usage.add_devices();
    store::Bytes bytes = storages_.ledger().Device(static_cast<int>(i));
    device.set_device(device_ids[i].number());
    device.set_bytes(bytes.current);
    device.set_peak_bytes(bytes.peak);
    device.set_budget_bytes(options_.memory_budget_bytes);
  }
  return usage;
}

void WorkerService::ReportChanges() {
  for (UploadsMoved& moved : streams_.TakeMoved()) Step(std::move(moved));
  uint64_t bytes = storages_.ledger().Total().current;
  std::string data = MakeDataBytes().SerializeAsString();
  if (bytes != reported_bytes_ || data != reported_data_) {
    reported_bytes_ = bytes;
    reported_data_ = std::move(data);
    *UsageReports().add_reports()->mutable_usage() = MakeUsage(0);
  }
  // Whole seconds: workers that share a loop report in one round of it.
  loop_->PostAt(std::chrono::floor<std::chrono::seconds>(Clock::now()) + kReportInterval,
                [this] { ReportChanges(); });
}

std::vector<wire::GangMember> WorkerService::LongMembers(Clock::time_point now) const {
  std::vector<wire::GangMember> members = running_->Look(now, kLongGang);
  if (members.empty()) return members;
  const std::map<int, collective::Waiting> waits = peers_.Waiting();
  const std::map<int, HostCalls::Caller> calls = host_calls_->Waiting();
  for (wire::GangMember& member : members) {
    const auto device = static_cast<int>(member.device());
    if (auto wait = waits.find(device); wait != waits.end() && wait->second.gang == member.gang()) {
      member.set_stage(wire::GangMember::STAGE_COLLECTIVE);
      member.set_for_ms(ElapsedMs(wait->second.since, now));
      member.set_collective(wire::ValidUtf8(wait->second.collective));
      member.set_awaited_worker(wait->second.peer);
      member.set_awaited_device(wait->second.peer_device);
    } else if (auto call = calls.find(device);
               call != calls.end() && call->second.gang.number() == member.gang()) {
      member.set_stage(wire::GangMember::STAGE_CALLBACK);
      member.set_client(wire::ValidUtf8(call->second.client));
    }
  }
  return members;
}

}  // namespace gangway::worker
