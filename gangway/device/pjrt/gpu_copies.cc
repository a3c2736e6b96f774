// Implementation of gpu_copies.h.
#include "gangway/device/pjrt/gpu_copies.h"

#include <dlfcn.h>

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace gangway::device {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

template <typename Function>
absl::Status Find(void* library, const char* name, Function& function) {
  // POSIX: the address of a function, as an object pointer.
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(kLibrary, " has no function ", name, ": update the NVIDIA driver of this host"));
}

}  // namespace

absl::StatusOr<const GpuCopies*> GpuCopies::Load() {
  static const absl::StatusOr<const GpuCopies*> loaded = []() -> absl::StatusOr<const GpuCopies*> {
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed
    if (library == nullptr)
      return absl::NotFoundError(absl::StrCat("the NVIDIA driver's library: ", dlerror()));
    auto* copies = new GpuCopies();
    for (const absl::Status& found :
         {Find(library, "cuMemcpyDtoHAsync_v2", copies->copy_to_host_),
          Find(library, "cuMemcpyHtoDAsync_v2", copies->copy_to_device_),
          Find(library, "cuStreamSynchronize", copies->synchronize_),
          Find(library, "cuStreamGetCtx", copies->context_of_),
          Find(library, "cuCtxPushCurrent_v2", copies->push_context_),
          Find(library, "cuCtxPopCurrent_v2", copies->pop_context_),
          Find(library, "cuGetErrorString", copies->error_string_)}) {
      if (!found.ok()) return found;
    }
    return copies;
  }();
  return loaded;
}

absl::Status GpuCopies::ToStatus(Result result) const {
  if (result == 0) return absl::OkStatus();
  const char* text = nullptr;
  (void)error_string_(result, &text);
  return absl::InternalError(absl::StrCat("the CUDA driver failed with ", result, ": ",
                                          text == nullptr ? "no text" : text));
}

template <typename Copy>
absl::Status GpuCopies::InContext(void* stream, Copy copy) const {
  void* context = nullptr;
  Result result = context_of_(stream, &context);
  if (result == 0) result = push_context_(context);
  if (result != 0) return ToStatus(result);
  result = copy();
  // Also after an error: no earlier copy writes memory that the caller then frees.
  const Result waited = synchronize_(stream);
  (void)pop_context_(&context);
  return ToStatus(result != 0 ? result : waited);
}

absl::Status GpuCopies::ToHost(
    void* stream, std::span<const std::pair<std::span<std::byte>, const void*>> copies) const {
  return InContext(stream, [&] {
    for (const auto& [to, from] : copies) {
      if (to.empty()) continue;
      const Result result =
          copy_to_host_(to.data(), reinterpret_cast<uintptr_t>(from), to.size(), stream);
      if (result != 0) return result;
    }
    return Result{0};
  });
}

absl::Status GpuCopies::ToDevice(
    void* stream, std::span<const std::pair<std::span<const std::byte>, void*>> copies) const {
  return InContext(stream, [&] {
    for (const auto& [from, to] : copies) {
      if (from.empty()) continue;
      const Result result =
          copy_to_device_(reinterpret_cast<uintptr_t>(to), from.data(), from.size(), stream);
      if (result != 0) return result;
    }
    return Result{0};
  });
}

}  // namespace gangway::device
