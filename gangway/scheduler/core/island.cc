// Construction and the dispatch of events.
#include "gangway/scheduler/core/island.h"

#include <algorithm>

namespace gangway::scheduler {
namespace {

size_t CountDevices(const IslandConfig& config) {
  size_t count = 0;
  for (const WorkerSpec& worker : config.workers) count += worker.devices.size();
  return count;
}

}  // namespace

Island::Island(IslandConfig config)
    : config_(std::move(config)),
      workers_(config_.workers.size()),
      ledger_(CountDevices(config_), config_.budget_bytes) {
  for (uint32_t worker = 0; worker < config_.workers.size(); ++worker) {
    workers_[worker].latest = config_.workers[worker].last_incarnation;
    workers_[worker].first_device = IslandDevice(static_cast<uint32_t>(devices_.size()));
    for (DeviceId id : config_.workers[worker].devices) {
      device_index_[id] = IslandDevice(static_cast<uint32_t>(devices_.size()));
      devices_.push_back({.worker = worker, .id = id});
    }
  }
}

void Island::Step(Event event, Time now, Actions& actions) {
  ++step_;
  only_parts_ended_ = std::holds_alternative<FromWorker>(event);
  if (auto* batch = std::get_if<FromController>(&event)) {
    for (wire::IslandItem& item : *batch->batch.mutable_items()) OnItem(item, now, actions);
  } else if (auto* reports = std::get_if<FromWorker>(&event)) {
    bool known = reports->worker < workers_.size() &&
                 workers_[reports->worker].incarnation != Incarnation() &&
                 workers_[reports->worker].incarnation == reports->incarnation;
    if (!known) return;  // of an incarnation that was declared dead
    for (wire::Report& report : *reports->batch.mutable_reports()) {
      OnReport(reports->worker, report, now, actions);
    }
  } else if (auto* up = std::get_if<WorkerUp>(&event)) {
    OnWorkerUp(*up, now, actions);
  } else if (auto* down = std::get_if<WorkerDown>(&event)) {
    OnWorkerDown(*down, actions);
  } else if (auto* beat = std::get_if<WorkerBeat>(&event)) {
    OnWorkerBeat(*beat, now, actions);
  }
  // Then nothing is free that others wait for. A gang over many workers ends in as many steps, and others may wait
  // behind it.
  const std::optional<Time> deadline = next_deadline();
  if (only_parts_ended_ && !memory_freed_ && (!deadline || now < *deadline)) return;
  OnWorkerDeadlines(now, actions);
  OnOrphans(now, actions);
  if (unsent_input_failed_) ResumeUnsent(actions);
  if (!unloading_.empty()) Unload(actions);
  OnMemoryDeadlines(now, actions);
  OnUploadDeadlines(now, actions);
  MendBooks(actions);  // before memory is given out
  Schedule(now, actions);
  MendBooks(actions);
  ReportExchanges(actions);
}

std::optional<Time> Island::next_deadline() const {
  std::optional<Time> next;
  auto consider = [&next](Time when) {
    if (!next || when < *next) next = when;
  };
  if (!memory_waits_.empty()) consider(memory_waits_.begin()->first + config_.memory_wait_max);
  if (!unsent_.empty()) consider(nodes_.at(*unsent_.begin()).arrived + config_.worker_wait_max);
  if (!orphans_.empty()) consider(orphans_due_);
  if (!uploads_.empty()) consider(uploads_.begin()->first + config_.upload_wait_max);
  return next;
}

}  // namespace gangway::scheduler
