// Buffers: what they say of themselves, bytes from and to host memory, copies, their end, and pointers to their bytes.
#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <numeric>

#include "tests/native/conformance/plugin.h"

namespace conformance {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class BuffersTest : public Conformance {
 protected:
  static std::vector<float> Count(size_t size, float first = 0) {
    std::vector<float> values(size);
    std::iota(values.begin(), values.end(), first);
    return values;
  }

  std::vector<int64_t> Dims(const Buffer& buffer) const {
    auto args = Make<PJRT_Buffer_Dimensions_Args>();
    args.buffer = buffer.get();
    Do(Api().PJRT_Buffer_Dimensions, args);
    return {args.dims, args.dims + args.num_dims};
  }

  Said CopyRaw(const Buffer& buffer, void* to, int64_t offset, int64_t size) const {
    auto copy = Make<PJRT_Buffer_CopyRawToHost_Args>();
    copy.buffer = buffer.get();
    copy.dst = to;
    copy.offset = offset;
    copy.transfer_size = size;
    const Said said = Ask(Api().PJRT_Buffer_CopyRawToHost, copy);
    return said.ok() ? Await(Event(copy.event)) : said;
  }

  Said ReadAs(const Buffer& buffer, PJRT_Buffer_MemoryLayout* layout,
              std::vector<float>& to) const {
    auto read = Make<PJRT_Buffer_ToHostBuffer_Args>();
    read.src = buffer.get();
    read.host_layout = layout;
    read.dst = to.data();
    read.dst_size = to.size() * sizeof(float);
    const Said said = Ask(Api().PJRT_Buffer_ToHostBuffer, read);
    return said.ok() ? Await(Event(read.event)) : said;
  }
};

PJRT_Buffer_MemoryLayout Tiled(const std::vector<int64_t>& minor_to_major) {
  auto layout = Make<PJRT_Buffer_MemoryLayout>();
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled = Make<PJRT_Buffer_MemoryLayout_Tiled>();
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  return layout;
}

PJRT_Buffer_MemoryLayout Strided(const std::vector<int64_t>& byte_strides) {
  auto layout = Make<PJRT_Buffer_MemoryLayout>();
  layout.type = PJRT_Buffer_MemoryLayout_Type_Strides;
  layout.strides = Make<PJRT_Buffer_MemoryLayout_Strides>();
  layout.strides.byte_strides = byte_strides.data();
  layout.strides.num_byte_strides = byte_strides.size();
  return layout;
}

TEST_F(BuffersTest, SayWhatTheyAre) {
  const Buffer buffer = Upload(Count(6), {2, 3}, 1);
  auto type = Make<PJRT_Buffer_ElementType_Args>();
  type.buffer = buffer.get();
  Do(Api().PJRT_Buffer_ElementType, type);
  EXPECT_EQ(type.type, PJRT_Buffer_Type_F32);
  EXPECT_THAT(Dims(buffer), ElementsAre(2, 3));
  auto unpadded = Make<PJRT_Buffer_UnpaddedDimensions_Args>();
  unpadded.buffer = buffer.get();
  Do(Api().PJRT_Buffer_UnpaddedDimensions, unpadded);
  EXPECT_THAT(std::span(unpadded.unpadded_dims, unpadded.num_dims), ElementsAre(2, 3));
  auto dynamic = Make<PJRT_Buffer_DynamicDimensionIndices_Args>();
  dynamic.buffer = buffer.get();
  Do(Api().PJRT_Buffer_DynamicDimensionIndices, dynamic);
  EXPECT_EQ(dynamic.num_dynamic_dims, 0u);
  auto layout = Make<PJRT_Buffer_GetMemoryLayout_Args>();
  layout.buffer = buffer.get();
  Do(Api().PJRT_Buffer_GetMemoryLayout, layout);
  ASSERT_EQ(layout.layout.type, PJRT_Buffer_MemoryLayout_Type_Tiled);
  const auto& tiled = layout.layout.tiled;
  EXPECT_THAT(std::span(tiled.minor_to_major, tiled.minor_to_major_size), ElementsAre(1, 0));
  EXPECT_EQ(tiled.num_tiles, 0u);
  auto size = Make<PJRT_Buffer_OnDeviceSizeInBytes_Args>();
  size.buffer = buffer.get();
  Do(Api().PJRT_Buffer_OnDeviceSizeInBytes, size);
  EXPECT_EQ(size.on_device_size_in_bytes, 24u);
  auto where = Make<PJRT_Buffer_Device_Args>();
  where.buffer = buffer.get();
  Do(Api().PJRT_Buffer_Device, where);
  EXPECT_EQ(where.device, device(1));
  auto memory = Make<PJRT_Buffer_Memory_Args>();
  memory.buffer = buffer.get();
  Do(Api().PJRT_Buffer_Memory, memory);
  EXPECT_EQ(memory.memory, Memory(device(1)));
  auto on_cpu = Make<PJRT_Buffer_IsOnCpu_Args>();
  on_cpu.buffer = buffer.get();
  Do(Api().PJRT_Buffer_IsOnCpu, on_cpu);
  EXPECT_TRUE(on_cpu.is_on_cpu);
}

TEST_F(BuffersTest, ReturnTheirBytesInEverySemantics) {
  const std::vector<float> values = Count(12);
  for (auto semantics :
       {PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
        PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
        PJRT_HostBufferSemantics_kImmutableZeroCopy, PJRT_HostBufferSemantics_kMutableZeroCopy}) {
    // As the caller promised: unchanged for as long as the semantics say.
    alignas(64) std::array<float, 12> memory{};
    std::copy(values.begin(), values.end(), memory.begin());
    const int64_t dims[] = {3, 4};
    auto upload = UploadOf(memory.data(), PJRT_Buffer_Type_F32, dims);
    upload.host_buffer_semantics = semantics;
    Buffer buffer = Upload(upload);
    if (semantics == PJRT_HostBufferSemantics_kImmutableOnlyDuringCall) memory.fill(-1);
    EXPECT_EQ(Values<float>(buffer), values) << semantics;
    buffer.reset();
  }
}

TEST_F(BuffersTest, OfEveryTypeReturnTheirBytes) {
  struct Type {
    PJRT_Buffer_Type type;
    size_t bytes;
  };
  for (const auto& [type, bytes] : std::initializer_list<Type>{
           {PJRT_Buffer_Type_PRED, 1},       {PJRT_Buffer_Type_S8, 1},
           {PJRT_Buffer_Type_S16, 2},        {PJRT_Buffer_Type_S32, 4},
           {PJRT_Buffer_Type_S64, 8},        {PJRT_Buffer_Type_U8, 1},
           {PJRT_Buffer_Type_U16, 2},        {PJRT_Buffer_Type_U32, 4},
           {PJRT_Buffer_Type_U64, 8},        {PJRT_Buffer_Type_F16, 2},
           {PJRT_Buffer_Type_F32, 4},        {PJRT_Buffer_Type_F64, 8},
           {PJRT_Buffer_Type_BF16, 2},       {PJRT_Buffer_Type_C64, 8},
           {PJRT_Buffer_Type_C128, 16},      {PJRT_Buffer_Type_F8E5M2, 1},
           {PJRT_Buffer_Type_F8E4M3FN, 1},   {PJRT_Buffer_Type_F8E4M3B11FNUZ, 1},
           {PJRT_Buffer_Type_F8E5M2FNUZ, 1}, {PJRT_Buffer_Type_F8E4M3FNUZ, 1},
           {PJRT_Buffer_Type_S4, 1},         {PJRT_Buffer_Type_U4, 1},
           {PJRT_Buffer_Type_S2, 1},         {PJRT_Buffer_Type_U2, 1},
           {PJRT_Buffer_Type_F8E4M3, 1},     {PJRT_Buffer_Type_F8E3M4, 1},
           {PJRT_Buffer_Type_F8E8M0FNU, 1},  {PJRT_Buffer_Type_F4E2M1FN, 1}}) {
    std::string data(8 * bytes, '\0');
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i % 2);  // of any type
    const int64_t dims[] = {8};
    const Buffer buffer = Upload(UploadOf(data.data(), type, dims));
    ASSERT_NE(buffer, nullptr) << type;
    auto said = Make<PJRT_Buffer_ElementType_Args>();
    said.buffer = buffer.get();
    Do(Api().PJRT_Buffer_ElementType, said);
    EXPECT_EQ(said.type, type);
    std::string read(data.size(), '?');
    EXPECT_TRUE(Read(buffer.get(), read.data(), read.size()).ok()) << type;
    EXPECT_EQ(read, data) << type;
  }
}

TEST_F(BuffersTest, OfNoTypeOrTokensAreErrors) {
  const int64_t dims[] = {1};
  const double data = 0;
  for (auto type : {PJRT_Buffer_Type_INVALID, static_cast<PJRT_Buffer_Type>(1000),
                    static_cast<PJRT_Buffer_Type>(-1)}) {
    if (!Runs(Topic::kUnknownType)) continue;
    auto upload = UploadOf(&data, type, dims);
    EXPECT_FALSE(Ask(Api().PJRT_Client_BufferFromHostBuffer, upload).ok()) << type;
  }
}

TEST_F(BuffersTest, OfAnyRank) {
  const Buffer scalar = Upload(std::vector<float>{7}, std::vector<int64_t>{});
  EXPECT_THAT(Dims(scalar), ElementsAre());
  EXPECT_THAT(Values<float>(scalar), ElementsAre(7));
  const Buffer empty = Upload(std::vector<float>{}, {4, 0, 3});
  EXPECT_THAT(Dims(empty), ElementsAre(4, 0, 3));
  EXPECT_TRUE(Ready(empty).ok());
  EXPECT_TRUE(Read(empty.get(), nullptr, 0).ok());
  const Buffer deep = Upload(Count(16), std::vector<int64_t>{2, 1, 2, 1, 2, 1, 2});
  EXPECT_EQ(Values<float>(deep), Count(16));
}

TEST_F(BuffersTest, LargeOnesReturnTheirBytes) {
  const std::vector<float> values = Count(1 << 20);  // 4 MiB
  const Buffer buffer = Upload(values);
  EXPECT_EQ(Values<float>(buffer), values);
}

struct StrideCase {
  const char* name;
  std::vector<int64_t> dims, strides;
  size_t first;  // element of the source at index 0
  std::vector<float> expected;
};

TEST_F(BuffersTest, FromMemoryInAnyStrides) {
  const std::vector<float> memory = Count(24);
  const StrideCase cases[] = {
      {"transposed", {3, 2}, {4, 12}, 0, {0, 3, 1, 4, 2, 5}},
      {"every second", {4}, {8}, 1, {1, 3, 5, 7}},
      {"reversed", {4}, {-4}, 3, {3, 2, 1, 0}},
      {"reversed rows", {2, 3}, {-12, 4}, 3, {3, 4, 5, 0, 1, 2}},
      {"broadcast", {2, 3}, {0, 4}, 5, {5, 6, 7, 5, 6, 7}},
      {"padded rows", {2, 2}, {20, 4}, 0, {0, 1, 5, 6}},
      {"dense", {2, 3}, {12, 4}, 0, {0, 1, 2, 3, 4, 5}},
      {"one row of any stride", {1, 3}, {1000, 4}, 0, {0, 1, 2}},
  };
  for (const StrideCase& each : cases) {
    auto upload = UploadOf(memory.data() + each.first, PJRT_Buffer_Type_F32, each.dims);
    upload.byte_strides = each.strides.data();
    upload.num_byte_strides = each.strides.size();
    const Buffer buffer = Upload(upload);
    EXPECT_EQ(Values<float>(buffer), each.expected) << each.name;
  }
}

TEST_F(BuffersTest, ToAMemoryOrADevice) {
  const std::vector<float> values = Count(4);
  const int64_t dims[] = {4};
  for (const char* kind : {"device", "pinned_host", "unpinned_host"}) {
    auto upload = UploadOf(values.data(), PJRT_Buffer_Type_F32, dims);
    upload.device = nullptr;
    upload.memory = Memory(device(2), kind);
    const Buffer buffer = Upload(upload);
    auto memory = Make<PJRT_Buffer_Memory_Args>();
    memory.buffer = buffer.get();
    Do(Api().PJRT_Buffer_Memory, memory);
    EXPECT_EQ(memory.memory, upload.memory) << kind;
    EXPECT_EQ(Values<float>(buffer), values);
  }
}

TEST_F(BuffersTest, WithALayoutOnTheDevice) {
  const std::vector<float> values = Count(6);
  const int64_t dims[] = {2, 3};
  const std::vector<int64_t> row_major = {1, 0}, column_major = {0, 1};
  auto layout = Tiled(row_major);
  auto upload = UploadOf(values.data(), PJRT_Buffer_Type_F32, dims);
  upload.device_layout = &layout;
  EXPECT_EQ(Values<float>(Upload(upload)), values);

  layout = Tiled(column_major);
  const Buffer buffer = Upload(upload);
  EXPECT_THAT(Values<float>(buffer), ElementsAre(0, 3, 1, 4, 2, 5)) << "as they lie there";
  std::vector<float> read(3);
  const Said said = CopyRaw(buffer, read.data(), 4, 12);
  ASSERT_TRUE(said.ok()) << said.message;
  EXPECT_THAT(read, ElementsAre(3, 1, 4));
  auto pointer = Make<PJRT_Buffer_UnsafePointer_Args>();
  pointer.buffer = buffer.get();
  Do(Api().PJRT_Buffer_UnsafePointer, pointer);
  EXPECT_THAT(std::span(reinterpret_cast<const float*>(pointer.buffer_pointer), 6),
              ElementsAre(0, 3, 1, 4, 2, 5));
  auto lies = Make<PJRT_Buffer_GetMemoryLayout_Args>();
  lies.buffer = buffer.get();
  Do(Api().PJRT_Buffer_GetMemoryLayout, lies);
  EXPECT_THAT(std::span(lies.layout.tiled.minor_to_major, lies.layout.tiled.minor_to_major_size),
              ElementsAre(0, 1));
}

TEST_F(BuffersTest, ToHostMemoryInALayoutOfTheCallers) {
  const Buffer buffer = Upload(Count(6), {2, 3});
  std::vector<float> read(6);
  const std::vector<int64_t> row_major = {1, 0}, column_major = {0, 1};
  auto layout = Tiled(row_major);
  EXPECT_TRUE(ReadAs(buffer, &layout, read).ok());
  EXPECT_THAT(read, ElementsAre(0, 1, 2, 3, 4, 5));
  layout = Tiled(column_major);
  EXPECT_TRUE(ReadAs(buffer, &layout, read).ok());
  if (Runs(Topic::kHostLayout)) {
    EXPECT_THAT(read, ElementsAre(0, 3, 1, 4, 2, 5));
  }
  const std::vector<int64_t> strides = {4, 8};
  layout = Strided(strides);
  std::fill(read.begin(), read.end(), -1.0f);
  const Said said = ReadAs(buffer, &layout, read);
  EXPECT_EQ(said.code, Expected(Topic::kStridesToHost)) << said.message;
  if (said.ok()) {
    EXPECT_THAT(read, ElementsAre(0, 3, 1, 4, 2, 5));
  }
}

TEST_F(BuffersTest, ToHostMemoryThatIsTooSmall) {
  const Buffer buffer = Upload(Count(6));
  std::vector<float> read(5);
  EXPECT_EQ(Read(buffer.get(), read.data(), read.size() * sizeof(float)).code,
            PJRT_Error_Code_INVALID_ARGUMENT);
  std::vector<float> large(10, -1);
  EXPECT_TRUE(Read(buffer.get(), large.data(), large.size() * sizeof(float)).ok());
  EXPECT_THAT(large, ElementsAre(0, 1, 2, 3, 4, 5, -1, -1, -1, -1));
}

TEST_F(BuffersTest, GiveARangeOfTheirBytes) {
  const Buffer buffer = Upload(std::vector<uint8_t>{10, 11, 12, 13, 14, 15});
  std::array<uint8_t, 6> read{};
  EXPECT_TRUE(CopyRaw(buffer, read.data(), 0, 6).ok());
  EXPECT_THAT(read, ElementsAre(10, 11, 12, 13, 14, 15));
  read.fill(0);
  EXPECT_TRUE(CopyRaw(buffer, read.data(), 2, 3).ok());
  EXPECT_THAT(read, ElementsAre(12, 13, 14, 0, 0, 0));
  EXPECT_TRUE(CopyRaw(buffer, read.data(), 6, 0).ok());
  for (const auto& [offset, size] : {std::pair<int64_t, int64_t>{-1, 2},
                                     {0, 7},
                                     {5, 2},
                                     {7, 0},
                                     {0, -1},
                                     {std::numeric_limits<int64_t>::max(), 2}}) {
    EXPECT_EQ(CopyRaw(buffer, read.data(), offset, size).code, PJRT_Error_Code_INVALID_ARGUMENT)
        << offset << ", " << size;
  }
}

TEST_F(BuffersTest, AreCopiedToDevicesAndMemories) {
  const Buffer buffer = Upload(Count(4));
  auto to_device = Make<PJRT_Buffer_CopyToDevice_Args>();
  to_device.buffer = buffer.get();
  to_device.dst_device = device(3);
  Do(Api().PJRT_Buffer_CopyToDevice, to_device);
  const Buffer there(to_device.dst_buffer);
  EXPECT_EQ(Values<float>(there), Count(4));
  auto where = Make<PJRT_Buffer_Device_Args>();
  where.buffer = there.get();
  Do(Api().PJRT_Buffer_Device, where);
  EXPECT_EQ(where.device, device(3));
  for (size_t to : {0u, 3u}) {
    for (PJRT_Memory* memory : Memories(device(to))) {
      auto to_memory = Make<PJRT_Buffer_CopyToMemory_Args>();
      to_memory.buffer = buffer.get();
      to_memory.dst_memory = memory;
      Do(Api().PJRT_Buffer_CopyToMemory, to_memory);
      const Buffer copy(to_memory.dst_buffer);
      auto of = Make<PJRT_Buffer_Memory_Args>();
      of.buffer = copy.get();
      Do(Api().PJRT_Buffer_Memory, of);
      EXPECT_EQ(of.memory, memory);
      EXPECT_EQ(Values<float>(copy), Count(4));
    }
  }
  EXPECT_FALSE(IsDeleted(buffer));
}

TEST_F(BuffersTest, CopiesOutliveTheirSource) {
  Buffer buffer = Upload(Count(4));
  auto copy = Make<PJRT_Buffer_CopyToDevice_Args>();
  copy.buffer = buffer.get();
  copy.dst_device = device(5);
  Do(Api().PJRT_Buffer_CopyToDevice, copy);
  const Buffer there(copy.dst_buffer);
  Delete(buffer);
  buffer.reset();
  EXPECT_EQ(Values<float>(there), Count(4));
}

TEST_F(BuffersTest, BecomeReady) {
  const Buffer buffer = Upload(Count(4));
  auto ready = Make<PJRT_Buffer_ReadyEvent_Args>();
  ready.buffer = buffer.get();
  Do(Api().PJRT_Buffer_ReadyEvent, ready);
  const Event event(ready.event);
  EXPECT_TRUE(Await(event).ok());
  EXPECT_TRUE(IsReady(event));
}

TEST_F(BuffersTest, DeletedOnesSayWhatTheyWere) {
  const Buffer buffer = Upload(Count(6), {2, 3});
  EXPECT_FALSE(IsDeleted(buffer));
  Delete(buffer);
  EXPECT_TRUE(IsDeleted(buffer));
  Delete(buffer);
  EXPECT_TRUE(IsDeleted(buffer));
  EXPECT_THAT(Dims(buffer), ElementsAre(2, 3));
  auto where = Make<PJRT_Buffer_Device_Args>();
  where.buffer = buffer.get();
  Do(Api().PJRT_Buffer_Device, where);
  EXPECT_EQ(where.device, device());
}

TEST_F(BuffersTest, DeletedOnesHaveNoBytes) {
  const Buffer buffer = Upload(Count(4));
  Delete(buffer);
  std::vector<float> read(4);
  const Said said = Read(buffer.get(), read.data(), 16);
  EXPECT_FALSE(said.ok());
  EXPECT_THAT(said.message, HasSubstr("deleted or donated"));
  EXPECT_FALSE(CopyRaw(buffer, read.data(), 0, 16).ok());
  auto to_device = Make<PJRT_Buffer_CopyToDevice_Args>();
  to_device.buffer = buffer.get();
  to_device.dst_device = device(1);
  EXPECT_FALSE(Ask(Api().PJRT_Buffer_CopyToDevice, to_device).ok());
  auto to_memory = Make<PJRT_Buffer_CopyToMemory_Args>();
  to_memory.buffer = buffer.get();
  to_memory.dst_memory = Memory(device(1));
  EXPECT_FALSE(Ask(Api().PJRT_Buffer_CopyToMemory, to_memory).ok());
  const Said ready = Ready(buffer);
  EXPECT_EQ(ready.code, PJRT_Error_Code_INVALID_ARGUMENT) << ready.message;
  auto reference = Make<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
  reference.buffer = buffer.get();
  EXPECT_FALSE(Ask(Api().PJRT_Buffer_IncreaseExternalReferenceCount, reference).ok());
}

TEST_F(BuffersTest, ReferencesHoldTheBytesOfAPointer) {
  const Buffer buffer = Upload(Count(4, 1));
  ASSERT_TRUE(Ready(buffer).ok());
  auto increase = Make<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
  increase.buffer = buffer.get();
  Do(Api().PJRT_Buffer_IncreaseExternalReferenceCount, increase);
  Do(Api().PJRT_Buffer_IncreaseExternalReferenceCount, increase);
  auto pointer = Make<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args>();
  pointer.buffer = buffer.get();
  Do(Api().PJRT_Buffer_OpaqueDeviceMemoryDataPointer, pointer);
  const auto* const values = static_cast<const float*>(pointer.device_memory_ptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(values) % 64, 0u);
  EXPECT_THAT(std::span(values, 4), ElementsAre(1, 2, 3, 4));
  auto decrease = Make<PJRT_Buffer_DecreaseExternalReferenceCount_Args>();
  decrease.buffer = buffer.get();
  Do(Api().PJRT_Buffer_DecreaseExternalReferenceCount, decrease);
  Delete(buffer);
  EXPECT_THAT(std::span(values, 4), ElementsAre(1, 2, 3, 4)) << "one reference is left";
  Do(Api().PJRT_Buffer_DecreaseExternalReferenceCount, decrease);
  EXPECT_EQ(Ask(Api().PJRT_Buffer_DecreaseExternalReferenceCount, decrease).code,
            Expected(Topic::kNoReference));
}

TEST_F(BuffersTest, PointersWithoutAReferenceLastAsLongAsTheBuffer) {
  const Buffer buffer = Upload(Count(4, 1));
  ASSERT_TRUE(Ready(buffer).ok());
  auto pointer = Make<PJRT_Buffer_UnsafePointer_Args>();
  pointer.buffer = buffer.get();
  Do(Api().PJRT_Buffer_UnsafePointer, pointer);
  const auto* const values = reinterpret_cast<const float*>(pointer.buffer_pointer);
  ASSERT_NE(values, nullptr);
  EXPECT_EQ(pointer.buffer_pointer % 64, 0u);
  EXPECT_THAT(std::span(values, 4), ElementsAre(1, 2, 3, 4));
  auto reference = Make<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
  reference.buffer = buffer.get();
  Do(Api().PJRT_Buffer_IncreaseExternalReferenceCount, reference);
  auto end = Make<PJRT_Buffer_DecreaseExternalReferenceCount_Args>();
  end.buffer = buffer.get();
  Do(Api().PJRT_Buffer_DecreaseExternalReferenceCount, end);
  const Buffer other =
      Upload(Count(4, 9));  // which may be where those bytes were, if they are not kept
  EXPECT_EQ(Values<float>(other), Count(4, 9));
  EXPECT_THAT(std::span(values, 4), ElementsAre(1, 2, 3, 4));
  Do(Api().PJRT_Buffer_UnsafePointer, pointer);
  EXPECT_EQ(pointer.buffer_pointer, reinterpret_cast<uintptr_t>(values));
  Delete(buffer);
  EXPECT_FALSE(Ask(Api().PJRT_Buffer_UnsafePointer, pointer).ok());
}

class Views : public BuffersTest {
 protected:
  // Of f32[2, 3] at `memory`, whose end is counted.
  PJRT_Client_CreateViewOfDeviceBuffer_Args ViewOf(void* memory) {
    static constexpr std::array<int64_t, 2> kDims = {2, 3};
    auto view = Make<PJRT_Client_CreateViewOfDeviceBuffer_Args>();
    view.client = client();
    view.device_buffer_ptr = memory;
    view.dims = kDims.data();
    view.num_dims = kDims.size();
    view.element_type = PJRT_Buffer_Type_F32;
    view.device = device();
    view.memory = Memory(device());
    // Optional in the header, but the CPU plugin calls it always.
    view.on_delete_callback = [](void* at, void* self) {
      static_cast<Views*>(self)->ended_.set_value(at);  // a second time ends the process
    };
    view.on_delete_callback_arg = this;
    return view;
  }

  std::promise<void*> ended_;  // the CPU plugin ends views on threads of its own
};

TEST_F(Views, OfTheCallersMemory) {
  alignas(64) float memory[6] = {1, 2, 3, 4, 5, 6};
  auto view = ViewOf(memory);
  const std::vector<int64_t> row_major = {1, 0};
  auto layout = Tiled(row_major);
  view.layout = &layout;
  Do(Api().PJRT_Client_CreateViewOfDeviceBuffer, view);
  Buffer buffer(view.buffer);
  EXPECT_THAT(Dims(buffer), ElementsAre(2, 3));
  EXPECT_THAT(Values<float>(buffer), ElementsAre(1, 2, 3, 4, 5, 6));
  buffer.reset();
  std::future<void*> ended = ended_.get_future();
  ASSERT_EQ(ended.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(ended.get(), memory);
}

TEST_F(Views, LieAsTheirLayoutSays) {
  if (!Runs(Topic::kHostLayout)) GTEST_SKIP() << Reason(Topic::kHostLayout);
  alignas(64) float memory[6] = {1, 2, 3, 4, 5, 6};
  auto view = ViewOf(memory);
  const std::vector<int64_t> column_major = {0, 1};
  auto layout = Tiled(column_major);
  view.layout = &layout;
  Do(Api().PJRT_Client_CreateViewOfDeviceBuffer, view);
  const Buffer buffer(view.buffer);
  EXPECT_THAT(Values<float>(buffer), ElementsAre(1, 3, 5, 2, 4, 6));
}

TEST_F(Views, ThatAreRefusedLeaveTheMemoryToTheCaller) {
  if (!Runs(Topic::kNullHandles)) GTEST_SKIP() << Reason(Topic::kNullHandles);
  alignas(64) float memory[6] = {};
  auto view = ViewOf(nullptr);
  EXPECT_THAT(Ask(Api().PJRT_Client_CreateViewOfDeviceBuffer, view).message,
              HasSubstr("the host memory is null"));
  view = ViewOf(memory);
  view.stream = 1;
  EXPECT_THAT(Ask(Api().PJRT_Client_CreateViewOfDeviceBuffer, view).message,
              HasSubstr("pass no stream"));
  view = ViewOf(memory);
  const std::vector<int64_t> wrong = {0, 0};
  auto layout = Tiled(wrong);
  view.layout = &layout;
  EXPECT_THAT(Ask(Api().PJRT_Client_CreateViewOfDeviceBuffer, view).message,
              HasSubstr("not a permutation"));
  EXPECT_EQ(ended_.get_future().wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

TEST_F(BuffersTest, WithoutBytesYet) {
  const int64_t dims[] = {4};
  auto make = Make<PJRT_Client_CreateUninitializedBuffer_Args>();
  make.client = client();
  make.shape_dims = dims;
  make.shape_num_dims = 1;
  make.shape_element_type = PJRT_Buffer_Type_F32;
  make.device = device();
  make.memory = Memory(device());
  const Said said = Ask(Api().PJRT_Client_CreateUninitializedBuffer, make);
  EXPECT_EQ(said.code, Expected(Topic::kUninitializedBuffer)) << said.message;
  if (said.ok()) {
    EXPECT_EQ(Values<float>(Buffer(make.buffer)).size(), 4u);
  }
}

TEST_F(BuffersTest, ThatStandForOthers) {
  const int64_t dims[] = {4};
  auto alias = Make<PJRT_Client_CreateAliasBuffer_Args>();
  alias.client = client();
  alias.memory = Memory(device());
  alias.shape_dims = dims;
  alias.shape_num_dims = 1;
  alias.shape_element_type = PJRT_Buffer_Type_F32;
  const std::vector<int64_t> row_major = {0};
  auto layout = Tiled(row_major);
  alias.shape_layout = &layout;
  const Said said = Ask(Api().PJRT_Client_CreateAliasBuffer, alias);
  EXPECT_EQ(said.code, Expected(Topic::kAliasBuffer)) << said.message;
  const Buffer stand_in(said.ok() ? alias.alias_buffer : nullptr);
  const Buffer value = Upload(Count(4));
  auto fulfill = Make<PJRT_Client_FulfillAliasBuffer_Args>();
  fulfill.client = client();
  fulfill.buffer = value.get();
  fulfill.fulfill_alias_buffer_cb = alias.fulfill_alias_buffer_cb;
  const Said fulfilled = Ask(Api().PJRT_Client_FulfillAliasBuffer, fulfill);
  EXPECT_EQ(fulfilled.code, Expected(Topic::kAliasBuffer)) << fulfilled.message;
  if (fulfilled.ok()) {
    EXPECT_EQ(Values<float>(stand_in), Count(4));
  }
}

}  // namespace
}  // namespace conformance
