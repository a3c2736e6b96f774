// The file that declares a cluster, and the certificates of its hosts.
#include "gangway/cli/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_cat.h"

#include "gangway/cli/access.h"
#include "gangway/cli/certs.h"

namespace gangway::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ConfigTest, TheFileIsReadWhole) {
  auto config = ParseConfig(R"(
memory = "16GB"
threads = 96
plugin = "/opt/plugin.so"
device_memory_fraction = 0.4
preallocate = false
[controller]
host = "head.example"
control_port = 7001
front_door_port = 7000
client_silence = 9
session_wait = 1
worker_wait = 2
late_after = 3
collective_limit = 4
compilers = 3
compiler_memory = "5GB"
compile_limit = 6
orphan_limit = 6
callback_hold = 7
quarantine = 0
collectives = "xla"
isolation = "process"
latency_request = false
[[island]]
workers = [ { host = "a.example", devices = 4 }, { host = "::2", devices = 2, data_port = 7002 } ]
[[island]]
workers = [ { } ]
)",
                            "cluster.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->memory_bytes, uint64_t{16} << 30);
  EXPECT_EQ(config->plugin, "/opt/plugin.so");
  EXPECT_EQ(config->device_memory.fraction, 0.4);
  EXPECT_FALSE(config->device_memory.preallocate);
  EXPECT_EQ(config->ControlAddress(), "head.example:7001");
  EXPECT_EQ(config->ControlListenAddress(), "0.0.0.0:7001");
  EXPECT_EQ(config->front_door_port, 7000);
  EXPECT_EQ(config->threads, 96);
  EXPECT_EQ(config->client_silence_s, 9u);
  EXPECT_EQ(config->session_wait_s, 1u);
  EXPECT_EQ(config->worker_wait_s, 2u);
  EXPECT_EQ(config->late_after_s, 3u);
  EXPECT_EQ(config->collective_limit_s, 4u);
  EXPECT_EQ(config->compilers.count, 3u);
  EXPECT_EQ(config->compilers.memory_bytes, uint64_t{5} << 30);
  EXPECT_EQ(config->compilers.limit_s, 6u);
  EXPECT_EQ(config->orphan_limit_s, 6u);
  EXPECT_EQ(config->callback_hold_s, 7u);
  EXPECT_EQ(config->quarantine_s, 0u);
  EXPECT_EQ(config->collectives, "xla");
  EXPECT_EQ(config->isolation, kProcessIsolation);
  EXPECT_FALSE(config->compilers.caches) << "what a compiler writes, others must not read";
  EXPECT_FALSE(config->latency_request);
  EXPECT_EQ(config->Shape(), (std::vector<std::vector<uint32_t>>{{4, 2}, {1}}));
  EXPECT_EQ(config->DevicesMax(), 4u);
  EXPECT_EQ(config->Devices(), 7u);
  EXPECT_EQ(config->islands[0].workers[1].data_port, 7002);
  EXPECT_EQ(HostAndPort(ListenHost("::2"), 7), "[::]:7");
  EXPECT_EQ(config->islands[1].workers[0].host, "") << "any host may claim the place";
}

TEST(ConfigTest, WithoutAWordCollectivesAreGangways) {
  const auto config = ParseConfig("[[island]]\nworkers = [ { } ]\n", "cluster.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->collectives, "gangway");
  EXPECT_FALSE(config->device_memory.chosen()) << "the plugin's own";
}

// Places without a host, which any host may claim.
TEST(ConfigTest, AnIslandMaySayHowManyWorkersItHas) {
  const auto config = ParseConfig(
      "workers_per_host = 2\n[controller]\nlisten = \"::\"\nhost = \"head\"\ncontrol_port = 0\n"
      "[[island]]\nworkers = 3\ndevices = 2\n[[island]]\nworkers = 1\n",
      "cluster.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->Shape(), (std::vector<std::vector<uint32_t>>{{2, 2, 2}, {1}}));
  EXPECT_EQ(config->islands[0].workers[2].host, "");
  EXPECT_EQ(config->workers_per_host, 2u);
  EXPECT_EQ(config->ControlListenAddress(), "[::]:0");
  EXPECT_EQ(config->ControlAddress(), "head:0");
}

// A controller that options declare writes the file that its head reads.
TEST(ConfigTest, AFileThatIsWrittenSaysTheSame) {
  ClusterConfig config;
  config.controller_host = "fd00::1";
  config.controller_listen = "::";
  config.control_port = 7;
  config.front_door_port = 8;
  config.client_silence_s = 9;
  config.session_wait_s = 10;
  config.worker_wait_s = 11;
  config.late_after_s = 12;
  config.collective_limit_s = 13;
  config.orphan_limit_s = 14;
  config.callback_hold_s = 15;
  config.quarantine_s = 16;
  config.collectives = "xla";
  config.compilers = {.count = 3, .memory_bytes = 17, .limit_s = 18};
  config.latency_request = false;
  config.memory_bytes = 0;
  config.head_memory_bytes = 19;
  config.threads = 20;
  config.workers_per_host = 21;
  config.plugin = "/opt/a \"b\"\n.so";
  config.device_memory = {.fraction = 0.25, .preallocate = false};
  config.islands = {
      {.workers = {{.devices = 2}, {.host = "a", .data_port = 22}}},
      {.workers = {{.host = "b"}}, .scheduler = HostScheduler{.host = "c", .port = 23}}};
  const std::string text = ToToml(config);
  const auto read = ParseConfig(text, "cluster.toml");
  ASSERT_TRUE(read.ok()) << read.status() << text;
  EXPECT_EQ(ToToml(*read), text);
  EXPECT_EQ(read->controller_host, "fd00::1");
  EXPECT_EQ(read->ControlListenAddress(), "[::]:7");
  EXPECT_EQ(read->quarantine_s, 16u);
  EXPECT_EQ(read->compilers.memory_bytes, 17u);
  EXPECT_EQ(read->memory_bytes, 0u);
  EXPECT_EQ(read->head_memory_bytes, 19u);
  EXPECT_EQ(read->plugin, config.plugin);
  EXPECT_EQ(read->device_memory.fraction, 0.25);
  EXPECT_FALSE(read->device_memory.preallocate);
  EXPECT_FALSE(read->latency_request);
  EXPECT_EQ(read->Shape(), config.Shape());
  EXPECT_EQ(read->islands[0].workers[1].data_port, 22);
  EXPECT_EQ(read->islands[1].scheduler->port, 23);
}

// Each error names its line, and what to write instead.
TEST(ConfigTest, MistakesAreNamedByLine) {
  const std::string island = "\n[[island]]\nworkers = [ {} ]\n";
  const struct {
    std::string text, line, words;
  } cases[] = {
      {"\nmemory = \n", "2", "this is not TOML"},
      {"h\u00f4te = 1" + island, "1", "this is not TOML"},
      {"\"h\u00f4te\" = 1" + island, "1", "no setting \"h\u00f4te\""},
      {"memory = 16" + island, "1", "such as \"16GB\""},
      {"memory = \"99999999999999GB\"" + island, "1", "must be a size, such as"},
      {"device_memory_fraction = 1.5" + island, "1", "from 0.01 to 1.0"},
      {"device_memory_fraction = \"half\"" + island, "1", "from 0.01 to 1.0"},
      {"preallocate = 1" + island, "1", "true or false"},
      {"plugin = 3" + island, "1", "text in quotes"},
      {"[controler]\nhost = \"a\"" + island, "1", "no setting \"controler\""},
      {"[controller]\nfront_door_port = 0" + island, "2", "from 1 to 65535"},
      {"[controller]\ncontrol_port = 70000" + island, "2", "from 0 to 65535"},
      {"[controller]\ncontrol_port = \"1\"" + island, "2", "from 0 to 65535"},
      {"[controller]\nlisten = \"a:1/\"" + island, "2", "without a port"},
      {"[controller]\nfront_door_port = 38601" + island, "1", "are the same"},
      {"[controller]\nhost = \"a/b\"" + island, "2", "without a port"},
      {"[controller]\ncollectives = \"nccl\"" + island, "2", "one of \"xla\", \"gangway\""},
      {"[controller]\ncollectives = true" + island, "2", "text in quotes"},
      {"[controller]\nisolation = \"vm\"" + island, "2", "one of \"none\", \"process\""},
      {"[controller]\nlatency_request = 0" + island, "2", "true or false"},
      {"controller = 1" + island, "1", "[controller]"},
      {"", "1", "no island is declared"},
      {"[island]\nworkers = [ {} ]", "1", "two brackets"},
      {"[[island]]\nworkers = []", "1", "an island needs workers"},
      {"[[island]]\nworkers = 0", "2", "from 1 to 4096"},
      {"[[island]]\nworkers = \"4\"", "1", "an island needs workers: workers = 4"},
      {"[[island]]\nworkers = 4\ndevices = 0", "3", "from 1 to 4096"},
      {"[[island]]\nworkers = [ {} ]\ndevices = 2", "3", "each worker has its own"},
      {"[[island]]\nworkers = 4096\n[[island]]\nworkers = 1", "1", "at most 4096"},
      {"workers_per_host = 0" + island, "1", "from 1 to 4096"},
      {"[[island]]\nworkers = [ 4 ]", "2", "a worker is written as"},
      {"[[island]]\nworkers = [ { device = 4 } ]", "2", "no setting \"device\""},
      {"[[island]]\nworkers = [ { devices = 0 } ]", "2", "from 1 to"},
      {"[[island]]\nworkers = [ { devices = 4096 }, { } ]", "1", "at most 4096"},
  };
  for (const auto& each : cases) {
    auto config = ParseConfig(each.text, "cluster.toml");
    ASSERT_FALSE(config.ok()) << each.text;
    const std::string message(config.status().message());
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(message, StartsWith(absl::StrCat("cluster.toml:", each.line, ": ")));
    EXPECT_THAT(message, HasSubstr(each.words));
  }
  EXPECT_EQ(ReadConfig("/nowhere/cluster.toml").status().code(), absl::StatusCode::kNotFound);
}

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    std::string pattern = ::testing::TempDir() + "gangway-certs-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(FolderTest, ACertificateNamesItsHostsAndLoopback) {
  const std::string tls = folder_ + "/tls";
  ASSERT_TRUE(MakeCerts({.folder = tls, .hosts = {"a.example", "10.1.2.3", "fd00::7"}}).ok());
  for (const char* host : {"a.example", "10.1.2.3", "fd00::7", "localhost", "127.0.0.1", "::1"}) {
    EXPECT_TRUE(CheckCertificate(tls, host).ok()) << CheckCertificate(tls, host);
  }
  for (const char* host : {"b.example", "example", "10.1.2.4", "127.0.0.2"}) {
    EXPECT_EQ(CheckCertificate(tls, host).code(), absl::StatusCode::kFailedPrecondition) << host;
  }
  EXPECT_TRUE(OpenTransport(tls).ok());
  auto access = ReadAccess({.tls = tls});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->token.size(), 64u);
  for (wire::Role role : transport::kTokenRoles) {
    auto own = ReadAccess({.tls = tls, .role = role});
    ASSERT_TRUE(own.ok()) << own.status();
    EXPECT_TRUE(ReadVerifiers({.tls = tls})->Check(role, own->token, "who").ok());
  }
  EXPECT_EQ(MakeCerts({.folder = tls}).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(FolderTest, ACertificateForAnyHostServesEachHost) {
  const std::string tls = folder_ + "/tls";
  ASSERT_TRUE(MakeCerts({.folder = tls, .any_host = true}).ok());
  EXPECT_TRUE(*IsForAnyHost(tls));
  for (const char* host : {"a.example", "10.1.2.3", "::1"})
    EXPECT_TRUE(CheckCertificate(tls, host).ok()) << CheckCertificate(tls, host);
  ASSERT_TRUE(AddCerts({.folder = tls, .add = "w", .role = "worker"}).ok());
  EXPECT_TRUE(CheckCertificate(tls + "/w", "b.example").ok());
  ASSERT_TRUE(AddCerts({.folder = tls, .add = "alice", .role = "client"}).ok());
  EXPECT_EQ(CheckCertificate(tls + "/alice", "b.example").code(),
            absl::StatusCode::kFailedPrecondition)
      << "a client serves nobody";
}

TEST_F(FolderTest, SecretsAreMadeOnceForTheirOwnerAndNotReadWhenOthersCan) {
  const std::string secret = folder_ + "/secret", worker = folder_ + "/worker.token";
  ASSERT_TRUE(EnsureTokens(folder_).ok());
  const std::string made = *ReadPrivateFile(worker);
  ASSERT_TRUE(EnsureTokens(folder_).ok());
  EXPECT_EQ(*ReadPrivateFile(worker), made);
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    struct stat about;
    ASSERT_EQ(stat(file.path().c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u) << file.path();
    ++files;
  }
  EXPECT_EQ(files, 7) << "the secret, five tokens, the verifiers";
  chmod(worker.c_str(), 0640);
  EXPECT_EQ(ReadAccess({.token_file = worker}).status().code(),
            absl::StatusCode::kPermissionDenied);
  chmod(secret.c_str(), 0640);
  EXPECT_EQ(EnsureTokens(folder_).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReadAccess({.tls = folder_ + "/none"}).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WritePrivateFile(secret, "\n").ok());
  EXPECT_EQ(EnsureTokens(folder_).code(), absl::StatusCode::kFailedPrecondition) << "empty";
  ASSERT_TRUE(WritePrivateFile(folder_ + "/verifiers", "worker 1\n").ok());
  EXPECT_EQ(ReadVerifiers({.token_file = worker}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace gangway::cli
