// Buffers of uploaded arrays, and of arrays that came from another worker, borrow the shared memory in which their
// bytes arrived. Only two processes map it, so a gang's members on other workers of the host cannot read such an
// operand where it is, and take it in messages. After the second gang, the operand is copied to the heap, which they
// can read. What only one gang reads is not copied.
#ifndef GANGWAY_WORKER_SERVICE_MEMORY_BORROWED_MEMORY_H_
#define GANGWAY_WORKER_SERVICE_MEMORY_BORROWED_MEMORY_H_

#include <cstddef>
#include <memory>
#include <span>

#include "gangway/store/slot.h"
#include "gangway/worker/service/device/node_task.h"

namespace gangway::worker {

// The gang has read the contents of `slot` at one of `addresses`, if they borrow memory there. After the second gang
// they are copied in the background, and the memory is given back. While the copy is made, its bytes count as staged.
// Without room for them, the next gang tries again, so an array that is larger than a session's part of the staging
// memory stays where it is. So do contents that cannot be copied. Does not block. Any thread.
void MoveToHeap(const TaskEnvironment& environment, const std::shared_ptr<store::Slot>& slot,
                std::span<const std::byte* const> addresses, Ordinal gang);

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_MEMORY_BORROWED_MEMORY_H_
