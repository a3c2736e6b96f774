// Copies shards between (or within) local devices. Each move is issued on its source device's
// thread, so that it reads what earlier programs made there and later ones have not taken yet. A
// move that stays in place shares the buffer.
#ifndef GANGWAY_WORKER_SERVICE_COPY_TASK_H_
#define GANGWAY_WORKER_SERVICE_COPY_TASK_H_

#include <memory>
#include <string>
#include <vector>

#include "gangway/worker/service/node_task.h"

namespace gangway::worker {

class CopyTask final : public NodeTask {
 public:
  struct Move {
    std::shared_ptr<store::Slot> from;
    std::shared_ptr<store::Slot> to;
  };

  CopyTask(std::shared_ptr<const TaskEnvironment> environment, uint64_t ordinal,
           std::string memory_kind, std::vector<Move> moves);

  void Enqueue() override;

 private:
  void RunMove(const Move& move);
  absl::StatusOr<store::Content> CopyOrShare(const Move& move);

  const std::string memory_kind_;
  const std::vector<Move> moves_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_COPY_TASK_H_
