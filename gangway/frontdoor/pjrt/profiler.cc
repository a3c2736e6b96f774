// The profiler's functions (extensions.h): a profile is of all sessions of this process, and is asked of their clusters
// when it stops. It runs on no thread of its own.
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/frontdoor/outcome.h"
#include "gangway/frontdoor/pjrt/cluster.h"
#include "gangway/frontdoor/pjrt/extensions.h"
#include "gangway/frontdoor/pjrt/process_clients.h"
#include "gangway/frontdoor/pjrt/profile.h"

namespace gangway::pjrt {

struct Profiler {
  ProfileSpan span;
  std::string data;  // the XSpace's bytes, once it has stopped
};

struct ProfilerError {
  absl::Status status;
};

namespace {

// What one session's cluster is asked.
struct Question {
  ClusterInfo cluster;
  SessionProfile profile;
  Outcome done;
};

int64_t NowNs() { return Clock::now().time_since_epoch().count(); }

int64_t EpochOffsetNs() {
  const auto now = WallClock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - NowNs();
}

ProfilerError* ToProfilerError(const absl::Status& status) {
  return status.ok() ? nullptr : new ProfilerError{status};
}

// No client ends before it is asked; one that ends later answers CANCELLED.
std::vector<std::shared_ptr<Question>> Ask() {
  std::vector<std::shared_ptr<Question>> questions;
  ForEachProcessClient([&](const PJRT_Client& client) {
    auto question = std::make_shared<Question>();
    question->cluster = client.session->cluster();
    client.session->Profile([question](const Result<SessionProfile>& profile) {
      if (profile.ok()) question->profile = *profile;
      question->done.Set(profile.status());
    });
    questions.push_back(std::move(question));
  });
  return questions;
}

// A cluster that does not answer leaves its planes empty, since the profile is of this process, too.
absl::Status Stop(Profiler& profiler) {
  profiler.span.end_ns = NowNs();
  xla::XSpace space;
  for (const std::shared_ptr<Question>& question : Ask()) {
    question->done.Wait().IgnoreError();
    AddPlanes(question->cluster, question->profile, profiler.span, space);
  }
  profiler.data = space.SerializeAsString();
  return absl::OkStatus();
}

// A caller without a buffer gets the profiler's own, which lives as long as that: jaxlib reads it after the first call,
// although the API speaks of a second one with a buffer of the caller's.
absl::Status Collect(ProfilerCollectArgs& args) {
  std::string& data = args.profiler->data;
  if (args.buffer == nullptr) {
    args.buffer = reinterpret_cast<uint8_t*>(data.data());
  } else if (args.buffer_size_in_bytes < data.size()) {
    return absl::InvalidArgumentError("the buffer for the profile is too small");
  } else if (args.buffer != reinterpret_cast<uint8_t*>(data.data())) {
    std::memcpy(args.buffer, data.data(), data.size());
  }
  args.buffer_size_in_bytes = data.size();
  return absl::OkStatus();
}

// Calls `function` if the arguments and the profiler in them are there. Their size is not checked, since jaxlib 0.10
// leaves it unset; there is one version of them.
template <typename Args, typename Function>
ProfilerError* Guarded(Args* args, Function function) {
  if (args == nullptr || args->profiler == nullptr) {
    return ToProfilerError(
        absl::InvalidArgumentError("the profiler's arguments are null, or name no profiler"));
  }
  return ToProfilerError(function(*args));
}

void ErrorDestroy(ProfilerErrorDestroyArgs* args) {
  if (args != nullptr) delete args->error;
}

void ErrorMessage(ProfilerErrorMessageArgs* args) {
  if (args == nullptr || args->error == nullptr) return;
  args->message = args->error->status.message().data();
  args->message_size = args->error->status.message().size();
}

ProfilerError* ErrorCode(ProfilerErrorCodeArgs* args) {
  if (args != nullptr && args->error != nullptr)
    args->code = static_cast<int>(args->error->status.code());
  return nullptr;
}

ProfilerError* Create(ProfilerCreateArgs* args) {
  if (args == nullptr)
    return ToProfilerError(absl::InvalidArgumentError("the profiler's arguments are null"));
  args->profiler = new Profiler;
  return nullptr;
}

ProfilerError* Destroy(ProfilerArgs* args) {
  return Guarded(args, [](ProfilerArgs& valid) {
    delete valid.profiler;
    return absl::OkStatus();
  });
}

ProfilerError* StartProfiler(ProfilerArgs* args) {
  return Guarded(args, [](ProfilerArgs& valid) {
    valid.profiler->span = {.begin_ns = NowNs(), .epoch_offset_ns = EpochOffsetNs()};
    return absl::OkStatus();
  });
}

ProfilerError* StopProfiler(ProfilerArgs* args) {
  return Guarded(args, [](ProfilerArgs& valid) { return Stop(*valid.profiler); });
}

ProfilerError* CollectData(ProfilerCollectArgs* args) { return Guarded(args, Collect); }

}  // namespace

const ProfilerApi* TheProfilerApi() {
  static const ProfilerApi api{sizeof(ProfilerApi), nullptr,    ErrorDestroy, ErrorMessage,
                               ErrorCode,           Create,     Destroy,      StartProfiler,
                               StopProfiler,        CollectData};
  return &api;
}

}  // namespace gangway::pjrt
