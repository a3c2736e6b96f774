// Fuzzes the parser of cluster.toml: any text gives a cluster within bounds, or an error that names
// the file.
#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/cli/config.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  const std::string whole =
      "memory = \"16GB\"\n[controller]\nhost = \"head.example\"\ncontrol_port = 7001\n"
      "[[island]]\nworkers = [ { host = \"a\", devices = 4, data_port = 7002 } ]\n";
  const std::string places =
      "workers_per_host = 2\n[controller]\nlisten = \"::\"\ncontrol_port = 0\n"
      "[[island]]\nworkers = 4\ndevices = 2\n";
  return {whole, places, "[[island]]\nworkers = [ {}, { devices = 2 } ]\n",
          "plugin = 3\n[island]\n",
          // Non-ASCII letters inside and outside quotes, and where white space is allowed.
          "K\u00ca = 1\n", "plugin = \u00e9", "\"\u00ca\" = \"\u0410\" \u0499 # \u00ca\n"};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto config = gangway::cli::ParseConfig(gangway::fuzz::View(data, size), "c");
  if (!config.ok()) {
    GANGWAY_CHECK(config.status().message().substr(0, 2) == "c:", "an error names the file");
    return 0;
  }
  GANGWAY_CHECK(config->DevicesMax() > 0, "a cluster has devices");
  GANGWAY_CHECK(config->control_port >= 0 && config->control_port < 65536, "a port");
  const std::string written = gangway::cli::ToToml(*config);
  auto again = gangway::cli::ParseConfig(written, "w");
  GANGWAY_CHECK(again.ok() && gangway::cli::ToToml(*again) == written, "what is written is read");
  return 0;
}
