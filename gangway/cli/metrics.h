// Serves the data of `gangway status` to Prometheus: gauges and counters over HTTP, on loopback
// only. Each scrape queries the controller once, as a tool does; between scrapes the endpoint is
// idle.
#ifndef GANGWAY_CLI_METRICS_H_
#define GANGWAY_CLI_METRICS_H_

#include <prometheus/metric_family.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/wire/wire.pb.h"

namespace gangway::cli {

// Pure. Every name begins with "gangway_".
std::vector<prometheus::MetricFamily> ToMetrics(const wire::StatusReply& status);

class MetricsEndpoint {
 public:
  virtual ~MetricsEndpoint() = default;  // closes the port

  // `ask` may block; it runs on a thread of the endpoint. UNAVAILABLE: the port is in use.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      int port, std::function<absl::StatusOr<wire::StatusReply>()> ask);
};

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_METRICS_H_
