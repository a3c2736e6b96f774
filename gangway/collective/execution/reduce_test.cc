// Each reduction of each element type against its definition, element by element.
#include "gangway/collective/execution/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <vector>

#include "gangway/xla/hlo.pb.h"

namespace gangway::collective {
namespace {

using xla::Collective;

template <typename T>
std::vector<T> Reduced(Collective::Reduction reduction, int32_t type, std::vector<T> into,
                       const std::vector<T>& from) {
  const Reduction found = FindReduction(reduction, type);
  if (found.reducer == nullptr) return {};
  EXPECT_EQ(found.element_bytes, sizeof(T));
  const ReductionMode mode;
  auto* const sums = reinterpret_cast<std::byte*>(into.data());
  const std::array<const std::byte*, 2> sources = {sums,
                                                   reinterpret_cast<const std::byte*>(from.data())};
  found.reducer(sums, sources, into.size() * sizeof(T));
  return into;
}

template <typename T>
void ExpectIntegers(int32_t type) {
  const std::vector<T> a = {0, 1, 7, std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
  const std::vector<T> b = {3, 2, 5, 2, std::numeric_limits<T>::max()};
  auto each = [&](Collective::Reduction reduction, auto operation) {
    std::vector<T> expected;
    for (size_t i = 0; i < a.size(); ++i) {
      const auto x = static_cast<unsigned __int128>(static_cast<__int128>(a[i]));
      const auto y = static_cast<unsigned __int128>(static_cast<__int128>(b[i]));
      expected.push_back(static_cast<T>(operation(x, y)));
    }
    EXPECT_EQ(Reduced(reduction, type, a, b), expected) << type << " " << reduction;
  };
  each(Collective::SUM, [](auto x, auto y) { return x + y; });
  each(Collective::PRODUCT, [](auto x, auto y) { return x * y; });
  each(Collective::AND, [](auto x, auto y) { return x & y; });
  each(Collective::OR, [](auto x, auto y) { return x | y; });
  each(Collective::MIN,
       [](auto x, auto y) { return static_cast<T>(x) < static_cast<T>(y) ? x : y; });
  each(Collective::MAX,
       [](auto x, auto y) { return static_cast<T>(x) > static_cast<T>(y) ? x : y; });
}

TEST(ReduceTest, Integers) {
  ExpectIntegers<int8_t>(xla::TYPE_S8);
  ExpectIntegers<int16_t>(xla::TYPE_S16);
  ExpectIntegers<int32_t>(xla::TYPE_S32);
  ExpectIntegers<int64_t>(xla::TYPE_S64);
  ExpectIntegers<uint8_t>(xla::TYPE_U8);
  ExpectIntegers<uint16_t>(xla::TYPE_U16);
  ExpectIntegers<uint32_t>(xla::TYPE_U32);
  ExpectIntegers<uint64_t>(xla::TYPE_U64);
}

TEST(ReduceTest, TruthValues) {
  const std::vector<uint8_t> a = {0, 0, 1, 1}, b = {0, 1, 0, 1};
  const std::vector<uint8_t> either = {0, 1, 1, 1}, both = {0, 0, 0, 1};
  for (auto reduction : {Collective::SUM, Collective::MAX, Collective::OR})
    EXPECT_EQ(Reduced(reduction, xla::TYPE_PRED, a, b), either);
  for (auto reduction : {Collective::PRODUCT, Collective::MIN, Collective::AND})
    EXPECT_EQ(Reduced(reduction, xla::TYPE_PRED, a, b), both);
}

template <typename T>
void ExpectFloats(int32_t type) {
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN(), kMore = static_cast<T>(0.7);
  const std::vector<T> a = {1, -2, kMore}, b = {3, -5, 2};
  EXPECT_EQ(Reduced(Collective::SUM, type, a, b), (std::vector<T>{4, -7, kMore + 2}));
  EXPECT_EQ(Reduced(Collective::PRODUCT, type, a, b), (std::vector<T>{3, 10, kMore * 2}));
  EXPECT_EQ(Reduced(Collective::MIN, type, a, b), (std::vector<T>{1, -5, kMore}));
  EXPECT_EQ(Reduced(Collective::MAX, type, a, b), (std::vector<T>{3, -2, 2}));
  for (auto reduction : {Collective::MIN, Collective::MAX}) {
    for (T value : Reduced<T>(reduction, type, {kNan, 1}, {1, kNan}))
      EXPECT_TRUE(std::isnan(value));
  }
  EXPECT_EQ(FindReduction(Collective::AND, type).reducer, nullptr);
}

TEST(ReduceTest, Floats) {
  ExpectFloats<float>(xla::TYPE_F32);
  ExpectFloats<double>(xla::TYPE_F64);
}

TEST(ReduceTest, DenormalsCountAsZeroWhateverTheThreadsModeIs) {
  const float denormal = std::numeric_limits<float>::denorm_min() * 1000;
  EXPECT_EQ(Reduced<float>(Collective::SUM, xla::TYPE_F32, {denormal}, {denormal}),
            (std::vector<float>{0}));
  volatile float before = denormal;
  EXPECT_GT(before + before, 0.0f) << "the thread's own mode is as it was";
}

TEST(ReduceTest, ComplexNumbers) {
  using C = std::complex<float>;
  EXPECT_EQ(Reduced<C>(Collective::SUM, xla::TYPE_C64, {{1, 2}}, {{3, -1}}),
            (std::vector<C>{{4, 1}}));
  EXPECT_EQ(Reduced<C>(Collective::PRODUCT, xla::TYPE_C64, {{1, 2}}, {{3, -1}}),
            (std::vector<C>{{5, 5}}));
  using D = std::complex<double>;
  EXPECT_EQ(Reduced<D>(Collective::SUM, xla::TYPE_C128, {{1, 2}}, {{3, -1}}),
            (std::vector<D>{{4, 1}}));
  EXPECT_EQ(FindReduction(Collective::MIN, xla::TYPE_C64).reducer, nullptr);
}

// All pairs of some values, in a wider type and rounded to the nearest, ties to even.
uint16_t RoundedToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fc0;
  const uint32_t low = bits & 0xffff;
  uint32_t high = bits >> 16;
  if (low > 0x8000 || (low == 0x8000 && (high & 1) != 0)) ++high;
  return static_cast<uint16_t>(high);
}

TEST(ReduceTest, BFloat16IsRoundedAfterEachStep) {
  std::vector<uint16_t> values;
  for (uint32_t bits = 0; bits < 0x10000; bits += 97) values.push_back(static_cast<uint16_t>(bits));
  for (uint16_t other : {0x3f80, 0x4049, 0xc2f7, 0x0080, 0x7f7f, 0x3b01}) {
    const std::vector<uint16_t> from(values.size(), other);
    const auto sums = Reduced(Collective::SUM, xla::TYPE_BF16, values, from);
    const auto least = Reduced(Collective::MIN, xla::TYPE_BF16, values, from);
    for (size_t i = 0; i < values.size(); ++i) {
      const float a = std::bit_cast<float>(uint32_t{values[i]} << 16);
      const float b = std::bit_cast<float>(uint32_t{other} << 16);
      if (std::isnan(a)) {
        EXPECT_GT(sums[i] & 0x7fff, 0x7f80);
        continue;
      }
      if (std::fpclassify(a) == FP_SUBNORMAL || std::fpclassify(a + b) == FP_SUBNORMAL) continue;
      EXPECT_EQ(sums[i], RoundedToBFloat16(a + b)) << a << " + " << b;
      EXPECT_EQ(least[i], RoundedToBFloat16(std::min(a, b)));
    }
  }
}

TEST(ReduceTest, HalfIsRoundedAfterEachStep) {
  std::vector<uint16_t> values;
  for (uint32_t bits = 0; bits < 0x10000; bits += 41) values.push_back(static_cast<uint16_t>(bits));
  for (_Float16 other :
       {_Float16(1), _Float16(0.3), _Float16(-1000), _Float16(65504), _Float16(6e-8)}) {
    const std::vector<uint16_t> from(values.size(), std::bit_cast<uint16_t>(other));
    const auto sums = Reduced(Collective::SUM, xla::TYPE_F16, values, from);
    const auto products = Reduced(Collective::PRODUCT, xla::TYPE_F16, values, from);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = std::bit_cast<_Float16>(values[i]);
      auto expect = [&](uint16_t actual, float expected) {
        const auto rounded = static_cast<_Float16>(expected);
        if (std::isnan(static_cast<float>(rounded))) {
          EXPECT_GT(actual & 0x7fff, 0x7c00);
        } else {
          EXPECT_EQ(actual, std::bit_cast<uint16_t>(rounded)) << expected;
        }
      };
      expect(sums[i], static_cast<float>(value) + static_cast<float>(other));
      expect(products[i], static_cast<float>(value) * static_cast<float>(other));
    }
  }
}

// The order in which floats are summed shows in their last bits, and so does rounding after each step.
template <typename T, typename Sum>
void ExpectFromLeftToRight(int32_t type, const std::vector<T>& values, Sum sum_of) {
  constexpr size_t kElements = size_t{4} * 1024 / sizeof(T) + 5;  // several tiles, and some more
  for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{4}, size_t{5}, size_t{8}}) {
    std::vector<std::vector<T>> sources(count);
    std::vector<T> expected;
    for (size_t i = 0; i < kElements; ++i) {
      for (size_t source = 0; source < count; ++source)
        sources[source].push_back(values[(i * 7 + source * 31) % values.size()]);
      T sum = sources[0][i];
      for (size_t source = 1; source < count; ++source) sum = sum_of(sum, sources[source][i]);
      expected.push_back(sum);
    }
    for (size_t replaced = 0; replaced <= count; ++replaced) {
      std::vector<std::vector<T>> operands = sources;
      operands.emplace_back(kElements);
      std::vector<const std::byte*> inputs;
      for (size_t source = 0; source < count; ++source)
        inputs.push_back(reinterpret_cast<const std::byte*>(operands[source].data()));
      FindReduction(Collective::SUM, type)
          .reducer(reinterpret_cast<std::byte*>(operands[replaced].data()), inputs,
                   kElements * sizeof(T));
      EXPECT_EQ(operands[replaced], expected) << "result " << replaced << " of " << count;
    }
  }
}

TEST(ReduceTest, SourcesAreReducedFromLeftToRightWhicheverOneTheResultReplaces) {
  std::vector<float> floats;
  std::vector<uint16_t> narrow, halves;
  for (int i = 0; i < 101; ++i) {
    const float value = std::ldexp(1.0f + static_cast<float>(i) / 97, i * 5 % 12);
    floats.push_back(value);
    narrow.push_back(RoundedToBFloat16(value));
    halves.push_back(std::bit_cast<uint16_t>(static_cast<_Float16>(value)));
  }
  ExpectFromLeftToRight(xla::TYPE_F32, floats, [](float a, float b) { return a + b; });
  ExpectFromLeftToRight(xla::TYPE_BF16, narrow, [](uint16_t a, uint16_t b) {
    return RoundedToBFloat16(std::bit_cast<float>(uint32_t{a} << 16) +
                             std::bit_cast<float>(uint32_t{b} << 16));
  });
  ExpectFromLeftToRight(xla::TYPE_F16, halves, [](uint16_t a, uint16_t b) {
    const float sum = static_cast<float>(std::bit_cast<_Float16>(a)) +
                      static_cast<float>(std::bit_cast<_Float16>(b));
    return std::bit_cast<uint16_t>(static_cast<_Float16>(sum));
  });
}

TEST(ReduceTest, OtherTypesHaveNone) {
  for (int32_t type : {0, 13, 17, 19, 21, 33, 99, -1})
    EXPECT_EQ(FindReduction(Collective::SUM, type).reducer, nullptr);
  EXPECT_EQ(FindReduction(Collective::REDUCTION_UNSPECIFIED, xla::TYPE_F32).reducer, nullptr);
}

}  // namespace
}  // namespace gangway::collective
