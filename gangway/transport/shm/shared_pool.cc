// Implementation of shared_pool.h.
#include "gangway/transport/shm/shared_pool.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace gangway::transport {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSegmentStep = size_t{2} << 20;
constexpr size_t kSegmentsMax = 512;  // each has a descriptor
constexpr size_t kPinMin = size_t{1} << 20;
// A writer relies on the seals: the memory behind its mapping stays.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t RoundUp(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

}  // namespace

SharedBlock::~SharedBlock() {
  if (pool_ != nullptr) pool_->Return(*this);
}

SharedPool::Segment::~Segment() {
  pinned.reset();
  if (base != nullptr) munmap(base, bytes);
}

std::shared_ptr<SharedPool> SharedPool::Make(Options options) {
  return std::shared_ptr<SharedPool>(new SharedPool(std::move(options)));
}

SharedPool::SharedPool(Options options)
    : options_(std::move(options)),
      pinner_(options_.pin ? std::make_unique<EventLoop>("gw-pin") : nullptr) {}

SharedPool::~SharedPool() = default;

std::unique_ptr<SharedBlock> SharedPool::Allocate(size_t bytes) {
  if (bytes == 0 || bytes > options_.bytes_max) return nullptr;
  const size_t size = RoundUp(bytes, kPage);
  MutexLock lock(mutex_);
  for (auto& [id, segment] : segments_) {
    if (auto block = AllocateIn(id, *segment, size, bytes)) return block;
  }
  auto* added = AddSegment(size <= options_.segment_bytes ? options_.segment_bytes
                                                          : RoundUp(size, kSegmentStep));
  return added == nullptr ? nullptr : AllocateIn(added->first, *added->second, size, bytes);
}

// Takes the lowest place that fits, so that existing pages are used before new ones.
std::unique_ptr<SharedBlock> SharedPool::AllocateIn(uint64_t id, Segment& segment, size_t size,
                                                    size_t bytes) {
  if (segment.retired) return nullptr;
  auto place = std::find_if(segment.free.begin(), segment.free.end(),
                            [size](const auto& free) { return free.second >= size; });
  if (place == segment.free.end()) return nullptr;
  const auto [offset, room] = *place;
  if (offset + size > segment.backed) {
    const auto first = static_cast<off_t>(segment.backed);
    const auto more = static_cast<off_t>(offset + size - segment.backed);
    if (fallocate(segment.descriptor.get(), 0, first, more) != 0) return nullptr;
    segment.backed = offset + size;
  }
  segment.free.erase(place);
  if (room > size) segment.free.emplace(offset + size, room - size);
  ++segment.blocks;
  std::unique_ptr<SharedBlock> block(new SharedBlock());
  block->pool_ = shared_from_this();
  block->segment_ = id;
  block->offset_ = offset;
  block->segment_bytes_ = segment.bytes;
  block->descriptor_ = segment.descriptor.get();
  block->bytes_ = {segment.base + offset, bytes};
  if (options_.writable) block->writable_ = segment.base + offset;
  return block;
}

std::pair<const uint64_t, std::shared_ptr<SharedPool::Segment>>* SharedPool::AddSegment(
    size_t bytes) {
  bytes = std::min(bytes, options_.bytes_max / kPage * kPage);
  for (auto it = segments_.begin(); it != segments_.end() && bytes_ + bytes > options_.bytes_max;)
    it = it->second->blocks == 0 ? Remove(it) : std::next(it);
  if (bytes_ + bytes > options_.bytes_max || segments_.size() >= kSegmentsMax) return nullptr;
  auto segment = std::make_shared<Segment>();
  segment->descriptor =
      FileDescriptor(memfd_create("gangway-shards", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int fd = segment->descriptor.get();
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0 || fcntl(fd, F_ADD_SEALS, kSeals))
    return nullptr;
  // A device runtime pins only what it could write.
  const int access = options_.writable || options_.pin ? PROT_READ | PROT_WRITE : PROT_READ;
  void* base = mmap(nullptr, bytes, access, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return nullptr;
  segment->base = static_cast<std::byte*>(base);
  segment->bytes = bytes;
  segment->free.emplace(0, bytes);
  bytes_ += bytes;
  return &*segments_.emplace(next_segment_++, std::move(segment)).first;
}

SharedPool::Segments::iterator SharedPool::Remove(Segments::iterator segment) {
  bytes_ -= segment->second->bytes;
  dropped_.push_back(segment->first);
  return segments_.erase(segment);
}

void SharedPool::Return(const SharedBlock& block) {
  bool tell = false;
  std::shared_ptr<Segment> unpinned;
  {
    MutexLock lock(mutex_);
    auto entry = segments_.find(block.segment_);
    Segment& segment = *entry->second;
    auto [place, is_new] = segment.free.emplace(block.offset_, RoundUp(block.bytes_.size(), kPage));
    auto next = std::next(place);
    if (next != segment.free.end() && place->first + place->second == next->first) {
      place->second += next->second;
      segment.free.erase(next);
    }
    if (place != segment.free.begin()) {
      auto before = std::prev(place);
      if (before->first + before->second == place->first) {
        before->second += place->second;
        segment.free.erase(place);
      }
    }
    segment.retired |= block.retired_;
    if (--segment.blocks != 0) return;
    segment.idle_since = Clock::now();
    if (options_.pin && !closed_ && !segment.retired && segment.backed >= kPinMin &&
        !std::exchange(segment.pin_asked, true))
      unpinned = entry->second;
    if (segment.retired) Remove(entry);
    tell = !closed_ && !std::exchange(told_idle_, true);
  }
  if (unpinned != nullptr) Pin(std::move(unpinned));
  if (tell && options_.on_idle) options_.on_idle();
}

// Whole: a transfer of bytes that are partly pinned may fail. Without the pages, pinning would make them, or fail.
void SharedPool::Pin(std::shared_ptr<Segment> segment) {
  pinner_->Post([segment = std::move(segment), pin = options_.pin] {
    if (fallocate(segment->descriptor.get(), 0, 0, static_cast<off_t>(segment->bytes)) == 0)
      segment->pinned = pin({segment->base, segment->bytes});
  });
}

SharedPool::Dropped SharedPool::Drop(Clock::time_point since) {
  MutexLock lock(mutex_);
  Dropped dropped;
  for (auto it = segments_.begin(); it != segments_.end();) {
    const bool idle = it->second->blocks == 0;
    const bool goes = idle && it->second->idle_since < since;
    dropped.idle_left |= idle && !goes;
    it = goes ? Remove(it) : std::next(it);
  }
  dropped.segments = std::exchange(dropped_, {});
  told_idle_ = dropped.idle_left;
  return dropped;
}

void SharedPool::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  if (pinner_ != nullptr) pinner_->Stop();
}

size_t SharedPool::segment_count() const {
  MutexLock lock(mutex_);
  return segments_.size();
}

size_t SharedPool::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace gangway::transport
