// Uploads: what is pushed, where it goes, and what becomes of uploads that come to nothing.
#include "gangway/client/uploads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/client/array_literal.h"
#include "gangway/client/recorded_session.h"
#include "gangway/transport/inproc/inproc.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/put_limits.h"

namespace gangway::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Its workers have no links, so pushes wait in DataLinks.
class UploadsTest : public ::testing::Test {
 protected:
  explicit UploadsTest(bool reports_ends = false) : session_(reports_ends) {
    session_.take_beside = [this] { return uploads_.TakeWaiting(); };
    session_.OnLoop([&] {
      DataLinks::Options options;
      options.transport = transport_.get();
      options.loop = &session_.loop;
      links_ = std::make_unique<DataLinks>(std::move(options));
      uploads_.Open(links_.get());
      for (uint32_t island : {0, 1}) {
        wire::Worker worker;
        worker.set_island(island);
        worker.set_incarnation(10 + island);
        links_->SetWorker(worker, /*up=*/false);
      }
    });
    uploads_.SetDestination({0, 0}, {.incarnation = Incarnation(10), .next = true});
    uploads_.SetDestination({1, 0}, {.incarnation = Incarnation(11)});
  }
  ~UploadsTest() override {
    session_.OnLoop([&] {
      uploads_.Clear();
      links_->Close(absl::CancelledError("over"));
    });
    session_.loop.Stop();
  }

  UploadId Begin(std::vector<uint32_t> devices) {
    return uploads_.Begin(
        5_array, {.element_type = 3, .devices = std::move(devices), .shard_bytes = 4}, nullptr);
  }
  void Push(UploadId upload, uint32_t shard, std::string_view data = "abcd") {
    uploads_.Push(upload, shard, data, [this] { ++released_; });
  }
  void Put(ArrayHandle array, std::vector<uint32_t> devices,
           const std::vector<std::string_view>& shards) {
    const uint64_t bytes = shards[0].size();
    uploads_.Put(array, {.element_type = 3, .devices = std::move(devices), .shard_bytes = bytes},
                 shards, nullptr);
  }
  // So that nothing is sent but by the caller.
  void WhileTheLoopStands(const std::function<void()>& task) {
    std::promise<void> stands, go_on;
    session_.loop.Post([&stands, gate = go_on.get_future().share()] {
      stands.set_value();
      gate.wait();
    });
    stands.get_future().wait();
    task();
    go_on.set_value();
    session_.OnLoop([] {});
  }
  // The failure of the only abandoned upload.
  std::string Abandoned() {
    std::string text;
    for (const wire::Op& op : session_.Ops()) {
      if (!op.has_abandon()) continue;
      EXPECT_TRUE(text.empty());
      text = wire::ToStatus(op.abandon().failure()).ToString();
    }
    return text;
  }

  std::unique_ptr<transport::Transport> transport_ = transport::NewInprocTransport();
  std::unique_ptr<DataLinks> links_;  // ends after the loop has stopped
  RecordedSession session_;
  Uploads uploads_{&session_.loop, &session_.activity, &session_.submitter, &session_.handles};
  std::atomic<int> released_ = 0;
};

class UploadsOfToldSessionTest : public UploadsTest {
 protected:
  UploadsOfToldSessionTest() : UploadsTest(/*reports_ends=*/true) {}
  // How many of the arrays so far came with their bytes.
  size_t Puts() {
    size_t puts = 0;
    for (const wire::Op& op : session_.Ops()) puts += static_cast<size_t>(op.put().arrays_size());
    return puts;
  }
};

TEST_F(UploadsTest, AnUploadNamesTheProcessesThatReceiveIt) {
  Begin({0, 3, 99});
  const std::vector<wire::Op> ops = session_.Ops();
  ASSERT_EQ(ops.size(), 1u);
  ASSERT_EQ(ops[0].upload().destinations_size(), 2);
  EXPECT_EQ(ops[0].upload().destinations(0).incarnation(), 10u);
  EXPECT_TRUE(ops[0].upload().destinations(0).next());
  EXPECT_FALSE(ops[0].upload().destinations(1).next());
  EXPECT_EQ(session_.handles.WorkerOf({5_array, 1}), std::optional<WorkerKey>({1, 0}));
}

// --- Puts ---

TEST_F(UploadsOfToldSessionTest, PutsOntoTheSameDevicesThatMeetInABatchAreOneOperation) {
  session_.link->queued = 1;  // so that they wait
  WhileTheLoopStands([this] {
    for (uint64_t number = 1; number <= 300; ++number) Put(ArrayHandle(number), {0}, {"abcd"});
    Put(1000_array, {2}, {"abcd"});
  });
  const std::vector<wire::Op> ops = session_.Ops();
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[0].put().arrays_size(), 256);
  EXPECT_EQ(ops[1].put().arrays_size(), 44);
  EXPECT_EQ(ops[1].put().arrays(43).array(), 300u);
  EXPECT_EQ(ops[1].put().arrays(43).shards(0), "abcd");
  EXPECT_EQ(ops[2].put().devices(0), 2u);
  EXPECT_EQ(session_.submitter.pending(), 301u) << "each is a node";
  EXPECT_EQ(session_.handles.WorkerOf({1000_array, 0}), std::optional<WorkerKey>({1, 0}));
}

TEST_F(UploadsTest, AnOperationBetweenPutsKeepsItsPlace) {
  session_.link->queued = 1;
  WhileTheLoopStands([this] {
    Put(1_array, {0}, {"abcd"});
    session_.handles.Poison(std::vector{9_array}, absl::InternalError("on purpose"));
    Put(2_array, {0}, {"abcd"});
  });
  const std::vector<wire::Op> ops = session_.Ops();
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_TRUE(ops[1].has_poison());
  EXPECT_EQ(ops[2].put().arrays(0).array(), 2u);
}

TEST_F(UploadsTest, OnlySmallArraysOfFewShardsInTheUsualMemoryComeWithTheirBytes) {
  const std::string large((8 << 10) + 4, 'x');
  Put(1_array, {0, 1}, {large, large});
  const std::vector<std::string_view> many(17);
  std::vector<uint32_t> devices(17);
  std::iota(devices.begin(), devices.end(), 0);
  Put(2_array, devices, many);
  uploads_.Put(3_array,
               {.element_type = 3, .devices = {0}, .memory_kind = "other", .shard_bytes = 4},
               std::vector<std::string_view>{"abcd"}, nullptr);
  devices.pop_back();
  Put(4_array, devices,
      std::vector<std::string_view>(16, std::string_view(large).substr(0, 1 << 10)));
  std::vector<wire::Op> ops = session_.Ops();
  std::erase_if(ops, [](const wire::Op& op) { return op.has_abandon(); });  // of device 4 and up
  ASSERT_EQ(ops.size(), 4u);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(ops[i].has_upload()) << i;
  EXPECT_EQ(ops[3].put().arrays(0).array(), 4u);
}

// The ends of its operations are told to it late, so all of those that it does not know to have ended count.
TEST_F(UploadsTest, WhileMuchIsPendingBytesArePushed_TM2) {
  for (uint64_t number = 1; number <= 300; ++number) Put(ArrayHandle(number), {0}, {"abcd"});
  size_t puts = 0;
  for (const wire::Op& op : session_.Ops()) puts += static_cast<size_t>(op.put().arrays_size());
  EXPECT_EQ(puts, wire::kPutSessionCostMax / wire::kPutArrayCostMax);
}

TEST_F(UploadsOfToldSessionTest, WhilePutsOfManyBytesHaveNotEndedFurtherOnesArePushed_TM2) {
  const std::string bytes(16 << 10, 'x');
  const uint64_t room = wire::kPutSessionCostMax / (bytes.size() + wire::kPutShardCost);
  for (uint64_t number = 1; number <= room + 5; ++number) Put(ArrayHandle(number), {0}, {bytes});
  EXPECT_EQ(Puts(), room);
  session_.OnLoop([&] {
    wire::Progress progress;
    progress.set_ended(3);
    progress.add_nodes()->set_first(1);
    progress.mutable_nodes(0)->set_count(2);
    wire::NodesEnded* failed = progress.add_nodes();
    failed->set_first(room);
    failed->set_count(1);
    *failed->mutable_failure() = wire::ToFailure(absl::InternalError("on purpose"));
    session_.submitter.OnProgress(progress);
  });
  for (uint64_t number = 1000; number <= 1005; ++number) Put(ArrayHandle(number), {0}, {bytes});
  EXPECT_EQ(Puts(), room + 3);
}

TEST_F(UploadsOfToldSessionTest, WhileMuchOfTheirRoomIsTakenTheEndsOfPutsAreLookedFor_TM2) {
  session_.submitter.EndLook();  // the caller's
  uint64_t last = 0;
  const auto end_all = [&] {
    session_.OnLoop([&] {
      wire::Progress progress;
      progress.set_ended(last);
      progress.add_nodes()->set_first(1);
      progress.mutable_nodes(0)->set_count(last);
      session_.submitter.OnProgress(progress);
    });
  };
  const auto last_asked = [&] {
    wire::EndsTold asked = wire::ENDS_AT_ONCE;
    for (const wire::Op& op : session_.Ops())
      if (op.has_tell_ends()) asked = op.tell_ends().when();
    return asked;
  };
  const auto put_many_small = [&] {
    for (uint64_t i = 0; i < EndLooks::kUnlookedEndsMax; ++i)
      Put(ArrayHandle(++last), {0}, {"abcd"});
  };
  put_many_small();
  end_all();
  const std::string bytes(16 << 10, 'x');
  const uint64_t half = wire::kPutSessionCostMax / 2 / (bytes.size() + wire::kPutShardCost);
  for (uint64_t i = 0; i < half; ++i) Put(ArrayHandle(++last), {0}, {bytes});
  EXPECT_EQ(last_asked(), wire::ENDS_TOGETHER);
  Put(ArrayHandle(++last), {0}, {bytes});
  EXPECT_EQ(last_asked(), wire::ENDS_AT_ONCE);
  end_all();
  put_many_small();
  EXPECT_EQ(last_asked(), wire::ENDS_AT_ONCE) << "those ends were looked for";
  end_all();
  Put(ArrayHandle(++last), {0}, {bytes});
  EXPECT_EQ(last_asked(), wire::ENDS_TOGETHER) << "the look has ended";
}

TEST_F(UploadsOfToldSessionTest, APutTellsItsEndAndOneOfALostSessionTheLoss) {
  std::vector<std::string> told;
  auto put = [&](ArrayHandle array) {
    uploads_.Put(array, {.element_type = 3, .devices = {0}, .shard_bytes = 4},
                 std::vector<std::string_view>{"abcd"}, [&told, array](const absl::Status& status) {
                   told.push_back(absl::StrCat(array, " ", status.message()));
                 });
  };
  put(1_array);
  session_.Lose(absl::UnavailableError("cut"));
  put(2_array);
  session_.Ops();
  EXPECT_THAT(told, ::testing::ElementsAre("1 cut", "2 cut"));
}

// A round trip would be a question to the controller, or bytes beside the batch.
TEST_F(UploadsOfToldSessionTest, APutAndTheCallThatReadsItAreAFrameEachAndManyPutsAreFew) {
  const size_t before = session_.link->frames().size();
  WhileTheLoopStands([&] {
    Put(1_array, {0}, {"abcd"});
    EXPECT_EQ(session_.link->frames().size(), before + 1);
    {
      const Submitter::Sending sending(session_.submitter);
      ASSERT_TRUE(session_.submitter
                      .Append(1, nullptr, [](wire::Op& op) { op.mutable_call()->add_arguments(1); })
                      .ok());
    }
    EXPECT_EQ(session_.link->frames().size(), before + 2);
    EXPECT_FALSE(uploads_.HoldsPushes());
    for (uint64_t number = 2; number <= 201; ++number) Put(ArrayHandle(number), {0}, {"abcd"});
  });
  EXPECT_EQ(session_.Ops().back().put().arrays().rbegin()->array(), 201u);
  EXPECT_LE(session_.link->frames().size(), before + 4) << "together";
}

TEST_F(UploadsTest, APutWithoutTheBytesOfEachDeviceIsAbandoned) {
  uploads_.Put(1_array, {.element_type = 3, .devices = {0, 1}, .shard_bytes = 4},
               std::vector<std::string_view>{"abcd"}, nullptr);
  EXPECT_THAT(Abandoned(), AllOf(HasSubstr("INVALID_ARGUMENT"),
                                 HasSubstr("on 2 devices was put with the bytes of 1 shards")));
}

TEST_F(UploadsTest, APutOfWrongSizeIsAbandoned) {
  Put(1_array, {0, 1}, {"abcd", "abc"});
  EXPECT_THAT(Abandoned(), HasSubstr("with 3 bytes, not the declared 4"));
}

// --- Pushes ---

TEST_F(UploadsTest, AWrongPushAbandonsTheUpload) {
  Push(Begin({0}), 1);
  EXPECT_THAT(Abandoned(), HasSubstr("shard 1 was pushed to an array of 1 shards"));
  EXPECT_EQ(released_, 1);
}

TEST_F(UploadsTest, APushOfAnotherSizeAbandonsTheUpload) {
  const UploadId upload = Begin({0, 1});
  Push(upload, 0, "abc");
  Push(upload, 1);  // is not needed any more
  EXPECT_THAT(Abandoned(), HasSubstr("with 3 bytes, not the declared 4"));
  EXPECT_EQ(released_, 2);
}

TEST_F(UploadsTest, AShardIsPushedOnce) {
  const UploadId upload = Begin({0, 1});
  Push(upload, 0);
  Push(upload, 0);
  EXPECT_THAT(Abandoned(), HasSubstr("shard 0 was pushed twice"));
  session_.OnLoop([] {});
  EXPECT_EQ(released_, 2);  // the first one, since the upload's bytes are of no use
}

TEST_F(UploadsTest, AShardIsPushedToADeviceOfTheCluster) {
  Push(Begin({99}), 0);
  EXPECT_THAT(Abandoned(), HasSubstr("device 99, which the cluster does not have"));
  EXPECT_EQ(released_, 1);
}

TEST_F(UploadsTest, PushesGoBesideTheBatchAndAreWatched) {
  const UploadId upload = Begin({0});
  std::promise<void> go_on;
  session_.loop.Post([gate = go_on.get_future().share()] { gate.wait(); });
  Push(upload, 0);
  EXPECT_TRUE(uploads_.HoldsPushes());
  go_on.set_value();
  session_.Ops();
  EXPECT_FALSE(uploads_.HoldsPushes());
  EXPECT_EQ(released_, 0);
  session_.OnLoop([&] { uploads_.Forget(upload); });  // the cluster has failed it
  EXPECT_EQ(released_, 1);
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  while (session_.looks == 0 && Clock::now() < deadline) session_.OnLoop([] {});
  EXPECT_GT(session_.looks, 0);
}

TEST_F(UploadsTest, ALostUploadIsToldToTheController) {
  const UploadId upload = Begin({0});
  uploads_.Fail(upload, absl::UnavailableError("its link broke"));
  EXPECT_THAT(Abandoned(), HasSubstr("its link broke"));
  uploads_.Abandon(upload, absl::CancelledError("it is abandoned already"));
  EXPECT_THAT(Abandoned(), HasSubstr("its link broke"));
}

TEST_F(UploadsTest, ALostSessionReleasesWhatWaits) {
  const UploadId upload = Begin({0, 1});
  std::promise<void> go_on;
  session_.loop.Post([gate = go_on.get_future().share()] { gate.wait(); });
  Push(upload, 0);
  session_.submitter.Lose(absl::UnavailableError("cut"));
  Push(upload, 1);
  EXPECT_EQ(released_, 1);
  uploads_.Clear();
  EXPECT_EQ(released_, 2);
  go_on.set_value();
}

}  // namespace
}  // namespace gangway::client
