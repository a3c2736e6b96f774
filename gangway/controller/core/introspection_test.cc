// Tests of introspection.h, through a whole controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "gangway/controller/core/controller_test_util.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;

using IntrospectionTest = ControllerTest;

TEST_F(IntrospectionTest, ExplainFindsTheGangThatMakesAnArrayAndTheCompilesThatWait) {
  const uint64_t ordinal = Upload(5, {0});
  wire::WhyRequest request;
  request.set_array(5);
  wire::WhyReply reply;
  EXPECT_TRUE(controller_->Explain(request, now_, reply));
  EXPECT_EQ(request.gang(), ordinal);
  Done(0, ordinal);
  EXPECT_FALSE(controller_->Explain(request, now_, reply));
  ASSERT_EQ(reply.findings_size(), 1);
  EXPECT_EQ(reply.findings(0).what(), wire::Finding::FINDING_ARRAY_READY);
  EXPECT_EQ(reply.findings(0).array(), 5u);
  EXPECT_EQ(reply.findings(0).session(), 1u);
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

TEST_F(IntrospectionTest, ExplainFindsWhyAnArrayOrAGangWaitsForNothing) {
  const uint64_t ordinal = Upload(5, {0});
  Done(0, ordinal, "it broke");
  wire::WhyRequest request;
  request.set_array(5);
  wire::WhyReply reply;
  EXPECT_FALSE(controller_->Explain(request, now_, reply));
  ASSERT_EQ(reply.findings_size(), 1);
  EXPECT_EQ(reply.findings(0).what(), wire::Finding::FINDING_ARRAY_FAILED);
  EXPECT_EQ(reply.findings(0).failure().message(), "it broke");
  request.Clear();
  request.set_gang(ordinal);
  reply.Clear();
  EXPECT_FALSE(controller_->Explain(request, now_, reply));
  ASSERT_EQ(reply.findings_size(), 1);
  EXPECT_EQ(reply.findings(0).what(), wire::Finding::FINDING_GANG_ENDED);
  EXPECT_EQ(reply.findings(0).gang(), ordinal);
}

TEST_F(IntrospectionTest, ExplainSaysWhatIsUnknown) {
  wire::WhyRequest session, gang, array;
  session.set_session(4711);
  gang.set_gang(4711);
  array.set_array(4711);
  for (auto& [request, what] : {std::pair(session, wire::Finding::FINDING_NO_SESSION),
                                std::pair(gang, wire::Finding::FINDING_NO_GANG),
                                std::pair(array, wire::Finding::FINDING_NO_ARRAY)}) {
    wire::WhyRequest asked = request;
    wire::WhyReply reply;
    EXPECT_FALSE(controller_->Explain(asked, now_, reply));
    ASSERT_EQ(reply.findings_size(), 1);
    EXPECT_EQ(reply.findings(0).what(), what);
    EXPECT_EQ(reply.findings(0).session() + reply.findings(0).gang() + reply.findings(0).array(),
              4711u);
  }
}

}  // namespace
}  // namespace gangway::controller
