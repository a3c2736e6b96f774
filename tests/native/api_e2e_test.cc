// The API for C++ programs against real processes, by its public headers alone. tests/test_cpp_client.py runs it on a
// cluster of eight devices on two islands: GANGWAY_TEST_CONTROL is its control address, GANGWAY_TEST_TOKEN its token.
#include <gangway/gangway.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace gangway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ApiE2eTest : public ::testing::Test {
 protected:
  ApiE2eTest() : cluster_(*Open()) {}

  static Result<Cluster> Open() {
    return Connect({.address = std::getenv("GANGWAY_TEST_CONTROL"),
                    .token = std::getenv("GANGWAY_TEST_TOKEN"),
                    .name = "api_e2e_test"});
  }

  // x + 1, or x - y, of two elements on each device.
  Function PlusOne(const Sharding& sharding, bool donates = false) {
    return *cluster_.Compile(std::string(R"(module @plus_one {
          func.func public @main(%x: tensor<2xf32>)") +
                                 (donates ? " {tf.aliasing_output = 0 : i32}" : "") +
                                 R"() -> tensor<2xf32> {
            %one = stablehlo.constant dense<1.0> : tensor<2xf32>
            %y = stablehlo.add %x, %one : tensor<2xf32>
            return %y : tensor<2xf32>
          }
        })",
                             sharding.mesh(), {.results = {sharding}});
  }
  Function Minus(const Sharding& sharding) {
    return *cluster_.Compile(R"(module @minus {
      func.func public @main(%x: tensor<2xf32> {tf.aliasing_output = 0 : i32},
                             %y: tensor<2xf32>) -> tensor<2xf32> {
        %z = stablehlo.subtract %x, %y : tensor<2xf32>
        return %z : tensor<2xf32>
      }
    })",
                             sharding.mesh(), {.results = {sharding}});
  }
  Array Four(const Sharding& sharding) { return cluster_.Put<float>({1, 2, 3, 4}, {4}, sharding); }

  Cluster cluster_;
  const Mesh row_{{0, 1}, {{"x", 2}}}, far_{{4, 5}, {{"x", 2}}};
  const Sharding halves_{row_, {"x"}}, far_halves_{far_, {"x"}};
};

template <typename T>
std::vector<T> Numbers(size_t count) {
  std::vector<T> values;
  for (size_t i = 0; i < count; ++i) values.push_back(static_cast<T>(i % 100));
  return values;
}

template <typename T>
void ExpectBack(const Cluster& cluster, const Shape& shape, const Sharding& sharding) {
  const auto values = Numbers<T>(std::accumulate(shape.begin(), shape.end(), size_t{1},
                                                 [](size_t a, int64_t b) { return a * b; }));
  const Array array = cluster.Put(values, shape, sharding);
  const Result<std::vector<T>> back = array.Get<T>();
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, values) << sharding.ToText();
}

TEST_F(ApiE2eTest, ElementsComeBackAsTheyWere) {
  const Mesh mesh({7, 0, 5, 2}, {{"data", 2}, {"model", 2}});  // in any order, over both islands
  for (const Sharding& sharding :
       {Sharding(mesh), Sharding(mesh, {"data"}), Sharding(mesh, {"model", {}, "data"}),
        Sharding(mesh, {{}, {"model", "data"}}), Sharding(Mesh({6}, {}))}) {
    ExpectBack<float>(cluster_, {4, 8, 2}, sharding);
    ExpectBack<BFloat16>(cluster_, {2, 4, 6}, sharding);
    ExpectBack<std::complex<double>>(cluster_, {2, 4, 2}, sharding);
    ExpectBack<Pred>(cluster_, {4, 4, 2}, sharding);
    ExpectBack<int8_t>(cluster_, {0, 4, 2}, sharding);  // no element at all
  }
  ExpectBack<int64_t>(cluster_, {}, Sharding(mesh));
  ExpectBack<float>(cluster_, {1024, 2048}, Sharding(mesh, {{}, "model"}));
}

TEST_F(ApiE2eTest, APartitionedFunctionIsAboutWholeArrays) {
  const Sharding rows(row_, {"x"}), columns(row_, {{}, "x"}), whole(row_);
  const std::string text = R"(module @product {
    func.func public @main(%x: tensor<4x2xf32> {mhlo.sharding = ")" +
                           rows.ToAttribute(2) + R"("}, %y: tensor<2x4xf32> {mhlo.sharding = ")" +
                           columns.ToAttribute(2) +
                           R"("}) -> (tensor<4x4xf32> {mhlo.sharding = ")" + whole.ToAttribute(2) +
                           R"("}) {
      %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
          : (tensor<4x2xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
      return %z : tensor<4x4xf32>
    }
  })";
  FunctionOptions options{.partitioning = Partitioning::kPartitioned,
                          .results = {whole},
                          .parameters = {rows, columns}};
  const Result<Function> product = cluster_.Compile(text, row_, options);
  ASSERT_TRUE(product.ok()) << product.status().message();
  const Array x = cluster_.Put(Numbers<float>(8), {4, 2}, rows);
  const Array y = cluster_.Put(Numbers<float>(8), {2, 4}, columns);
  const Array z = (*product)(x, y);
  EXPECT_THAT(z.shape(), ElementsAre(4, 4));
  const Result<std::vector<float>> values = z.Get<float>();
  ASSERT_TRUE(values.ok()) << values.status().message();
  EXPECT_THAT(*values, ElementsAre(4, 5, 6, 7, 12, 17, 22, 27, 20, 29, 38, 47, 28, 41, 54, 67));
  EXPECT_THAT(
      (*product)(x, cluster_.Put(Numbers<float>(8), {2, 4}, Sharding(row_))).Wait().message(),
      HasSubstr("it takes shards of f32[2,2]"));

  options.results = {rows};
  EXPECT_THAT(cluster_.Compile(text, row_, options).status().message(),
              AllOf(HasSubstr("result 0"), HasSubstr("splits it another way"),
                    HasSubstr(rows.ToAttribute(2))));
  options.parameters = {columns, columns};
  EXPECT_THAT(cluster_.Compile(text, row_, options).status().message(), HasSubstr("parameter 0"));
}

TEST_F(ApiE2eTest, OnlyWhatIsGivenAwayIsGone) {
  const Function plus_one = PlusOne(halves_, true);
  EXPECT_THAT(plus_one.donated(), ElementsAre(0));
  const Array x = Four(halves_), copy = x;
  EXPECT_THAT(*plus_one(x).Get<float>(), ElementsAre(2, 3, 4, 5));
  const Array y = plus_one(Donate(x));
  EXPECT_THAT(*y.Get<float>(), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(copy.Wait().message(), HasSubstr("donated"));
  EXPECT_THAT(plus_one(copy).Get<float>().status().message(), HasSubstr("donated"));
}

TEST_F(ApiE2eTest, AFailureReachesWhatIsComputedOfIt_ER1) {
  const Function plus_one = PlusOne(halves_);
  const Array wrong = plus_one(cluster_.Put<int32_t>({1, 2, 3, 4}, {4}, halves_));
  const Array after = plus_one(plus_one(wrong)).CopyTo(far_halves_);
  const Status status = after.Wait();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("s32[4]"));
  EXPECT_EQ(status.record().program, "plus_one");
  EXPECT_THAT(status.record().source, HasSubstr("api_e2e_test.cc:"));
  EXPECT_EQ(cluster_.Wait({Four(halves_), after}).message(), status.message());
}

TEST_F(ApiE2eTest, ACompileErrorIsTheCompilersText) {
  EXPECT_THAT(cluster_.Compile("module { nonsense }", row_).status().message(),
              HasSubstr("nonsense"));
}

TEST_F(ApiE2eTest, AProgramGivesWhatItsCallsGive_DF3) {
  const Function plus_one = PlusOne(halves_, true), far_minus = Minus(far_halves_);
  const Array held = Four(far_halves_);
  const auto block = [&](std::span<const Array> in) -> std::vector<Array> {
    const Array x = plus_one(in[0]), y = plus_one(Donate(x));
    return {far_minus(Donate(y.CopyTo(far_halves_)), held), y};
  };
  const Array x = Four(halves_);
  const Result<Program> program = Trace(cluster_, "block", block, {x});
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->node_count(), 4u);
  std::vector<Array> results;
  for (int i = 0; i < 50; ++i) results = (*program)({x});
  const std::vector<Array> same = block(std::vector{x});
  for (size_t i = 0; i < same.size(); ++i)
    EXPECT_EQ(*results[i].Get<float>(), *same[i].Get<float>()) << i;
  EXPECT_THAT(*results[0].Get<float>(), ElementsAre(2, 2, 2, 2));
}

TEST_F(ApiE2eTest, AProgramLivesWithoutItsFunctionsAndGivesItsArgumentAway) {
  Program program;
  {
    const Function plus_one = PlusOne(halves_, true);
    program = *Trace(
        cluster_, "away",
        [&](std::span<const Array> in) -> std::vector<Array> { return {plus_one(Donate(in[0]))}; },
        {Four(halves_)});
  }
  Array x = Four(halves_);
  for (int i = 0; i < 3; ++i) x = program(Donate(x));
  EXPECT_THAT(*x.Get<float>(), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(program(x).Wait().message(), HasSubstr("Donate(x)"));
}

// The controller names the node, and its line.
TEST_F(ApiE2eTest, WhatTheControllerRefusesIsTheTracesError) {
  const Function minus = Minus(halves_);
  const auto refused = [&](const Traced& traced) {
    const Result<Program> program = Trace(cluster_, "refused", traced, {Four(halves_)});
    EXPECT_EQ(program.status().code(), StatusCode::kInvalidArgument);
    return program.status().message();
  };
  EXPECT_THAT(refused([&](std::span<const Array> in) -> std::vector<Array> {
                return {minus(Donate(in[0]), in[0])};
              }),
              HasSubstr("api_e2e_test.cc:"));
  EXPECT_THAT(refused([&](std::span<const Array> in) -> std::vector<Array> {
                return {minus(Donate(in[0]), minus(in[0], in[0])), in[0]};
              }),
              HasSubstr("donated"));
}

TEST_F(ApiE2eTest, ThreadsShareASession) {
  const Function plus_one = PlusOne(halves_);
  const Program program = *Trace(
      cluster_, "twice",
      [&](std::span<const Array> in) -> std::vector<Array> { return {plus_one(plus_one(in[0]))}; },
      {Four(halves_)});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Array x = Four(halves_);
      for (int i = 0; i < 50; ++i) x = i % 2 == 0 ? plus_one(x) : program(x);
      EXPECT_THAT(*x.Get<float>(), ElementsAre(76, 77, 78, 79));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ApiE2eTest, ArraysOfAnotherSessionAreRefused) {
  const Result<Cluster> other = Open();
  ASSERT_TRUE(other.ok());
  const Array x = other->Put<float>({1, 2, 3, 4}, {4}, halves_);
  EXPECT_THAT(PlusOne(halves_)(x).Wait().message(), HasSubstr("another session"));
  EXPECT_TRUE(cluster_.Wait({x, Four(halves_)}).ok()) << "to wait for them is allowed";
}

}  // namespace
}  // namespace gangway
