// Implementation of sources.h.
#include "gangway/collective/execution/sources.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gangway/base/status.h"

namespace gangway::collective {

Sources::Sources(Waiter& waiter, const Call& call)
    : waiter_(waiter), call_(call), reader_(waiter, call) {
  if (call_.role.sources == nullptr) return;
  entries_.reserve(call_.role.sources->size());
  for (uint32_t position : *call_.role.sources) {
    if (waiter_.DeviceOf(position).shares_memory()) {
      entries_.push_back({position, SlotSource(reader_, position), nullptr});
    } else {
      entries_.push_back({position, MirrorSource(reader_, position), nullptr});
    }
  }
}

// First of the one that this device last slept for: by then the others have mostly come, so a device sleeps once for
// all of them, not once for each that is late.
absl::Status Sources::Await(size_t message) {
  const auto late = std::ranges::find(
      entries_, waiter_.device().slept_for(),
      [&](const Entry& each) { return waiter_.DeviceOf(each.position).number(); });
  if (late != entries_.end()) GANGWAY_RETURN_IF_ERROR(AwaitOne(*late, message));
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
    if (entry != late) GANGWAY_RETURN_IF_ERROR(AwaitOne(*entry, message));
  waiter_.SetMet();
  return absl::OkStatus();
}

absl::Status Sources::AwaitOne(Entry& entry, size_t message) {
  if (!call_.IsInPlace(message)) return entry.sent().Await(message);
  if (entry.in_place == nullptr) {
    if (entry.position == call_.position) {
      entry.in_place = std::make_unique<OwnSource>(call_);
    } else if (waiter_.IsHere(waiter_.DeviceOf(entry.position))) {
      entry.in_place = std::make_unique<ShownSource>(waiter_, call_, entry.position);
    }
  }
  if (entry.in_place != nullptr) return entry.in_place->Await(message);
  GANGWAY_RETURN_IF_ERROR(entry.sent().Await(message));
  if (!entry.sent().found().shows) return absl::OkStatus();
  GANGWAY_ASSIGN_OR_RETURN(entry.in_place, HeapSource::Make(entry.sent()));
  return absl::OkStatus();
}

absl::Status Sources::EndMessage(size_t message) {
  const bool is_in_place = call_.IsInPlace(message);
  for (Entry& entry : entries_) GANGWAY_RETURN_IF_ERROR(entry.at(is_in_place).EndMessage());
  reader_.TellReads();
  return absl::OkStatus();
}

absl::Status Sources::EndMessages() {
  for (Entry& entry : entries_)
    if (entry.in_place != nullptr) GANGWAY_RETURN_IF_ERROR(entry.in_place->EndMessages());
  reader_.TellReads();
  return absl::OkStatus();
}

absl::Status Sources::TakeParts(Source::Reports reports, size_t last,
                                absl::FunctionRef<void(size_t rank, const Source&)> copy) {
  for (size_t rank = 0; rank < entries_.size(); ++rank) {
    Source& source = entries_[rank].at(call_.IsInPlace(last));
    if (source.reports() != reports) continue;
    GANGWAY_RETURN_IF_ERROR(source.AwaitPart(last));
    copy(rank, source);
    GANGWAY_RETURN_IF_ERROR(source.EndPart());
  }
  reader_.TellReads();
  return absl::OkStatus();
}

void Sources::Leave() {
  std::vector<uint32_t> read;
  for (Entry& entry : entries_)
    if (entry.in_place != nullptr && entry.in_place->Leave()) read.push_back(entry.position);
  if (!read.empty()) waiter_.Wake(read, Deed::kRead);
}

}  // namespace gangway::collective
