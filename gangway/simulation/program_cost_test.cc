// What programs cost the controller: a registration no more than its size is worth, and a launch its nodes, whatever
// the number of shards (DF-1).
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "gangway/simulation/cost_test_util.h"
#include "gangway/simulation/counted_work.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::simulation {
namespace {

// n calls of executable 1, each of the last one's result.
wire::RegisterProgramOp ChainOf(size_t calls) {
  wire::RegisterProgramOp op;
  op.set_program(1);
  wire::Program& program = *op.mutable_definition();
  program.set_name("chain");
  program.set_arguments(1);
  program.add_executables(1);
  for (uint32_t i = 0; i < calls; ++i) {
    wire::ProgramCall& call = *program.add_nodes()->mutable_call();
    call.add_inputs(i);
    call.set_outputs(1);
  }
  program.add_results(static_cast<uint32_t>(calls));
  return op;
}

void AddLaunch(Head& head, size_t nodes, uint64_t argument, uint64_t result) {
  wire::LaunchOp& launch = *head.Add()->mutable_launch();
  launch.set_program(1);
  launch.add_arguments(argument);
  launch.add_results(result);
  launch.set_nodes(static_cast<uint32_t>(nodes));
}

class Chain {
 public:
  Chain(size_t calls, size_t devices) : head(std::max<size_t>(devices, 2)), calls_(calls) {
    head.Upload(1, 0, devices);
    head.Send();
    head.End(1, 1);
    head.Compile(1, 1, devices);
  }
  void Register() {
    *head.Add()->mutable_register_program() = ChainOf(calls_);
    head.Send();
    ASSERT_EQ(head.actions.to_clients.size(), 1u);
    ASSERT_FALSE(head.actions.to_clients[0].second.registered().has_failure());
  }
  CountedWork Launch() {
    AddLaunch(head, calls_, 1, ++result_);
    return head.Cost();
  }

  Head head;

 private:
  const size_t calls_;
  uint64_t result_ = 1;
};

TEST(ProgramCostTest, ARegistrationOfManyNodes) {
  ExpectLinear([](size_t n) {
    Chain chain(n, 2);
    *chain.head.Add()->mutable_register_program() = ChainOf(n);
    return chain.head.Cost();
  });
}

TEST(ProgramCostTest, ARegistrationThatIsRefusedAtItsLastNode) {
  ExpectLinear([](size_t n) {
    Chain chain(n, 2);
    wire::RegisterProgramOp op = ChainOf(n);
    op.mutable_definition()->mutable_nodes(static_cast<int>(n) - 1)->mutable_call()->add_inputs(0);
    *chain.head.Add()->mutable_register_program() = std::move(op);
    const CountedWork cost = chain.head.Cost();
    EXPECT_TRUE(chain.head.actions.to_clients[0].second.registered().has_failure());
    return cost;
  });
}

// All of them name one list.
TEST(ProgramCostTest, ARegistrationOfManyTransfersToManyDevices) {
  ExpectLinear([](size_t n) {
    Head head(n);
    wire::RegisterProgramOp& op = *head.Add()->mutable_register_program();
    op.set_program(1);
    wire::Program& program = *op.mutable_definition();
    program.set_arguments(1);
    wire::DeviceNumbers& list = *program.add_device_lists();
    for (uint32_t i = 0; i < n; ++i) list.add_devices(i);
    for (size_t i = 0; i < n; ++i) program.add_nodes()->mutable_transfer()->set_input(0);
    program.add_results(1);
    const CountedWork cost = head.Cost();
    EXPECT_FALSE(head.actions.to_clients[0].second.registered().has_failure());
    return cost;
  });
}

TEST(ProgramCostTest, ALaunchOfManyNodes) {
  ExpectLinear([](size_t n) {
    Chain chain(n, 2);
    chain.Register();
    const CountedWork cost = chain.Launch();
    EXPECT_GE(chain.head.actions.to_islands.size(), 2 * n);  // on two islands
    const CountedWork end = WorkOf([&] { chain.head.End(2, n + 1); });
    return CountedWork{cost.blocks + end.blocks, cost.bytes + end.bytes};
  });
}

TEST(ProgramCostTest, ALaunchOfManyArgumentsAndResults) {
  ExpectLinear([](size_t n) {
    Head head(2);
    head.HaveMany(n, /*spread=*/false);
    wire::RegisterProgramOp op;
    op.set_program(1);
    op.mutable_definition()->set_arguments(static_cast<uint32_t>(n));
    for (uint32_t i = 0; i < n; ++i) op.mutable_definition()->add_results(i);
    *head.Add()->mutable_register_program() = std::move(op);
    head.Send();
    wire::LaunchOp& launch = *head.Add()->mutable_launch();
    launch.set_program(1);
    for (uint64_t i = 1; i <= n; ++i) {
      launch.add_arguments(i);
      launch.add_results(1'000'000 + i);
    }
    return head.Cost();
  });
}

TEST(ProgramCostTest, ALaunchThatIsRefusedCostsNothingForTheNodesThatItClaims) {
  ExpectConstant([](size_t n) {
    Head head(2, /*wants_ends=*/true);
    AddLaunch(head, n * 1'000'000, 1, 2);
    return head.Cost();
  });
}

// But for the first one, at which the type of its argument is found.
TEST(ProgramCostTest, ALaunchCostsTheSameForMoreDevices_DF1) {
  size_t items = 0;
  ExpectConstant([&items](size_t n) {
    Chain chain(128, n);
    chain.Register();
    chain.Launch();
    const CountedWork cost = chain.Launch();
    const size_t sent = chain.head.actions.to_islands.size();
    EXPECT_GT(sent, 2 * 128u);  // on two islands
    EXPECT_TRUE(items == 0 || items == sent) << "messages depend on the number of shards";
    items = sent;
    return cost;
  });
}

}  // namespace
}  // namespace gangway::simulation
