// Implementation of host_calls.h.
#include "gangway/worker/service/launch/host_calls.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {
namespace {

template <typename Parts>
absl::Status CheckSize(const Parts& parts, const char* what) {
  uint64_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  if (bytes <= HostCalls::kBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the ", what, " of a host callback have ", bytes,
                                                   " bytes, over the limit of ",
                                                   HostCalls::kBytesMax, ": pass smaller arrays"));
}

absl::Status TakeResults(const wire::HostCallbackReply& reply, const device::HostCall& call) {
  if (static_cast<size_t>(reply.results_size()) != call.results.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the client returned ", reply.results_size(),
                     " results of a host callback, expected: ", call.results.size()));
  }
  for (size_t i = 0; i < call.results.size(); ++i) {
    const std::string& result = reply.results(static_cast<int>(i));
    if (result.size() != call.results[i].size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the client returned ", result.size(), " bytes as result ", i,
                       " of a host callback, expected: ", call.results[i].size()));
    }
    if (!result.empty()) std::memcpy(call.results[i].data(), result.data(), result.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status HostCalls::Call(const Caller& caller, const device::HostCall& call,
                             const std::function<absl::Status()>& unwanted) {
  GANGWAY_RETURN_IF_ERROR(unwanted());  // before the operands are copied
  GANGWAY_RETURN_IF_ERROR(CheckSize(call.operands, "operands"));
  GANGWAY_RETURN_IF_ERROR(CheckSize(call.results, "results"));
  wire::HostCallback callback;
  callback.set_session(caller.session.number());
  callback.set_callback(call.function);
  callback.set_gang(caller.gang.number());
  callback.set_device(caller.device.number());
  callback.set_depth(caller.depth);
  for (std::span<const std::byte> operand : call.operands)
    callback.add_operands(reinterpret_cast<const char*>(operand.data()), operand.size());
  std::map<uint64_t, Pending>::iterator entry;
  {
    MutexLock lock(mutex_);
    GANGWAY_RETURN_IF_ERROR(stopped_);
    GANGWAY_RETURN_IF_ERROR(unwanted());
    callback.set_call(next_call_);
    entry = pending_.try_emplace(next_call_++).first;
    entry->second.caller = caller;
  }
  send_(caller.session, std::move(callback));
  Pending ended;
  {
    MutexLock lock(mutex_);
    const auto done = [&entry]() GANGWAY_NO_ANALYSIS { return entry->second.done; };
    const bool in_time = changed_.WaitUntil(mutex_, Clock::now() + limit_, done);
    ended = std::move(entry->second);
    pending_.erase(entry);
    if (!in_time) {
      return absl::DeadlineExceededError(
          absl::StrCat("The client ", ended.caller.client, " (session ", caller.session,
                       ") has not returned from a host callback for ",
                       std::chrono::ceil<std::chrono::seconds>(limit_).count(),
                       " s (gangway worker --callback-limit)."));
    }
  }
  GANGWAY_RETURN_IF_ERROR(ended.status);
  return TakeResults(ended.reply, call);
}

void HostCalls::OnReply(SessionId session, wire::HostCallbackReply reply) {
  MutexLock lock(mutex_);
  auto entry = pending_.find(reply.call());
  if (entry == pending_.end() || entry->second.caller.session != session) return;  // too late
  if (entry->second.done) return;
  End(entry->second, wire::ToStatus(reply.failure()));
  entry->second.reply = std::move(reply);
  changed_.NotifyAll();
}

void HostCalls::Name(SessionId session, const std::string& client) {
  MutexLock lock(mutex_);
  for (auto& [call, pending] : pending_) {
    if (pending.caller.session == session) pending.caller.client = client;
  }
}

void HostCalls::Fail(SessionId session, const absl::Status& why) {
  EndAll([session](const Caller& caller) { return caller.session == session; }, why);
}

void HostCalls::FailGang(Ordinal gang, const absl::Status& why) {
  EndAll([gang](const Caller& caller) { return caller.gang == gang; }, why);
}

void HostCalls::Stop(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (stopped_.ok()) stopped_ = why;
  for (auto& [call, pending] : pending_) {
    if (!pending.done) End(pending, why);
  }
  changed_.NotifyAll();
}

std::map<int, HostCalls::Caller> HostCalls::Waiting() const {
  MutexLock lock(mutex_);
  std::map<int, Caller> waiting;
  for (const auto& [call, pending] : pending_)
    waiting.emplace(pending.caller.local_device, pending.caller);
  return waiting;
}

}  // namespace gangway::worker
