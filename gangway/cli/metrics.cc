// Implementation of metrics.h.
#include "gangway/cli/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <exception>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/cli/status_text.h"

namespace gangway::cli {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

class Families {
 public:
  prometheus::MetricFamily& Add(const std::string& name, const char* help,
                                prometheus::MetricType type) {
    prometheus::MetricFamily& family = families_.emplace_back();
    family.name = absl::StrCat("gangway_", name);
    family.help = help;
    family.type = type;
    return family;
  }
  prometheus::MetricFamily& Gauge(const std::string& name, const char* help) {
    return Add(name, help, prometheus::MetricType::Gauge);
  }
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

void Set(prometheus::MetricFamily& family, double value, Labels labels = {}) {
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  metric.gauge.value = value;
  metric.counter.value = value;
}

void AddWorkers(const wire::StatusReply& status, Families& families) {
  auto name = [](const wire::StatusReply::WorkerStatus& worker) {
    const wire::Worker& named = worker.state().worker();
    return absl::StrCat("island", named.island(), "/worker", named.index());
  };
  auto& up = families.Gauge("worker_up", "1: the worker is up");
  for (const auto& worker : status.workers())
    Set(up, worker.state().up() ? 1 : 0, {{"worker", name(worker)}});
  auto& draining = families.Gauge("worker_draining", "1: the worker takes no new work");
  for (const auto& worker : status.workers())
    Set(draining, worker.state().draining() ? 1 : 0, {{"worker", name(worker)}});
  auto& claimed =
      families.Gauge("worker_claimed", "1: only the sessions of one owner may use the worker");
  for (const auto& worker : status.workers())
    Set(claimed, worker.state().has_claim() ? 1 : 0, {{"worker", name(worker)}});
  auto devices = [&](const char* metric, const char* help, auto value) {
    auto& family = families.Gauge(metric, help);
    for (const auto& worker : status.workers()) {
      for (const wire::DeviceUsage& device : worker.devices()) {
        Set(family, static_cast<double>(value(device)),
            {{"worker", name(worker)}, {"device", absl::StrCat(device.device())}});
      }
    }
  };
  devices("device_bytes", "Bytes that arrays and running programs hold on the device",
          [](const auto& device) { return device.bytes(); });
  auto& stuck = families.Gauge("device_stuck",
                               "1: a call of the device runtime does not return, "
                               "although the worker sends heartbeats");
  for (const auto& worker : status.workers()) {
    for (uint32_t device : worker.state().worker().devices()) {
      Set(stuck, IsStuck(worker.state(), device) ? 1 : 0,
          {{"worker", name(worker)}, {"device", absl::StrCat(device)}});
    }
  }
  devices("device_peak_bytes", "The highest device_bytes so far",
          [](const auto& device) { return device.peak_bytes(); });
  devices("device_budget_bytes", "The limit of device_bytes; 0: no limit",
          [](const auto& device) { return device.budget_bytes(); });
  devices("device_launches", "Launches that were released to the device and have not ended",
          [](const auto& device) { return device.launches(); });
}

// Host memory of workers for bytes on their way.
void AddStaging(const wire::StatusReply& status, Families& families) {
  auto& used = families.Gauge("staged_bytes",
                              "Host memory that arrays on their way to and from the worker hold");
  auto& limit = families.Gauge("staged_bytes_max", "The limit of staged_bytes");
  for (const auto& worker : status.workers()) {
    const std::string name = absl::StrCat("island", worker.state().worker().island(), "/worker",
                                          worker.state().worker().index());
    Set(used, static_cast<double>(worker.data().staged_bytes()), {{"worker", name}});
    Set(limit, static_cast<double>(worker.data().staged_bytes_max()), {{"worker", name}});
  }
}

void AddSessions(const wire::StatusReply& status, Families& families) {
  uint64_t arrays = 0, bytes = 0, pending = 0, executables = 0, programs = 0;
  for (const auto& session : status.sessions()) {
    arrays += session.arrays();
    bytes += session.bytes();
    pending += session.pending_nodes();
    executables += session.executables();
    programs += session.programs();
  }
  auto total = [&families](const char* name, const char* help, uint64_t value) {
    Set(families.Gauge(name, help), static_cast<double>(value));
  };
  total("sessions", "Connected clients", static_cast<uint64_t>(status.sessions_size()));
  total("arrays", "Arrays that clients hold", arrays);
  total("array_bytes", "Bytes of those arrays", bytes);
  total("executables", "Compiled functions that clients hold", executables);
  total("programs", "Programs that clients have registered", programs);
  total("pending_nodes", "Uploads, calls, copies and fetches that have not ended", pending);
}

using Ask = std::function<absl::StatusOr<wire::StatusReply>()>;

class Collector final : public prometheus::Collectable {
 public:
  explicit Collector(Ask ask) : ask_(std::move(ask)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    auto status = ask_();
    if (status.ok()) return ToMetrics(*status);
    Families families;
    Set(families.Gauge("controller_up", "1: the controller answers"), 0);
    return families.Take();
  }

 private:
  const Ask ask_;
};

class MetricsEndpointImpl final : public MetricsEndpoint {
 public:
  MetricsEndpointImpl(int port, Ask ask)
      : collector_(std::make_shared<Collector>(std::move(ask))),
        exposer_(absl::StrCat("127.0.0.1:", port), /*num_threads=*/1) {
    exposer_.RegisterCollectable(collector_);
  }

 private:
  const std::shared_ptr<Collector> collector_;
  prometheus::Exposer exposer_;  // destroyed first: ends its threads
};

}  // namespace

std::vector<prometheus::MetricFamily> ToMetrics(const wire::StatusReply& status) {
  Families families;
  Set(families.Gauge("controller_up", "1: the controller answers"), 1);
  Set(families.Gauge("compiler_up", "1: the compiler is up"), status.compiler_up() ? 1 : 0);
  AddWorkers(status, families);
  AddStaging(status, families);
  AddSessions(status, families);
  for (const auto& [name, help, value] :
       {std::tuple("frames_from_clients_total", "Frames from clients", status.messages_received()),
        std::tuple("frames_to_clients_total", "Frames to clients", status.messages_sent())}) {
    Set(families.Add(name, help, prometheus::MetricType::Counter), static_cast<double>(value));
  }
  for (const auto& [name, help, counter] :
       {std::tuple("head_frames_sent_total", "Frames sent to other processes", "head_frames_sent"),
        std::tuple("head_frame_bytes_sent_total", "Bytes of those frames", "head_frame_bytes_sent"),
        std::tuple("head_frames_received_total", "Frames received from other processes",
                   "head_frames_received"),
        std::tuple("head_frame_bytes_received_total", "Bytes of those frames",
                   "head_frame_bytes_received")}) {
    const auto found = status.counters().find(counter);
    if (found == status.counters().end()) continue;
    Set(families.Add(name, help, prometheus::MetricType::Counter),
        static_cast<double>(found->second));
  }
  return families.Take();
}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    int port, std::function<absl::StatusOr<wire::StatusReply>()> ask) {
  try {  // the library throws if it cannot listen
    return std::make_unique<MetricsEndpointImpl>(port, std::move(ask));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on 127.0.0.1:", port, " (", error.what(),
                     "): another program may have that port; choose one with --metrics-port"));
  }
}

}  // namespace gangway::cli
