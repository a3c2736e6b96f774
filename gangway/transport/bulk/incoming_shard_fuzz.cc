// Fuzzes incoming_shard.h: pieces of any sizes, in any order. What a shard takes is consecutive, within what was
// agreed, and complete at most once.
#include <algorithm>
#include <cstring>
#include <optional>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/transport/bulk/incoming_shard.h"

namespace gangway::transport {
namespace {

// Takes the next number off `input`: near 0, near the most, or of eight bytes.
uint64_t Next(std::string_view& input) {
  if (input.empty()) return 0;
  const uint8_t kind = static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  if (kind < 100) return kind;
  if (kind < 200) return UINT64_MAX - (kind - 100);
  uint64_t number = 0;
  const size_t size = std::min(sizeof(number), input.size());
  std::memcpy(&number, input.data(), size);
  input.remove_prefix(size);
  return number;
}

void Run(std::string_view input) {
  const uint64_t agreed = Next(input);
  IncomingShard shard(agreed == 0 ? std::nullopt : std::optional(agreed));
  StagedShard staged;
  uint64_t received = 0, stored = 0;
  bool complete = false;
  while (!input.empty()) {
    ShardPiece piece{.offset = Next(input), .size = Next(input), .total = Next(input)};
    piece.last = Next(input) % 2 == 1;
    if (shard.Take(piece).ok()) {
      GANGWAY_CHECK(!complete && piece.offset == received, "pieces are consecutive");
      GANGWAY_CHECK(piece.size <= UINT64_MAX - received, "no sum wraps");
      received += piece.size;
      complete = piece.last;
      GANGWAY_CHECK(agreed == 0 || (received <= agreed && (!complete || received == agreed)),
                    "the size is what was agreed");
    }
    GANGWAY_CHECK(shard.received() == received && shard.complete() == complete,
                  "an error changes nothing");
    GANGWAY_CHECK(shard.size() >= received, "the size covers what came");

    const std::string bytes(piece.size % 100, 'x');
    piece.size = bytes.size();
    const bool taken =
        staged
            .Take(piece, bytes,
                  [](uint64_t more) {
                    return more < 1000 ? absl::OkStatus() : absl::ResourceExhaustedError("full");
                  })
            .ok();
    if (!taken) return;
    stored += bytes.size();
    GANGWAY_CHECK(staged.size() == stored, "what is taken is stored");
  }
}

}  // namespace
}  // namespace gangway::transport

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  return {std::string("\x08\0\x04\x08\0\x04\x04\0\x01", 9),
          std::string("\0\0\x64\0\0\x64\x02\0\x01", 9)};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gangway::transport::Run(gangway::fuzz::View(data, size));
  return 0;
}
