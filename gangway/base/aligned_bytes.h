// A growable array of host bytes, 64-byte aligned, so that a device runtime can keep it as a
// buffer's memory.
#ifndef GANGWAY_BASE_ALIGNED_BYTES_H_
#define GANGWAY_BASE_ALIGNED_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace gangway {

class AlignedBytes {
 public:
  // Makes room for `size` bytes in total. False: out of memory.
  [[nodiscard]] bool Reserve(size_t size) {
    if (data_ != nullptr && size <= capacity_) return true;
    if (size > SIZE_MAX - kAlignment) return false;
    size_t capacity = (std::max<size_t>(size, 1) + kAlignment - 1) / kAlignment * kAlignment;
    std::unique_ptr<std::byte, Freer> grown(
        static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity)));
    if (grown == nullptr) return false;
    if (size_ != 0) std::memcpy(grown.get(), data_.get(), size_);
    data_ = std::move(grown);
    capacity_ = capacity;
    return true;
  }

  [[nodiscard]] bool Append(std::string_view bytes) {
    // The first piece allocates exactly its size, since most shards arrive in one piece. After
    // that, doubling keeps the total copying linear.
    size_t needed = size_ + bytes.size();
    if ((data_ == nullptr || needed > capacity_) && !Reserve(std::max(needed, capacity_ * 2)))
      return false;
    if (!bytes.empty()) std::memcpy(data_.get() + size_, bytes.data(), bytes.size());
    size_ = needed;
    return true;
  }

  // Sets the size; new bytes are uninitialized. False: out of memory.
  [[nodiscard]] bool Resize(size_t size) {
    if (!Reserve(size)) return false;
    size_ = size;
    return true;
  }

  std::byte* data() { return data_.get(); }
  size_t size() const { return size_; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Freer {
    void operator()(std::byte* data) const { std::free(data); }
  };

  std::unique_ptr<std::byte, Freer> data_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_ALIGNED_BYTES_H_
