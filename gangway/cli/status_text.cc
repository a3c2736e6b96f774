// Implementation of status_text.h.
#include "gangway/cli/status_text.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gangway/base/shown_name.h"
#include "gangway/cli/json.h"

namespace gangway::cli {
namespace {

using WorkerStatus = wire::StatusReply::WorkerStatus;

std::string Name(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

std::string Bytes(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", value, units[unit]);
}

// All declared devices, including those without reported usage.
std::vector<wire::DeviceUsage> Devices(const WorkerStatus& worker) {
  std::vector<wire::DeviceUsage> devices;
  for (uint32_t id : worker.state().worker().devices()) {
    wire::DeviceUsage& device = devices.emplace_back();
    device.set_device(id);
    for (const wire::DeviceUsage& usage : worker.devices()) {
      if (usage.device() == id) device = usage;
    }
  }
  return devices;
}

const char* StateWord(const wire::WorkerState& worker) {
  if (!worker.up()) return "down";
  if (worker.draining()) return "drain";
  return worker.stuck().empty() ? "up" : "stuck";
}

// Bulk bytes by path, since the worker started.
Json DataJson(const wire::DataBytes& data) {
  return {{"from_clients", data.from_clients()},
          {"to_clients", data.to_clients()},
          {"from_workers", data.from_workers()},
          {"to_workers", data.to_workers()},
          {"from_workers_shared", data.from_workers_shared()},
          {"to_workers_shared", data.to_workers_shared()},
          {"from_clients_shared", data.from_clients_shared()},
          {"to_clients_shared", data.to_clients_shared()},
          {"staged", data.staged_bytes()},
          {"staged_max", data.staged_bytes_max()},
          {"staged_uploads", data.staged_uploads()}};
}

const char* UpOrDown(bool up) { return up ? "up" : "down"; }

// Null: no owner's sessions have claimed the worker.
Json ClaimJson(const wire::WorkerState& state) {
  if (!state.has_claim()) return nullptr;
  return {{"owner", state.claim().owner()},
          {"session", state.claim().session()},
          {"client", state.claim().client()},
          {"for_ms", state.claim().for_ms()}};
}

Json WorkerJson(const WorkerStatus& worker) {
  const wire::WorkerState& state = worker.state();
  Json devices = Json::array();
  for (const wire::DeviceUsage& device : Devices(worker)) {
    devices.push_back({{"id", device.device()},
                       {"kind", state.worker().device_kind()},
                       {"bytes_in_use", device.bytes()},
                       {"budget_bytes", device.budget_bytes()},
                       {"peak_bytes", device.peak_bytes()},
                       {"launches", device.launches()},
                       {"stuck", IsStuck(state, device.device())}});
  }
  return {{"name", Name(state.worker())},
          {"pid", state.process_id()},
          {"incarnation", state.worker().incarnation()},
          {"state", UpOrDown(state.up())},
          {"draining", state.draining()},
          {"claim", ClaimJson(state)},
          {"nodes", worker.nodes()},
          {"data_bytes", DataJson(worker.data())},
          {"devices", std::move(devices)}};
}

// What the head holds in its memory; empty if it does not say.
std::string HeadText(const wire::StatusReply& status) {
  const auto counter = [&status](const char* name) {
    auto found = status.counters().find(name);
    return found == status.counters().end() ? uint64_t{0} : found->second;
  };
  if (counter("head_memory_limit_bytes") == 0) return "";
  const uint64_t held = counter("head_host_buffers_bytes") + counter("head_programs_bytes") +
                        counter("head_pieces_bytes");
  return absl::StrFormat("%-18s %-6s %29s  holds %s of %s for clients; %s resident\n", "head", "up",
                         "", Bytes(held), Bytes(counter("head_memory_limit_bytes")),
                         Bytes(counter("head_resident_bytes")));
}

std::string SchedulerName(const wire::StatusReply::Scheduler& scheduler) {
  return absl::StrCat("island", scheduler.island(), "/scheduler");
}

Json SchedulerJson(const wire::StatusReply::Scheduler& scheduler) {
  return {{"island", scheduler.island()},
          {"pid", scheduler.process_id()},
          {"state", UpOrDown(scheduler.up())}};
}

Json SessionJson(const wire::StatusReply::Session& session) {
  return {{"id", session.session()},
          {"client", session.name()},
          {"arrays", session.arrays()},
          {"bytes", session.bytes()},
          {"executables", session.executables()},
          {"programs", session.programs()},
          {"pending_nodes", session.pending_nodes()}};
}

}  // namespace

std::string ToJson(const wire::StatusReply& status) {
  std::map<uint32_t, Json> workers;  // by island
  for (const WorkerStatus& worker : status.workers())
    workers[worker.state().worker().island()].push_back(WorkerJson(worker));
  Json islands = Json::array();
  for (auto& [id, of_island] : workers)
    islands.push_back({{"id", id}, {"workers", std::move(of_island)}});
  Json schedulers = Json::array();
  for (const auto& scheduler : status.schedulers()) schedulers.push_back(SchedulerJson(scheduler));
  Json sessions = Json::array();
  uint64_t arrays = 0, bytes = 0;
  for (const auto& session : status.sessions()) {
    sessions.push_back(SessionJson(session));
    arrays += session.arrays();
    bytes += session.bytes();
  }
  std::map<std::string, uint64_t> counters(status.counters().begin(), status.counters().end());
  counters["messages_received"] = status.messages_received();
  counters["messages_sent"] = status.messages_sent();
  return ToText(
      Json{{"epoch", status.epoch()},
           {"islands", std::move(islands)},
           {"schedulers", std::move(schedulers)},
           {"compiler",
            {{"pid", status.compiler_process_id()}, {"state", UpOrDown(status.compiler_up())}}},
           {"sessions", std::move(sessions)},
           {"arrays", arrays},
           {"bytes", bytes},
           {"counters", std::move(counters)}});
}

std::string ToTable(const wire::StatusReply& status) {
  std::string text = absl::StrFormat("%-18s %-6s %8s %20s  %s\n", "WORKER", "STATE", "PID",
                                     "INCARNATION", "DEVICES");
  for (const WorkerStatus& worker : status.workers()) {
    const wire::WorkerState& state = worker.state();
    absl::StrAppendFormat(&text, "%-18s %-6s %8d %20d  ", Name(state.worker()), StateWord(state),
                          state.process_id(), state.worker().incarnation());
    if (!state.up()) {
      absl::StrAppend(&text, ShownName(state.failure().message(), SIZE_MAX), "\n");
      continue;
    }
    std::string devices;
    for (const wire::DeviceUsage& device : Devices(worker)) {
      absl::StrAppend(&devices, devices.empty() ? "" : ", ", state.worker().device_kind(), ":",
                      device.device(), " ", Bytes(device.bytes()));
      if (device.budget_bytes() != 0)
        absl::StrAppend(&devices, " of ", Bytes(device.budget_bytes()));
      if (IsStuck(state, device.device())) absl::StrAppend(&devices, " STUCK");
    }
    absl::StrAppend(&text, devices, "\n");
    if (state.has_claim()) {
      const wire::WorkerClaim& claim = state.claim();
      absl::StrAppendFormat(&text, "%-18s %-6s claimed by %s for %d s, first by session %d (%s)\n",
                            "", "", ShownName(claim.owner()), claim.for_ms() / 1000,
                            claim.session(), ShownName(claim.client()));
    }
    const wire::DataBytes& data = worker.data();
    if (data.ByteSizeLong() == 0) continue;
    absl::StrAppendFormat(
        &text, "%-18s %-6s clients %s in, %s out; workers %s in, %s out; %s of %s on their way\n",
        "", "", Bytes(data.from_clients()), Bytes(data.to_clients()), Bytes(data.from_workers()),
        Bytes(data.to_workers()), Bytes(data.staged_bytes()), Bytes(data.staged_bytes_max()));
  }
  for (const auto& scheduler : status.schedulers()) {
    absl::StrAppendFormat(&text, "%-18s %-6s %8d\n", SchedulerName(scheduler),
                          scheduler.up() ? "up" : "down", scheduler.process_id());
  }
  text += HeadText(status);
  absl::StrAppendFormat(&text, "%-18s %-6s %8d\n", "compiler", status.compiler_up() ? "up" : "down",
                        status.compiler_process_id());
  if (status.sessions().empty()) return text + "\nno sessions\n";
  absl::StrAppendFormat(&text, "\n%-8s %-32s %8s %12s %12s %9s %8s\n", "SESSION", "CLIENT",
                        "ARRAYS", "BYTES", "EXECUTABLES", "PROGRAMS", "PENDING");
  for (const auto& session : status.sessions()) {
    absl::StrAppendFormat(&text, "%-8d %-32s %8d %12s %12d %9d %8d\n", session.session(),
                          ShownName(session.name()), session.arrays(), Bytes(session.bytes()),
                          session.executables(), session.programs(), session.pending_nodes());
  }
  return text;
}

bool IsStuck(const wire::WorkerState& worker, uint32_t device) {
  const auto& stuck = worker.stuck();
  return std::any_of(stuck.begin(), stuck.end(),
                     [device](const wire::StuckDevice& each) { return each.device() == device; });
}

std::string Absent(const wire::StatusReply& status) {
  std::string absent;
  for (const auto& scheduler : status.schedulers()) {
    if (!scheduler.up())
      absl::StrAppend(&absent, absent.empty() ? "" : ", ", SchedulerName(scheduler));
  }
  for (const WorkerStatus& worker : status.workers()) {
    if (!worker.state().up())
      absl::StrAppend(&absent, absent.empty() ? "" : ", ", Name(worker.state().worker()));
  }
  if (!status.compiler_up()) absl::StrAppend(&absent, absent.empty() ? "" : ", ", "the compiler");
  return absent;
}

}  // namespace gangway::cli
