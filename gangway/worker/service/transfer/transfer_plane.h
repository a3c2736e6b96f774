// How shards cross between workers: the sender offers them and the receiver asks for them, over any
// medium (stream_transfers.h: streams, and shared memory within a host; RDMA can be added).
// A transfer is of one position of a copy: one shard of each of its arrays, all from one device to
// one other. The receiver asks as soon as its node is released, usually before the shards exist, so
// that bytes leave the moment they exist.
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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/ids.h"
#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/service/memory/staging_memory.h"

namespace gangway::worker {

// The same on both sides.
struct TransferKey {
  Ordinal ordinal;
  uint32_t shard = 0;  // of each array of the copy

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
  using Arrived = std::function<void(absl::StatusOr<std::vector<ShardBytes>>)>;
  using Buffers = std::vector<std::shared_ptr<device::Buffer>>;

  // Shards that another worker will ask for. `receiver` is a name for people. `taken` gets OK when
  // the receiver has all bytes; the error that the shards were settled with; DEADLINE_EXCEEDED if
  // the receiver asked for them and takes nothing; DATA_LOSS if the receiver is gone.
  struct Offering {
    TransferKey key;
    TransferToken token;
    SessionId session;  // sessions take turns
    std::string receiver;
    Taken taken;
  };
  virtual void Offer(Offering offering) = 0;

  // Gives the shards, by array, or the error that replaces them all: the first call counts. The
  // buffers must be ready; they are kept until `taken`.
  virtual void Settle(TransferKey key, absl::StatusOr<Buffers> shards) = 0;

  // Asks `from` for shards of exactly `sizes` host bytes, by array. `arrived` gets the bytes;
  // DATA_LOSS naming `from` if it is gone; INTERNAL if it sent something else. The plane does not
  // report a failed source: a Cancel does, with the record of the root cause.
  struct Asking {
    TransferKey key;
    TransferToken token;
    SessionId session;
    wire::Worker from;
    std::vector<size_t> sizes;
    Arrived arrived;
  };
  virtual void Ask(Asking asking) = 0;

  // Ends an offer or a request with `why`, unless it has ended.
  virtual void Cancel(TransferKey key, absl::Status why) = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_TRANSFER_PLANE_H_
