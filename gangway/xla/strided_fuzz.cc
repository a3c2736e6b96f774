// Strides of a client's host buffers: no access leaves the buffers, and the dense form survives a
// round trip through any layout in which no two elements share bytes.
#include <cstring>
#include <set>
#include <vector>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/strided.h"

namespace gangway::fuzz {
namespace {

constexpr int64_t kBytesMax = 1 << 16;

std::string Input(unsigned char element_bytes, const std::vector<int64_t>& dims_then_strides) {
  std::string bytes(1, static_cast<char>(element_bytes));
  for (int64_t number : dims_then_strides)
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  return bytes;
}

// Whether no two elements overlap.
bool Distinct(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
              int64_t element_bytes) {
  std::set<int64_t> places = {0};
  for (size_t i = 0; i < dims.size(); ++i) {
    std::set<int64_t> next;
    for (int64_t place : places) {
      for (int64_t k = 0; k < dims[i]; ++k) {
        if (!next.insert(place + k * strides[i]).second) return false;
      }
    }
    places.swap(next);
  }
  int64_t last = 0;
  bool first = true;
  for (int64_t place : places) {
    if (!first && place - last < element_bytes) return false;
    last = place;
    first = false;
  }
  return true;
}

}  // namespace

std::vector<std::string> Seeds() {
  return {Input(4, {2, 3, 12, 4}), Input(8, {2, 3, -8, 16}), Input(1, {5, 0}),
          Input(3, {2, 2, 2, 3, 6, 12}), Input(1, {2, int64_t{1} << 62})};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int64_t element_bytes = data[0] % 18;
  std::vector<int64_t> numbers((size - 1) / sizeof(int64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), data + 1, numbers.size() * sizeof(int64_t));
  const std::vector<int64_t> dims(numbers.begin(), numbers.begin() + numbers.size() / 2);
  const std::vector<int64_t> strides(numbers.begin() + numbers.size() / 2, numbers.end());
  auto region = gangway::xla::Region(element_bytes, dims, strides);
  if (!region.ok()) return 0;
  GANGWAY_CHECK(
      region->bytes >= 0 && region->zero_offset >= 0 && region->zero_offset <= region->bytes,
      "element 0 lies in the region");
  int64_t dense_bytes = 0;
  if (__builtin_mul_overflow(*gangway::xla::ElementCount(dims), element_bytes, &dense_bytes))
    return 0;
  if (region->bytes > gangway::fuzz::kBytesMax || dense_bytes > gangway::fuzz::kBytesMax) return 0;
  std::string dense(dense_bytes, '\0');
  for (size_t i = 0; i < dense.size(); ++i) dense[i] = static_cast<char>(i * 7 + 1);
  auto strided = gangway::xla::FromDense(dense, element_bytes, dims, strides);
  GANGWAY_CHECK(strided.ok() && static_cast<int64_t>(strided->size()) == region->bytes,
                "a legal layout can be written");
  auto back = gangway::xla::ToDense(*strided, element_bytes, dims, strides);
  GANGWAY_CHECK(back.ok() && back->size() == dense.size(), "and read");
  if (dense_bytes > 0 && gangway::fuzz::Distinct(dims, strides, element_bytes))
    GANGWAY_CHECK(*back == dense, "and holds the same");
  return 0;
}
