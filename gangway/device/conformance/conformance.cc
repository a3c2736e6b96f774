// The tests of the conformance suite that conformance.h describes.
#include "gangway/device/conformance/conformance.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <set>

#include "gangway/base/aligned_bytes.h"
#include "gangway/device/conformance/chain.h"
#include "gangway/device/conformance/device_test_util.h"

namespace gangway::device {

void DeviceConformance::SetUp() {
  auto backend = GetParam().open(kDevicesMax);
  ASSERT_TRUE(backend.ok()) << backend.status().ToString();
  backend_ = *std::move(backend);
  device_count_ = std::min(kDevicesMax, static_cast<int>(backend_->devices().size()));
  ASSERT_GE(device_count_, 1);
}

std::vector<int> DeviceConformance::AllDevices() const {
  std::vector<int> all(device_count_);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::unique_ptr<Executable> DeviceConformance::Compile(const TestProgram& program,
                                                       std::vector<int> devices) {
  auto executable =
      backend_->Compile({program.code, program.format}, program.compile_options, devices);
  EXPECT_TRUE(executable.ok()) << executable.status().ToString();
  return executable.ok() ? *std::move(executable) : nullptr;
}

namespace {

// Skips the test unless the backend has `count` devices.
#define GANGWAY_NEED_DEVICES(count)                                                            \
  do {                                                                                         \
    if (device_count_ < (count))                                                               \
      GTEST_SKIP() << "needs " << (count) << " devices, " << backend_->capabilities().platform \
                   << " has " << device_count_;                                                \
  } while (false)

using Arguments = Subject::Arguments;

std::vector<float> Repeat(const Subject& subject, std::vector<float> values, int times) {
  for (int i = 0; i < times; ++i) values = subject.expected(subject.unary, {{values}}, 0)[0];
  return values;
}

TEST_P(DeviceConformance, DescribesItself) {
  const Capabilities& capabilities = backend_->capabilities();
  EXPECT_FALSE(capabilities.platform.empty());
  EXPECT_FALSE(capabilities.platform_version.empty());
  EXPECT_GE(capabilities.inflight_max, 1);
  if (capabilities.platform == "cpu" || capabilities.platform == "sim") {  // opens as many as asked
    EXPECT_EQ(backend_->devices().size(), kDevicesMax);
  }
  std::set<int64_t> ids;
  for (int i = 0; i < device_count_; ++i) {
    const DeviceInfo& info = backend_->devices()[i];
    EXPECT_EQ(info.local_index, i);
    EXPECT_FALSE(info.kind.empty());
    EXPECT_FALSE(info.memory_kinds.empty());
    ids.insert(info.runtime_id);
  }
  EXPECT_EQ(ids.size(), device_count_);
}

TEST_P(DeviceConformance, RoundTripsEveryElementTypeAndShape) {
  const std::vector<std::vector<int64_t>> shapes = {{},  {1},       {5},      {2, 3},
                                                    {0}, {3, 0, 2}, {2, 1, 7}};
  for (int32_t type : GetParam().element_types) {
    for (const auto& dims : shapes) {
      const ArraySpec spec{type, dims};
      std::vector<std::byte> bytes(HostBytes(spec).value());
      // Values 0 and 1 are valid in every type, also in pred and the 4-bit ones.
      for (size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = std::byte{static_cast<unsigned char>(i % 3 == 0)};
      for (bool placeholder : {false, true}) {
        SCOPED_TRACE(absl::StrCat("type ", type, " rank ", dims.size(),
                                  placeholder ? " placeholder" : " from host"));
        std::unique_ptr<Buffer> buffer;
        Waiter taken;
        if (placeholder) {
          auto made = backend_->CreatePlaceholder(Last(), spec);
          ASSERT_TRUE(made.ok()) << made.status().ToString();
          buffer = std::move(made->buffer);
          GANGWAY_ASSERT_OK(made->filler->Fill(bytes, taken.Callback()));
        } else {
          auto made = backend_->BufferFromHost(Last(), "", spec, bytes,
                                               HostSemantics::kUntilTransferDone, taken.Callback());
          ASSERT_TRUE(made.ok()) << made.status().ToString();
          buffer = *std::move(made);
        }
        GANGWAY_ASSERT_OK(taken.Wait());
        EXPECT_EQ(buffer->spec(), spec);
        EXPECT_EQ(buffer->device(), Last());
        std::vector<std::byte> back(bytes.size(), std::byte{77});
        Waiter copied;
        buffer->CopyToHost(back.data(), back.size(), copied.Callback());
        GANGWAY_ASSERT_OK(copied.Wait());
        EXPECT_EQ(back, bytes);
        std::vector<std::byte> now(bytes.size(), std::byte{77});
        if (buffer->CopyToHostNow(now.data(), now.size())) {
          EXPECT_EQ(now, bytes);
        }
        EXPECT_FALSE(buffer->CopyToHostNow(now.data(), now.size() + 1));
      }
    }
  }
}

TEST_P(DeviceConformance, HostBytesMayGoAsTheirSemanticsSay) {
  for (HostSemantics semantics : {HostSemantics::kCopyDuringCall, HostSemantics::kUntilTransferDone,
                                  HostSemantics::kZeroCopy}) {
    alignas(64) float values[16] = {1, 2, 3};
    Waiter done;
    auto buffer = backend_->BufferFromHost(0, "", F32({16}), std::as_bytes(std::span(values)),
                                           semantics, done.Callback());
    ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
    if (semantics == HostSemantics::kCopyDuringCall) {
      EXPECT_TRUE(done.done());
    }
    if (semantics == HostSemantics::kZeroCopy && backend_->capabilities().host_zero_copy) {
      EXPECT_FALSE(done.done()) << "the buffer still uses the caller's memory";
    } else {
      GANGWAY_ASSERT_OK(done.Wait());
      values[0] = 99;  // the caller owns the bytes again: the buffer must not change
    }
    auto read = ReadFloats(**buffer);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ((*read)[0], 1);
    EXPECT_EQ((*read)[2], 3);
    buffer->reset();
    GANGWAY_ASSERT_OK(done.Wait());
    EXPECT_EQ(done.calls(), 1);
  }
}

// A fetch of a small array needs no other thread.
TEST_P(DeviceConformance, TransfersUsePinnedMemory) {
  constexpr size_t kBytes = size_t{1} << 20;
  AlignedBytes memory;
  ASSERT_TRUE(memory.Resize(kBytes));
  auto pinned = backend_->PinHostMemory({memory.data(), kBytes});
  if (!backend_->capabilities().pins_host_memory || !pinned.ok()) {
    EXPECT_EQ(pinned.status().code(), absl::StatusCode::kUnimplemented) << pinned.status();
  }
  const int count = kBytes / sizeof(float);
  const std::span<float> values(reinterpret_cast<float*>(memory.data()), count);
  std::iota(values.begin(), values.end(), 0.0F);
  Waiter taken;
  auto buffer = backend_->BufferFromHost(0, "", F32({count}), std::as_bytes(values),
                                         HostSemantics::kUntilTransferDone, taken.Callback());
  ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
  GANGWAY_ASSERT_OK(taken.Wait());
  Waiter ready;
  (*buffer)->OnReady(ready.Callback());
  GANGWAY_ASSERT_OK(ready.Wait());
  std::ranges::fill(values, -1.0F);
  Waiter copied;
  (*buffer)->CopyToHost(memory.data(), kBytes, copied.Callback());
  GANGWAY_ASSERT_OK(copied.Wait());
  for (int i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<float>(i));
  const bool could = pinned.ok();
  pinned = absl::CancelledError("");
  EXPECT_EQ(backend_->PinHostMemory({memory.data(), kBytes}).ok(), could) << "again";
}

TEST_P(DeviceConformance, ReadyContentsInHostMemoryAreCopiedAtOnce) {
  auto buffer = MakeBuffer(*backend_, Last(), {1, 2, 3});
  ASSERT_TRUE(buffer.ok());
  Waiter ready;
  (*buffer)->OnReady(ready.Callback());
  GANGWAY_ASSERT_OK(ready.Wait());
  std::vector<float> values(3);
  const bool copied = (*buffer)->CopyToHostNow(values.data(), 12);
  EXPECT_EQ(copied, backend_->capabilities().host_zero_copy);
  if (copied) {
    EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  }
  (*buffer)->Delete();
  EXPECT_FALSE((*buffer)->CopyToHostNow(values.data(), 12));
}

TEST_P(DeviceConformance, RefusesWrongSizesAndPlaces) {
  std::vector<float> values(4);
  auto wrong_size = backend_->BufferFromHost(0, "", F32({5}), Bytes(values),
                                             HostSemantics::kCopyDuringCall, nullptr);
  EXPECT_EQ(wrong_size.status().code(), absl::StatusCode::kInvalidArgument);
  const int absent = static_cast<int>(backend_->devices().size());
  auto no_device = backend_->BufferFromHost(absent, "", F32({4}), Bytes(values),
                                            HostSemantics::kCopyDuringCall, nullptr);
  EXPECT_EQ(no_device.status().code(), absl::StatusCode::kInvalidArgument);
  auto no_memory = backend_->BufferFromHost(0, "no_such_memory", F32({4}), Bytes(values),
                                            HostSemantics::kCopyDuringCall, nullptr);
  EXPECT_EQ(no_memory.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(backend_->CreatePlaceholder(-1, F32({4})).ok());
  EXPECT_FALSE(backend_->CreatePlaceholder(0, F32({-4})).ok());
  EXPECT_FALSE(backend_->CreatePlaceholder(0, ArraySpec{9999, {4}}).ok());
  auto buffer = MakeBuffer(*backend_, 0, values);
  ASSERT_TRUE(buffer.ok());
  Waiter copied;
  (*buffer)->CopyToHost(values.data(), 12, copied.Callback());
  EXPECT_EQ(copied.Wait().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceConformance, CopiesBetweenDevices) {
  auto buffer = MakeBuffer(*backend_, 0, {1, 2, 3});
  ASSERT_TRUE(buffer.ok());
  for (int device : {0, Last()}) {
    auto copy = (*buffer)->CopyToDevice(device, "");
    ASSERT_TRUE(copy.ok()) << copy.status().ToString();
    EXPECT_EQ((*copy)->device(), device);
    auto read = ReadFloats(**copy);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, (std::vector<float>{1, 2, 3}));
  }
}

TEST_P(DeviceConformance, CopyOfAnUnfilledPlaceholderArrivesWithItsBytes) {
  auto placeholder = backend_->CreatePlaceholder(0, F32({3}));
  ASSERT_TRUE(placeholder.ok());
  auto copy = placeholder->buffer->CopyToDevice(Last(), "");
  ASSERT_TRUE(copy.ok()) << copy.status().ToString();
  const std::vector<float> values = {4, 5, 6};
  Waiter filled;
  GANGWAY_ASSERT_OK(placeholder->filler->Fill(Bytes(values), filled.Callback()));
  GANGWAY_ASSERT_OK(filled.Wait());
  auto read = ReadFloats(**copy);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, values);
}

TEST_P(DeviceConformance, DeletedBuffersSaySo) {
  auto buffer = MakeBuffer(*backend_, 0, {1, 2, 3, 4});
  ASSERT_TRUE(buffer.ok());
  EXPECT_FALSE((*buffer)->IsDeleted());
  EXPECT_TRUE((*buffer)->OnDeviceBytes().ok());
  (*buffer)->Delete();
  (*buffer)->Delete();
  EXPECT_TRUE((*buffer)->IsDeleted());
  EXPECT_EQ(ReadFloats(**buffer).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE((*buffer)->CopyToDevice(Last(), "").ok());
  auto unary = Compile(GetParam().unary, {0});
  Buffer* argument = buffer->get();
  EXPECT_EQ(unary->ExecuteOn(0, {&argument, 1}, {}, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceConformance, PlaceholderSettlesOnce) {
  auto placeholder = backend_->CreatePlaceholder(0, F32({4}));
  ASSERT_TRUE(placeholder.ok());
  Waiter ready;
  placeholder->buffer->OnReady(ready.Callback());
  const std::vector<float> values = {1, 2, 3, 4};
  EXPECT_EQ(placeholder->filler->Fill(Bytes({1, 2}), nullptr).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ready.done());
  EXPECT_EQ(placeholder->filler->Fail(absl::OkStatus()).code(), absl::StatusCode::kInvalidArgument);
  Waiter filled;
  GANGWAY_ASSERT_OK(placeholder->filler->Fill(Bytes(values), filled.Callback()));
  EXPECT_EQ(placeholder->filler->Fill(Bytes(values), nullptr).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(placeholder->filler->Fail(absl::AbortedError("late")).code(),
            absl::StatusCode::kFailedPrecondition);
  GANGWAY_ASSERT_OK(filled.Wait());
  GANGWAY_ASSERT_OK(ready.Wait());
}

TEST_P(DeviceConformance, DroppedFillerCancelsItsBuffer) {
  auto placeholder = backend_->CreatePlaceholder(0, F32({4}));
  ASSERT_TRUE(placeholder.ok());
  Waiter ready;
  placeholder->buffer->OnReady(ready.Callback());
  placeholder->filler.reset();
  EXPECT_EQ(ready.Wait().code(), absl::StatusCode::kCancelled);
}

TEST_P(DeviceConformance, ChainOnAPlaceholderRunsWhenItFills) {
  auto unary = Compile(GetParam().unary, {Last()});
  ASSERT_NE(unary, nullptr);
  EXPECT_EQ(unary->outputs().size(), 1u);
  EXPECT_EQ(unary->outputs()[0], F32({4}));
  auto placeholder = backend_->CreatePlaceholder(Last(), F32({4}));
  ASSERT_TRUE(placeholder.ok()) << placeholder.status().ToString();
  ChainBehind chain(*backend_, *unary, placeholder->buffer.get(), 5);
  if (!backend_->capabilities().execute_waits_for_arguments) {
    placeholder->buffer.reset();  // enqueued work keeps the buffer
    for (const Waiter& waiter : chain.complete()) EXPECT_FALSE(waiter.done());
  }
  const std::vector<float> values = {1, 2, 3, 4};
  Waiter filled;
  GANGWAY_ASSERT_OK(placeholder->filler->Fill(Bytes(values), filled.Callback()));
  GANGWAY_ASSERT_OK(filled.Wait());
  ASSERT_NE(chain.last(), nullptr);
  auto read = ReadFloats(*chain.last());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, Repeat(GetParam(), values, 5));
  for (Waiter& waiter : chain.complete()) GANGWAY_ASSERT_OK(waiter.Wait());
}

TEST_P(DeviceConformance, ErrorReachesEverythingBehindItWithCodeAndText) {
  auto unary = Compile(GetParam().unary, {0});
  ASSERT_NE(unary, nullptr);
  auto placeholder = backend_->CreatePlaceholder(0, F32({4}));
  ASSERT_TRUE(placeholder.ok());
  ChainBehind chain(*backend_, *unary, placeholder->buffer.get(), 3);
  GANGWAY_ASSERT_OK(
      placeholder->filler->Fail(absl::DataLossError("worker w7 died; its arrays are lost")));
  ASSERT_NE(chain.last(), nullptr);
  Waiter ready;
  chain.last()->OnReady(ready.Callback());
  const absl::Status status = ready.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status.ToString();
  EXPECT_NE(std::string(status.message()).find("worker w7 died"), std::string::npos)
      << status.ToString();
  EXPECT_EQ(ReadFloats(*chain.last()).status().code(), absl::StatusCode::kDataLoss);
  for (Waiter& waiter : chain.complete())
    EXPECT_EQ(waiter.Wait().code(), absl::StatusCode::kDataLoss);

  auto born_bad = backend_->CreateErrorBuffer(0, F32({4}), absl::DeadlineExceededError("late"));
  ASSERT_TRUE(born_bad.ok()) << born_bad.status().ToString();
  EXPECT_EQ(ReadFloats(**born_bad).status().code(), absl::StatusCode::kDeadlineExceeded);
  // The device still works.
  auto good = MakeBuffer(*backend_, 0, {1, 2, 3, 4});
  std::vector<Waiter> more;
  const std::unique_ptr<Buffer> last = Chain(*unary, good->get(), 1, &more);
  EXPECT_TRUE(ReadFloats(*last).ok());
}

TEST_P(DeviceConformance, DonationConsumesTheArgumentUnlessForbidden) {
  auto donating = Compile(GetParam().donating, {0});
  ASSERT_NE(donating, nullptr);
  const std::vector<float> values = {1, 2, 3, 4};
  const auto want = GetParam().expected(GetParam().donating, {{values}}, 0)[0];
  for (bool forbid : {false, true}) {
    auto argument = MakeBuffer(*backend_, 0, values);
    ASSERT_TRUE(argument.ok());
    ExecuteOptions options;
    if (forbid) options.non_donatable = {0};
    Buffer* pointer = argument->get();
    auto outputs = donating->ExecuteOn(0, {&pointer, 1}, options, nullptr);
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    EXPECT_EQ((*argument)->IsDeleted(), !forbid);
    auto read = ReadFloats(*(*outputs)[0]);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, want);
    if (forbid) {
      EXPECT_EQ(*ReadFloats(**argument), values)
          << "the forbidden donation wrote over its argument";
    } else {
      EXPECT_EQ(donating->ExecuteOn(0, {&pointer, 1}, options, nullptr).status().code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST_P(DeviceConformance, SeveralInputsAndOutputs) {
  auto binary = Compile(GetParam().binary, {Last()});
  ASSERT_NE(binary, nullptr);
  const Arguments inputs = {{1, 2, 3, 4}, {10, 20, 30, 40}};
  BufferList arguments;
  for (const auto& values : inputs) arguments.push_back(*MakeBuffer(*backend_, Last(), values));
  auto outputs = binary->ExecuteOn(Last(), Pointers(arguments), {}, nullptr);
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  ASSERT_EQ(outputs->size(), 2u);
  const Arguments want = GetParam().expected(GetParam().binary, {inputs}, 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*ReadFloats(*(*outputs)[i]), want[i]);
}

TEST_P(DeviceConformance, RefusesWrongArguments) {
  GANGWAY_NEED_DEVICES(2);
  auto binary = Compile(GetParam().binary, {1});
  ASSERT_NE(binary, nullptr);
  auto good = MakeBuffer(*backend_, 1, {1, 2, 3, 4});
  auto elsewhere = MakeBuffer(*backend_, 0, {1, 2, 3, 4});
  auto longer = MakeBuffer(*backend_, 1, {1, 2, 3, 4, 5});
  auto run = [&](int device, std::vector<Buffer*> arguments) {
    return binary->ExecuteOn(device, arguments, {}, nullptr).status().code();
  };
  EXPECT_EQ(run(1, {good->get()}), absl::StatusCode::kInvalidArgument) << "one argument too few";
  EXPECT_EQ(run(1, {good->get(), elsewhere->get()}), absl::StatusCode::kInvalidArgument)
      << "on another device";
  EXPECT_EQ(run(0, {elsewhere->get(), elsewhere->get()}), absl::StatusCode::kInvalidArgument)
      << "not loaded on this device";
  EXPECT_EQ(run(1, {good->get(), longer->get()}), absl::StatusCode::kInvalidArgument) << "too long";
  EXPECT_EQ(run(1, {good->get(), good->get()}), absl::StatusCode::kOk);
}

TEST_P(DeviceConformance, RefusesBadProgramsOptionsAndPlacements) {
  const TestProgram& unary = GetParam().unary;
  auto code = [&](std::string program, std::string options, std::vector<int> devices) {
    return backend_->Compile({program, unary.format}, options, devices).status().code();
  };
  EXPECT_NE(code("not a program at all", unary.compile_options, {0}), absl::StatusCode::kOk);
  EXPECT_EQ(code(unary.code, unary.compile_options, {0, Last()}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(unary.code, unary.compile_options, {static_cast<int>(backend_->devices().size())}),
            absl::StatusCode::kInvalidArgument);
  const TestProgram pair = GetParam().gang(2);
  auto twice = backend_->Compile({pair.code, pair.format}, pair.compile_options,
                                 std::vector<int>{Last(), Last()});
  EXPECT_EQ(twice.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backend_->Load("no executable", {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  auto unknown_format =
      backend_->Compile({unary.code, "no_such_format"}, unary.compile_options, {});
  EXPECT_FALSE(unknown_format.ok());
}

// Runs a gang on executable->devices(), one thread per device, and checks every output. `launch`: chooses the inputs.
// An output may be there before its launch has ended, so no launch id comes twice.
void RunGang(Backend& backend, const Subject& subject, const TestProgram& program,
             Executable& executable, int launch) {
  static int last_launch_id = 0;
  const int launch_id = ++last_launch_id;
  const int count = static_cast<int>(executable.devices().size());
  std::vector<Arguments> inputs;
  for (int i = 0; i < count; ++i) inputs.push_back({{static_cast<float>(i + 10 * launch)}});
  std::vector<absl::StatusOr<std::vector<float>>> results(count, absl::UnknownError("did not run"));
  OnThreads(count, [&](int position) {
    const int device = executable.devices()[position];
    auto argument = MakeBuffer(backend, device, inputs[position][0]);
    if (!argument.ok()) return;
    Buffer* pointer = argument->get();
    ExecuteOptions options;
    options.launch_id = launch_id;
    auto outputs = executable.ExecuteOn(device, {&pointer, 1}, options, nullptr);
    results[position] = outputs.ok() ? ReadFloats(*(*outputs)[0]) : outputs.status();
  });
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(results[i].ok()) << results[i].status().ToString();
    EXPECT_EQ(*results[i], subject.expected(program, inputs, i)[0]) << "position " << i;
  }
}

TEST_P(DeviceConformance, GangRunsOnePerDeviceThread) {
  const TestProgram program = GetParam().gang(device_count_);
  auto executable = Compile(program, AllDevices());
  ASSERT_NE(executable, nullptr);
  EXPECT_EQ(executable->num_partitions() * executable->num_replicas(), device_count_);
  for (int launch = 1; launch <= 5; ++launch)
    RunGang(*backend_, GetParam(), program, *executable, launch);
}

TEST_P(DeviceConformance, LoadsOnAnotherDevice) {
  auto unary = Compile(GetParam().unary, {0});
  ASSERT_NE(unary, nullptr);
  auto bytes = unary->Serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  auto moved = backend_->Load(*bytes, std::vector<int>{Last()});
  ASSERT_TRUE(moved.ok()) << moved.status().ToString();
  auto argument = MakeBuffer(*backend_, Last(), {1, 2, 3, 4});
  Buffer* pointer = argument->get();
  auto outputs = (*moved)->ExecuteOn(Last(), {&pointer, 1}, {}, nullptr);
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ(*ReadFloats(*(*outputs)[0]), Repeat(GetParam(), {1, 2, 3, 4}, 1));
}

TEST_P(DeviceConformance, LoadsOnAnyOrderedListOfDevices) {
  GANGWAY_NEED_DEVICES(8);
  const TestProgram program = GetParam().gang(4);
  auto gang = Compile(program, {0, 1, 2, 3});
  ASSERT_NE(gang, nullptr);
  auto bytes = gang->Serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  for (const std::vector<int>& devices :
       std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {6, 1, 7, 0}}) {
    auto loaded = backend_->Load(*bytes, devices);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_EQ(std::vector<int>((*loaded)->devices().begin(), (*loaded)->devices().end()), devices);
    EXPECT_EQ((*loaded)->outputs()[0], F32({1}));
    RunGang(*backend_, GetParam(), program, **loaded, 1);
  }
  EXPECT_EQ(backend_->Load(*bytes, std::vector<int>{0, 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceConformance, FillsItsWindowOnPlaceholders) {
  auto unary = Compile(GetParam().unary, {0});
  ASSERT_NE(unary, nullptr);
  auto placeholder = backend_->CreatePlaceholder(0, F32({4}));
  ASSERT_TRUE(placeholder.ok());
  const int window = backend_->capabilities().inflight_max;
  ChainBehind chain(*backend_, *unary, placeholder->buffer.get(), window);
  const std::vector<float> values = {0, 0, 0, 0};
  Waiter filled;
  GANGWAY_ASSERT_OK(placeholder->filler->Fill(Bytes(values), filled.Callback()));
  GANGWAY_ASSERT_OK(filled.Wait());
  ASSERT_NE(chain.last(), nullptr);
  EXPECT_EQ(*ReadFloats(*chain.last()), Repeat(GetParam(), values, window));
}

TEST_P(DeviceConformance, DevicesDoNotWaitForEachOther) {
  GANGWAY_NEED_DEVICES(2);
  auto first = Compile(GetParam().unary, {0});
  auto second = Compile(GetParam().unary, {1});
  ASSERT_TRUE(first && second);
  auto placeholder = backend_->CreatePlaceholder(0, F32({4}));
  ChainBehind blocked(*backend_, *first, placeholder->buffer.get(), 2);
  auto argument = MakeBuffer(*backend_, 1, {1, 2, 3, 4});
  std::vector<Waiter> complete;
  auto free = Chain(*second, argument->get(), 2, &complete);
  EXPECT_TRUE(ReadFloats(*free).ok());
  if (!backend_->capabilities().execute_waits_for_arguments) {
    EXPECT_FALSE(blocked.complete()[0].done());
  }
  placeholder->filler.reset();
  EXPECT_EQ(blocked.complete()[1].Wait().code(), absl::StatusCode::kCancelled);
}

TEST_P(DeviceConformance, DescribesExecutables) {
  auto binary = Compile(GetParam().binary, {0});
  ASSERT_NE(binary, nullptr);
  EXPECT_FALSE(binary->name().empty());
  EXPECT_EQ(binary->num_outputs(), 2);
  auto stats = binary->GetMemoryStats();
  if (stats.ok()) {
    EXPECT_GE(stats->argument_bytes, 32);
    EXPECT_GE(stats->output_bytes, 32);
  } else {
    EXPECT_EQ(stats.status().code(), absl::StatusCode::kUnimplemented);
  }
  auto donating = Compile(GetParam().donating, {0});
  stats = donating->GetMemoryStats();
  if (stats.ok()) {
    EXPECT_EQ(stats->alias_bytes, 16);
  }
  const absl::Status costs = binary->GetCostAnalysis().status();
  EXPECT_TRUE(costs.ok() || absl::IsUnimplemented(costs)) << costs.ToString();
  auto optimized = binary->OptimizedProgram();
  ASSERT_TRUE(optimized.ok()) << optimized.status().ToString();
  EXPECT_FALSE(optimized->empty());
}

TEST_P(DeviceConformance, SameInputsGiveTheSameBits) {
  auto binary = Compile(GetParam().binary, {0});
  ASSERT_NE(binary, nullptr);
  std::vector<std::vector<float>> seen;
  for (int run = 0; run < 3; ++run) {
    BufferList arguments;
    arguments.push_back(*MakeBuffer(*backend_, 0, {0.1f, 0.2f, 0.3f, 0.4f}));
    arguments.push_back(*MakeBuffer(*backend_, 0, {1e-8f, 3.3f, -7.1f, 1e20f}));
    auto outputs = binary->ExecuteOn(0, Pointers(arguments), {}, nullptr);
    ASSERT_TRUE(outputs.ok());
    seen.push_back(*ReadFloats(*(*outputs)[1]));
  }
  EXPECT_EQ(std::memcmp(seen[0].data(), seen[1].data(), 16), 0);
  EXPECT_EQ(std::memcmp(seen[0].data(), seen[2].data(), 16), 0);
}

}  // namespace

}  // namespace gangway::device
