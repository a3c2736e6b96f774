// Implementation of copy_task.h.
#include "gangway/worker/service/copy_task.h"

#include <utility>

namespace gangway::worker {

CopyTask::CopyTask(std::shared_ptr<const TaskEnvironment> environment, uint64_t ordinal,
                   std::string memory_kind, std::vector<Move> moves)
    : NodeTask(std::move(environment), ordinal, "copy", moves.size()),
      memory_kind_(std::move(memory_kind)),
      moves_(std::move(moves)) {}

void CopyTask::Enqueue() {
  auto self = std::static_pointer_cast<CopyTask>(shared_from_this());
  for (const Move& move : moves_) {
    environment().devices[move.from->name().device]->Post([self, &move] { self->RunMove(move); });
  }
}

void CopyTask::RunMove(const Move& move) {
  int device = move.from->name().device;
  absl::StatusOr<store::Content> copied = CopyOrShare(move);
  if (!copied.ok()) {
    Note(copied.status(), device);
    for (const Move& each : moves_) each.to->Fail(*failure());
    return EndPart();
  }
  std::shared_ptr<device::Buffer> buffer = copied->buffer;
  move.to->Fill(copied->buffer, copied->sharing);
  auto self = std::static_pointer_cast<CopyTask>(shared_from_this());
  buffer->OnReady(Owed([self, device](absl::Status status) {
    if (!status.ok()) self->Note(status, device);
    self->EndPart();
  }));
}

absl::StatusOr<store::Content> CopyTask::CopyOrShare(const Move& move) {
  absl::StatusOr<store::Content> source = move.from->Wait(Deadline());
  if (!source.ok()) return source;
  int to_device = move.to->name().device;
  bool stays = to_device == move.from->name().device &&
               (memory_kind_.empty() || memory_kind_ == source->buffer->memory_kind());
  if (stays) return move.from->Share(Deadline());
  auto copy = source->buffer->CopyToDevice(to_device, memory_kind_);
  if (!copy.ok()) return copy.status();
  return store::Content{*std::move(copy), store::Sharing::kOwned};
}

}  // namespace gangway::worker
