// A libcuda.so.1 whose device memory is that of the process: the functions that gpu_copies.h uses.
#include <cstddef>
#include <cstring>
#include <string>

namespace {

std::string failing;
int contexts = 0;

int Result(const char* function) { return failing == function ? 700 : 0; }

}  // namespace

extern "C" {

void FakeCudaFail(const char* function) { failing = function; }
int FakeCudaContexts() { return contexts; }

int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void*) {
  if (const int result = Result(__func__)) return result;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a CUdeviceptr
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void*) {
  if (const int result = Result(__func__)) return result;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a CUdeviceptr
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
int cuStreamSynchronize(void*) { return Result(__func__); }
int cuStreamGetCtx(void* stream, void** context) {
  *context = stream;
  return Result(__func__);
}
int cuCtxPushCurrent_v2(void*) {
  const int result = Result(__func__);
  if (result == 0) ++contexts;
  return result;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = nullptr;
  --contexts;
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "a fake failure";
  return 0;
}

}  // extern "C"
