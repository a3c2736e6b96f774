// Implementation of config.h, on toml++.
#include "gangway/cli/config.h"

#include <fstream>
#include <initializer_list>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

// The parser asserts what some malformed text ("[}") breaks, though it reports that as an error
// just after; with NDEBUG it would assume it. Neither is for text from outside.
#undef NDEBUG
#define TOML_ASSERT(expr) static_assert(true)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace gangway::cli {
namespace {

constexpr int64_t kDevicesMax = 4096;  // of the cluster
constexpr int64_t kWaitMaxS = 3600;

// Reads values out of tables, and keeps the first thing that is wrong.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  const absl::Status& status() const { return status_; }

  void Complain(const toml::source_region& where, const std::string& what) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(path_, ":", where.begin.line, ": ", what));
  }

  void Keys(const toml::table& table, std::initializer_list<const char*> known) {
    for (const auto& [key, value] : table) {
      bool found = false;
      for (const char* each : known) found = found || key == each;
      if (!found) {
        Complain(key.source(),
                 absl::StrCat("there is no setting \"", std::string(key.str()),
                              "\" here: it may be one of ", absl::StrJoin(known, ", ")));
      }
    }
  }

  template <typename Number>
  void Integer(const toml::table& table, const char* key, int64_t low, int64_t high, Number& out) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return;
    const auto value = node->value_exact<int64_t>();
    if (!value || *value < low || *value > high) {
      return Complain(node->source(),
                      absl::StrCat(key, " must be a number from ", low, " to ", high));
    }
    out = static_cast<Number>(*value);
  }

  void String(const toml::table& table, const char* key, std::string& out) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return;
    const auto value = node->value_exact<std::string>();
    if (!value || value->empty())
      return Complain(node->source(), absl::StrCat(key, " must be text in quotes"));
    out = *value;
  }

  void Host(const toml::table& table, const char* key, std::string& out) {
    String(table, key, out);
    if (out.find_first_of("/ []") == std::string::npos) return;
    Complain(table.get(key)->source(),
             absl::StrCat(key, " must be a host's name or an IP address, without a port"));
  }

  void Bytes(const toml::table& table, const char* key, uint64_t& out) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return;
    std::string text = node->value<std::string>().value_or("");
    uint64_t unit = 1;
    for (auto [suffix, bytes] : {std::pair{"GB", uint64_t{1} << 30}, {"MB", uint64_t{1} << 20}}) {
      if (!absl::EndsWith(text, suffix)) continue;
      text.resize(text.size() - 2);
      unit = bytes;
    }
    uint64_t count = 0;
    if (!absl::SimpleAtoi(text, &count) || count > UINT64_MAX / unit) {
      return Complain(node->source(),
                      absl::StrCat(key, " must be a size per device, such as \"16GB\" or \"512MB\"",
                                   " (\"0\": no limit)"));
    }
    out = count * unit;
  }

 private:
  const std::string path_;
  absl::Status status_;
};

HostWorker ReadWorker(Reader& reader, const toml::node& node) {
  HostWorker worker;
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    reader.Complain(node.source(), "a worker is written as { host = \"a.example\", devices = 4 }");
    return worker;
  }
  reader.Keys(*table, {"host", "devices", "data_port"});
  reader.Host(*table, "host", worker.host);
  reader.Integer(*table, "devices", 1, kDevicesMax, worker.devices);
  reader.Integer(*table, "data_port", 0, 65535, worker.data_port);
  return worker;
}

HostScheduler ReadScheduler(Reader& reader, const toml::node& node) {
  HostScheduler scheduler;
  const toml::table* table = node.as_table();
  if (table == nullptr || table->get("port") == nullptr) {
    reader.Complain(node.source(),
                    "a scheduler is written as { host = \"a.example\", port = 38620 }");
    return scheduler;
  }
  reader.Keys(*table, {"host", "port"});
  reader.Host(*table, "host", scheduler.host);
  reader.Integer(*table, "port", 1, 65535, scheduler.port);
  return scheduler;
}

HostIsland ReadIsland(Reader& reader, const toml::node& node) {
  HostIsland island;
  const toml::table* table = node.as_table();
  const toml::array* list = nullptr;
  if (table != nullptr) {
    reader.Keys(*table, {"workers", "scheduler"});
    list = table->get_as<toml::array>("workers");
    if (const toml::node* scheduler = table->get("scheduler"))
      island.scheduler = ReadScheduler(reader, *scheduler);
  }
  if (list == nullptr || list->empty()) {
    reader.Complain(node.source(),
                    "an island needs workers: workers = [ { host = \"a.example\", devices = 4 } ]");
    return island;
  }
  for (const toml::node& each : *list) island.workers.push_back(ReadWorker(reader, each));
  return island;
}

void ReadController(Reader& reader, const toml::table& root, ClusterConfig& config) {
  const toml::node* node = root.get("controller");
  if (node == nullptr) return;
  const toml::table* table = node->as_table();
  if (table == nullptr)
    return reader.Complain(node->source(), "controller must be a table: [controller]");
  reader.Keys(*table, {"host", "control_port", "front_door_port", "session_wait", "worker_wait"});
  reader.Host(*table, "host", config.controller_host);
  reader.Integer(*table, "control_port", 1, 65535, config.control_port);
  reader.Integer(*table, "front_door_port", 1, 65535, config.front_door_port);
  reader.Integer(*table, "session_wait", 0, kWaitMaxS, config.session_wait_s);
  reader.Integer(*table, "worker_wait", 0, kWaitMaxS, config.worker_wait_s);
  if (config.control_port == config.front_door_port) {
    reader.Complain(table->source(),
                    "control_port and front_door_port are the same: give each a "
                    "port of its own");
  }
}

absl::Status CheckCounts(const ClusterConfig& config, const std::string& path) {
  int64_t devices = 0;
  for (const auto& island : config.islands) {
    for (const HostWorker& worker : island.workers) devices += worker.devices;
  }
  if (devices > 0 && devices <= kDevicesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      config.islands.empty()
          ? absl::StrCat(path,
                         ":1: no island is declared: add [[island]] with "
                         "workers = [ { host = \"a.example\", devices = 4 } ]")
          : absl::StrCat(path, ":1: ", devices, " devices are declared: at most ", kDevicesMax,
                         " can be"));
}

}  // namespace

std::string ListenHost(const std::string& host) {
  const bool loopback = absl::StartsWith(host, "127.") || host == "localhost" || host == "::1";
  return loopback ? host : host.find(':') == std::string::npos ? "0.0.0.0" : "::";
}

std::string HostAndPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

std::string ClusterConfig::ControlAddress() const {
  return HostAndPort(controller_host, control_port);
}

std::string ClusterConfig::ControlListenAddress() const {
  return HostAndPort(ListenHost(controller_host), control_port);
}

uint32_t ClusterConfig::DevicesMax() const {
  uint32_t most = 0;
  for (const auto& island : islands) {
    for (const HostWorker& worker : island.workers) most = std::max(most, worker.devices);
  }
  return most;
}

std::vector<std::vector<uint32_t>> ClusterConfig::Shape() const {
  std::vector<std::vector<uint32_t>> shape;
  for (const auto& island : islands) {
    auto& devices = shape.emplace_back();
    for (const HostWorker& worker : island.workers) devices.push_back(worker.devices);
  }
  return shape;
}

absl::StatusOr<ClusterConfig> ParseConfig(std::string_view text, const std::string& path) {
  const toml::parse_result parsed = toml::parse(text, std::string_view(path));
  if (!parsed) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", parsed.error().source().begin.line,
                     ": this is not TOML: ", std::string(parsed.error().description())));
  }
  const toml::table& root = parsed.table();
  ClusterConfig config;
  Reader reader(path);
  reader.Keys(root, {"controller", "island", "memory", "plugin"});
  ReadController(reader, root, config);
  reader.Bytes(root, "memory", config.memory_bytes);
  reader.String(root, "plugin", config.plugin);
  if (const toml::node* islands = root.get("island")) {
    const toml::array* list = islands->as_array();
    if (list == nullptr) reader.Complain(islands->source(), "write [[island]], with two brackets");
    for (size_t i = 0; list != nullptr && i < list->size(); ++i)
      config.islands.push_back(ReadIsland(reader, *list->get(i)));
  }
  if (!reader.status().ok()) return reader.status();
  if (auto status = CheckCounts(config, path); !status.ok()) return status;
  return config;
}

absl::StatusOr<ClusterConfig> ReadConfig(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat(
        "cannot read the configuration ", path,
        ": --config names the file that declares the cluster (docs/guides/hosts.md shows one)"));
  }
  return ParseConfig(text.str(), path);
}

}  // namespace gangway::cli
