// Tests of declaration.h, and of the addresses that it finds.
#include "gangway/cli/declaration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/base/host_memory.h"
#include "gangway/cli/own_address.h"

namespace gangway::cli {
namespace {

using ::testing::HasSubstr;

ClusterConfig Config(const std::string& text) {
  auto config = ParseConfig(text, "cluster.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

TEST(DeclarationTest, AnIndexCountsInItsIslandOrThroughAll) {
  const Declarations declared =
      Declare(Config("[[island]]\nworkers = 2\n[[island]]\nworkers = 3\ndevices = 4\n"));
  const auto in_island = FindDeclaration(declared, 1, 2);
  ASSERT_TRUE(in_island.ok()) << in_island.status();
  EXPECT_EQ(in_island->device_count(), 4u);
  const auto through_all = FindDeclaration(declared, std::nullopt, 4);
  ASSERT_TRUE(through_all.ok()) << through_all.status();
  EXPECT_EQ(through_all->SerializeAsString(), in_island->SerializeAsString());
  EXPECT_EQ(FindDeclaration(declared, std::nullopt, 1)->island(), 0u);
  for (const auto& [island, index] : {std::pair<std::optional<uint32_t>, uint32_t>{0, 2},
                                      {1, 3},
                                      {2, 0},
                                      {UINT32_MAX, 0},
                                      {std::nullopt, 5},
                                      {std::nullopt, UINT32_MAX}}) {
    const absl::Status none = FindDeclaration(declared, island, index).status();
    EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(none.message()), HasSubstr("is not declared"));
    EXPECT_THAT(std::string(none.message()), HasSubstr("workers: 2, 3"));
  }
}

TEST(DeclarationTest, AWorkerBecomesWhatIsDeclared) {
  const Declarations declared = Declare(
      Config("memory = \"1GB\"\nthreads = 7\ndevice_memory_fraction = 0.5\npreallocate = false\n"
             "[[island]]\nworkers = [ { devices = 2, data_port = 9 } ]\n"
             "scheduler = { host = \"127.0.0.1\", port = 10 }\n"));
  WorkerRoleOptions worker;
  worker.control_address = "127.0.0.1:8";
  ASSERT_TRUE(Become(declared[0][0], {}, worker).ok());
  EXPECT_EQ(worker.devices, 2);
  EXPECT_EQ(worker.threads, 7);
  EXPECT_EQ(worker.memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(worker.device_memory.fraction, 0.5);
  EXPECT_FALSE(worker.device_memory.preallocate);
  EXPECT_EQ(worker.host, "127.0.0.1");
  EXPECT_EQ(worker.data_listen_address, "127.0.0.1:9");
  EXPECT_EQ(worker.control_address, "127.0.0.1:10");
  EXPECT_TRUE(worker.own_scheduler);
  EXPECT_EQ(worker.when_lost, WhenLost::kReturn);
  EXPECT_NE(worker.plugin, "");
}

TEST(DeclarationTest, TheCommandLineTakesPrecedence) {
  const Declarations declared =
      Declare(Config("memory = \"1GB\"\n[[island]]\nworkers = [ { data_port = 9 } ]\n"));
  WorkerRoleOptions worker;
  worker.memory_bytes = 5;
  worker.staging_bytes = 6;
  worker.shared_memory_bytes = 0;
  ASSERT_TRUE(Become(declared[0][0], {.host = "127.0.0.3", .data_port = 0}, worker).ok());
  EXPECT_EQ(worker.memory_bytes, 5u);
  EXPECT_EQ(worker.staging_bytes, 6u);
  EXPECT_EQ(worker.shared_memory_bytes, 0u);
  EXPECT_EQ(worker.data_listen_address, "127.0.0.3:0");
}

TEST(DeclarationTest, WorkersOfOneHostDivideItsMemory) {
  const Declarations open = Declare(Config("[[island]]\nworkers = 4\n"));
  const auto share = [](const wire::WorkerDeclaration& declared, const WorkerPlace& place) {
    WorkerRoleOptions worker;
    EXPECT_TRUE(Become(declared, place, worker).ok());
    return worker.staging_bytes.value_or(0);
  };
  const uint64_t host_bytes = HostMemoryBytes();
  EXPECT_EQ(share(open[0][0], {}), host_bytes / 4 / 4) << "on loopback, all are on this host";
  EXPECT_EQ(share(open[0][0], {.workers_per_host = 2}), host_bytes / 2 / 4);
  const Declarations three = Declare(Config("workers_per_host = 3\n[[island]]\nworkers = 4\n"));
  EXPECT_EQ(share(three[0][0], {}), host_bytes / 3 / 4);
  const Declarations named = Declare(
      Config("[[island]]\nworkers = [ { host = \"127.0.0.2\" }, { host = \"127.0.0.2\" }, {} ]\n"));
  EXPECT_EQ(share(named[0][0], {}), host_bytes / 2 / 4) << "the file knows its workers";
}

TEST(DeclarationTest, SE1_WithoutTlsAWorkerStaysOnLoopbackAndLoadsNoFileThatAControllerNames) {
  const Declarations declared =
      Declare(Config("plugin = \"/x/evil.so\"\n[[island]]\nworkers = 1\n"));
  WorkerRoleOptions worker;
  absl::Status refused = Become(declared[0][0], {}, worker);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--plugin /x/evil.so"));
  ASSERT_TRUE(Become(declared[0][0], {.plugin = "cpu"}, worker).ok());
  refused = Become(declared[0][0], {.host = "a.example", .plugin = "cpu"}, worker);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("gangway certs"));
  wire::WorkerDeclaration damaged = declared[0][0];
  damaged.set_device_count(1u << 30);
  EXPECT_FALSE(Become(damaged, {.plugin = "cpu"}, worker).ok());
}

TEST(OwnAddressTest, TowardsLoopbackItIsLoopback) {
  EXPECT_EQ(*OwnAddressTowards("127.0.0.1:9"), "127.0.0.1");
  EXPECT_EQ(*OwnAddressTowards("localhost:9"), "127.0.0.1");
  EXPECT_FALSE(Answers("127.0.0.1:1", std::chrono::seconds(1)));
  const auto none = OwnAddressTowards("no such host:9");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("--host"));
}

}  // namespace
}  // namespace gangway::cli
