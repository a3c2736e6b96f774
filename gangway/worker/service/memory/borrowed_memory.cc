// Implementation of borrowed_memory.h.
#include "gangway/worker/service/memory/borrowed_memory.h"

#include <optional>
#include <utility>

#include "gangway/worker/service/memory/staging_memory.h"

namespace gangway::worker {

void MoveToHeap(const TaskEnvironment& environment, const std::shared_ptr<store::Slot>& slot,
                std::span<const std::byte* const> addresses, Ordinal gang) {
  std::optional<store::Borrower> from = slot->NoteReadAt(addresses, gang);
  if (!from) return;
  const uint64_t bytes = slot->name().bytes;
  auto charge =
      environment.staging->Take(slot->name().session, bytes, StagingMemory::Order::kInTurn);
  if (!charge.ok()) return slot->PutBack(*from);
  const device::Buffer& buffer = *from->buffer;
  // The callback owns the bytes, which a buffer that is donated lets go.
  auto copy = environment.backend->BufferFromHost(
      buffer.device(), buffer.memory_kind(), buffer.spec(), {from->bytes.get(), bytes},
      device::HostSemantics::kUntilTransferDone,
      CountOwed(environment.callbacks, [owner = from->bytes](const absl::Status&) {}));
  if (!copy.ok()) return;
  const std::shared_ptr<device::Buffer> moved = *std::move(copy);
  auto kept = std::make_shared<StagingMemory::Charge>(*std::move(charge));
  moved->OnReady(CountOwed(environment.callbacks, [slot, original = from->buffer, moved,
                                                   kept](const absl::Status& status) {
    if (status.ok()) slot->Replace(*original, moved);
    kept->Reset();
  }));
}

}  // namespace gangway::worker
