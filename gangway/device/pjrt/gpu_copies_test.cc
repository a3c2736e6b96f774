// Copies by a driver that has NVIDIA's functions and the memory of this process (testdata/fake_cuda_driver.cc).
#include "gangway/device/pjrt/gpu_copies.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "gangway/base/package.h"

namespace gangway::device {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

class GpuCopiesTest : public ::testing::Test {
 protected:
  // Its name is that of the real library, which is found no more once this one is there.
  static void SetUpTestSuite() {
    driver_ = dlopen(SourcePath(GANGWAY_TEST_FAKE_CUDA_DRIVER).c_str(), RTLD_NOW);
    ASSERT_NE(driver_, nullptr) << dlerror();
  }

  void SetUp() override {
    auto loaded = GpuCopies::Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    gpu_ = *loaded;
    Fail("");
  }

  static void Fail(const char* function) {
    reinterpret_cast<void (*)(const char*)>(dlsym(driver_, "FakeCudaFail"))(function);
  }
  static int ContextsPushed() {
    return reinterpret_cast<int (*)()>(dlsym(driver_, "FakeCudaContexts"))();
  }

  static inline void* driver_ = nullptr;
  const GpuCopies* gpu_ = nullptr;
  int stream_ = 0;
};

TEST_F(GpuCopiesTest, BytesGoBothWays) {
  const Bytes first(3, std::byte{7}), second(5, std::byte{9});
  Bytes device_first(3), device_second(5), back(5);
  ASSERT_TRUE(gpu_->ToDevice(&stream_,
                             std::vector<std::pair<std::span<const std::byte>, void*>>{
                                 {first, device_first.data()},
                                 {std::span<const std::byte>(), nullptr},
                                 {second, device_second.data()}})
                  .ok());
  EXPECT_EQ(device_first, first);
  EXPECT_EQ(device_second, second);
  ASSERT_TRUE(gpu_->ToHost(&stream_,
                           std::vector<std::pair<std::span<std::byte>, const void*>>{
                               {back, device_second.data()}})
                  .ok());
  EXPECT_EQ(back, second);
  EXPECT_EQ(ContextsPushed(), 0);
}

TEST_F(GpuCopiesTest, EachFailureOfTheDriverIsAnErrorWithItsWords) {
  Bytes here(3), there(3);
  for (const char* function :
       {"cuStreamGetCtx", "cuCtxPushCurrent_v2", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"}) {
    Fail(function);
    const absl::Status failed = gpu_->ToHost(
        &stream_, std::vector<std::pair<std::span<std::byte>, const void*>>{{here, there.data()}});
    EXPECT_EQ(failed.code(), absl::StatusCode::kInternal) << function;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("a fake failure")) << function;
    EXPECT_EQ(ContextsPushed(), 0) << function;
  }
  Fail("cuMemcpyHtoDAsync_v2");
  EXPECT_FALSE(gpu_->ToDevice(&stream_,
                              std::vector<std::pair<std::span<const std::byte>, void*>>{
                                  {here, there.data()}})
                   .ok());
}

}  // namespace
}  // namespace gangway::device
