// How shards cross between workers: the sender offers them and the receiver asks for them, over any
// medium (stream_transfers.h: streams, and shared memory within a host; RDMA can be added).
// The receiver asks as soon as its node is released, usually before the shard exists, so that bytes
// leave the moment they exist.
//
// The copy's token (wire.proto) controls access: its first half authorizes the request, its second
// half proves that the bytes come from the worker that was asked.
//
// Threading: calls are thread-safe and never block; each callback runs once, on a thread of the
// plane. A status that is not OK carries a failure record if one is known (ER-1).
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_TRANSFER_PLANE_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_TRANSFER_PLANE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/ids.h"
#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/service/memory/staging_memory.h"

namespace gangway::worker {

// One shard of one copy; the same on both sides.
struct TransferKey {
  Ordinal ordinal;
  uint32_t shard = 0;

  auto operator<=>(const TransferKey&) const = default;
};

struct TransferToken {
  std::string ask;
  std::string proof;

  static TransferToken Split(std::string_view token) {
    return {std::string(token.substr(0, token.size() / 2)),
            std::string(token.substr(token.size() / 2))};
  }
};

// Host bytes of a shard that arrived, 64-byte aligned, valid as long as `owner` is kept. `charge` is what they take of
// the staging memory, to be kept until they are a device's; null: nothing.
struct ShardBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  std::shared_ptr<StagingMemory::Charge> charge;

  std::shared_ptr<const std::byte> shared() const { return {owner, bytes.data()}; }
};

class TransferPlane {
 public:
  virtual ~TransferPlane() = default;

  using Taken = std::function<void(const absl::Status&)>;
  using Arrived = std::function<void(absl::StatusOr<ShardBytes>)>;

  // A shard that another worker will ask for. `receiver` is a name for people. `taken` gets OK when
  // the receiver has all bytes; the error that the shard was settled with; DEADLINE_EXCEEDED if the
  // receiver asked for it and takes nothing; DATA_LOSS if the receiver is gone.
  struct Offering {
    TransferKey key;
    TransferToken token;
    SessionId session;  // sessions take turns
    std::string receiver;
    Taken taken;
  };
  virtual void Offer(Offering offering) = 0;

  // Gives the shard, or the error that replaces it. The buffer must be ready; it is kept until
  // `taken`.
  virtual void Settle(TransferKey key, absl::StatusOr<std::shared_ptr<device::Buffer>> shard) = 0;

  // Asks `from` for a shard of exactly `size` host bytes. `arrived` gets the bytes; DATA_LOSS
  // naming `from` if it is gone; INTERNAL if it sent something else. The plane does not report a
  // failed source: a Cancel does, with the record of the root cause.
  struct Asking {
    TransferKey key;
    TransferToken token;
    SessionId session;
    wire::Worker from;
    size_t size = 0;
    Arrived arrived;
  };
  virtual void Ask(Asking asking) = 0;

  // Ends an offer or a request with `why`, unless it has ended.
  virtual void Cancel(TransferKey key, absl::Status why) = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_TRANSFER_PLANE_H_
