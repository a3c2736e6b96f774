// What the worker's service holds for a record of its core: the task of a node, the shards of a storage, an executable.
// The core owns it, with the record: it makes the handle with the record, hands it to the service in the actions that
// concern the record, drops it with the record, and never looks inside. So a worker has one set of books.
#ifndef GANGWAY_WORKER_CORE_HELD_H_
#define GANGWAY_WORKER_CORE_HELD_H_

#include <memory>
#include <utility>

namespace gangway::worker {

// Of the service.
class ExecutableSlot;
class NodeTask;
struct HeldShards;

// A handle; its copies mean the same record. Of the thread that steps the core.
template <typename T>
class Held {
 public:
  Held() = default;  // of no record
  static Held New() {
    Held held;
    held.box_ = std::make_shared<std::shared_ptr<T>>();
    return held;
  }

  bool has_record() const { return box_ != nullptr; }
  // Null until Set, and of no record.
  std::shared_ptr<T> get() const { return box_ == nullptr ? nullptr : *box_; }
  void Set(std::shared_ptr<T> held) const { *box_ = std::move(held); }
  // Null from now on.
  std::shared_ptr<T> Take() const {
    return box_ == nullptr ? nullptr : std::exchange(*box_, nullptr);
  }

 private:
  std::shared_ptr<std::shared_ptr<T>> box_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_CORE_HELD_H_
