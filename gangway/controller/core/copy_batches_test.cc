// Tests of copy_batches.h.
#include "gangway/controller/core/copy_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "gangway/controller/core/room_test_util.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;

class CopyBatchesTest : public testing::Test {
 protected:
  void Add(uint64_t result, const DeviceListRef& from, std::initializer_list<uint64_t> producers,
           uint64_t shard_bytes = 8, size_t runs = 1) {
    CopyBatches::Producers all;
    for (uint64_t producer : producers) all.Add(Ordinal(producer));
    batches_.Add(
        {.result = ArrayHandle(result)},
        {.from = from, .to = left_, .shard_bytes = shard_bytes, .runs = runs, .producers = all});
  }
  std::vector<std::vector<uint64_t>> Take() {
    std::vector<std::vector<uint64_t>> results;
    for (const CopyBatch& batch : batches_.Take()) {
      results.emplace_back();
      for (const CopiedArray& array : batch.arrays)
        results.back().push_back(NumberOf(array.result));
    }
    return results;
  }

  Fleet fleet_{FourWorkers()};
  const DeviceListRef left_ = fleet_.ListOf(Devices{0, 1}), right_ = fleet_.ListOf(Devices{2, 3});
  CopyBatches batches_;
};

TEST_F(CopyBatchesTest, WhatIsThereGoesTogetherAndSoDoesWhatOneNodeMakes) {
  Add(1, left_, {0});
  Add(2, left_, {7});
  Add(3, left_, {});
  Add(4, left_, {0, 7, 7});
  Add(5, left_, {8});
  EXPECT_THAT(Take(), ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4), ElementsAre(5)));
}

TEST_F(CopyBatchesTest, WhatWaitsForSeveralNodesGoesAlone) {
  Add(1, left_, {7, 8});
  Add(2, left_, {8, 7});
  Add(3, left_, {8});
  EXPECT_THAT(Take(), ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3)));
}

TEST_F(CopyBatchesTest, OtherDevicesAreAnotherBatch) {
  Add(1, left_, {});
  Add(2, right_, {});
  Add(3, left_, {});
  EXPECT_THAT(Take(), ElementsAre(ElementsAre(1, 3), ElementsAre(2)));
}

TEST_F(CopyBatchesTest, AnotherGoalIsAnotherBatch) {
  for (uint64_t result : {1, 4}) {
    batches_.Add({.result = ArrayHandle(result)}, {.from = left_, .to = left_, .runs = 1});
    batches_.Add({.result = ArrayHandle(result + 1)}, {.from = left_, .to = right_, .runs = 1});
    batches_.Add({.result = ArrayHandle(result + 2)},
                 {.from = left_, .to = left_, .memory_kind = "pinned_host", .runs = 1});
  }
  EXPECT_THAT(Take(), ElementsAre(ElementsAre(1, 4), ElementsAre(2, 5), ElementsAre(3, 6)));
  EXPECT_TRUE(Take().empty()) << "each is taken once";
  Add(1, left_, {});
  EXPECT_THAT(Take(), ElementsAre(ElementsAre(1)));
}

// The runtime of the goal's devices may refuse them.
TEST_F(CopyBatchesTest, WhatARuntimeMayLackIsABatchOfItsOwn_ER2) {
  for (uint64_t result : {1, 3}) {
    batches_.Add({.result = ArrayHandle(result)}, {.from = left_, .to = right_, .runs = 1});
    batches_.Add({.result = ArrayHandle(result + 1)},
                 {.from = left_, .to = right_, .runs = 1, .unusual_type = 28});
  }
  EXPECT_THAT(Take(), ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
}

TEST_F(CopyBatchesTest, ItsBytesAreBounded) {
  constexpr uint64_t kMax = CopyBatches::kBytesMax;
  Add(1, left_, {}, kMax / 2);
  Add(2, left_, {}, kMax / 2);
  Add(3, left_, {}, 1);
  Add(4, left_, {}, UINT64_MAX);
  Add(5, left_, {}, kMax + 1);
  Add(6, left_, {}, 1);
  EXPECT_THAT(Take(),
              ElementsAre(ElementsAre(1, 2), ElementsAre(3, 6), ElementsAre(4), ElementsAre(5)))
      << "a large array does not end the batch of small ones";
}

TEST_F(CopyBatchesTest, SoAreItsRuns) {
  constexpr size_t kMax = CopyBatches::kRunsMax;
  Add(1, left_, {}, 8, kMax - 1);
  Add(2, left_, {});
  Add(3, left_, {});
  Add(4, left_, {}, 8, kMax + 1);
  EXPECT_THAT(Take(), ElementsAre(ElementsAre(1, 2), ElementsAre(3), ElementsAre(4)));
}

}  // namespace
}  // namespace gangway::controller
