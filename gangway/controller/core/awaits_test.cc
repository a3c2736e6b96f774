// Unit tests of awaits.h.
#include "gangway/controller/core/awaits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/room_test_util.h"

namespace gangway::controller {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class AwaitsTest : public testing::Test {
 protected:
  // An array whose node has this ordinal; 0: it has ended. Handle n is storage n.
  void Have(uint64_t handle, uint64_t producer) {
    Array array;
    array.shape = std::make_shared<ArrayShape>();
    array.devices = fleet_.ListOf(Devices{0});
    array.runs = {{storages_.Add(SessionId(1), array.devices, 8, Ordinal(producer)), 0, 1}};
    arrays_.Bind(ArrayHandle(handle), std::move(array));
  }
  void Await(uint64_t number, const std::vector<uint64_t>& handles) {
    wire::AwaitOp op;
    op.set_await(number);
    op.mutable_arrays()->Add(handles.begin(), handles.end());
    awaits_.OnAwait(SessionId(1), op, arrays_, storages_);
  }
  void Settle(uint64_t storage) { awaits_.OnSettled(storages_.Settle(StorageId(storage))); }
  // "AWAIT" or "AWAIT: FAILURE" of each answer since the last time.
  std::vector<std::string> Answers() {
    std::vector<std::string> answers;
    for (const auto& [session, event] : outbox_.Take().to_clients) {
      const wire::AwaitDone& done = event.await_done();
      answers.push_back(
          absl::StrCat(done.await(), done.has_failure() ? ": " : "", done.failure().message()));
    }
    return answers;
  }

  Fleet fleet_{FourWorkers()};
  Outbox outbox_{2, {}, std::chrono::milliseconds(1000)};
  Storages storages_{fleet_.lists(), outbox_};
  SessionArrays arrays_{fleet_, storages_};
  Awaits awaits_{outbox_};
};

TEST_F(AwaitsTest, ItIsAnsweredOnceAllHasSettled) {
  Have(1, 1);
  Have(2, 2);
  Have(3, 0);
  Await(10, {1, 3, 2, 1});
  Settle(2);
  EXPECT_THAT(Answers(), IsEmpty());
  Settle(1);
  EXPECT_THAT(Answers(), ElementsAre("10"));
  Await(11, {3});
  EXPECT_THAT(Answers(), ElementsAre("11"));
}

TEST_F(AwaitsTest, TheFirstFailureInTheOrderOfTheArraysIsTold_ER1) {
  Have(1, 1);
  Have(2, 2);
  Await(10, {1, 2, 99});
  storages_.Spoil(StorageId(2), SomeFailure("second"));
  Settle(2);
  storages_.Spoil(StorageId(1), SomeFailure("first"));
  Settle(1);
  EXPECT_THAT(Answers(), ElementsAre("10: first"));
}

TEST_F(AwaitsTest, WhatIsKnownToBeSpoiledWaitsForItsNode) {
  Have(1, 1);
  storages_.Spoil(StorageId(1), SomeFailure("spoiled"));
  Await(10, {1});
  EXPECT_THAT(Answers(), IsEmpty());
  Settle(1);
  EXPECT_THAT(Answers(), ElementsAre("10: spoiled"));
}

TEST_F(AwaitsTest, AClosedSessionIsNotAnswered) {
  Have(1, 1);
  Await(10, {1});
  awaits_.Close(SessionId(1));
  Settle(1);
  EXPECT_THAT(Answers(), IsEmpty());
}

}  // namespace
}  // namespace gangway::controller
