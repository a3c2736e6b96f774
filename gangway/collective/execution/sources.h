// The sources of one call of a collective, in the group's order, each read in the way that its messages allow: in place
// where all members do so and the source is on this worker, or shows its heap; else in messages.
//
// Threading: the member's thread.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_SOURCES_H_
#define GANGWAY_COLLECTIVE_EXECUTION_SOURCES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "gangway/collective/execution/call.h"
#include "gangway/collective/execution/source.h"
#include "gangway/collective/execution/waiter.h"

namespace gangway::collective {

class Sources {
 public:
  // Both outlive this.
  Sources(Waiter& waiter, const Call& call);
  ~Sources() { Leave(); }
  Sources(const Sources&) = delete;
  Sources& operator=(const Sources&) = delete;

  size_t size() const { return entries_.size(); }
  // As of Source, for all of them.
  absl::Status Await(size_t message);
  absl::Status EndMessage(size_t message);
  absl::Status EndMessages();
  // Of the sources that report in this way, when `last` ends a round: `copy` takes the part of each.
  absl::Status TakeParts(Source::Reports reports, size_t last,
                         absl::FunctionRef<void(size_t rank, const Source&)> copy);
  void Leave();
  // After Await of this message.
  const Source& at(size_t message, size_t rank) const {
    return entries_[rank].at(call_.IsInPlace(message));
  }

 private:
  struct Entry {
    uint32_t position = 0;
    std::variant<SlotSource, MirrorSource> slot;
    std::unique_ptr<Source> in_place;  // null: there is none, or it is not known yet

    SlotSource& sent() {
      return *std::visit([](auto& each) -> SlotSource* { return &each; }, slot);
    }
    const Source& at(bool is_in_place) const {
      if (is_in_place && in_place != nullptr) return *in_place;
      return *std::visit([](const auto& each) -> const Source* { return &each; }, slot);
    }
    Source& at(bool is_in_place) {
      if (is_in_place && in_place != nullptr) return *in_place;
      return sent();
    }
  };
  absl::Status AwaitOne(Entry& entry, size_t message);

  Waiter& waiter_;
  const Call& call_;
  MessageReader reader_;
  absl::InlinedVector<Entry, 8> entries_;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_SOURCES_H_
