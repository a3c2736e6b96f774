// The part of controller_service.h that keeps the head's memory within its limit, and says what it holds.
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/heap.h"
#include "gangway/base/host_memory.h"
#include "gangway/controller/service/controller_service.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {

// Answers the compiles whose programs do not fit, and removes them from the batch. The session's other work goes on.
void ControllerService::RefusePrograms(SessionId session, wire::Frame& frame) {
  if (options_.memory == nullptr) return;
  uint64_t dropped_bytes = 0;  // of the one program that came in pieces
  for (const wire::Attachment& attachment : frame.attachments())
    dropped_bytes += attachment.bytes();
  auto& ops = *frame.mutable_session_batch()->mutable_ops();
  for (int i = 0; i < ops.size();) {
    absl::Status taken;
    if (ops[i].has_compile()) taken = TakeProgram(session, ops[i].compile(), dropped_bytes);
    if (taken.ok()) {
      ++i;
      continue;
    }
    wire::SessionEvent answer;
    answer.mutable_compiled()->set_executable(ops[i].compile().executable());
    *answer.mutable_compiled()->mutable_failure() = wire::ToFailure(taken);
    clients_.Add(session, std::move(answer));
    ops.DeleteSubrange(i, 1);
  }
}

absl::Status ControllerService::TakeProgram(SessionId session, const wire::CompileOp& op,
                                            uint64_t dropped_bytes) {
  if (dropped_bytes == 0)
    return held_programs_.Take(session, ExecutableHandle(op.executable()), op.program().size());
  return absl::ResourceExhaustedError(absl::StrCat(
      "a program of ", dropped_bytes,
      " bytes does not fit: with it, the head would hold more than ", options_.memory->bytes_max(),
      " bytes for its clients (--head-memory). Send less at once, or try again later"));
}

void ControllerService::FillMemory(wire::StatusReply& reply) const {
  using Kind = MemoryBudget::Kind;
  auto& counters = *reply.mutable_counters();
  const MemoryBudget::Use use = options_.memory ? options_.memory->use() : MemoryBudget::Use();
  counters["head_memory_limit_bytes"] = use.limit_bytes;
  counters["head_host_buffers_bytes"] = use.of(Kind::kHostBuffers);
  counters["head_programs_bytes"] = use.of(Kind::kPrograms);
  counters["head_pieces_bytes"] = use.of(Kind::kPieces);
  const HeapUse heap = GetHeapUse();
  counters["head_live_bytes"] = heap.live_bytes;
  counters["head_kept_bytes"] = heap.kept_bytes;
  counters["head_resident_bytes"] = ResidentBytes();
  const SchedulerLinks::Programs programs = schedulers_.programs();
  counters["head_executables"] = programs.count;
  counters["head_executables_bytes"] = programs.bytes;
}

}  // namespace gangway::controller
