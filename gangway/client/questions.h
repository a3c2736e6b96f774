// Questions: answers that callbacks of this session wait for, other than bytes and the ends of operations: what became
// of a compile, when arrays are ready, how much memory is in use, and what the session ran. The last two belong to no
// operation, and have a deadline of their own, since the controller answers only as many at once as it allows.
//
// Threading: thread-safe; what says so, on the loop only. Its lock is taken before the Submitter's. Callbacks run on
// the loop, without the lock.
//
// Failure: on a lost session, every question is answered with the reason of the loss.
#ifndef GANGWAY_CLIENT_QUESTIONS_H_
#define GANGWAY_CLIENT_QUESTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/client/activity.h"
#include "gangway/client/client.h"
#include "gangway/client/submitter.h"
#include "gangway/wire/trace_collection.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class Questions {
 public:
  Questions(EventLoop* loop, Activity* activity, Submitter* submitter)
      : loop_(loop), activity_(*activity), submitter_(*submitter) {}

  // As in Client.
  void Compile(ExecutableHandle handle, std::string program, std::string format,
               std::string options, std::span<const uint32_t> devices, CompileCallback done)
      GANGWAY_EXCLUDES(mutex_);
  void Await(std::span<const ArrayHandle> arrays, StatusCallback done) GANGWAY_EXCLUDES(mutex_);
  void Usage(UsageCallback done) GANGWAY_EXCLUDES(mutex_);
  void Profile(uint64_t session, ProfileCallback done) GANGWAY_EXCLUDES(mutex_);

  // Answers, and the end of the session. All on the loop.
  void OnCompiled(wire::Compiled& compiled) GANGWAY_EXCLUDES(mutex_);
  void OnAwaitDone(const wire::AwaitDone& answer) GANGWAY_EXCLUDES(mutex_);
  void OnUsage(const wire::UsageReply& reply) GANGWAY_EXCLUDES(mutex_);
  void OnTraceReply(const wire::TraceReply& reply) GANGWAY_EXCLUDES(mutex_);
  void EndAll(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);

 private:
  struct Profiling {
    QueryId query;
    ProfileCallback done;
    int64_t asked_ns = 0;              // on this host's clock
    std::optional<int64_t> offset_ns;  // from the controller's clock to this host's
    wire::TraceCollection collection;
  };

  std::optional<QueryId> AskUsage(UsageCallback done) GANGWAY_EXCLUDES(mutex_);
  std::optional<QueryId> AskProfile(ProfileCallback done) GANGWAY_EXCLUDES(mutex_);
  void EndUsage(QueryId query, const absl::StatusOr<std::vector<DeviceMemory>>& answer)
      GANGWAY_EXCLUDES(mutex_);
  void EndProfile(QueryId query, const absl::StatusOr<SessionProfile>& answer)
      GANGWAY_EXCLUDES(mutex_);
  static SessionProfile ToProfile(const wire::TraceCollection& collection, int64_t offset_ns);

  EventLoop* const loop_;
  Activity& activity_;
  Submitter& submitter_;

  Mutex mutex_;
  std::map<ExecutableHandle, CompileCallback> compiles_ GANGWAY_GUARDED_BY(mutex_);
  std::map<AwaitId, StatusCallback> awaits_ GANGWAY_GUARDED_BY(mutex_);
  std::optional<QueryId> usage_ GANGWAY_GUARDED_BY(mutex_);  // the query under way
  std::vector<UsageCallback> usages_ GANGWAY_GUARDED_BY(mutex_);
  std::optional<Profiling> profiling_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_QUESTIONS_H_
