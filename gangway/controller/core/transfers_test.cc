// Tests of transfers.h, through a whole controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

#include "gangway/controller/core/controller_test_util.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/put_limits.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using TransfersTest = ControllerTest;

TEST_F(TransfersTest, AFetchOfWhatIsSpoiledFails_ER1) {
  Done(0, Upload(10, {0}), "no bytes came");
  wire::Op op;
  op.mutable_fetch()->set_fetch(70);
  op.mutable_fetch()->add_arrays(10);
  op.mutable_fetch()->add_shards(0);
  EXPECT_EQ(OrdinalOf(op, 1), 0u);
  ASSERT_TRUE(events_.back().second.has_fetch_failed());
  EXPECT_EQ(events_.back().second.fetch_failed().failure().message(), "no bytes came");
}

TEST_F(TransfersTest, ACopyBetweenIslandsIsReleasedThereOnceItsSourcesAre_GS4) {
  Have(10, {0, 4});
  uint64_t ordinal = Copy(10, 11, {4, 0});  // both ways
  EXPECT_EQ(items_.size(), 2u) << "one message per island";
  items_.clear();
  wire::Report released;
  released.mutable_released()->add_ordinals(ordinal);
  Report(0, released);
  EXPECT_THAT(items_, IsEmpty());
  Report(1, released);
  ASSERT_EQ(items_.size(), 2u);
  for (const auto& [island, item] : items_)
    EXPECT_THAT(item.released().ordinals(), ElementsAre(ordinal));
  items_.clear();
  Report(1, released);
  EXPECT_THAT(items_, IsEmpty());
}

TEST_F(TransfersTest, OnlyCopiesBetweenWorkersGetATokenAndEachItsOwn) {
  Have(10, {0, 1});
  items_.clear();
  Copy(10, 11, {1, 0});
  Copy(10, 12, {2, 0});
  Copy(10, 13, {4, 5});
  std::vector<std::string> tokens;
  for (const auto& [island, item] : items_) tokens.push_back(item.node().copy().token());
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_EQ(tokens[0], "") << "no byte leaves the worker";
  EXPECT_NE(tokens[1], "");
  EXPECT_NE(tokens[2], tokens[1]);
  EXPECT_EQ(tokens[2], tokens[3]) << "both islands of one copy";
}

// Storages of the copies' sources, by node.
std::vector<std::vector<uint64_t>> SourcesOf(
    const std::vector<std::pair<uint32_t, wire::IslandItem>>& items) {
  std::vector<std::vector<uint64_t>> sources;
  for (const auto& [island, item] : items) {
    if (!item.node().has_copy()) continue;
    sources.emplace_back();
    for (const wire::CopiedArray& array : item.node().copy().arrays())
      sources.back().push_back(array.source().runs(0).storage());
  }
  return sources;
}

TEST_F(TransfersTest, ArraysThatAreThereAreCopiedByOneNode) {
  for (uint64_t handle : {10, 11, 12}) Have(handle, {0, 1});
  CopyMany({10, 12, 11, 10}, {20, 21, 22, 23}, {2, 3});
  EXPECT_THAT(SourcesOf(items_), ElementsAre(ElementsAre(1, 3, 2, 1)));
  const uint64_t ordinal = last_ordinal();
  const wire::Copy copy = items_.back().second.node().copy();
  EXPECT_THAT(copy.source_devices(), ElementsAre(0, 1));
  EXPECT_THAT(copy.devices(), ElementsAre(2, 3));
  EXPECT_EQ(copy.arrays(3).spec().shard_bytes(), 8u);
  EXPECT_FALSE(Await({20}).has_value());
  items_.clear();
  Drop({21});
  EXPECT_THAT(Freed(0), ElementsAre(copy.arrays(1).storage())) << "each result lives alone";
  Done(0, ordinal);
  EXPECT_EQ(Await({20, 22, 23})->code(), 0);
}

TEST_F(TransfersTest, ArraysOfSeveralNodesAreCopiedApartAndFailApart_ER1) {
  const uint64_t first = Upload(10, {0, 1});
  const uint64_t second = Upload(11, {0, 1});
  Have(12, {0, 1});
  Regroup(13, {{10, 0}, {12, 1}});
  Regroup(14, {{10, 0}, {11, 1}});
  items_.clear();
  CopyMany({10, 11, 12, 13, 14}, {20, 21, 22, 23, 24}, {2, 3});
  EXPECT_THAT(SourcesOf(items_),
              ElementsAre(ElementsAre(1, 1), ElementsAre(2), ElementsAre(3), ElementsAre(1)))
      << "the first and its view, each of the next two, and the view that waits for two nodes";
  const uint64_t copied = items_[0].second.node().ordinal();
  Done(0, first, "no bytes came");
  Done(0, second);
  for (uint64_t node = copied; node < copied + 4; ++node)
    Done(0, node, node == copied || node == copied + 3 ? "no bytes came" : "");
  for (uint64_t spoiled : {20, 23, 24}) EXPECT_EQ(Await({spoiled})->message(), "no bytes came");
  EXPECT_EQ(Await({21, 22})->code(), 0);
}

TEST_F(TransfersTest, EachArrayOfACopyIsRefusedForItself) {
  Have(10, {0, 1});
  Have(11, {0});
  Have(12, {0, 1});
  Have(13, {2, 3});
  DropShards(12, {0}, /*consume=*/true);
  items_.clear();
  CopyMany({10, 11, 12, 99, 13, 10, 10}, {20, 21, 22, 23, 25, 26, 26}, {2, 3});
  EXPECT_THAT(SourcesOf(items_), ElementsAre(ElementsAre(1), ElementsAre(4), ElementsAre(1, 1)));
  const wire::Copy& last = items_[2].second.node().copy();
  EXPECT_THAT(Freed(0), ElementsAre(last.arrays(1).storage()))
      << "its result has the handle of another one";
  const uint64_t first = items_[0].second.node().ordinal();
  for (uint64_t node : {first, first + 1, first + 2}) Done(0, node);
  EXPECT_EQ(Await({20, 25, 26})->code(), 0);
  EXPECT_THAT(Await({21})->message(), HasSubstr("the source has 1, the destination 2"));
  EXPECT_THAT(Await({22})->message(), HasSubstr("deleted or donated"));
  EXPECT_THAT(Await({23})->message(), HasSubstr("array handle 99 is not known"));
}

// The same, and which storages are freed between them.
std::vector<std::string> CopiesAndFreesIn(
    const std::vector<std::pair<uint32_t, wire::IslandItem>>& items) {
  std::vector<std::string> found;
  for (const auto& [island, item] : items) {
    std::vector<uint64_t> sources;
    for (const wire::CopiedArray& array : item.node().copy().arrays())
      sources.push_back(array.source().runs(0).storage());
    if (!sources.empty()) found.push_back(absl::StrCat("copy ", absl::StrJoin(sources, " ")));
    for (const uint64_t storage : item.free().storages())
      found.push_back(absl::StrCat("free ", storage));
  }
  return found;
}

// As the PJRT door does: array by array, to several devices in turn, with views between them that are dropped at once.
TEST_F(TransfersTest, ConsecutiveCopiesGoTogetherByTheirWay_OB1) {
  for (uint64_t handle : {10, 11}) Have(handle, {0});
  Have(12, {0, 1});
  items_.clear();
  FromClient batch{SessionId(1), {}};
  auto copy = [&batch](uint64_t source, uint64_t result, uint32_t device) {
    wire::CopyOp* op = batch.batch.add_ops()->mutable_copy();
    op->add_sources(source);
    op->add_results(result);
    op->add_devices(device);
  };
  auto drop = [&batch](uint64_t handle) {
    batch.batch.add_ops()->mutable_drop()->add_handles(handle);
  };
  copy(10, 20, 2);
  copy(10, 21, 3);
  copy(11, 22, 2);
  copy(11, 23, 3);
  wire::RegroupOp::Result* view = batch.batch.add_ops()->mutable_regroup()->add_results();
  view->set_array(13);
  view->add_shards()->set_array(12);
  drop(12);
  copy(13, 24, 2);
  drop(13);
  copy(11, 25, 2);
  copy(20, 26, 3);  // of a result
  drop(26);         // of one that waits
  copy(21, 27, 2);
  Step(std::move(batch));
  EXPECT_THAT(CopiesAndFreesIn(items_),
              ElementsAre("copy 1 2 3 2", "free 3", "copy 1 2", "copy 4", "free 10", "copy 8"));
  const uint64_t last = last_ordinal();
  for (uint64_t node = last - 3; node <= last; ++node) Done(0, node);
  EXPECT_EQ(Await({20, 21, 22, 23, 24, 25, 27})->code(), 0);
}

// TM-2: twice its limit of pending nodes.
TEST_F(TransfersTest, ACopyOf100000ArraysIsRefusedBeyondTheLimitOfItsSession_TM2) {
  Have(10, {0, 1});
  Handles sources(100'000, 10), results;
  for (uint64_t i = 0; i < sources.size(); ++i) results.push_back(1000 + i);
  CopyMany(sources, results, {2, 3});
  size_t copied = 0;
  std::vector<uint64_t> ordinals;
  for (const auto& [island, item] : items_) {
    if (!item.has_node()) continue;
    copied += static_cast<size_t>(item.node().copy().arrays_size());
    ordinals.push_back(item.node().ordinal());
  }
  EXPECT_EQ(copied, 2 * ControllerConfig().pending_nodes_max);
  EXPECT_LE(ordinals.size(), copied / CopyBatches::kRunsMax + 1);
  EXPECT_THAT(Await({1000 + copied})->message(), HasSubstr("twice the limit"));
  for (const uint64_t ordinal : ordinals) Done(0, ordinal);
  EXPECT_EQ(Await({1000, 999 + copied})->code(), 0);
  EXPECT_NE(Copy(10, 500'000, {2, 3}), 0u) << "there is room again";
}

TEST_F(TransfersTest, AReleaseNamesTheProcessesThatHoldTheShards) {
  wire::Report up;
  up.mutable_worker_state()->set_up(true);
  up.mutable_worker_state()->mutable_worker()->set_incarnation(31);
  up.mutable_worker_state()->mutable_worker()->set_data_address("somewhere:1");
  Report(0, up);
  Have(10, {0, 2});
  uint64_t ordinal = Copy(10, 11, {4, 3});  // from worker 0 to island 1; the other shard stays
  items_.clear();
  wire::Report released;
  released.mutable_released()->add_ordinals(ordinal);
  Report(0, released);
  ASSERT_EQ(items_.size(), 2u);
  for (const auto& [island, item] : items_) {
    ASSERT_EQ(item.released().sources_size(), 1);
    EXPECT_EQ(item.released().sources(0).incarnation(), 31u);
    EXPECT_EQ(item.released().sources(0).data_address(), "somewhere:1");
    EXPECT_THAT(item.released().sources(0).devices(), ElementsAre(0, 1));
  }
}

TEST_F(TransfersTest, AHalfThatFailsCancelsTheOther_ER2) {
  Have(10, {0});
  uint64_t ordinal = Copy(10, 11, {4});
  items_.clear();
  Done(0, ordinal, "no source");
  ASSERT_EQ(items_.size(), 1u);
  EXPECT_EQ(items_[0].first, 1u);
  EXPECT_THAT(items_[0].second.cancel().ordinals(), ElementsAre(ordinal));
  EXPECT_FALSE(Await({11}).has_value()) << "the other half has not ended";
  Done(1, ordinal, "cancelled");
  EXPECT_EQ(Awaited(1001)->message(), "no source") << "root cause first (ER-1)";
}

TEST_F(TransfersTest, AnAbandonedUploadIsCancelledWhereItWaits_TM1) {
  auto abandon = [this](uint64_t upload, uint64_t session) {
    wire::Op op;
    op.mutable_abandon()->set_upload(upload);
    *op.mutable_abandon()->mutable_failure() =
        wire::MakeFailure(StatusCode::kDataLoss, "the data stream was lost");
    items_.clear();
    events_.clear();
    Do(std::move(op), session);
  };
  const uint64_t ordinal = Upload(10, {0, 4});
  abandon(10, 2);
  abandon(11, 1);
  EXPECT_TRUE(items_.empty()) << "not that session's, or no upload";
  Done(0, ordinal);  // all of its bytes had come there
  abandon(10, 1);
  ASSERT_EQ(items_.size(), 1u);
  EXPECT_EQ(items_[0].first, 1u);
  EXPECT_THAT(items_[0].second.cancel().ordinals(), ElementsAre(ordinal));
  Done(1, ordinal, "cancelled");
  EXPECT_EQ(Await({10})->message(), "the data stream was lost");
  EXPECT_EQ(events_[0].second.upload_failed().upload(), 10u);
  Have(12, {0});
  abandon(12, 1);  // it has ended
  EXPECT_EQ(Await({12})->code(), 0);
}

TEST_F(TransfersTest, AnUploadNeedsANumberOfItsOwn) {
  auto upload = [this](uint64_t handle, uint64_t number) {
    wire::Op op;
    op.mutable_upload()->set_array(handle);
    op.mutable_upload()->set_upload(number);
    op.mutable_upload()->mutable_spec()->add_devices(0);
    return OrdinalOf(std::move(op), 1);
  };
  EXPECT_EQ(upload(10, 0), 0u);
  const uint64_t first = upload(11, 7);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(upload(12, 7), 0u);
  wire::Op abandon;
  for (uint64_t number : {0, 7, 7, 8}) {
    abandon.mutable_abandon()->set_upload(number);
    Do(abandon);
  }
  Done(0, first, "cancelled");
  for (uint64_t number : {0, 7, 7, 8}) {
    abandon.mutable_abandon()->set_upload(number);
    Do(abandon);
  }
  EXPECT_EQ(Await({10})->code(), static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_EQ(Await({11})->code(), static_cast<int>(StatusCode::kCancelled));
  EXPECT_EQ(Await({12})->code(), static_cast<int>(StatusCode::kInvalidArgument));
}

// --- Puts ---

wire::PutArray& AddPut(wire::Op& op, uint64_t handle, size_t bytes) {
  wire::PutArray& array = *op.mutable_put()->add_arrays();
  array.set_array(handle);
  array.mutable_tensor()->set_element_type(2);
  array.mutable_tensor()->add_shard_dims(static_cast<int64_t>(bytes));
  array.mutable_tensor()->set_shard_bytes(bytes);
  for (int i = 0; i < op.put().devices_size(); ++i) array.add_shards(std::string(bytes, 'x'));
  return array;
}

wire::Op PutOn(const std::vector<uint32_t>& devices) {
  wire::Op op;
  op.mutable_put()->mutable_devices()->Add(devices.begin(), devices.end());
  return op;
}

class PutsTest : public ControllerTest {
 protected:
  void SetUp() override {
    ControllerTest::SetUp();
    Step(SessionOpened{.session = SessionId(3), .name = "three", .wants_ends = true});
  }
  // "FIRST+COUNT" of the nodes of session 3 that have ended, or "FIRST+COUNT: WHY".
  std::vector<std::string> Ended() {
    std::vector<std::string> ended;
    for (const auto& [session, event] : std::exchange(events_, {})) {
      for (const wire::NodesEnded& nodes : event.progress().nodes()) {
        ended.push_back(absl::StrCat(nodes.first(), "+", nodes.count(),
                                     nodes.has_failure() ? ": " : "", nodes.failure().message()));
      }
    }
    return ended;
  }
};

TEST_F(PutsTest, TheArraysOfAPutAreOneNode) {
  wire::Op op = PutOn({0, 4});
  for (uint64_t handle = 1; handle <= 200; ++handle) AddPut(op, handle, 16);
  const uint64_t ordinal = OrdinalOf(op, 3);
  ASSERT_EQ(items_.size(), 2u) << "one message per island";
  for (const auto& [island, item] : items_) {
    ASSERT_EQ(item.node().put().arrays_size(), 200);
    EXPECT_THAT(item.node().put().devices(), ElementsAre(0, 4));
    EXPECT_EQ(item.node().put().arrays(7).shards(1), std::string(16, 'x'));
    EXPECT_EQ(item.node().put().arrays(7).array(), 0u) << "handles are the session's own";
  }
  Done(0, ordinal);
  EXPECT_THAT(Ended(), IsEmpty());
  Done(1, ordinal);
  EXPECT_THAT(Ended(), ElementsAre("1+200")) << "its client counts each array";
}

TEST_F(PutsTest, AWrongArrayIsRefusedByNameAndNoOther_ER2) {
  wire::Op op = PutOn({0});
  AddPut(op, 1, 8);
  AddPut(op, 2, 8);
  AddPut(op, 1, 8);  // in use by now
  AddPut(op, 3, 8).set_shards(0, "short");
  AddPut(op, 4, 8).add_shards("more");
  AddPut(op, 5, 100'000);
  AddPut(op, 6, 8).mutable_tensor()->set_memory_kind(std::string(1000, 'x'));
  AddPut(op, 7, 8).mutable_tensor()->set_memory_kind("unpinned_host");
  AddPut(op, 8, 8).mutable_tensor()->set_element_type(11);
  AddPut(op, 9, 8).mutable_tensor()->set_element_type(999);
  AddPut(op, 10, 8).mutable_tensor()->set_shard_dims(0, -8);
  wire::PutArray& deep = AddPut(op, 11, 8);
  for (int i = 0; i < 8; ++i) deep.mutable_tensor()->add_shard_dims(1);
  AddPut(op, 12, 8);
  Do(op, 3);
  std::vector<uint64_t> nodes;
  for (const auto& [island, item] : items_) {
    if (!item.has_node()) continue;
    nodes.push_back(item.node().ordinal());
    EXPECT_EQ(item.node().put().arrays_size(), nodes.size() == 1 ? 2 : 1);
  }
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_THAT(Ended(),
              ElementsAre("3+1: array handle 1 is 0 or in use already",
                          "4+1: a shard was sent with 5 bytes, not the declared 8",
                          HasSubstr("5+1: an array with the bytes of 2 shards"),
                          HasSubstr("6+1: an array cannot come with its bytes: its 1 shards have "
                                    "100000 bytes each, and all together may have 16384"),
                          HasSubstr("7+1: an array of 1 dimensions"),
                          HasSubstr("8+1: an array cannot come with its bytes: it is not for the "
                                    "usual memory of its devices, but for unpinned_host"),
                          "9+1: an array was declared with shards of 8 bytes, but shards of its "
                          "shape have 32",
                          HasSubstr("10+1: an array's shards cannot be: "),
                          HasSubstr("11+1: an array's shards cannot be: "),
                          HasSubstr("12+1: an array cannot come with its bytes: it has 9 "
                                    "dimensions, the limit is 8")));
  for (const uint64_t node : nodes) Done(0, node);
  EXPECT_THAT(Ended(), ElementsAre("1+2", "13+1"));
}

// A device runtime may refuse them, which would fail the others, too.
TEST_F(PutsTest, ArraysOfTypesThatFewHaveAreNodesOfTheirOwn_ER2) {
  wire::Op op = PutOn({0});
  for (const int32_t type : {2, 6, 28, 28, 6, 29})  // S8, U8, F8E4M3, U8, F8E3M4
    AddPut(op, static_cast<uint64_t>(op.put().arrays_size()) + 1, 8)
        .mutable_tensor()
        ->set_element_type(type);
  Do(op, 3);
  std::vector<int> sizes;
  for (const auto& [island, item] : items_) sizes.push_back(item.node().put().arrays_size());
  EXPECT_THAT(sizes, ElementsAre(2, 2, 1, 1));
}

TEST_F(PutsTest, AnArrayOfManyShardsDoesNotComeWithItsBytes_DF1) {
  ControllerConfig config;
  wire::Worker worker;
  for (uint32_t device = 0; device < 17; ++device) worker.add_devices(device);
  config.workers = {worker};
  Make(std::move(config));
  Step(SessionOpened{.session = SessionId(3), .name = "three", .wants_ends = true});
  wire::Op op = PutOn({});
  for (uint32_t device = 0; device < 17; ++device) op.mutable_put()->add_devices(device);
  AddPut(op, 1, 0);
  Do(op, 3);
  EXPECT_THAT(Ended(), ElementsAre(HasSubstr("it has 17 shards, the limit is 16")));
  op.mutable_put()->mutable_devices()->RemoveLast();
  op.mutable_put()->mutable_arrays(0)->mutable_shards()->RemoveLast();
  op.mutable_put()->mutable_arrays(0)->set_array(2);
  EXPECT_NE(OrdinalOf(op, 3), 0u);
}

TEST_F(PutsTest, EachArrayTakesARoomOfItsSession_TM2) {
  ControllerConfig config;
  config.pending_nodes_max = 4;
  wire::Worker worker;
  worker.add_devices(0);
  config.workers = {worker};
  Make(std::move(config));
  Step(SessionOpened{.session = SessionId(3), .name = "three", .wants_ends = true});
  wire::Op op = PutOn({0});
  for (uint64_t handle = 1; handle <= 10; ++handle) AddPut(op, handle, 8);
  const uint64_t ordinal = OrdinalOf(op, 3);
  EXPECT_EQ(items_.back().second.node().put().arrays_size(), 8);
  EXPECT_THAT(Ended(), ElementsAre("9+1: the session has 8 pending nodes, twice the limit",
                                   "10+1: the session has 8 pending nodes, twice the limit"));
  Done(0, ordinal);
  EXPECT_THAT(Ended(), ElementsAre("1+8"));
  op = PutOn({0});
  AddPut(op, 11, 8);
  EXPECT_NE(OrdinalOf(op, 3), 0u);
}

TEST_F(PutsTest, APutToAnUnknownDeviceFailsAllItsArrays) {
  wire::Op op = PutOn({0, 99});
  AddPut(op, 1, 8);
  AddPut(op, 2, 8);
  Do(op, 3);
  EXPECT_THAT(items_, IsEmpty());
  const std::vector<std::string> refused = Ended();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_THAT(refused[0], HasSubstr("1+2: "));
}

TEST_F(PutsTest, ANodeHasAFewArraysAndASessionSoManyBytes_TM2) {
  constexpr size_t kEach = 16 << 10;
  constexpr uint64_t kCost = kEach + wire::kPutShardCost;
  uint64_t handle = 0, nodes = 0;
  std::vector<std::string> refused;
  while (refused.empty() && handle < 20'000) {
    wire::Op op = PutOn({0});
    for (int i = 0; i < 32; ++i) AddPut(op, ++handle, kEach);
    Do(op, 3);
    for (const auto& [island, item] : std::exchange(items_, {})) {
      ++nodes;
      EXPECT_LE(item.ByteSizeLong(), 300u << 10);
    }
    refused = Ended();
  }
  EXPECT_EQ(handle - refused.size(), wire::kPutSessionCostMax / kCost);
  EXPECT_EQ(nodes, 8 * 3) << "each operation is nodes of 15, 15 and 2";
  EXPECT_THAT(refused[0], HasSubstr("count as 4210688 bytes, the limit is 4194304"));
  for (uint64_t ordinal = 1; ordinal <= nodes; ++ordinal) Done(0, ordinal);
  wire::Op op = PutOn({0});
  AddPut(op, ++handle, kEach);
  Do(op, 3);
  EXPECT_EQ(items_.size(), 1u) << "there is room again";
}

TEST_F(PutsTest, EmptyShardsCountToo_TM2) {
  wire::Op op = PutOn({0, 1, 2, 3, 4, 5, 6, 7});
  constexpr uint64_t kRoom = wire::kPutSessionCostMax / (8 * wire::kPutShardCost);
  for (uint64_t handle = 1; handle <= kRoom + 10; ++handle) AddPut(op, handle, 0);
  Do(op, 3);
  EXPECT_EQ(Ended().size(), 10u);
}

}  // namespace
}  // namespace gangway::controller
