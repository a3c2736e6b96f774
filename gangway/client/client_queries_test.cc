// Questions of the client library about the cluster, against a scripted controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gangway/base/trace.h"
#include "gangway/client/scripted_cluster.h"

namespace gangway::client {
namespace {

using ::testing::HasSubstr;

class ClientQueriesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto client = Connect(cluster_.Options());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  // Waits until the controller got a frame that `wanted` picks, and returns all such.
  std::vector<wire::Frame> Asked(bool (*wanted)(const wire::Frame&)) {
    auto pick = [wanted](const std::vector<wire::Frame>& frames) {
      std::vector<wire::Frame> found;
      for (const wire::Frame& frame : frames) {
        if (wanted(frame)) found.push_back(frame);
      }
      return found;
    };
    cluster_.controller().Wait([&](const auto& frames) { return !pick(frames).empty(); });
    return pick(cluster_.controller().frames());
  }
  static bool IsUsage(const wire::Frame& frame) { return frame.has_usage_request(); }
  static bool IsTrace(const wire::Frame& frame) { return frame.has_trace_request(); }

  void AnswerUsage(uint64_t query) {
    wire::SessionEvent event;
    event.mutable_usage()->set_query(query);
    wire::DeviceUsage& device = *event.mutable_usage()->add_devices();
    device.set_device(2);
    device.set_bytes(10);
    device.set_peak_bytes(20);
    device.set_budget_bytes(30);
    cluster_.controller().SendEvent(std::move(event));
  }

  ScriptedCluster cluster_;
  std::unique_ptr<Client> client_;  // ends before the cluster
};

TEST_F(ClientQueriesTest, UsageThatIsAskedForMeanwhileSharesAnAnswer) {
  using Answer = Result<std::vector<DeviceMemory>>;
  Arrival<Answer> first, second, third;
  client_->Usage([&](const Answer& answer) { first.Set(answer); });
  client_->Usage([&](const Answer& answer) { second.Set(answer); });
  const uint64_t query = Asked(IsUsage).at(0).usage_request().query();
  AnswerUsage(query + 1);  // of no question
  AnswerUsage(query);
  for (Arrival<Answer>* each : {&first, &second}) {
    const Answer answer = each->Get();
    ASSERT_TRUE(answer.ok());
    ASSERT_EQ(answer->size(), 1u);
    EXPECT_EQ((*answer)[0].device, 2u);
    EXPECT_EQ((*answer)[0].bytes, 10u);
    EXPECT_EQ((*answer)[0].peak_bytes, 20u);
    EXPECT_EQ((*answer)[0].limit_bytes, 30u);
  }
  EXPECT_EQ(Asked(IsUsage).size(), 1u);
  client_->Usage([&](const Answer& answer) { third.Set(answer); });
  cluster_.controller().Wait(
      [](const auto& frames) { return std::count_if(frames.begin(), frames.end(), IsUsage) == 2; });
  EXPECT_EQ(Asked(IsUsage).size(), 2u);
  cluster_.controller().Cut();
  EXPECT_EQ(third.Get().status().code(), StatusCode::kUnavailable);
}

TEST_F(ClientQueriesTest, UsageWithoutAnAnswerEndsAtItsDeadline) {
  Arrival<absl::Status> done;
  client_->Usage([&](const auto& answer) { done.Set(answer.status()); });
  const absl::Status status = done.Get();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("the devices' memory"));
}

wire::Frame TraceOf(uint64_t probe, const std::string& process,
                    const std::vector<TraceRecord>& records) {
  wire::Frame frame;
  wire::TraceReply& reply = *frame.mutable_trace_reply();
  reply.set_probe(probe);
  reply.set_process(process);
  for (const TraceRecord& record : records) {
    reply.add_words(record.time_ns);
    reply.add_words((uint64_t{static_cast<uint8_t>(record.kind)} << 32) | record.place);
    reply.add_words(record.session);
    reply.add_words(record.gang);
    reply.add_words(record.value);
  }
  reply.set_last(true);
  return frame;
}

TEST_F(ClientQueriesTest, AProfileNamesTheProgramOfEachRun) {
  using Answer = Result<SessionProfile>;
  Arrival<Answer> done;
  Arrival<absl::Status> refused;
  client_->Profile([&](const Answer& answer) { done.Set(answer); });
  client_->Profile([&](const Answer& answer) { refused.Set(answer.status()); });
  EXPECT_EQ(refused.Get().code(), absl::StatusCode::kResourceExhausted);
  const wire::TraceRequest request = Asked(IsTrace).at(0).trace_request();
  EXPECT_EQ(request.session(), 42u);
  ScriptedRole& controller = cluster_.controller();
  controller.Send(TraceOf(
      request.probe(), "controller",
      {{.time_ns = 1, .kind = TraceKind::kQueue, .session = 42, .gang = 9, .value = 5 * 8 + 3}}));
  controller.Send(
      TraceOf(request.probe(), "island0/worker0",
              {{.time_ns = 100, .kind = TraceKind::kExecuteBegin, .place = 3, .gang = 9},
               {.time_ns = 150, .kind = TraceKind::kExecuteEnd, .place = 3, .gang = 9}}));
  wire::Frame end;
  end.mutable_trace_reply()->set_probe(request.probe());
  end.mutable_trace_reply()->set_end(true);
  end.mutable_trace_reply()->add_missing("island1/worker0");
  wire::TraceReply::Name& name = *end.mutable_trace_reply()->add_names();
  name.set_what(static_cast<uint32_t>(TraceNameOf::kExecutable));
  name.set_id(5);
  name.set_name("jit_step");
  controller.Send(std::move(end));
  const Answer profile = done.Get();
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_THAT(profile->missing, testing::ElementsAre("island1/worker0"));
  ASSERT_EQ(profile->runs.size(), 1u);
  EXPECT_EQ(profile->runs[0].program, "jit_step");
  EXPECT_EQ(profile->runs[0].device, 3u);
  EXPECT_EQ(profile->runs[0].gang, 9u);
  EXPECT_EQ(profile->runs[0].end_ns - profile->runs[0].begin_ns, 50);
}

}  // namespace
}  // namespace gangway::client
