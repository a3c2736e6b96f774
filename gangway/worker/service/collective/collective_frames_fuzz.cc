// Fuzzes collective_frames.h: any bytes from another worker are refused, or change its mirror in a valid way. Places of
// gangs never decrease, and each message is in the slot of its sequence number.
#include <algorithm>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/worker/service/collective/collective_frames.h"

namespace gangway::worker {
namespace {

using collective::Arena;
using collective::Mirror;
using collective::Published;
using collective::Region;

constexpr uint32_t kDevices = 2, kLocal = 0, kRemote = 1;

// Frames one behind the other, each after its length in a byte.
void Run(std::string_view input) {
  const auto own = *Arena::Create(kDevices);
  Mirror mirror = *Mirror::Create(kRemote, kDevices);
  uint64_t left = 0, failed = 0;
  while (!input.empty()) {
    const size_t size = std::min<size_t>(static_cast<uint8_t>(input[0]), input.size() - 1);
    wire::Bulk bulk;
    const bool is_bulk = bulk.ParseFromArray(input.data() + 1, static_cast<int>(size));
    input.remove_prefix(size + 1);
    if (!is_bulk || !Take(bulk, mirror, *own, kLocal).ok()) continue;
    const Region& region = mirror.arena()->region(0);
    GANGWAY_CHECK(region.left >= left && region.failed >= failed, "no gang begins again");
    left = region.left;
    failed = region.failed;
    for (size_t slot = 0; slot < collective::kSlots; ++slot) {
      const uint64_t sequence = region.headers[slot].sequence;
      GANGWAY_CHECK(sequence == 0 || sequence % collective::kSlots == slot,
                    "a message is in its slot");
    }
  }
}

std::string Framed(const wire::Bulk& bulk) {
  const std::string bytes = bulk.SerializeAsString();
  return static_cast<char>(bytes.size()) + bytes;
}

}  // namespace
}  // namespace gangway::worker

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  constexpr std::byte kData[16] = {};
  const worker::Published message{
      .device = 0, .sequence = 9, .key = {5, 1, 0, 0}, .ranges = {{0, 4}, {8, 8}}, .data = kData};
  const collective::ReadUpTo read{1, 0, 3};
  const collective::LeftUpTo left{0, 5, 4};
  const std::string first = worker::Framed(worker::ToBulk(&message, {&read, 1}));
  return {first, worker::Framed(worker::ToBulk(nullptr, {&read, 1})),
          first + worker::Framed(worker::ToBulk({&left, 1}))};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gangway::worker::Run(gangway::fuzz::View(data, size));
  return 0;
}
