// Tests of seeing.h, through a whole controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/controller/core/controller_test_util.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using SeeingTest = ControllerTest;

TEST_F(SeeingTest, ExplainFindsTheGangThatMakesAnArrayAndTheCompilesThatWait) {
  const uint64_t ordinal = Upload(5, {0});
  wire::WhyRequest request;
  request.set_array(5);
  wire::WhyReply reply;
  EXPECT_TRUE(controller_->Explain(request, now_, reply));
  EXPECT_EQ(request.gang(), ordinal);
  Done(0, ordinal);
  EXPECT_FALSE(controller_->Explain(request, now_, reply));
  EXPECT_THAT(reply.remarks(0), HasSubstr("array 5 of session 1 is ready"));
  Step(CompilerDown{});
  Compile(6, {0}, 2);
  now_ += milliseconds(400);
  wire::WhyRequest all;
  reply.Clear();
  EXPECT_TRUE(controller_->Explain(all, now_, reply));
  ASSERT_EQ(reply.waits_size(), 1);
  EXPECT_EQ(reply.waits(0).session(), 2u);
  EXPECT_EQ(reply.waits(0).waited_ms(), 400u);
  EXPECT_THAT(reply.waits(0).workers(), ElementsAre("compiler"));
}

TEST_F(SeeingTest, ExplainSaysWhatIsUnknown) {
  for (auto set : {&wire::WhyRequest::set_session, &wire::WhyRequest::set_gang,
                   &wire::WhyRequest::set_array}) {
    wire::WhyRequest request;
    (request.*set)(4711);
    wire::WhyReply reply;
    EXPECT_FALSE(controller_->Explain(request, now_, reply));
    EXPECT_THAT(reply.remarks(0), HasSubstr("4711"));
  }
}

}  // namespace
}  // namespace gangway::controller
