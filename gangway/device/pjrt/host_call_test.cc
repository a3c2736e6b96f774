// Host calls through the real plugin: operands and results of each element type of StableHLO, and of many shapes, have
// the bytes that they have in host memory.
#include "gangway/device/pjrt/host_call.h"

#include <cstring>
#include <random>
#include <string>

#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"

#include "gangway/device/conformance/device_test_util.h"
#include "gangway/device/handler_group.h"
#include "gangway/device/packed_elements.h"
#include "gangway/device/pjrt/pjrt_test_programs.h"

namespace gangway::device {
namespace {

constexpr int kLaunch = 5;

struct Type {
  ElementType number;
  const char* name;  // in StableHLO
};

constexpr Type kTypes[] = {
    {kPred, "i1"},
    {kS2, "i2"},
    {kU2, "ui2"},
    {kS4, "i4"},
    {kU4, "ui4"},
    {kF4E2M1FN, "f4E2M1FN"},
    {kS8, "i8"},
    {kU8, "ui8"},
    {kS16, "i16"},
    {kU16, "ui16"},
    {kS32, "i32"},
    {kU32, "ui32"},
    {kS64, "i64"},
    {kU64, "ui64"},
    {kF8E3M4, "f8E3M4"},
    {kF8E4M3, "f8E4M3"},
    {kF8E5M2, "f8E5M2"},
    {kF8E4M3FN, "f8E4M3FN"},
    {kF8E8M0FNU, "f8E8M0FNU"},
    {kF8E4M3B11FNUZ, "f8E4M3B11FNUZ"},
    {kF16, "f16"},
    {kBF16, "bf16"},
    {kF32, "f32"},
    {kF64, "f64"},
    {kC64, "complex<f32>"},
    {kC128, "complex<f64>"},
    {kF8E5M2FNUZ, "f8E5M2FNUZ"},
    {kF8E4M3FNUZ, "f8E4M3FNUZ"},
};

// Keeps the operands, and returns each of them back to front, byte by byte.
class Reverser final : public HostCallReceiver {
 public:
  absl::Status OnHostCall(const HostCall& call) override {
    function = call.function;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      operands.emplace_back(call.operands[i].begin(), call.operands[i].end());
      if (i >= call.results.size() || call.results[i].size() != call.operands[i].size())
        return absl::InternalError("a result has not the size of its operand");
      for (std::byte byte : call.results[i])
        if (byte != std::byte{0}) return absl::InternalError("a result shows earlier contents");
      std::ranges::reverse_copy(call.operands[i], call.results[i].begin());
    }
    return absl::OkStatus();
  }

  uint64_t function = 0;
  std::vector<std::vector<std::byte>> operands;
};

std::vector<std::byte> Random(const ArraySpec& spec, std::mt19937& random) {
  std::vector<std::byte> bytes(*HostBytes(spec));
  const int per_byte = ElementsPerDeviceByte(spec.element_type);
  const std::byte mask = spec.element_type == kPred ? std::byte{1} : PackedMask(per_byte);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random()) & mask;
  return bytes;
}

absl::StatusOr<std::vector<std::byte>> ReadBytes(Buffer& buffer) {
  auto bytes = std::make_shared<std::vector<std::byte>>(HostBytes(buffer.spec()).value_or(0));
  Waiter waiter;
  buffer.CopyToHost(
      bytes->data(), bytes->size(),
      [bytes, done = waiter.Callback()](absl::Status status) { done(std::move(status)); });
  GANGWAY_RETURN_IF_ERROR(waiter.Wait());
  return *bytes;
}

Backend& OpenedBackend() {
  static Backend* const backend = [] {
    auto opened = OpenTestPlugin(1);
    EXPECT_TRUE(opened.ok()) << opened.status();
    OfferHandlers(**opened, std::vector<HandlerGroup>{HostCallHandlers()});
    return opened->release();  // lives as long as the process
  }();
  return *backend;
}

class HostCallTest : public ::testing::TestWithParam<Type> {
 protected:
  // Of arrays whose operand is as given; both that and the result are followed by an array of bytes, which shows what
  // is written past an end.
  std::unique_ptr<Executable> Compile(const ArraySpec& spec) {
    const std::string type =
        absl::StrCat("tensor<", absl::StrJoin(spec.dims, "x"), "x", GetParam().name, ">");
    const TestProgram program = Mlir(absl::Substitute(
        R"(func.func public @main(%x: $0, %y: tensor<64xui8>) -> ($0, tensor<64xui8>) {
    %r:2 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x, %y)
        {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = 7 : i64}}
        : ($0, tensor<64xui8>) -> ($0, tensor<64xui8>)
    return %r#0, %r#1 : $0, tensor<64xui8>
  })",
        type));
    auto executable = backend_.Compile({program.code, program.format}, program.compile_options, {});
    EXPECT_TRUE(executable.ok()) << executable.status();
    return executable.ok() ? *std::move(executable) : nullptr;
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Upload(const ArraySpec& spec,
                                                 const std::vector<std::byte>& bytes) {
    return backend_.BufferFromHost(0, "", spec, bytes, HostSemantics::kCopyDuringCall, nullptr);
  }

  Backend& backend_ = OpenedBackend();
};

TEST(PackedElements, ComeBackAsTheyWere) {
  for (int per_byte : {1, 2, 4, 8}) {
    for (size_t count : {0, 1, 7, 8, 9, 1001}) {
      std::vector<std::byte> elements(count), packed(PackedBytes(count, per_byte), std::byte{0xff});
      std::mt19937 random(count);
      for (std::byte& element : elements) element = static_cast<std::byte>(random());
      PackElements(elements, per_byte, packed);
      if (count == 1) {
        EXPECT_EQ(packed[0], elements[0] & PackedMask(per_byte)) << "no other bits";
      }
      for (std::byte& element : elements) element &= PackedMask(per_byte);
      std::vector<std::byte> unpacked(count);
      UnpackElements(packed, per_byte, unpacked);
      EXPECT_EQ(unpacked, elements) << per_byte << " per byte, " << count;
    }
  }
  EXPECT_EQ(PackedBytes(1001, 8), 126);
}

TEST_P(HostCallTest, OperandsAndResultsHaveTheirHostForm) {
  std::mt19937 random(1);
  for (std::vector<int64_t> dims :
       {std::vector<int64_t>{0}, {1}, {2}, {3}, {5}, {8}, {3, 5}, {2, 3, 4}, {1001}}) {
    SCOPED_TRACE(absl::StrJoin(dims, "x"));
    const ArraySpec spec{GetParam().number, dims};
    const ArraySpec beside{kU8, {64}};
    const auto x = Random(spec, random);
    const auto y = Random(beside, random);
    auto executable = Compile(spec);
    ASSERT_NE(executable, nullptr);
    auto first = Upload(spec, x);
    ASSERT_TRUE(first.ok()) << first.status();
    auto second = Upload(beside, y);
    ASSERT_TRUE(second.ok()) << second.status();
    auto receiver = std::make_shared<Reverser>();
    ReceiveHostCalls(kLaunch, 0, receiver);
    std::vector<Buffer*> arguments = {first->get(), second->get()};
    auto outputs = executable->ExecuteOn(0, arguments, {.launch_id = kLaunch}, nullptr);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    auto results = ReadBytes(*(*outputs)[0]);
    ASSERT_TRUE(results.ok()) << results.status();
    auto results_beside = ReadBytes(*(*outputs)[1]);
    ASSERT_TRUE(results_beside.ok()) << results_beside.status();
    ReceiveHostCalls(kLaunch, 0, nullptr);
    EXPECT_EQ(receiver->function, 7);
    EXPECT_EQ(receiver->operands, (std::vector<std::vector<std::byte>>{x, y}));
    EXPECT_EQ(*results, std::vector<std::byte>(x.rbegin(), x.rend()));
    EXPECT_EQ(*results_beside, std::vector<std::byte>(y.rbegin(), y.rend()));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HostCallTest, ::testing::ValuesIn(kTypes), [](const auto& info) {
  std::string name = info.param.name;
  std::erase_if(name, [](char c) { return c == '<' || c == '>'; });
  return name;
});

}  // namespace
}  // namespace gangway::device
