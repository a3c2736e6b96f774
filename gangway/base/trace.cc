// Implementation of trace.h.
#include "gangway/base/trace.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <random>
#include <string_view>

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/base/shown_name.h"

namespace gangway {
namespace {

constexpr size_t kNamesMax = 4096;  // of each TraceNameOf
constexpr size_t kNameBytesMax = 128;

using Words = std::array<uint64_t, 5>;

// The seal is a hash of the record's number and words: words of two records, in whatever order
// they were stored and by however many writers, do not match it. So no store needs an order. Each
// slot has its own cache line, because a rare record finds its memory cold.
struct alignas(64) Slot {
  std::atomic<uint64_t> seal{0};
  std::array<std::atomic<uint64_t>, 5> words{};
};

uint64_t Seal(uint64_t number, const Words& words) {
  uint64_t seal = number + 1;
  for (uint64_t word : words) {
    seal = (seal ^ word) * 0x9e3779b97f4a7c15;
    seal ^= seal >> 32;
  }
  return seal;
}

enum class Recording : uint8_t { kUnknown, kOn, kOff };

// The fields that every record reads share one cache line and need no static guard or pointer.
struct Ring {
  std::atomic<uint64_t> next{0};
  std::atomic<Recording> recording{Recording::kUnknown};
  std::array<Slot, kTraceCapacity> slots{};
};

constinit Ring the_ring;

struct Names {
  Mutex mutex;
  std::map<std::pair<TraceNameOf, uint64_t>, std::string> names GANGWAY_GUARDED_BY(mutex);
};

// Never destroyed: library threads record until the process exits.
Names& TheNames() {
  static Names* const names = new Names;
  return *names;
}

bool ReadSetting() {
  const char* value = std::getenv("GANGWAY_TRACE");
  const bool on = value == nullptr || std::string_view(value) != "off";
  the_ring.recording.store(on ? Recording::kOn : Recording::kOff, std::memory_order_relaxed);
  return on;
}

bool IsOn() {
  const Recording recording = the_ring.recording.load(std::memory_order_relaxed);
  return recording == Recording::kUnknown ? ReadSetting() : recording == Recording::kOn;
}

uint64_t Nanoseconds(Clock::time_point when) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count());
}

bool ReadSlot(const Slot& slot, uint64_t number, TraceRecord& record) {
  Words words;
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = slot.words[i].load(std::memory_order_relaxed);
  record.time_ns = words[0];
  record.kind = static_cast<TraceKind>(words[1] >> 32);
  record.place = static_cast<uint32_t>(words[1]);
  record.session = words[2];
  record.gang = words[3];
  record.value = words[4];
  return slot.seal.load(std::memory_order_relaxed) == Seal(number, words);
}

}  // namespace

void TraceAt(Clock::time_point when, TraceKind kind, uint32_t place, SessionId session,
             Ordinal gang, uint64_t value) {
  if (!IsOn()) return;
  Ring& ring = the_ring;
  uint64_t number = ring.next.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = ring.slots[number % kTraceCapacity];
  const Words words = {Nanoseconds(when), (uint64_t{static_cast<uint8_t>(kind)} << 32) | place,
                       session.number(), gang.number(), value};
  for (size_t i = 0; i < words.size(); ++i)
    slot.words[i].store(words[i], std::memory_order_relaxed);
  slot.seal.store(Seal(number, words), std::memory_order_relaxed);
}

void Trace(TraceKind kind, uint32_t place, SessionId session, Ordinal gang, uint64_t value) {
  if (!IsOn()) return;
  TraceAt(Clock::now(), kind, place, session, gang, value);
}

void NameTrace(TraceNameOf what, uint64_t id, std::string name) {
  if (!IsOn()) return;
  name = ShownName(name, kNameBytesMax);
  Names& all = TheNames();
  MutexLock lock(all.mutex);
  all.names[{what, id}] = std::move(name);
  auto first = all.names.lower_bound({what, 0});
  auto last = all.names.upper_bound({what, UINT64_MAX});
  // Ids increase: the smallest is the oldest.
  if (all.names.size() > kNamesMax && std::distance(first, last) > std::ptrdiff_t{kNamesMax})
    all.names.erase(first);
}

TraceSnapshot ReadTrace() {
  TraceSnapshot snapshot;
  Ring& ring = the_ring;
  snapshot.recorded = ring.next.load(std::memory_order_acquire);
  uint64_t first = snapshot.recorded > kTraceCapacity ? snapshot.recorded - kTraceCapacity : 0;
  snapshot.records.reserve(snapshot.recorded - first);
  for (uint64_t number = first; number < snapshot.recorded; ++number) {
    TraceRecord record;
    if (ReadSlot(ring.slots[number % kTraceCapacity], number, record))
      snapshot.records.push_back(record);
  }
  Names& all = TheNames();
  MutexLock lock(all.mutex);
  for (const auto& [key, name] : all.names)
    snapshot.names.push_back({.what = key.first, .id = key.second, .name = name});
  return snapshot;
}

uint64_t TraceProcess() {
  static const uint64_t process = [] {
    std::random_device random;
    return (uint64_t{random()} << 32) | random() | 1;
  }();
  return process;
}

uint32_t NextTraceLink() {
  static std::atomic<uint32_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace gangway
