// Implementation of slot.h.
#include "gangway/store/slot.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/wire/failure.h"

namespace gangway::store {

std::string SlotName::Text() const {
  return absl::StrCat("shard ", shard, " of storage ", storage, " on local device ", device);
}

Slot::Slot(SlotName name, std::shared_ptr<Ledger> ledger)
    : name_(name), ledger_(std::move(ledger)) {}

Slot::~Slot() { Empty(); }

void Slot::Fill(std::shared_ptr<device::Buffer> buffer, Sharing sharing,
                std::weak_ptr<const std::byte> borrowed) {
  Notice notice;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kPromised) return;  // `buffer` is destroyed after the lock is released
    content_ = {std::move(buffer), waiting_.empty() ? sharing : Sharing::kShared,
                std::move(borrowed)};
    state_ = State::kFilled;
    ledger_->Charge(name_.device, name_.session, name_.bytes);
    notice = TakeNotice();
  }
  settled_.NotifyAll();
  notice.Tell();
}

std::optional<Borrower> Slot::NoteReadAt(std::span<const std::byte* const> places, Ordinal gang) {
  std::shared_ptr<const std::byte> bytes;  // its owner may end here, after the lock
  MutexLock lock(mutex_);
  if (state_ != State::kFilled) return std::nullopt;
  bytes = content_.borrowed.lock();
  if (bytes == nullptr || std::ranges::find(places, bytes.get()) == places.end())
    return std::nullopt;
  if (first_reader_ == Ordinal()) first_reader_ = gang;
  if (first_reader_ == gang) return std::nullopt;
  content_.borrowed.reset();
  return Borrower{content_.buffer, std::move(bytes)};
}

void Slot::PutBack(const Borrower& original) {
  MutexLock lock(mutex_);
  if (state_ == State::kFilled && content_.buffer == original.buffer)
    content_.borrowed = original.bytes;
}

void Slot::Replace(const device::Buffer& original, std::shared_ptr<device::Buffer> copy) {
  MutexLock lock(mutex_);  // released before what `copy` holds then is destroyed
  if (state_ != State::kFilled || content_.buffer.get() != &original) return;
  content_.buffer.swap(copy);
  content_.sharing = Sharing::kOwned;
}

// Called under the lock that settles the slot, so that no launch empties it in between.
Slot::Notice Slot::TakeNotice() {
  Notice notice;
  if (waiting_.empty()) return notice;
  notice.waiting.swap(waiting_);
  notice.outcome = Outcome();
  return notice;
}

void Slot::Notice::Tell() {
  for (Settled& settled : waiting) settled(*outcome);
}

std::shared_ptr<device::Buffer> Slot::TakeOut(State next) {
  if (state_ == State::kFilled) ledger_->Refund(name_.device, name_.session, name_.bytes);
  state_ = next;
  return std::exchange(content_, {}).buffer;
}

void Slot::Fail(const wire::Failure& failure) {
  std::shared_ptr<device::Buffer> dropped;  // destroyed outside the lock
  Notice notice;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kFailed) return;
    dropped = TakeOut(State::kFailed);
    failure_ = std::make_unique<wire::Failure>(failure);
    notice = TakeNotice();
  }
  settled_.NotifyAll();
  notice.Tell();
}

void Slot::Empty() {
  std::shared_ptr<device::Buffer> dropped;
  Notice notice;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kFailed) return;
    dropped = TakeOut(State::kEmptied);
    notice = TakeNotice();
  }
  settled_.NotifyAll();
  notice.Tell();
}

absl::StatusOr<Content> Slot::Outcome() const {
  if (state_ == State::kFailed) return wire::ToStatus(*failure_);
  if (state_ == State::kEmptied) {
    return absl::InvalidArgumentError(
        absl::StrCat("The contents of ", name_.Text(), " were donated to an earlier launch."));
  }
  Content content = content_;
  if (reads_ > 0) content.sharing = Sharing::kShared;
  return content;
}

absl::StatusOr<Content> Slot::Wait(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  if (state_ == State::kPromised &&
      !settled_.WaitUntil(mutex_, deadline,
                          [this]() GANGWAY_NO_ANALYSIS { return state_ != State::kPromised; })) {
    return absl::DeadlineExceededError(absl::StrCat("Timed out waiting for ", name_.Text(),
                                                    ": the work that produces it is stuck."));
  }
  return Outcome();
}

void Slot::ShareWhenSettled(Settled settled) {
  std::optional<absl::StatusOr<Content>> outcome;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kPromised) {
      waiting_.push_back(std::move(settled));
      return;
    }
    content_.sharing = Sharing::kShared;
    outcome = Outcome();
  }
  settled(*std::move(outcome));
}

absl::StatusOr<Content> Slot::Share(Clock::time_point deadline) {
  absl::StatusOr<Content> content = Wait(deadline);
  GANGWAY_RETURN_IF_ERROR(content);
  MutexLock lock(mutex_);
  if (state_ == State::kFilled) content_.sharing = Sharing::kShared;
  content->sharing = Sharing::kShared;
  return content;
}

absl::StatusOr<Content> Slot::BeginRead(Clock::time_point deadline) {
  absl::StatusOr<Content> content = Wait(deadline);
  GANGWAY_RETURN_IF_ERROR(content);
  MutexLock lock(mutex_);
  ++reads_;
  content->sharing = Sharing::kShared;
  return content;
}

void Slot::EndRead() {
  MutexLock lock(mutex_);
  --reads_;
}

bool Slot::settled() const {
  MutexLock lock(mutex_);
  return state_ != State::kPromised;
}

std::optional<wire::Failure> Slot::failure() const {
  MutexLock lock(mutex_);
  if (state_ != State::kFailed) return std::nullopt;
  return *failure_;
}

}  // namespace gangway::store
