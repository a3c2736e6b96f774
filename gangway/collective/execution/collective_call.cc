// Implementation of collective_call.h.
#include "gangway/collective/execution/collective_call.h"

#include <map>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "xla/ffi/api/ffi.h"

#include "gangway/base/mutex.h"
#include "gangway/base/serving_thread.h"

namespace gangway::collective {
namespace {

namespace ffi = ::xla::ffi;

class Members {
 public:
  void Set(int32_t launch_id, int device, std::shared_ptr<Member> member) GANGWAY_EXCLUDES(mutex_) {
    std::shared_ptr<Member> before;  // destroyed without the lock
    MutexLock lock(mutex_);
    if (member == nullptr) {
      auto found = by_launch_.extract({launch_id, device});
      if (!found.empty()) before = std::move(found.mapped());
    } else {
      by_launch_[{launch_id, device}] = std::move(member);
    }
  }

  std::shared_ptr<Member> Find(int64_t launch_id, int device) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    auto found = by_launch_.find({launch_id, device});
    return found == by_launch_.end() ? nullptr : found->second;
  }

 private:
  Mutex mutex_;
  std::map<std::pair<int64_t, int>, std::shared_ptr<Member>> by_launch_ GANGWAY_GUARDED_BY(mutex_);
};

Members& AllMembers() {
  static auto* const members = new Members();
  return *members;
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
    const std::shared_ptr<Member> member = AllMembers().Find(run.run_id, device);
    if (member == nullptr) {
      return {ffi::ErrorCode::kInternal,
              absl::StrCat("launch ", run.run_id, " has no member on device ", device)};
    }
    std::vector<std::span<const std::byte>> operands;
    for (size_t i = 0; i + 1 < arguments.size(); ++i) {
      auto operand = arguments.get<ffi::AnyBuffer>(i);
      if (operand.has_error()) return operand.error();
      operands.emplace_back(static_cast<const std::byte*>(operand->untyped_data()),
                            operand->size_bytes());
    }
    std::vector<std::span<std::byte>> results;
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
  AllMembers().Set(launch_id, device, std::move(member));
}

device::HandlerGroup CollectiveHandlers() {
  return {"with collectives of Gangway's",
          {{std::string(kCollectiveCallTarget), reinterpret_cast<void*>(CollectiveHandler)}}};
}

}  // namespace gangway::collective
