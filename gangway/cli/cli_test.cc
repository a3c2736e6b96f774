// Tests the pure parts of the command, and its use of the state folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>

#include "gangway/base/file_descriptor.h"
#include "gangway/cli/announcement.h"
#include "gangway/cli/drain.h"
#include "gangway/cli/memory_plan.h"
#include "gangway/cli/plugin.h"
#include "gangway/cli/restart_policy.h"
#include "gangway/cli/state_dir.h"
#include "gangway/cli/status_text.h"
#include "gangway/cli/tool_link.h"
#include "gangway/cli/up.h"
#include "gangway/transport/inproc/inproc.h"
#include "gangway/wire/failure.h"

namespace gangway::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Millis = RestartPolicy::Millis;

class StateTest : public ::testing::Test {
 protected:
  StateTest() {
    std::string pattern = ::testing::TempDir() + "gangway-cli-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~StateTest() override { std::filesystem::remove_all(root_); }
  std::string root_;
};

TEST(RestartPolicyTest, ShortLivesAreRestartedEverLaterAndThenNotAtAll) {
  RestartPolicy policy;
  EXPECT_EQ(policy.OnDeath(Millis{5}, 1), Millis{0});
  EXPECT_EQ(policy.OnDeath(Millis{5}, 1), Millis{100});
  EXPECT_EQ(policy.OnDeath(Millis{5}, 1), Millis{200});
  EXPECT_EQ(policy.OnDeath(RestartPolicy::kShortLife, -1), Millis{0}) << "a long life forgives";
  for (int i = 1; i < RestartPolicy::kShortLivesMax; ++i) EXPECT_TRUE(policy.OnDeath(Millis{5}, 1));
  for (int i = 0; i < 2 * RestartPolicy::kShortLivesMax; ++i) {
    EXPECT_EQ(policy.OnDeath(Millis{5}, RestartPolicy::kBlameless), RestartPolicy::kDelayFirst);
  }
  EXPECT_FALSE(policy.OnDeath(Millis{5}, 1)) << "blameless ends neither count nor reset";
}

TEST(AnnouncementTest, LinesGoThereAndBack) {
  const auto back =
      FromLine(ToLine({.kind = Announcement::Kind::kEvent, .text = "session 3 opens\nfor x"}));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->kind, Announcement::Kind::kEvent);
  EXPECT_EQ(back->text, "session 3 opens for x");
  EXPECT_EQ(ToLine({.kind = Announcement::Kind::kEvent, .text = "a\rready\x1b[2J"}),
            "event a\\rready\\x1b[2J");
  EXPECT_EQ(FromLine("ready")->kind, Announcement::Kind::kReady);
  EXPECT_FALSE(FromLine("readily"));
  EXPECT_FALSE(FromLine(""));
  EXPECT_FALSE(FromLine("something that a library printed"));
}

TEST_F(StateTest, PortComesFromFlagThenEnvironment) {
  unsetenv("GANGWAY_PORT");
  EXPECT_EQ(*ChoosePort(-1), kDefaultPort);
  setenv("GANGWAY_PORT", "4711", 1);
  EXPECT_EQ(*ChoosePort(-1), 4711);
  EXPECT_EQ(*ChoosePort(5), 5);
  EXPECT_FALSE(ChoosePort(65536).ok());
  for (const char* wrong : {"0", "-1", "65536", "port", "12x"}) {
    setenv("GANGWAY_PORT", wrong, 1);
    EXPECT_THAT(std::string(ChoosePort(-1).status().message()), HasSubstr(wrong));
  }
  unsetenv("GANGWAY_PORT");
}

TEST_F(StateTest, RootComesFromFlagThenEnvironmentThenHome) {
  setenv("GANGWAY_STATE_DIR", root_.c_str(), 1);
  EXPECT_EQ(StateRoot(""), root_);
  EXPECT_EQ(StateRoot("/elsewhere"), "/elsewhere");
  unsetenv("GANGWAY_STATE_DIR");
  EXPECT_THAT(StateRoot(""), HasSubstr("/.gangway"));
}

TEST_F(StateTest, LockTellsARunningClusterFromLeftovers) {
  StateDir looking(root_, 4711);
  EXPECT_EQ(looking.Supervisor().status().code(), absl::StatusCode::kNotFound);
  {
    StateDir owner(root_, 4711);
    ASSERT_TRUE(owner.Lock().ok());
    struct stat info;
    ASSERT_EQ(stat(owner.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u) << "SE-1: for its owner only";
    ASSERT_TRUE(owner.Write(kSupervisorPid, "1234").ok());
    EXPECT_EQ(*looking.Supervisor(), 1234);
    const absl::Status second = StateDir(root_, 4711).Lock();
    EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(second.message()), HasSubstr("pid 1234"));
  }
  EXPECT_EQ(*looking.Read(kSupervisorPid), "1234");
  EXPECT_EQ(looking.Supervisor().status().code(), absl::StatusCode::kNotFound)
      << "the lock's owner is gone";
}

TEST_F(StateTest, PortInUseIsRefusedAndZeroFindsAFreeOne) {
  auto free = ClaimPort(0);
  ASSERT_TRUE(free.ok());
  ASSERT_TRUE(ClaimPort(*free).ok());
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd.get(), 1), 0);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  EXPECT_EQ(ClaimPort(ntohs(address.sin_port)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(StateTest, ImpossibleClustersAreRefusedBeforeAnythingStarts) {
  UpOptions options;
  options.plugin = "/nowhere/plugin.so";
  EXPECT_THAT(std::string(CheckUp(options).message()), HasSubstr("/nowhere/plugin.so"));
  options.plugin = root_;
  EXPECT_FALSE(CheckUp(options).ok()) << "a folder";
  options.plugin = "/proc/self/exe";
  EXPECT_TRUE(CheckUp(options).ok());
  options.workers = 0;
  EXPECT_EQ(CheckUp(options).code(), absl::StatusCode::kInvalidArgument);
  options.workers = options.islands = options.devices = 100000;
  EXPECT_EQ(CheckUp(options).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(StateTest, ChildrenAreToldTheirPlace) {
  UpOptions options;
  options.islands = options.workers = 2;
  options.port = 4711;
  const auto children = Children(options, StateDir(root_, 4711));
  ASSERT_EQ(children.size(), 7u);
  EXPECT_EQ(children[0].name, "head");
  EXPECT_EQ(children[1].name, "compiler");
  EXPECT_EQ(children[2].name, "compiler1");
  EXPECT_TRUE(!children[1].on_demand && children[2].on_demand);
  EXPECT_EQ(children[5].name, "island1/worker0");
  const auto command = children[5].command("unix:/x");
  EXPECT_THAT(command, Contains("unix:/x"));
  EXPECT_EQ(*(std::find(command.begin(), command.end(), "--island") + 1), "1");
  EXPECT_THAT(children[0].command(""), Contains("127.0.0.1:4711"));
  EXPECT_THAT(children[0].command(""), Not(Contains("--no-latency-request")));
}

TEST_F(StateTest, SimulatedWorkersShareProcessesUpToTheirNumber) {
  UpOptions options;
  options.islands = 2;
  options.workers = 5;
  options.devices = 4;
  options.simulated = 4;
  options.port = 4711;
  EXPECT_TRUE(CheckUp(options).ok()) << "they need no plugin";
  const auto children = Children(options, StateDir(root_, 4711));
  std::vector<std::string> names;
  for (const ChildSpec& child : children) names.push_back(child.name);
  EXPECT_THAT(names, ElementsAre("head", "compiler", "compiler1", "island0/worker0-3",
                                 "island0/worker4", "island1/worker0-3", "island1/worker4"));
  const auto value = [](const std::vector<std::string>& command, const char* flag) {
    return *(std::find(command.begin(), command.end(), flag) + 1);
  };
  const auto compiler = children[1].command("control");
  EXPECT_THAT(compiler, AllOf(Contains("--simulate"), Not(Contains("--plugin"))));
  EXPECT_EQ(value(compiler, "--devices"), "40") << "a program may have them all";
  const auto shared = children[5].command("control");
  EXPECT_EQ(value(shared, "--island"), "1");
  EXPECT_EQ(value(shared, "--index"), "0");
  EXPECT_EQ(value(shared, "--simulate"), "4");
  EXPECT_THAT(shared, Not(Contains("--plugin")));
  const auto alone = children[6].command("control");
  EXPECT_EQ(value(alone, "--index"), "4");
  EXPECT_EQ(value(alone, "--simulate"), "1");
  EXPECT_EQ(value(shared, "--memory"), value(alone, "--memory")) << "of each device";
  EXPECT_EQ(std::stoull(value(shared, "--heap")), 4 * std::stoull(value(alone, "--heap")))
      << "of the process";
}

TEST_F(StateTest, WorkersAreToldHowMuchOfAGpuTheyTake) {
  const StateDir dir(root_, 4711);
  UpOptions options;
  options.plugin = "/cuda.so";
  options.workers = 2;
  const auto worker = [&] { return Children(options, dir).back().command("control"); };
  EXPECT_THAT(worker(),
              AllOf(Not(Contains("--device-memory-fraction")), Not(Contains("--no-preallocate"))));
  options.device_memory = {.fraction = 0.4, .preallocate = false};
  EXPECT_THAT(worker(), AllOf(Contains("--device-memory-fraction"), Contains("0.4"),
                              Contains("--no-preallocate")));
}

TEST(MemoryPlan, ADefaultBudgetDividesHalfOfTheHostByWorkersAndDevices_GS2) {
  const std::string cpu = FindPlugin("cpu").value_or("");
  const WorkerMemory memory = PlanWorker(uint64_t{64} << 30, 2, 4, cpu, std::nullopt);
  EXPECT_EQ(memory.device_bytes, uint64_t{4} << 30);
  EXPECT_EQ(memory.staging_bytes, uint64_t{8} << 30);
  EXPECT_EQ(memory.shared_bytes, uint64_t{24} << 30);
  EXPECT_EQ(memory.heap_bytes, uint64_t{24} << 30);
}

TEST(MemoryPlan, ACompilerMayUseAQuarterOfTheHostUnlessTheUserSaysOtherwise) {
  EXPECT_EQ(PlanCompiler(uint64_t{64} << 30, std::nullopt), uint64_t{16} << 30);
  EXPECT_EQ(PlanCompiler(uint64_t{64} << 30, uint64_t{1} << 30), uint64_t{1} << 30);
  EXPECT_EQ(PlanCompiler(uint64_t{64} << 30, 0), 0u) << "no limit";
}

TEST(MemoryPlan, TheHeadHoldsAQuarterForClientsUnlessToldOtherwise) {
  EXPECT_EQ(PlanHead(uint64_t{64} << 30, std::nullopt), uint64_t{16} << 30);
  EXPECT_EQ(PlanHead(0, std::nullopt), uint64_t{1} << 30);
  EXPECT_EQ(PlanHead(uint64_t{64} << 30, 5), 5u);
}

TEST(MemoryPlan, OtherDevicesTellTheirOwn) {
  const WorkerMemory memory = PlanWorker(uint64_t{64} << 30, 2, 4, "/cuda.so", std::nullopt);
  EXPECT_EQ(memory.device_bytes, std::nullopt);
}

TEST(MemoryPlan, ABudgetThatWasChosenStays) {
  const uint64_t mib = uint64_t{1} << 20;
  const WorkerMemory memory = PlanWorker(uint64_t{64} << 30, 1, 4, "/cuda.so", 100 * mib);
  EXPECT_EQ(memory.device_bytes, 100 * mib);
  EXPECT_EQ(memory.heap_bytes, 912 * mib);
  EXPECT_EQ(PlanWorker(uint64_t{64} << 30, 1, 4, "", 0).device_bytes, 0u) << "no limit";
}

wire::StatusReply SomeStatus() {
  wire::StatusReply status;
  status.set_epoch(5);
  status.add_schedulers()->set_up(true);
  status.mutable_schedulers(0)->set_process_id(90);
  for (uint32_t index : {0, 1}) {
    auto* worker = status.add_workers();
    worker->mutable_state()->set_up(index == 0);
    worker->mutable_state()->set_process_id(100 + index);
    worker->mutable_state()->mutable_worker()->set_index(index);
    worker->mutable_state()->mutable_worker()->set_incarnation(1);
    worker->mutable_state()->mutable_worker()->set_device_kind("cpu");
    worker->mutable_state()->mutable_worker()->add_devices(index);
  }
  status.mutable_workers(1)->mutable_state()->mutable_failure()->set_message(
      "it was silent for 5 s");
  auto* usage = status.mutable_workers(0)->add_devices();
  usage->set_bytes(2048);
  usage->set_budget_bytes(1 << 20);
  usage->set_peak_bytes(4096);
  usage->set_launches(3);
  wire::DataBytes* data = status.mutable_workers(0)->mutable_data();
  data->set_from_clients(1);
  data->set_to_clients(2);
  data->set_from_workers(3);
  data->set_from_workers_shared(3);
  data->set_to_clients_shared(5);
  data->set_to_workers(3 << 20);
  status.mutable_workers(0)->mutable_state()->set_draining(true);
  status.mutable_workers(0)->mutable_state()->add_stuck()->set_device(0);
  status.mutable_workers(0)->set_nodes(7);
  wire::WorkerClaim* claim = status.mutable_workers(0)->mutable_state()->mutable_claim();
  claim->set_owner("session 9");
  claim->set_session(9);
  claim->set_client("train.py");
  claim->set_for_ms(7500);
  auto* session = status.add_sessions();
  session->set_session(9);
  session->set_name("a \"quoted\"\tname");
  session->set_arrays(2);
  session->set_bytes(2048);
  return status;
}

TEST(StatusTextTest, JsonHasEveryField) {
  EXPECT_EQ(
      ToJson(SomeStatus()),
      "{\"epoch\":5,\"islands\":[{\"id\":0,\"workers\":["
      "{\"name\":\"island0/"
      "worker0\",\"pid\":100,\"incarnation\":1,\"state\":\"up\",\"draining\":true,"
      "\"claim\":{\"owner\":\"session 9\",\"session\":9,\"client\":\"train.py\",\"for_ms\":7500},"
      "\"nodes\":7,"
      "\"data_bytes\":{\"from_clients\":1,\"to_clients\":2,\"from_workers\":3,\"to_workers\":"
      "3145728,\"from_workers_shared\":3,\"to_workers_shared\":0,"
      "\"from_clients_shared\":0,\"to_clients_shared\":5,\"staged\":0,\"staged_max\":0,\"staged_"
      "uploads\":0},\"devices\":[{\"id\":0,"
      "\"kind\":\"cpu\",\"bytes_in_use\":2048,\"budget_bytes\":1048576,\"peak_bytes\":4096,"
      "\"launches\":3,\"stuck\":true}]},"
      "{\"name\":\"island0/"
      "worker1\",\"pid\":101,\"incarnation\":1,\"state\":\"down\",\"draining\":false,"
      "\"claim\":null,\"nodes\":0,\"data_bytes\":{\"from_clients\":0,"
      "\"to_clients\":0,\"from_workers\":0,\"to_workers\":0,\"from_workers_shared\":0,"
      "\"to_workers_shared\":0,\"from_clients_shared\":0,\"to_clients_shared\":0,\"staged\":0,"
      "\"staged_max\":0,\"staged_uploads\":0},\"devices\":[{"
      "\"id\":1,"
      "\"kind\":\"cpu\",\"bytes_in_use\":0,\"budget_bytes\":0,\"peak_bytes\":0,"
      "\"launches\":0,\"stuck\":false}]}]}],"
      "\"schedulers\":[{\"island\":0,\"pid\":90,\"state\":\"up\"}],"
      "\"compiler\":{\"pid\":0,\"state\":\"down\"},\"sessions\":[{\"id\":9,\"client\":\"a "
      "\\\"quoted\\\"\\tname\",\"arrays\":2,\"bytes\":2048,\"executables\":0,\"programs\":0,"
      "\"pending_nodes\":"
      "0}],"
      "\"arrays\":2,\"bytes\":2048,\"counters\":{\"messages_received\":0,\"messages_sent\":0}}");
}

TEST(StatusTextTest, TableAndAbsentNameWhoIsDown) {
  EXPECT_EQ(Absent(SomeStatus()), "island0/worker1, the compiler");
  const std::string table = ToTable(SomeStatus());
  EXPECT_THAT(table, HasSubstr("it was silent for 5 s"));
  EXPECT_THAT(table, HasSubstr("cpu:0 2.0 KiB of 1.0 MiB"));
  EXPECT_THAT(table, HasSubstr("clients 1 B in, 2 B out; workers 3 B in, 3.0 MiB out"));
  EXPECT_THAT(table, HasSubstr("drain"));
  EXPECT_THAT(table, HasSubstr("claimed by session 9 for 7 s, first by session 9 (train.py)"));
  EXPECT_THAT(table, HasSubstr("1.0 MiB STUCK"));
  EXPECT_THAT(table, HasSubstr("a \"quoted\"\\tname")) << "escaped";
  EXPECT_THAT(table, Not(HasSubstr("for clients")));
  wire::StatusReply holding = SomeStatus();
  (*holding.mutable_counters())["head_memory_limit_bytes"] = 1 << 30;
  (*holding.mutable_counters())["head_pieces_bytes"] = 1024;
  (*holding.mutable_counters())["head_programs_bytes"] = 1024;
  (*holding.mutable_counters())["head_resident_bytes"] = 4096;
  EXPECT_THAT(ToTable(holding),
              HasSubstr("holds 2.0 KiB of 1.0 GiB for clients; 4.0 KiB resident"));
  wire::StatusReply forging = SomeStatus();
  forging.mutable_sessions(0)->set_name("x\n7        forged");
  forging.mutable_workers(1)->mutable_state()->mutable_failure()->set_message("a\nb\x1b[2J");
  forging.mutable_workers(0)->mutable_state()->mutable_claim()->set_client("y\nisland0 forged");
  EXPECT_THAT(ToTable(forging), HasSubstr("x\\n7        forged"));
  EXPECT_THAT(ToTable(forging), HasSubstr("(y\\nisland0 forged)"));
  EXPECT_THAT(ToTable(forging), HasSubstr("a\\nb\\x1b[2J\n"));
  EXPECT_THAT(ToTable({}), HasSubstr("no sessions"));
}

// A controller that answers a tool with the test's function.
class ToolLinkTest : public ::testing::Test {
 protected:
  void Listen(std::function<void(transport::Link&, const wire::Frame&)> on_frame) {
    listener_ =
        *transport_->Listen("controller", [this, on_frame](std::shared_ptr<transport::Link> link) {
          link_ = link;
          transport::LinkEvents events;
          events.executor = &loop_;
          events.on_frame = [link = link.get(), on_frame](wire::Frame frame) {
            on_frame(*link, frame);
          };
          return events;
        });
  }
  ~ToolLinkTest() override {
    listener_.reset();
    link_.reset();
    loop_.Stop();
  }
  std::unique_ptr<transport::Transport> transport_ = transport::NewInprocTransport();
  EventLoop loop_{"controller"};
  std::shared_ptr<transport::Link> link_;
  std::unique_ptr<transport::Listener> listener_;
};

TEST_F(ToolLinkTest, StatusIsAsked) {
  Listen([](transport::Link& link, const wire::Frame& frame) {
    wire::Frame reply;
    if (frame.has_hello()) reply.mutable_hello_reply();
    if (frame.has_status_request()) reply.mutable_status_reply()->set_epoch(77);
    (void)link.Send(std::move(reply));
  });
  auto status = AskStatus(*transport_, "controller", "a token", Millis{10000});
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->epoch(), 77u);
}

TEST_F(ToolLinkTest, TM1_SilenceRefusalAndAbsenceAreErrors) {
  EXPECT_EQ(AskStatus(*transport_, "controller", "a token", Millis{50}).status().code(),
            absl::StatusCode::kUnavailable);
  Listen([](transport::Link&, const wire::Frame&) {});
  EXPECT_EQ(AskStatus(*transport_, "controller", "a token", Millis{50}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  listener_.reset();
  Listen([](transport::Link& link, const wire::Frame&) {
    wire::Frame reply;
    *reply.mutable_hello_reply()->mutable_failure() =
        wire::MakeFailure(absl::StatusCode::kFailedPrecondition, "other version");
    (void)link.Send(std::move(reply));
  });
  EXPECT_EQ(AskStatus(*transport_, "controller", "a token", Millis{10000}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(DrainTest, ATargetIsAWorkerOrAnIsland) {
  auto worker = ParseTarget("island2/worker13");
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->island(), 2u);
  EXPECT_EQ(worker->index(), 13u);
  EXPECT_FALSE(worker->all());
  EXPECT_TRUE(ParseTarget("island0")->all());
  for (const char* wrong : {"", "worker1", "island", "island0/", "island0/1", "island0/worker1/x",
                            "island-1", "island0/workerx"}) {
    EXPECT_EQ(ParseTarget(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace gangway::cli
