// Implementation of held_programs.h.
#include "gangway/controller/service/held_programs.h"

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::controller {

HeldPrograms::~HeldPrograms() {
  while (!charged_.empty()) Release(charged_.begin());
}

absl::Status HeldPrograms::Take(SessionId session, ExecutableHandle executable, uint64_t bytes) {
  const Key key(session, executable);
  if (charged_.contains(key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("executable handle ", executable, " is in use already"));
  }
  if (budget_ == nullptr || bytes < kBytesMin) return absl::OkStatus();
  GANGWAY_RETURN_IF_ERROR(budget_->TryAcquire(MemoryBudget::Kind::kPrograms, kCopies * bytes),
                          "a program of ", bytes, " bytes, of which the head holds ", kCopies,
                          " copies");
  charged_[key] = kCopies * bytes;
  return absl::OkStatus();
}

void HeldPrograms::End(SessionId session, ExecutableHandle executable) {
  if (auto found = charged_.find({session, executable}); found != charged_.end()) Release(found);
}

void HeldPrograms::EndSession(SessionId session) {
  auto first = charged_.lower_bound({session, ExecutableHandle()});
  while (first != charged_.end() && first->first.first == session) first = Release(first);
}

std::map<HeldPrograms::Key, uint64_t>::iterator HeldPrograms::Release(
    std::map<Key, uint64_t>::iterator program) {
  budget_->Release(MemoryBudget::Kind::kPrograms, program->second);
  return charged_.erase(program);
}

}  // namespace gangway::controller
