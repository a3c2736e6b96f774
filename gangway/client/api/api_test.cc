// What the API's values send to the controller: puts, calls, copies, drops, programs, and arrays that hold a mistake.
// The bytes of arrays are tested with real clusters (tests/test_cpp_client.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/client/api/array_state.h"
#include "gangway/client/api/session.h"
#include "gangway/client/include/gangway/gangway.h"
#include "gangway/client/scripted_cluster.h"
#include "gangway/wire/failure.h"

namespace gangway {
namespace {

using client::ScriptedCluster;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kF32 = 11;

uint64_t HandleOf(const Array& array) { return NumberOf(api::ArrayState::Of(array)->handle()); }

Cluster ConnectTo(ScriptedCluster& scripted) {
  auto client = Connect(scripted.Options());
  EXPECT_TRUE(client.ok()) << client.status();
  return api::Session::ToCluster(std::make_shared<api::Session>(*std::move(client)));
}

class ApiTest : public ::testing::Test {
 protected:
  // The operations of one kind so far; waits for `count` of them.
  std::vector<wire::Op> Ops(wire::Op::OpCase kind, size_t count) {
    const auto all = [kind](const std::vector<wire::Frame>& frames) {
      std::vector<wire::Op> ops;
      for (const wire::Frame& frame : frames)
        for (const wire::Op& op : frame.session_batch().ops())
          if (op.op_case() == kind) ops.push_back(op);
      return ops;
    };
    scripted_.controller().Wait([&](const auto& frames) { return all(frames).size() >= count; });
    return all(scripted_.controller().frames());
  }
  wire::Op Last(wire::Op::OpCase kind, size_t count) { return Ops(kind, count).at(count - 1); }

  // A function of `parameters` arrays of shards f32[2], with as many results as shardings.
  Result<Function> TryCompile(size_t parameters, FunctionOptions options,
                              const std::vector<uint32_t>& donated = {}) {
    const Mesh mesh = options.results.empty() ? mesh_ : options.results.front().mesh();
    const size_t results = std::max<size_t>(options.results.size(), 1);
    auto compiled =
        std::async(std::launch::async, [&] { return cluster_.Compile("text", mesh, options); });
    wire::SessionEvent event;
    wire::Compiled& answer = *event.mutable_compiled();
    answer.set_executable(Last(wire::Op::kCompile, ++compiles_).compile().executable());
    wire::ExecutableInfo& info = *answer.mutable_info();
    info.set_name("f" + std::to_string(compiles_));
    const auto fill = [](wire::TensorSpec& spec) {
      spec.set_element_type(kF32);
      spec.add_shard_dims(2);
    };
    for (size_t i = 0; i < parameters; ++i) fill(*info.add_parameters());
    for (size_t i = 0; i < results; ++i) fill(*info.add_results());
    for (const uint32_t index : donated) info.add_donated(index);
    scripted_.controller().SendEvent(event);
    return compiled.get();
  }
  Function Compile(size_t parameters, std::vector<Sharding> results,
                   const std::vector<uint32_t>& donated = {}) {
    return *TryCompile(parameters, {.results = std::move(results)}, donated);
  }
  // Traces, and answers the registration.
  Result<Program> TryTrace(const Traced& traced, const std::vector<Array>& examples,
                           const absl::Status& answer = absl::OkStatus()) {
    auto program =
        std::async(std::launch::async, [&] { return Trace(cluster_, "p", traced, examples); });
    wire::SessionEvent event;
    wire::Registered& registered = *event.mutable_registered();
    registered.set_program(
        Last(wire::Op::kRegisterProgram, ++programs_).register_program().program());
    if (!answer.ok()) *registered.mutable_failure() = wire::ToFailure(answer);
    scripted_.controller().SendEvent(event);
    return program.get();
  }
  // The failure that a mistake made the last array with.
  wire::Failure Mistake(const Array& array) {
    const wire::Op poison = Last(wire::Op::kPoison, ++mistakes_);
    EXPECT_THAT(poison.poison().arrays(), ElementsAre(HandleOf(array)));
    EXPECT_EQ(poison.poison().failure().code(),
              static_cast<int>(absl::StatusCode::kInvalidArgument));
    return poison.poison().failure();
  }
  Array Put(const Sharding& sharding) { return cluster_.Put<float>({1, 2, 3, 4}, {4}, sharding); }

  ScriptedCluster scripted_;
  Cluster cluster_ = ConnectTo(scripted_);
  const Mesh mesh_{{0, 1}, {{"x", 2}}}, other_{{2, 3}, {{"x", 2}}};
  const Sharding halves_{mesh_, {"x"}}, others_{other_, {"x"}};
  size_t compiles_ = 0, programs_ = 0, mistakes_ = 0;
};

TEST_F(ApiTest, APutGivesEachDeviceItsPart) {
  const Array x = Put(halves_), whole = Put(Sharding(mesh_));
  EXPECT_THAT(x.shape(), ElementsAre(4));
  EXPECT_EQ(x.element_type(), ElementType::kF32);
  EXPECT_EQ(x.sharding(), halves_);
  std::vector<std::string> bytes;
  while (bytes.size() < 4) {  // they may meet in one operation
    bytes.clear();
    for (const wire::Op& op : Ops(wire::Op::kPut, 1))
      for (const wire::PutArray& array : op.put().arrays())
        bytes.insert(bytes.end(), array.shards().begin(), array.shards().end());
  }
  const std::vector<float> values = {1, 2, 3, 4};
  const std::string all(reinterpret_cast<const char*>(values.data()), 16);
  EXPECT_THAT(bytes, ElementsAre(all.substr(0, 8), all.substr(8), all, all));
}

TEST_F(ApiTest, ACopySharesAndTheLastOneDrops) {
  Array x = Put(halves_);
  const uint64_t handle = HandleOf(x);
  {
    const Array copy = x;
    x = Put(halves_);
    EXPECT_EQ(HandleOf(copy), handle);
    Ops(wire::Op::kPut, 1);
    EXPECT_THAT(Ops(wire::Op::kDrop, 0), IsEmpty());
  }
  EXPECT_THAT(Last(wire::Op::kDrop, 1).drop().handles(), ElementsAre(handle));
}

TEST_F(ApiTest, ALoopFreesInStep) {
  const Function f = Compile(1, {halves_});
  Array x = Put(halves_);
  constexpr size_t kTurns = 5;
  std::vector<uint64_t> made;
  for (size_t i = 0; i < kTurns; ++i) {
    made.push_back(HandleOf(x));
    x = f(x);
  }
  Ops(wire::Op::kCall, kTurns);
  std::vector<uint64_t> dropped;
  while (dropped.size() < kTurns) {  // several may be one operation
    dropped.clear();
    for (const wire::Op& op : Ops(wire::Op::kDrop, 1))
      dropped.insert(dropped.end(), op.drop().handles().begin(), op.drop().handles().end());
  }
  EXPECT_EQ(dropped, made);
}

TEST_F(ApiTest, ACallWaitsWhileTooManyHaveNotEnded_TM2) {
  ScriptedCluster scripted;
  ClientOptions options = scripted.Options();
  options.pending_max = 2;
  const Cluster cluster =
      api::Session::ToCluster(std::make_shared<api::Session>(*Connect(options)));
  const Array x = cluster.Put<float>({1, 2, 3, 4}, {4}, halves_), y = x.CopyTo(others_);
  auto third = std::async(std::launch::async, [&] { return x.CopyTo(others_); });
  EXPECT_EQ(third.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  wire::SessionEvent event;
  event.mutable_progress()->set_ended(1);
  scripted.controller().SendEvent(event);
  EXPECT_TRUE(third.get());
}

TEST_F(ApiTest, OnlyWhatIsGivenAwayIsDonated) {
  const Function f = Compile(2, {halves_}, {0, 1});
  EXPECT_THAT(f.donated(), ElementsAre(0, 1));
  const Array x = Put(halves_), y = Put(halves_);
  const Array z = f(x, Donate(y));
  const wire::CallOp call = Last(wire::Op::kCall, 1).call();
  EXPECT_THAT(call.arguments(), ElementsAre(HandleOf(x), HandleOf(y)));
  EXPECT_THAT(call.results(), ElementsAre(HandleOf(z)));
  EXPECT_THAT(call.keep(), ElementsAre(0));
  EXPECT_THAT(z.shape(), ElementsAre(4));
  EXPECT_EQ(z.sharding(), halves_);
}

TEST_F(ApiTest, AFunctionIsDroppedWithItsLastCopy) {
  uint64_t handle = 0;
  {
    const Function f = Compile(1, {halves_});
    handle = Last(wire::Op::kCompile, 1).compile().executable();
    const Function copy = f;
    EXPECT_EQ(copy.name(), "f1");
  }
  EXPECT_THAT(Last(wire::Op::kDropExecutables, 1).drop_executables().handles(),
              ElementsAre(handle));
}

TEST_F(ApiTest, AMistakeIsInTheResult_ER1) {
  const Function f = Compile(1, {halves_}), two = Compile(1, {halves_, halves_});
  const Array x = Put(halves_);
  EXPECT_THAT(Mistake(f(x, x)).message(), HasSubstr("f1 takes 1 arguments and was called with 2"));
  EXPECT_THAT(Mistake(two(x)).message(), HasSubstr("takes 1 results, and f2 gives 2"));
  EXPECT_THAT(Mistake(f(Array())).message(), HasSubstr("argument 0 of f1: there is no array"));
  const wire::Failure failure = Mistake(f(cluster_.Put<float>({1, 2}, {2}, halves_)));
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("f32[2]"), HasSubstr("takes shards of f32[2]")));
  EXPECT_THAT(failure.advice(), HasSubstr("convert the array"));
  EXPECT_EQ(failure.program(), "f1");
  EXPECT_THAT(failure.source(), HasSubstr("api_test.cc:"));
  EXPECT_THAT(Mistake(f(cluster_.Put<int32_t>({1, 2, 3, 4}, {4}, halves_))).message(),
              HasSubstr("is s32[4]"));
  EXPECT_THAT(Mistake(f(Put(others_))).message(),
              HasSubstr("the function runs on x=2 on devices 0,1"));
  EXPECT_THAT(Mistake(x.CopyTo(Sharding(other_))).message(),
              HasSubstr("its shards would be others"));
  ScriptedCluster elsewhere;
  EXPECT_THAT(Mistake(f(ConnectTo(elsewhere).Put<float>({1, 2, 3, 4}, {4}, halves_))).message(),
              HasSubstr("is of another session"));
}

TEST_F(ApiTest, APutThatMakesNoSenseSaysSo_ER1) {
  EXPECT_THAT(Mistake(cluster_.Put<float>({1}, {4}, halves_)).message(),
              HasSubstr("f32[4] has 16 bytes and was put with 4"));
  EXPECT_THAT(Mistake(cluster_.Put<float>({1}, {1}, halves_)).message(),
              HasSubstr("not divisible"));
  EXPECT_THAT(Mistake(cluster_.Put<float>({1}, {1}, Sharding())).message(), HasSubstr("no mesh"));
  EXPECT_THAT(Mistake(cluster_.Put<float>({1}, {1}, Sharding(Mesh({9}, {})))).message(),
              HasSubstr("names device 9, which this session does not have"));
  const Shape large(5, int64_t{1} << 40);
  EXPECT_THAT(Mistake(cluster_.Put<float>({1}, large, Sharding(mesh_))).message(),
              HasSubstr("more than 2^62 elements"));
}

TEST_F(ApiTest, NoArrayAndNoFunctionAreErrors) {
  EXPECT_EQ(Array().Wait().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Array().Get<float>().status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(Array().CopyTo(halves_));
  EXPECT_FALSE(Function()(Put(halves_)));
  EXPECT_EQ(Program().node_count(), 0u);
  EXPECT_EQ(Put(halves_).Get<double>().status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ApiTest, ADeclarationThatDoesNotFitIsAnError) {
  EXPECT_THAT(TryCompile(1, {}).status().message(),
              HasSubstr("has 1 results, and the shardings of 0 are declared"));
  EXPECT_THAT(Ops(wire::Op::kDropExecutables, 1).size(), 1u) << "it is of no use";
  EXPECT_THAT(
      TryCompile(1, {.results = {halves_}, .parameters = {halves_, halves_}}).status().message(),
      HasSubstr("has 1 parameters, and the shardings of 2 are declared"));
  EXPECT_THAT(TryCompile(1, {.results = {halves_}, .parameters = {Sharding(mesh_, {{}, "x"})}})
                  .status()
                  .message(),
              HasSubstr("parameter 0: an array of shape [2] cannot be split as"));
  EXPECT_THAT(cluster_.Compile("text", mesh_, {.results = {others_}}).status().message(),
              HasSubstr("result 0 is declared to be split as (x) over x=2 on devices 2,3, and the "
                        "function runs on x=2 on devices 0,1"));
}

TEST_F(ApiTest, ACopyIsOfTheSameShards) {
  const Array x = Put(halves_), y = x.CopyTo(others_);
  const wire::CopyOp copy = Last(wire::Op::kCopy, 1).copy();
  EXPECT_THAT(copy.sources(), ElementsAre(HandleOf(x)));
  EXPECT_THAT(copy.results(), ElementsAre(HandleOf(y)));
  EXPECT_THAT(copy.devices(), ElementsAre(2, 3));
  EXPECT_EQ(y.sharding(), others_);
  EXPECT_EQ(HandleOf(x.CopyTo(halves_)), HandleOf(x)) << "it is there already";
}

TEST_F(ApiTest, AProgramIsWhatItsTraceDid) {
  const Function f = Compile(2, {halves_}, {0}), g = Compile(1, {others_});
  const Array x = Put(halves_), held = Put(halves_);
  int runs = 0;
  const Result<Program> program = TryTrace(
      [&](std::span<const Array> in) -> std::vector<Array> {
        ++runs;
        const Array y = f(Donate(in[0]), held);
        const Array z = f(y, held);
        EXPECT_EQ(y.Wait().code(), StatusCode::kFailedPrecondition);
        EXPECT_EQ(y.Get<float>().status().code(), StatusCode::kFailedPrecondition);
        EXPECT_THAT(y.shape(), ElementsAre(4));
        return {g(z), z.CopyTo(others_), in[1]};
      },
      {x, x});
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(program->node_count(), 4u);
  EXPECT_EQ(program->held_count(), 1u);
  EXPECT_EQ(program->argument_count(), 2u);
  EXPECT_EQ(program->result_count(), 3u);
  EXPECT_THAT(program->ToText(), AllOf(HasSubstr("%3 = call"), HasSubstr("(keep %3, %2)"),
                                       HasSubstr("transfer %4 @2,3"), HasSubstr("result %1"),
                                       HasSubstr("from \"api_test.cc:")));
  EXPECT_THAT(Ops(wire::Op::kCall, 0), IsEmpty()) << "nothing runs";
  const wire::RegisterProgramOp registered = Last(wire::Op::kRegisterProgram, 1).register_program();
  EXPECT_THAT(registered.like(), ElementsAre(HandleOf(x), HandleOf(x), HandleOf(held)));

  const Array given = Put(halves_);
  const std::vector<Array> results = (*program)({Donate(given), x});
  const wire::LaunchOp launch = Last(wire::Op::kLaunch, 1).launch();
  EXPECT_EQ(launch.program(), registered.program());
  EXPECT_THAT(launch.arguments(), ElementsAre(HandleOf(given), HandleOf(x), HandleOf(held)));
  EXPECT_THAT(launch.results(),
              ElementsAre(HandleOf(results[0]), HandleOf(results[1]), HandleOf(results[2])));
  EXPECT_EQ(results[0].sharding(), others_);
}

TEST_F(ApiTest, ALaunchTakesWhatItWasTracedWith_ER1) {
  const Function f = Compile(1, {halves_}, {0});
  const Array x = Put(halves_);
  const Program p = *TryTrace(
      [&](std::span<const Array> in) -> std::vector<Array> { return {f(Donate(in[0]))}; }, {x});
  EXPECT_THAT(Mistake(p(x)).advice(), HasSubstr("Donate(x)"));
  const Array longer = cluster_.Put<float>({1, 2, 3, 4, 5, 6}, {6}, halves_);
  const Array whole = cluster_.Put<int32_t>({1, 2, 3, 4}, {4}, halves_);
  for (const Array& other : {Put(others_), longer, whole})
    EXPECT_THAT(Mistake(p(Donate(other))).message(), HasSubstr("it was traced with"));
  EXPECT_THAT(Mistake(p()).message(), HasSubstr("takes 1 arguments"));
  EXPECT_THAT(Ops(wire::Op::kLaunch, 0), IsEmpty());
}

TEST_F(ApiTest, AProgramKeepsItsFunctionsAndIsDroppedBeforeThem) {
  {
    Program p;
    {
      const Function f = Compile(1, {halves_});
      p = *TryTrace([&](std::span<const Array> in) -> std::vector<Array> { return {f(in[0])}; },
                    {Put(halves_)});
    }
    EXPECT_THAT(Ops(wire::Op::kDropExecutables, 0), IsEmpty());
  }
  Last(wire::Op::kDropPrograms, 1);
  Last(wire::Op::kDropExecutables, 1);
}

// None of these is sent to the controller.
TEST_F(ApiTest, AMistakeInATraceIsTheTraces) {
  const Function f = Compile(1, {halves_}, {0});
  const Array x = Put(halves_);
  const auto trace = [&](const Traced& traced) {
    return Trace(cluster_, "p", traced, {x}).status();
  };
  const auto one = [](Array array) { return std::vector<Array>{std::move(array)}; };
  Array kept;
  EXPECT_THAT(trace([&](auto in) { return one(f(in[0], in[0])); }).message(),
              HasSubstr("f1 takes 1 arguments"));
  EXPECT_THAT(trace([&](auto) { return one(f(Donate(x))); }).message(),
              HasSubstr("comes from outside of the trace"));
  EXPECT_THAT(trace([&](auto) { return one(Array()); }).message(), HasSubstr("result 0"));
  EXPECT_THAT(trace([&](auto in) { return one(in[0].CopyTo(Sharding(other_))); }).message(),
              HasSubstr("its shards would be others"));
  EXPECT_THAT(trace([&](auto in) {
                EXPECT_FALSE(Trace(cluster_, "q", [&](auto) { return one(x); }, {}).ok());
                kept = f(in[0]);
                return one(Array());
              }).message(),
              HasSubstr("result 0"));
  EXPECT_THAT(trace([&](auto) { return one(f(kept)); }).message(),
              HasSubstr("is of another trace"));
  EXPECT_THAT(Mistake(f(kept)).message(), HasSubstr("inside of Trace has no elements"));
  const Status status = trace([&](auto in) {
    f(in[0], in[0]);
    return one(in[0]);
  });
  EXPECT_THAT(status.record().source, HasSubstr("api_test.cc:")) << "though nothing depends on it";
  EXPECT_THAT(Ops(wire::Op::kRegisterProgram, 0), IsEmpty());
}

TEST_F(ApiTest, WhatTheControllerRefusesIsTheTracesError) {
  const Function f = Compile(1, {halves_});
  const Result<Program> refused =
      TryTrace([&](std::span<const Array> in) -> std::vector<Array> { return {f(in[0])}; },
               {Put(halves_)}, absl::ResourceExhaustedError("too many programs"));
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().message(), "too many programs");
}

}  // namespace
}  // namespace gangway
