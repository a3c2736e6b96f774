// Implementation of collective_call.h.
#include "gangway/collective/execution/collective_call.h"

#include <algorithm>
#include <array>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "xla/ffi/api/ffi.h"

#include "gangway/base/mutex.h"
#include "gangway/base/serving_thread.h"
#include "gangway/collective/execution/arena.h"

namespace gangway::collective {
namespace {

namespace ffi = ::xla::ffi;

// Most collectives have fewer operands, so a call takes no memory.
constexpr size_t kOperandsInline = 8;

// Of one device: the members of its executes that are under way, which are few, because the launches of a device do not
// overlap, but the runtime may say late that one has ended. A collective takes no lock of another device.
class alignas(64) DeviceMembers {
 public:
  void Set(int64_t launch_id, std::shared_ptr<Member> member) GANGWAY_EXCLUDES(mutex_) {
    std::shared_ptr<Member> before;  // destroyed without the lock
    MutexLock lock(mutex_);
    const auto at = std::ranges::find(members_, launch_id, &Entry::first);
    if (at == members_.end()) {
      if (member != nullptr) members_.emplace_back(launch_id, std::move(member));
      return;
    }
    before = std::exchange(at->second, std::move(member));
    if (at->second == nullptr) members_.erase(at);
  }

  std::shared_ptr<Member> Find(int64_t launch_id) const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto at = std::ranges::find(members_, launch_id, &Entry::first);
    return at == members_.end() ? nullptr : at->second;
  }

 private:
  using Entry = std::pair<int64_t, std::shared_ptr<Member>>;

  mutable Mutex mutex_;
  std::vector<Entry> members_ GANGWAY_GUARDED_BY(mutex_);  // keeps its memory
};

// Null: a worker with such a device has no members.
DeviceMembers* MembersOf(int device) {
  static auto* const members = new std::array<DeviceMembers, kDevicesMax>();
  const auto index = static_cast<size_t>(device);
  return index < members->size() ? &(*members)[index] : nullptr;
}

ffi::Error ToFfi(const absl::Status& status) {
  return {static_cast<ffi::ErrorCode>(status.code()), std::string(status.message())};
}

// Without the chain, whose value has no meaning.
ffi::Error RunCollective(ffi::RunId run, int32_t device, ffi::RemainingArgs arguments,
                         ffi::RemainingRets values, int64_t number) {
  try {
    if (IsServing()) {
      return {ffi::ErrorCode::kInternal,
              absl::StrCat("launch ", run.run_id, " runs a collective of device ", device,
                           " on a thread that serves other processes, where the messages that it "
                           "waits for could not arrive. This is a defect of Gangway: please report "
                           "the program")};
    }
    const DeviceMembers* const members = MembersOf(device);
    const std::shared_ptr<Member> member = members == nullptr ? nullptr : members->Find(run.run_id);
    if (member == nullptr) {
      return {ffi::ErrorCode::kInternal,
              absl::StrCat("launch ", run.run_id, " has no member on device ", device)};
    }
    absl::InlinedVector<std::span<const std::byte>, kOperandsInline> operands;
    for (size_t i = 0; i + 1 < arguments.size(); ++i) {
      auto operand = arguments.get<ffi::AnyBuffer>(i);
      if (operand.has_error()) return operand.error();
      operands.emplace_back(static_cast<const std::byte*>(operand->untyped_data()),
                            operand->size_bytes());
    }
    absl::InlinedVector<std::span<std::byte>, kOperandsInline> results;
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      auto result = values.get<ffi::AnyBuffer>(i);
      if (result.has_error()) return result.error();
      results.emplace_back(static_cast<std::byte*>((*result)->untyped_data()),
                           (*result)->size_bytes());
    }
    const absl::Status status = member->Run(number, operands, results);
    return status.ok() ? ffi::Error::Success() : ToFfi(status);
  } catch (const std::bad_alloc&) {  // exceptions must not reach the plugin
    return {ffi::ErrorCode::kResourceExhausted, "not enough memory for a collective"};
  }
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(CollectiveHandler, RunCollective,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::RunId>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("number"));

}  // namespace

void SetMember(int32_t launch_id, int device, std::shared_ptr<Member> member) {
  if (DeviceMembers* const members = MembersOf(device)) members->Set(launch_id, std::move(member));
}

device::HandlerGroup CollectiveHandlers() {
  return {"with collectives of Gangway's",
          {{std::string(kCollectiveCallTarget), reinterpret_cast<void*>(CollectiveHandler)}}};
}

}  // namespace gangway::collective
