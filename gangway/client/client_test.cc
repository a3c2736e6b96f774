// The client library against a scripted controller and scripted workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/client/array_literal.h"
#include "gangway/client/control_watch.h"
#include "gangway/client/data_links.h"
#include "gangway/client/scripted_cluster.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClientTest : public ::testing::Test {
 protected:
  void Open() {
    auto client = Connect(cluster_.Options());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  static ArraySpec Spec(std::vector<uint32_t> devices, uint64_t bytes) {
    return {.element_type = 3,
            .shard_dims = {static_cast<int64_t>(bytes)},
            .devices = std::move(devices),
            .shard_bytes = bytes};
  }
  static wire::Frame Chunk(uint64_t fetch, uint32_t shard, uint64_t offset, std::string data,
                           bool last) {
    wire::Frame frame;
    wire::Bulk* chunk = frame.mutable_bulk();
    chunk->mutable_name()->set_session(42);
    chunk->mutable_name()->set_fetch(fetch);
    chunk->mutable_name()->set_shard(shard);
    chunk->mutable_bytes()->set_offset(offset);
    chunk->mutable_bytes()->set_data(std::move(data));
    chunk->mutable_bytes()->set_last(last);
    return frame;
  }
  static wire::Failure WorkerFailure() {
    wire::Failure failure = wire::MakeFailure(absl::StatusCode::kDataLoss, "its worker died");
    failure.set_worker("island1/worker0");
    failure.set_gang(17);
    return failure;
  }
  // Collects the bytes of a fetch, by index in the request.
  FetchSink Into(std::map<size_t, std::string>& bytes, Arrival<absl::Status>& done) {
    return {.on_data =
                [&bytes](size_t index, uint64_t offset, std::string_view data) {
                  bytes[index].resize(std::max(bytes[index].size(), offset + data.size()));
                  bytes[index].replace(offset, data.size(), data);
                },
            .on_done = [&done](absl::Status status) { done.Set(status); }};
  }
  uint64_t FetchOf(size_t op) { return cluster_.controller().Ops(op + 1).at(op).fetch().fetch(); }

  ScriptedCluster cluster_;
  std::unique_ptr<Client> client_;  // ends before the cluster
};

TEST_F(ClientTest, ConnectsAndKnowsTheCluster) {
  Open();
  const ClusterInfo& info = client_->cluster();
  EXPECT_EQ(info.epoch, 7u);
  EXPECT_EQ(info.session, 42u);
  ASSERT_EQ(info.devices.size(), 4u);
  EXPECT_EQ(info.devices[3].id, 3u);
  EXPECT_EQ(info.devices[3].island, 1u);
  EXPECT_EQ(info.devices[3].index, 1u);
  EXPECT_EQ(info.devices[3].kind, "cpu");
}

TEST_F(ClientTest, AWorkerIsConnectedToAtItsFirstUse) {
  Open();
  client_->Upload(1_array, Spec({2}, 4));
  cluster_.controller().Ops(1);
  EXPECT_TRUE(cluster_.worker(1).frames().empty());
  client_->Fetch(1_array, {0}, {.on_done = [](const absl::Status&) {}});
  ASSERT_TRUE(cluster_.worker(1).WaitHellos(1));
  const wire::Frame hello = cluster_.worker(1).frames().at(0);
  EXPECT_EQ(hello.hello().role(), wire::ROLE_DATA);
  EXPECT_EQ(hello.hello().session(), 42u);
  EXPECT_EQ(hello.epoch(), 7u);
  EXPECT_TRUE(cluster_.worker(0).frames().empty()) << "nothing needs it";
  const std::string data(4, 'x');
  Arrival<int> sent;
  client_->Push(client_->Upload(2_array, Spec({0}, 4)), 0, data, [&] { sent.Set(0); });
  sent.Get();
  EXPECT_EQ(cluster_.worker(0).Chunks(1).at(0).bytes().data(), data);
}

TEST_F(ClientTest, TheFirstWorkersAreConnectedToFromTheStart) {
  ClientOptions options = cluster_.Options();
  options.used_from_start = 1;
  auto client = Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  client_ = *std::move(client);
  EXPECT_TRUE(cluster_.worker(0).WaitHellos(1));
  EXPECT_TRUE(cluster_.worker(1).frames().empty()) << "nothing needs it";
}

// It may call its client from any worker, and its first call does not wait for a link.
TEST_F(ClientTest, AProgramThatCallsItsHostConnectsToTheWorkers) {
  Open();
  Arrival<bool> compiled;
  const ExecutableHandle executable =
      client_->Compile("p", "f", "o", {0, 2}, [&](const auto& info) { compiled.Set(info.ok()); });
  wire::SessionEvent event;
  event.mutable_compiled()->set_executable(NumberOf(executable));
  event.mutable_compiled()->mutable_info()->set_calls_host(true);
  cluster_.controller().Ops(1);
  cluster_.controller().SendEvent(event);
  EXPECT_TRUE(compiled.Get());
  EXPECT_TRUE(cluster_.worker(0).WaitHellos(1) && cluster_.worker(1).WaitHellos(1));
}

TEST_F(ClientTest, IsolatedItConnectsToWorkersThatHaveAdmittedIt) {
  cluster_.reply.set_isolated(true);
  Open();
  const std::string data = "abcd";
  Arrival<int> released;
  client_->Push(client_->Upload(5_array, Spec({0}, 4)), 0, data, [&] { released.Set(0); });
  cluster_.controller().Ops(1);
  EXPECT_TRUE(cluster_.worker(0).frames().empty());
  wire::SessionEvent event;
  event.mutable_admitted()->set_island(0);
  cluster_.controller().SendEvent(event);
  ASSERT_TRUE(cluster_.worker(0).WaitHellos(1));
  EXPECT_EQ(cluster_.worker(0).Chunks(1).at(0).bytes().data(), data);
  released.Get();
  wire::SessionEvent again;  // another process of it
  again.mutable_worker_state()->set_up(true);
  *again.mutable_worker_state()->mutable_worker() = ScriptedCluster::Worker(0, 2);
  cluster_.controller().SendEvent(again);
  EXPECT_TRUE(cluster_.worker(0).WaitHellos(2));
  EXPECT_TRUE(cluster_.worker(1).frames().empty());
}

TEST_F(ClientTest, RefusedSilentAndAbsentControllersAreErrors) {
  *cluster_.reply.mutable_failure() =
      wire::MakeFailure(absl::StatusCode::kFailedPrecondition, "wrong version");
  EXPECT_EQ(Connect(cluster_.Options()).status().code(), absl::StatusCode::kFailedPrecondition);
  cluster_.answers = false;
  ClientOptions options = cluster_.Options();
  options.connect_limit = std::chrono::milliseconds(50);
  EXPECT_EQ(Connect(options).status().code(), absl::StatusCode::kDeadlineExceeded);
  options.controller_address = "elsewhere";
  EXPECT_EQ(Connect(options).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClientTest, OperationsReachTheControllerInOrder) {
  Open();
  const ArrayHandle a = client_->NewArrayHandle(), b = client_->NewArrayHandle(),
                    c = client_->NewArrayHandle();
  EXPECT_GE(NumberOf(a), uint64_t{1} << 62);
  const ExecutableHandle e = client_->Compile("program", "mlir", "options", {0, 1}, [](auto) {});
  client_->Upload(a, Spec({0, 1}, 4));
  const std::vector<uint32_t> keep = {0}, devices = {2, 3};
  client_->Call(e, std::vector{a}, std::vector{b}, {.keep = keep, .launch_id = 9});
  client_->Copy(std::vector{b}, std::vector{c}, devices, "pinned_host");
  client_->Regroup({{.array = 100_array, .shards = {{c, 1}, {a, 0}}}});
  client_->Fetch(100_array, {0, 1}, {.on_data = [](auto...) {}, .on_done = [](absl::Status) {}});
  client_->Await(std::vector{a, c}, [](absl::Status) {});
  client_->Drop(std::vector{a});
  client_->Delete(std::vector{b});
  client_->DropExecutables(std::vector{e});
  client_->Poison(std::vector{101_array}, absl::AbortedError("on purpose"));
  const auto ops = cluster_.controller().Ops(11);
  ASSERT_EQ(ops.size(), 11u);
  EXPECT_EQ(ops[0].compile().program(), "program");
  EXPECT_EQ(ops[1].upload().spec().shard_bytes(), 4u);
  EXPECT_EQ(ops[2].call().executable(), NumberOf(e));
  EXPECT_THAT(ops[2].call().keep(), ElementsAre(0));
  EXPECT_EQ(ops[2].call().launch_id(), 9u);
  EXPECT_THAT(ops[3].copy().devices(), ElementsAre(2, 3));
  EXPECT_EQ(ops[3].copy().memory_kind(), "pinned_host");
  EXPECT_EQ(ops[4].regroup().results(0).shards(0).shard(), 1u);
  EXPECT_THAT(ops[5].fetch().shards(), ElementsAre(0, 1));
  EXPECT_THAT(ops[6].await().arrays(), ElementsAre(NumberOf(a), NumberOf(c)));
  EXPECT_THAT(ops[7].drop().handles(), ElementsAre(NumberOf(a)));
  EXPECT_THAT(ops[8].delete_().handles(), ElementsAre(NumberOf(b)));
  EXPECT_THAT(ops[9].drop_executables().handles(), ElementsAre(NumberOf(e)));
  EXPECT_EQ(ops[10].poison().failure().message(), "on purpose");
}

TEST_F(ClientTest, EndsOfNodesReachWhatWaitsForThem) {
  ClientOptions options = cluster_.Options();
  options.reports_ends = true;
  auto client = Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  client_ = *std::move(client);
  std::vector<Arrival<absl::Status>> ended(4);
  auto note = [&ended](size_t i) {
    return [&ended, i](absl::Status status) { ended[i].Set(status); };
  };
  const std::vector<ArrayHandle> none, pair = {1_array, 2_array};
  client_->Upload(10_array, Spec({0}, 4), note(0));                    // node 1
  client_->Call(ExecutableHandle(5), none, none);                      // node 2
  client_->Call(ExecutableHandle(5), none, none, {.ended = note(1)});  // node 3
  client_->Copy(pair, std::vector{3_array, 4_array}, std::vector<uint32_t>{0}, "",
                note(2));                                              // 4, 5
  client_->Call(ExecutableHandle(5), none, none, {.ended = note(3)});  // node 6
  ASSERT_EQ(cluster_.controller().Ops(5).size(), 5u);
  EXPECT_TRUE(cluster_.controller().frames().at(0).hello().wants_ends());
  auto tell = [this](uint64_t first, uint64_t count, bool failed) {
    wire::SessionEvent event;
    wire::NodesEnded* nodes = event.mutable_progress()->add_nodes();
    nodes->set_first(first);
    nodes->set_count(count);
    if (failed) *nodes->mutable_failure() = WorkerFailure();
    cluster_.controller().SendEvent(event);
  };
  tell(0, 5, false);  // of no node
  tell(9, 5, false);
  tell(5, 1, true);
  tell(2, 2, false);
  EXPECT_EQ(ended[1].Get(), absl::OkStatus());
  EXPECT_EQ(ended[0].count(), 0u);
  EXPECT_EQ(ended[2].count(), 0u);
  tell(1, UINT64_MAX, false);  // what has not ended
  EXPECT_EQ(ended[0].Get(), absl::OkStatus());
  EXPECT_EQ(ended[2].Get().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ended[3].Get(), absl::OkStatus());
  Arrival<absl::Status> last;
  client_->Call(ExecutableHandle(5), none, none,
                {.ended = [&last](absl::Status status) { last.Set(status); }});
  cluster_.controller().Cut();
  EXPECT_EQ(last.Get().code(), absl::StatusCode::kUnavailable);
  Arrival<absl::Status> late;
  client_->Call(ExecutableHandle(5), none, none,
                {.ended = [&late](absl::Status status) { late.Set(status); }});
  EXPECT_EQ(late.Get().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClientTest, ShardsDroppedTogetherAreOneDrop) {
  Open();
  for (uint32_t shard : {0, 1, 2}) client_->DropShard({10_array, shard}, 3);
  for (uint32_t shard : {2, 0}) client_->DropShard({11_array, shard}, 3);
  auto ops = cluster_.controller().Ops(2);
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_THAT(ops[0].drop().handles(), ElementsAre(10));
  EXPECT_EQ(ops[1].drop_shards().arrays(0).array(), 11u);
  EXPECT_THAT(ops[1].drop_shards().arrays(0).shards(), ElementsAre(2, 0));
  client_->DropShard({11_array, 1}, 3);
  ops = cluster_.controller().Ops(3);
  EXPECT_THAT(ops[2].drop().handles(), ElementsAre(11));
}

TEST_F(ClientTest, DropsInARowAreOneOperation) {
  Open();
  for (ArrayHandle array : {10_array, 11_array, 12_array}) client_->DropShard({array, 0}, 1);
  client_->Drop(std::vector{13_array, 14_array});
  client_->Call(ExecutableHandle(5), std::vector{15_array}, std::vector{16_array});
  client_->DropShard({15_array, 0}, 1);
  const std::vector<wire::Op> ops = cluster_.controller().Ops(3);
  ASSERT_EQ(ops.size(), 3u) << "a drop stays behind what was submitted before it";
  EXPECT_THAT(ops[0].drop().handles(), ElementsAre(10, 11, 12, 13, 14));
  EXPECT_TRUE(ops[1].has_call());
  EXPECT_THAT(ops[2].drop().handles(), ElementsAre(15));

  std::vector<ArrayHandle> many;
  for (uint64_t i = 0; i < 5000; ++i) many.push_back(ArrayHandle(100 + i));
  for (ArrayHandle array : many) client_->DropShard({array, 0}, 1);
  size_t dropped = 0;
  for (size_t count = 4; dropped < many.size(); ++count) {
    const std::vector<wire::Op> all = cluster_.controller().Ops(count);
    ASSERT_GE(all.size(), count);
    ASSERT_LE(all[count - 1].drop().handles_size(), 4096);
    dropped += all[count - 1].drop().handles_size();
  }
  EXPECT_EQ(dropped, many.size());
}

TEST_F(ClientTest, AnArgumentMayBeAListOfShards) {
  Open();
  const std::vector<GatheredArgument> gathered = {{1, {{20_array, 0}, {21_array, 3}}}};
  client_->Call(ExecutableHandle(5), std::vector{10_array, 0_array}, std::vector{30_array},
                {.gathered = gathered});
  const wire::CallOp call = cluster_.controller().Ops(1).at(0).call();
  EXPECT_EQ(call.gathered(0).argument(), 1u);
  EXPECT_THAT(call.gathered(0).arrays(), ElementsAre(20, 21));
  EXPECT_THAT(call.gathered(0).shards(), ElementsAre(0, 3));
}

TEST_F(ClientTest, ManyOperationsTravelInFewFramesAndStayInOrder) {
  Open();
  constexpr uint64_t kCount = 20000;
  const std::vector<ArrayHandle> none;
  for (uint64_t i = 1; i <= kCount; ++i) client_->Call(ExecutableHandle(i), none, none);
  const auto ops = cluster_.controller().Ops(kCount);
  ASSERT_EQ(ops.size(), kCount);
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(ops[i].call().executable(), i + 1);
  uint64_t sequence = 0;
  for (const wire::Frame& frame : cluster_.controller().frames())
    EXPECT_EQ(frame.sequence(), ++sequence);
  EXPECT_LT(sequence, kCount / 2);
}

TEST_F(ClientTest, CompileAnswersByHandle) {
  Open();
  Arrival<Result<std::shared_ptr<const ExecutableInfo>>> good, bad;
  const auto first = client_->Compile("a", "mlir", "", {0}, [&](auto info) { bad.Set(info); });
  const auto second = client_->Compile("b", "mlir", "", {0}, [&](auto info) { good.Set(info); });
  wire::SessionEvent event;
  event.mutable_compiled()->set_executable(NumberOf(second));
  event.mutable_compiled()->mutable_info()->set_name("jit_b");
  event.mutable_compiled()->mutable_info()->mutable_memory()->set_temp_bytes(8);
  event.mutable_compiled()->mutable_info()->add_results()->set_shard_bytes(4);
  cluster_.controller().SendEvent(event);
  event.Clear();
  event.mutable_compiled()->set_executable(NumberOf(first));
  *event.mutable_compiled()->mutable_failure() =
      wire::MakeFailure(absl::StatusCode::kInvalidArgument, "line 3");
  cluster_.controller().SendEvent(event);
  ASSERT_TRUE(good.Get().ok());
  EXPECT_EQ((*good.Get())->name, "jit_b");
  EXPECT_EQ((*good.Get())->temp_bytes, 8u);
  EXPECT_EQ((*good.Get())->results.at(0).shard_bytes, 4u);
  EXPECT_EQ(bad.Get().status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ClientTest, ER1_AwaitBringsTheWholeFailureRecord) {
  Open();
  Arrival<absl::Status> done;
  client_->Await(std::vector{1_array}, [&](absl::Status status) { done.Set(status); });
  wire::SessionEvent event;
  event.mutable_await_done()->set_await(cluster_.controller().Ops(1).at(0).await().await());
  *event.mutable_await_done()->mutable_failure() = WorkerFailure();
  cluster_.controller().SendEvent(event);
  EXPECT_EQ(done.Get().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(wire::ToFailure(done.Get()).worker(), "island1/worker0");
  EXPECT_EQ(wire::ToFailure(done.Get()).gang(), 17u);
}

TEST_F(ClientTest, PushesAreCutIntoChunksForTheWorkerOfTheShard) {
  Open();
  const size_t bytes = DataLinks::kChunkBytes * 5 / 2;
  const std::string data0(bytes, 'x'), data1(bytes, 'y');
  Arrival<bool> released0, released1;
  const OperationId upload = client_->Upload(5_array, Spec({3, 0}, bytes));
  client_->Push(upload, 1, data1, [&] { released1.Set(true); });
  client_->Push(upload, 0, data0, [&] { released0.Set(true); });
  const auto to1 = cluster_.worker(1).Chunks(1);
  ASSERT_EQ(to1.size(), 3u);
  std::string received;
  for (const wire::Bulk& chunk : to1) {
    EXPECT_EQ(chunk.name().session(), 42u);
    EXPECT_EQ(chunk.name().upload(), NumberOf(upload));
    EXPECT_EQ(chunk.name().shard(), 0u);
    EXPECT_EQ(chunk.bytes().offset(), received.size());
    EXPECT_LE(chunk.bytes().data().size(), DataLinks::kChunkBytes);
    received += chunk.bytes().data();
  }
  EXPECT_EQ(received, data0);
  const auto to0 = cluster_.worker(0).Chunks(1);
  ASSERT_EQ(to0.size(), 3u);
  EXPECT_EQ(to0[0].name().shard(), 1u);
  EXPECT_TRUE(released0.Get() && released1.Get());
}

// It needs no round of the client's loop, unless the link is busy.
TEST_F(ClientTest, ASmallPushLeavesOnTheCallersThread) {
  Open();
  const std::string data = "12345678";
  bool at_once = false;
  for (size_t i = 0; i < 100 && !at_once; ++i) {
    const OperationId upload = client_->Upload(ArrayHandle(5 + i), Spec({0}, data.size()));
    Arrival<bool> released;
    client_->Push(upload, 0, data, [&, caller = std::this_thread::get_id()] {
      released.Set(std::this_thread::get_id() == caller);
    });
    const auto chunks = cluster_.worker(0).Chunks(i + 1);
    ASSERT_EQ(chunks.size(), i + 1);
    EXPECT_EQ(chunks[i].name().upload(), NumberOf(upload));
    EXPECT_EQ(chunks[i].bytes().data(), data);
    EXPECT_TRUE(chunks[i].bytes().last());
    at_once = released.Get();
  }
  EXPECT_TRUE(at_once);
}

TEST_F(ClientTest, EmptyShardIsOneClosingChunk) {
  Open();
  Arrival<int> released;
  client_->Push(client_->Upload(5_array, Spec({0}, 0)), 0, {}, [&] { released.Set(0); });
  const auto chunks = cluster_.worker(0).Chunks(1);
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_TRUE(chunks[0].bytes().data().empty());
  released.Get();
}

TEST_F(ClientTest, TM2_LargePushesWaitForTheLinkAndTakeTurns) {
  Open();
  const size_t bytes = 3 * DataLinks::kQueueBytes;
  const std::string large(bytes, 'a'), small(100, 'b');
  Arrival<int> released;
  const OperationId first = client_->Upload(1_array, Spec({0, 1}, bytes));
  const OperationId second = client_->Upload(2_array, Spec({0}, small.size()));
  client_->Push(first, 0, large, [&] { released.Set(0); });
  client_->Push(first, 1, large, [&] { released.Set(1); });
  client_->Push(second, 0, small, [&] { released.Set(2); });
  const auto chunks = cluster_.worker(0).Chunks(3);
  size_t received[2] = {0, 0}, position = 0, small_at = 0;
  for (const wire::Bulk& chunk : chunks) {
    if (chunk.name().upload() == NumberOf(second)) {
      small_at = position;
    } else {
      EXPECT_EQ(chunk.bytes().offset(), received[chunk.name().shard()]);
      received[chunk.name().shard()] += chunk.bytes().data().size();
    }
    ++position;
  }
  EXPECT_EQ(received[0], bytes);
  EXPECT_EQ(received[1], bytes);
  EXPECT_LT(small_at, chunks.size() / 2) << "a small push waited for large ones";
  EXPECT_EQ(released.Get(), 2);
}

TEST_F(ClientTest, AbandonedAndWrongUploadsTellTheController) {
  Open();
  const std::string data(8, 'x');
  const OperationId abandoned = client_->Upload(1_array, Spec({0, 2}, 8));
  client_->Push(abandoned, 0, data, {});
  client_->AbandonUpload(abandoned, absl::AbortedError("no more bytes"));
  Arrival<int> released;
  const OperationId wrong = client_->Upload(2_array, Spec({3}, 9));
  client_->Push(wrong, 0, data, [&] { released.Set(0); });
  const auto ops = cluster_.controller().Ops(4);
  ASSERT_EQ(ops.size(), 4u);
  EXPECT_EQ(ops[1].abandon().upload(), NumberOf(abandoned));
  EXPECT_EQ(ops[1].abandon().failure().message(), "no more bytes");
  EXPECT_EQ(ops[3].abandon().upload(), NumberOf(wrong));
  EXPECT_THAT(ops[3].abandon().failure().message(), HasSubstr("8 bytes, not the declared 9"));
  released.Get();
}

TEST_F(ClientTest, WorkersHearOfAnAbandonedUploadAfterTheController) {
  Open();
  const OperationId upload = client_->Upload(1_array, Spec({0}, 8));
  client_->AbandonUpload(upload, absl::DataLossError("the file is gone"));
  ASSERT_EQ(cluster_.controller().Ops(2).size(), 2u);
  const std::string data(8, 'x');  // what is sent after it, to see what came before
  const OperationId later = client_->Upload(2_array, Spec({0}, 8));
  client_->Push(later, 0, data, {});
  for (const wire::Bulk& chunk : cluster_.worker(0).Chunks(1))
    EXPECT_FALSE(chunk.has_dropped()) << "the worker's own error would be first";
  wire::SessionEvent failed;
  failed.mutable_upload_failed()->set_upload(NumberOf(upload));
  cluster_.controller().SendEvent(failed);
  EXPECT_TRUE(cluster_.worker(0).Wait([upload](const auto& frames) {
    return std::any_of(frames.begin(), frames.end(), [upload](const wire::Frame& frame) {
      return frame.bulk().has_dropped() && frame.bulk().name().upload() == NumberOf(upload);
    });
  }));
}

TEST_F(ClientTest, FetchIsPutTogetherFromTwoWorkers) {
  Open();
  client_->Upload(1_array, Spec({0, 2}, 6));
  std::map<size_t, std::string> bytes;
  Arrival<absl::Status> done;
  client_->Fetch(1_array, {1, 0, 1}, Into(bytes, done));
  const uint64_t fetch = FetchOf(1);
  ASSERT_TRUE(cluster_.worker(0).WaitHellos(1) && cluster_.worker(1).WaitHellos(1));
  cluster_.worker(1).Send(Chunk(fetch, 0, 0, "abc", false));
  cluster_.worker(1).Send(Chunk(fetch, 2, 0, "again", true));
  cluster_.worker(1).Send(Chunk(fetch, 0, 3, "def", true));
  cluster_.worker(1).Send(Chunk(fetch, 0, 6, "after its end", true));
  cluster_.worker(1).Send(Chunk(fetch, 77, 0, "never asked", true));
  cluster_.worker(1).Send(Chunk(fetch + 1000, 0, 0, "nobody's", true));
  cluster_.worker(0).Send(Chunk(fetch, 1, 0, "012345", true));
  EXPECT_TRUE(done.Get().ok()) << done.Get();
  EXPECT_EQ(bytes[0], "abcdef");
  EXPECT_EQ(bytes[1], "012345");
  EXPECT_EQ(bytes[2], "again");
  EXPECT_EQ(bytes.size(), 3u);
}

// Whether two calls meet in a batch is a matter of time, but not of a thousand.
TEST_F(ClientTest, SmallFetchesFromOneWorkerJoin) {
  Open();
  constexpr size_t kCalls = 1000;
  std::vector<std::map<size_t, std::string>> bytes(kCalls);
  std::vector<Arrival<absl::Status>> done(kCalls);
  for (size_t i = 0; i < kCalls; ++i)
    client_->Upload(ArrayHandle(1 + i), Spec({i % 100 == 7 ? 2u : 0u}, 4));
  for (size_t i = 0; i < kCalls; ++i) {
    FetchSink sink = Into(bytes[i], done[i]);
    sink.may_join = i % 100 != 8;
    client_->Fetch(ArrayHandle(1 + i), {0}, std::move(sink));
  }
  const auto ops = cluster_.controller().Ops(client_->pending());
  ASSERT_TRUE(cluster_.worker(0).WaitHellos(1) && cluster_.worker(1).WaitHellos(1));
  ASSERT_LT(ops.size(), 2 * kCalls) << "none has joined another";
  size_t call = 0;
  std::set<size_t> failed;
  for (size_t i = kCalls; i < ops.size(); ++i) {
    const wire::FetchOp& op = ops[i].fetch();
    const bool is_apart = call % 100 == 7 || call % 100 == 8;
    EXPECT_TRUE(!is_apart || op.arrays_size() == 1) << call;
    auto& worker = cluster_.worker(call % 100 == 7 ? 1 : 0);
    for (int place = 0; place < op.arrays_size(); ++place, ++call) {
      EXPECT_EQ(op.arrays(place), 1 + call);
      EXPECT_TRUE(call % 100 != 7 || place == 0) << call;
      wire::Frame chunk = Chunk(op.fetch(), place, 0, std::to_string(call), true);
      if (place == 2) *chunk.mutable_bulk()->mutable_failed() = WorkerFailure();
      if (place >= 2) failed.insert(call);  // by the failure of the third
      worker.Send(std::move(chunk));
    }
  }
  for (size_t i = 0; i < kCalls; ++i) {
    const bool fails = failed.contains(i);
    EXPECT_EQ(done[i].Get().code(), fails ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk);
    EXPECT_EQ(bytes[i][0], fails ? "" : std::to_string(i));
    EXPECT_EQ(done[i].count(), 1u);
  }
}

TEST_F(ClientTest, FetchEndsWithTheFirstFailure) {
  Open();
  std::map<size_t, std::string> bytes;
  Arrival<absl::Status> spoiled, refused, gap, nothing, untold;
  client_->Fetch(1_array, {0}, Into(bytes, spoiled));
  client_->Fetch(2_array, {0}, Into(bytes, refused));
  client_->Fetch(3_array, {0}, Into(bytes, gap));
  client_->Fetch(4_array, {}, Into(bytes, nothing));
  client_->Fetch(5_array, {0}, Into(bytes, untold));
  ASSERT_TRUE(cluster_.worker(0).WaitHellos(1));
  wire::Frame frame = Chunk(FetchOf(0), 0, 0, "", true);
  *frame.mutable_bulk()->mutable_failed() = WorkerFailure();
  cluster_.worker(0).Send(frame);
  EXPECT_EQ(wire::ToFailure(spoiled.Get()).worker(), "island1/worker0");
  wire::SessionEvent event;
  event.mutable_fetch_failed()->set_fetch(FetchOf(1));
  *event.mutable_fetch_failed()->mutable_failure() =
      wire::MakeFailure(absl::StatusCode::kInvalidArgument, "unknown");
  cluster_.controller().SendEvent(event);
  EXPECT_EQ(refused.Get().code(), absl::StatusCode::kInvalidArgument);
  cluster_.worker(0).Send(Chunk(FetchOf(2), 0, 5, "late", true));
  EXPECT_EQ(gap.Get().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(nothing.Get().ok());
  frame.mutable_bulk()->mutable_name()->set_fetch(FetchOf(3));
  frame.mutable_bulk()->mutable_failed()->Clear();
  cluster_.worker(0).Send(frame);
  EXPECT_EQ(untold.Get().code(), absl::StatusCode::kInternal) << "it failed without a reason";
}

TEST_F(ClientTest, LostControllerEndsEverythingPending) {
  Open();
  Arrival<absl::Status> awaited, fetched, lost, later;
  Arrival<Result<std::shared_ptr<const ExecutableInfo>>> compiled;
  std::map<size_t, std::string> bytes;
  client_->OnLost([&](absl::Status status) { lost.Set(status); });
  client_->Await(std::vector{1_array}, [&](absl::Status status) { awaited.Set(status); });
  client_->Fetch(1_array, {0}, Into(bytes, fetched));
  client_->Compile("p", "mlir", "", {0}, [&](auto info) { compiled.Set(info); });
  cluster_.controller().Ops(3);
  cluster_.controller().Cut();
  EXPECT_EQ(lost.Get().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(awaited.Get().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fetched.Get().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(compiled.Get().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(client_->pending(), 0u);
  client_->Await(std::vector{1_array}, [&](absl::Status status) { later.Set(status); });
  EXPECT_EQ(later.Get().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(lost.count(), 1u);
}

// A controller that is stopped, or cut off, closes no link.
TEST_F(ClientTest, TM1_ASilentControllerEndsWhateverAwaitsIt) {
  cluster_.controller().mute = true;
  for (int question = 0; question < 3; ++question) {
    ClientOptions options = cluster_.Options();
    options.controller_silence_max = std::chrono::milliseconds(100);
    options.pending_max = 1;
    auto client = Connect(options);
    ASSERT_TRUE(client.ok()) << client.status();
    Arrival<absl::Status> done;
    Arrival<bool> room;
    const ArrayHandle array = (*client)->NewArrayHandle();
    if (question == 0) (*client)->Await(std::vector{array}, [&](absl::Status s) { done.Set(s); });
    if (question == 1) {
      (*client)->Compile("p", "mlir", "", {0}, [&](auto info) { done.Set(info.status()); });
    }
    if (question == 2) {  // full of nodes that do not end
      (*client)->Upload(array, Spec({0}, 4));
      (*client)->WhenRoom([&] { room.Set(true); });
      EXPECT_TRUE(room.Get());
      (*client)->Await(std::vector{array}, [&](absl::Status s) { done.Set(s); });
    }
    const absl::Status lost = done.Get();
    EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
    EXPECT_THAT(std::string(lost.message()), HasSubstr("nothing came from it for 100 ms"));
  }
}

TEST(ControlWatchTest, TM1_OnlySilenceAfterAQuestionCounts) {
  using Verdict = ControlWatch::Verdict;
  using std::chrono::seconds;
  ControlWatch watch(seconds(10), seconds(1));
  const Clock::time_point began{seconds(1000)};
  const auto look = [&](int second, size_t queued = 0) {
    return watch.Look(began + seconds(second), queued);
  };
  const auto wait = [&](int first, int last, size_t queued = 0) {
    for (int s = first; s <= last; ++s) EXPECT_EQ(look(s, queued), Verdict::kWait) << s;
  };
  EXPECT_EQ(look(0), Verdict::kAsk);
  wait(1, 9);
  watch.Heard();
  EXPECT_EQ(look(100), Verdict::kAsk) << "nothing was asked since";
  wait(101, 109, 50);
  EXPECT_EQ(look(110, 40), Verdict::kAsk) << "the controller takes what is queued";
  wait(111, 118, 40);
  wait(119, 119, 60);
  EXPECT_EQ(look(120, 60), Verdict::kSilent);
}

TEST(ControlWatchTest, SilenceLastsFromTheQuestionToTheAnswerWhileItIsLookedAt) {
  using std::chrono::seconds;
  ControlWatch watch(seconds(10), seconds(1));
  const Clock::time_point began{seconds(1000)};
  EXPECT_EQ(watch.silent_for(began), seconds(0));
  for (int second = 0; second <= 3; ++second) watch.Look(began + seconds(second), 0);
  EXPECT_EQ(watch.silent_for(began + seconds(4)), seconds(4));
  EXPECT_EQ(watch.silent_for(began + seconds(60)), seconds(0)) << "an answer may lie unread";
  watch.Heard();
  EXPECT_EQ(watch.silent_for(began + seconds(4)), seconds(0));
}

// What a client has not read, because it stood still, is no silence; what was silence before remains so.
TEST(ControlWatchTest, TM1_AClientThatStandsStillNoticesSilenceLaterByNoMoreThanThat) {
  using Verdict = ControlWatch::Verdict;
  using std::chrono::milliseconds;
  for (const int still_ms : {2'500, 4'000, 60'000}) {
    ControlWatch watch(std::chrono::seconds(10), std::chrono::seconds(1));
    Clock::time_point now{std::chrono::seconds(1000)};
    EXPECT_EQ(watch.Look(now, 0), Verdict::kAsk);
    const auto asked = now;
    for (int second = 0; second < 9; ++second)
      EXPECT_EQ(watch.Look(now += std::chrono::seconds(1), 0), Verdict::kWait);
    EXPECT_EQ(watch.Look(now += milliseconds(still_ms), 0), Verdict::kWait) << still_ms;
    while (watch.Look(now += std::chrono::seconds(1), 0) != Verdict::kSilent)
      ASSERT_LT(now - asked, milliseconds(10'000 + still_ms)) << still_ms;
  }
}

TEST_F(ClientTest, TM1_AControllerThatAnswersMayTakeItsTime) {
  ClientOptions options = cluster_.Options();
  options.controller_silence_max = std::chrono::milliseconds(1);
  auto client = Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  Arrival<absl::Status> done;
  const ArrayHandle array = (*client)->NewArrayHandle();
  (*client)->Await(std::vector{array}, [&](absl::Status s) { done.Set(s); });
  EXPECT_TRUE(cluster_.controller().WaitQuestions(3));
  EXPECT_EQ(done.count(), 0u);
  wire::SessionEvent event;
  event.mutable_await_done()->set_await(cluster_.controller().Ops(1)[0].await().await());
  cluster_.controller().SendEvent(event);
  EXPECT_TRUE(done.Get().ok());
}

TEST_F(ClientTest, ER2_LostDataStreamEndsOnlyTheFetchesOfItsWorkerAndIsOpenedAgain) {
  Open();
  client_->Upload(1_array, Spec({2}, 4));
  client_->Upload(2_array, Spec({0}, 4));
  client_->Regroup({{.array = 3_array, .shards = {{2_array, 0}, {1_array, 0}}}});
  std::map<size_t, std::string> bytes;
  Arrival<absl::Status> on_lost_worker, on_other, on_both;
  client_->Fetch(1_array, {0}, Into(bytes, on_lost_worker));
  client_->Fetch(2_array, {0}, Into(bytes, on_other));
  client_->Fetch(3_array, {0, 1}, Into(bytes, on_both));
  const uint64_t other = FetchOf(4);
  FetchOf(5);
  ASSERT_TRUE(cluster_.worker(0).WaitHellos(1) && cluster_.worker(1).WaitHellos(1));
  cluster_.worker(1).Cut();
  EXPECT_EQ(on_lost_worker.Get().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(wire::ToFailure(on_lost_worker.Get()).worker(), "island1/worker0");
  EXPECT_EQ(on_both.Get().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(on_other.count(), 0u);
  EXPECT_TRUE(cluster_.worker(1).WaitHellos(2))
      << "the stream is opened again while the worker is up";
  cluster_.worker(0).Send(Chunk(other, 0, 0, "fine", true));
  EXPECT_TRUE(on_other.Get().ok());
}

// A stream that is rejected after it took bytes would lose them, and their array would hang.
TEST_F(ClientTest, NothingIsPushedIntoAStreamThatIsNotWelcome) {
  cluster_.silent_data = true;
  Open();
  const std::string data(4, 'x');
  Arrival<int> sent;
  client_->Push(client_->Upload(1_array, Spec({2}, 4)), 0, data, [&] { sent.Set(0); });
  ASSERT_TRUE(cluster_.worker(1).WaitHellos(1));
  Arrival<absl::Status> seen;  // arrives after the push was handled
  client_->Await(std::vector{9_array}, [&](absl::Status status) { seen.Set(status); });
  wire::SessionEvent event;
  event.mutable_await_done()->set_await(cluster_.controller().Ops(2).at(1).await().await());
  cluster_.controller().SendEvent(event);
  EXPECT_TRUE(seen.Get().ok());
  cluster_.silent_data = false;
  cluster_.worker(1).Cut();
  ASSERT_TRUE(cluster_.worker(1).WaitHellos(2));
  sent.Get();
  const std::vector<wire::Frame> frames = cluster_.worker(1).frames();
  EXPECT_TRUE(frames.at(1).has_hello()) << "bytes went into the stream that was never accepted";
  EXPECT_EQ(cluster_.worker(1).Chunks(1).size(), 1u);
}

TEST_F(ClientTest, BytesGoToTheProcessThatTheUploadNamesOrNowhere) {
  Open();
  const OperationId late = client_->Upload(1_array, Spec({2}, 4));
  wire::SessionEvent event;
  *event.mutable_worker_state()->mutable_worker() = ScriptedCluster::Worker(1);
  event.mutable_worker_state()->set_up(false);
  cluster_.controller().SendEvent(event);
  Arrival<absl::Status> seen;  // events come in order: it proves that the earlier one was handled
  client_->Await(std::vector{9_array}, [&](absl::Status status) { seen.Set(status); });
  event.Clear();
  event.mutable_await_done()->set_await(cluster_.controller().Ops(2).at(1).await().await());
  cluster_.controller().SendEvent(event);
  EXPECT_TRUE(seen.Get().ok());
  const std::string data(4, 'x');
  Arrival<int> dropped, kept, sent;
  client_->Push(late, 0, data, [&] { dropped.Set(0); });
  dropped.Get();
  const OperationId held = client_->Upload(2_array, Spec({2}, 4));
  client_->Push(held, 0, data, [&] { kept.Set(0); });
  const std::vector<wire::Op> ops = cluster_.controller().Ops(3);
  ASSERT_EQ(ops.at(0).upload().destinations_size(), 1);
  EXPECT_EQ(ops.at(0).upload().destinations(0).incarnation(), 1u);
  EXPECT_FALSE(ops.at(0).upload().destinations(0).next());
  EXPECT_EQ(ops.at(2).upload().destinations(0).island(), 1u);
  EXPECT_EQ(ops.at(2).upload().destinations(0).incarnation(), 1u);
  EXPECT_TRUE(ops.at(2).upload().destinations(0).next());
  event.Clear();
  *event.mutable_worker_state()->mutable_worker() = ScriptedCluster::Worker(1, /*incarnation=*/2);
  event.mutable_worker_state()->set_up(true);
  cluster_.controller().SendEvent(event);
  ASSERT_TRUE(cluster_.worker(1).WaitHellos(1));
  EXPECT_EQ(cluster_.worker(1).frames().back().incarnation(), 2u);
  kept.Get();
  client_->Push(client_->Upload(3_array, Spec({2}, 4)), 0, data, [&] { sent.Set(0); });
  sent.Get();
  const auto chunks = cluster_.worker(1).Chunks(2);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].name().upload(), NumberOf(held));
}

TEST_F(ClientTest, ASessionThatTheControllerEndsSaysWhy) {
  Open();
  Arrival<absl::Status> lost, done;
  client_->OnLost([&](absl::Status status) { lost.Set(status); });
  client_->Await(std::vector{1_array}, [&](absl::Status status) { done.Set(status); });
  (void)cluster_.controller().Ops(1);
  wire::SessionEvent event;
  *event.mutable_ended() = wire::MakeFailure(absl::StatusCode::kInternal, "its sums are broken");
  cluster_.controller().SendEvent(event);
  EXPECT_EQ(lost.Get().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(wire::ToFailure(done.Get()).message(), "its sums are broken");
  Arrival<absl::Status> later;
  client_->Await(std::vector{1_array}, [&](absl::Status status) { later.Set(status); });
  EXPECT_EQ(wire::ToFailure(later.Get()).message(), "its sums are broken");
}

TEST_F(ClientTest, AFailedUploadNeedsNoBytesAndItsWorkersFreeThoseThatTheyHave_TM2) {
  Open();
  const std::string data(4, 'x');
  client_->Push(client_->Upload(3_array, Spec({0}, 4)), 0, data, {});
  ASSERT_EQ(cluster_.worker(0).Chunks(1).size(), 1u);
  const OperationId upload = client_->Upload(1_array, Spec({0}, 4));
  wire::SessionEvent event;
  event.mutable_upload_failed()->set_upload(NumberOf(upload));
  cluster_.controller().SendEvent(event);
  Arrival<absl::Status> seen;
  client_->Await(std::vector{9_array}, [&](absl::Status status) { seen.Set(status); });
  event.Clear();
  event.mutable_await_done()->set_await(cluster_.controller().Ops(3).at(2).await().await());
  cluster_.controller().SendEvent(event);
  EXPECT_TRUE(seen.Get().ok());
  Arrival<int> dropped, sent;
  client_->Push(upload, 0, data, [&] { dropped.Set(0); });
  const OperationId next = client_->Upload(2_array, Spec({0}, 4));
  client_->Push(next, 0, data, [&] { sent.Set(0); });
  dropped.Get();
  sent.Get();
  const auto chunks = cluster_.worker(0).Chunks(3);
  ASSERT_EQ(chunks.size(), 3u);
  const size_t first = chunks[1].has_dropped() ? 1 : 2;
  EXPECT_EQ(chunks[first].name().upload(), NumberOf(upload));
  EXPECT_TRUE(chunks[first].has_dropped() && chunks[first].bytes().data().empty());
  EXPECT_EQ(chunks[3 - first].name().upload(), NumberOf(next));
  EXPECT_FALSE(chunks[3 - first].has_dropped());
}

TEST_F(ClientTest, TM2_RoomIsToldWhenNodesEnd) {
  ClientOptions options = cluster_.Options();
  options.pending_max = 4;
  client_ = *Connect(options);
  Arrival<int> at_once, room;
  client_->WhenRoom([&] { at_once.Set(0); });
  at_once.Get();
  const std::vector<ArrayHandle> none, two = {1_array, 2_array}, copies = {3_array, 4_array};
  client_->Call(ExecutableHandle(1), none, none);
  client_->Copy(two, copies, std::vector<uint32_t>{0}, "");
  client_->Upload(7_array, Spec({0}, 4));
  EXPECT_EQ(client_->pending(), 4u);
  client_->WhenRoom([&] { room.Set(static_cast<int>(client_->pending())); });
  wire::SessionEvent event;
  event.mutable_progress()->set_ended(3);
  cluster_.controller().SendEvent(event);
  EXPECT_EQ(room.Get(), 1);
}

TEST_F(ClientTest, DestructionCancelsWhatHasNotCome) {
  Open();
  Arrival<absl::Status> awaited, fetched, again, lost;
  std::map<size_t, std::string> bytes;
  Arrival<int> released;
  client_->OnLost([&](absl::Status status) { lost.Set(status); });
  Client* raw = client_.get();
  client_->Await(std::vector{1_array}, [&, raw](absl::Status status) {
    awaited.Set(status);
    raw->Await(std::vector{1_array}, [&](absl::Status status) { again.Set(status); });
  });
  client_->Fetch(1_array, {0}, Into(bytes, fetched));
  ASSERT_TRUE(cluster_.worker(0).WaitHellos(1));
  const std::string large(4 * DataLinks::kQueueBytes, 'x');
  client_->Push(client_->Upload(1_array, Spec({0}, large.size())), 0, large,
                [&] { released.Set(0); });
  client_.reset();
  ASSERT_EQ(awaited.count(), 1u);
  EXPECT_EQ(awaited.Get().code(), absl::StatusCode::kCancelled);
  ASSERT_EQ(fetched.count(), 1u);
  EXPECT_EQ(fetched.Get().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(again.count(), 1u);
  EXPECT_EQ(released.count(), 1u);
  EXPECT_EQ(lost.count(), 0u);
}

TEST_F(ClientTest, ManyThreadsKeepTheirOwnOrder) {
  Open();
  constexpr uint64_t kThreads = 4, kEach = 2000;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<ArrayHandle> none;
      for (uint64_t i = 0; i < kEach; ++i)
        client_->Call(ExecutableHandle(t), none, none, {.launch_id = static_cast<uint32_t>(i + 1)});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto ops = cluster_.controller().Ops(kThreads * kEach);
  ASSERT_EQ(ops.size(), kThreads * kEach);
  std::map<uint64_t, uint32_t> last;
  for (const wire::Op& op : ops) {
    EXPECT_EQ(op.call().launch_id(), ++last[op.call().executable()]);
  }
}

}  // namespace
}  // namespace gangway::client
