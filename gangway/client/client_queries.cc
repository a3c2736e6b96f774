// Questions about the cluster that belong to no operation: its memory, and what this session ran. Each has a deadline
// of its own, since the controller answers only as many at once as it allows.
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/client/client_impl.h"

namespace gangway::client {
namespace {

constexpr std::chrono::seconds kUsageLimit{5};     // the controller waits 2 s for schedulers
constexpr std::chrono::seconds kProfileLimit{10};  // and 3 s for all processes

int64_t NowNs() { return Clock::now().time_since_epoch().count(); }

absl::Status NoAnswer(const char* what) {
  return absl::DeadlineExceededError(
      absl::StrCat("the controller did not answer in time when it was asked for ", what));
}

}  // namespace

// Behind the operations that were submitted.
void ClientImpl::SendQuery(wire::Frame frame) {
  SendNow();
  std::shared_ptr<transport::Link> link;
  {
    MutexLock lock(mutex_);
    link = control_;
  }
  frame.set_epoch(cluster_.epoch);
  if (link) (void)link->Send(std::move(frame));  // on_closed reports a closed link
}

void ClientImpl::Usage(UsageCallback done) {
  if (IsOrphan()) [[unlikely]]
    return done(Orphaned());
  wire::Frame frame;
  {
    MutexLock lock(mutex_);
    if (!lost_.ok()) return Defer([done = std::move(done), why = lost_] { done(why); });
    pending_.usages.push_back(std::move(done));
    if (pending_.usage != 0) return;
    pending_.usage = next_id_++;
    WatchLinks();
    frame.mutable_usage_request()->set_query(pending_.usage);
    loop_.PostAt(Clock::now() + kUsageLimit, [this, query = pending_.usage] {
      EndUsage(query, NoAnswer("the devices' memory"));
    });
  }
  SendQuery(std::move(frame));
}

void ClientImpl::OnUsage(const wire::UsageReply& reply) {
  std::vector<DeviceMemory> devices;
  for (const wire::DeviceUsage& device : reply.devices()) {
    devices.push_back({.device = device.device(),
                       .bytes = device.bytes(),
                       .peak_bytes = device.peak_bytes(),
                       .limit_bytes = device.budget_bytes()});
  }
  EndUsage(reply.query(), devices);
}

void ClientImpl::EndUsage(uint64_t query, const absl::StatusOr<std::vector<DeviceMemory>>& answer) {
  std::vector<UsageCallback> waiting;
  {
    MutexLock lock(mutex_);
    if (pending_.usage != query) return;  // it was answered, or was too late
    pending_.usage = 0;
    waiting.swap(pending_.usages);
  }
  for (UsageCallback& done : waiting) done(ToResult(answer));
}

void ClientImpl::Profile(ProfileCallback done) {
  if (IsOrphan()) [[unlikely]]
    return done(Orphaned());
  wire::Frame frame;
  {
    MutexLock lock(mutex_);
    absl::Status refused = lost_;
    if (refused.ok() && pending_.profiling)
      refused = absl::ResourceExhaustedError("a profile of this session is under way already");
    if (!refused.ok()) return Defer([done = std::move(done), refused] { done(refused); });
    const uint64_t query = next_id_++;
    pending_.profiling = Profiling{.query = query, .done = std::move(done), .asked_ns = NowNs()};
    WatchLinks();
    frame.mutable_trace_request()->set_probe(query);
    frame.mutable_trace_request()->set_session(cluster_.session);
    loop_.PostAt(Clock::now() + kProfileLimit,
                 [this, query] { EndProfile(query, NoAnswer("a profile")); });
  }
  SendQuery(std::move(frame));
}

void ClientImpl::OnTraceReply(const wire::TraceReply& reply) {
  SessionProfile profile;
  {
    MutexLock lock(mutex_);
    if (!pending_.profiling || pending_.profiling->query != reply.probe()) return;
    Profiling& profiling = *pending_.profiling;
    if (!profiling.offset_ns) {  // the first one carries the controller's clock
      profiling.offset_ns = wire::ClockOffset(static_cast<uint64_t>(profiling.asked_ns),
                                              reply.asked_ns(), static_cast<uint64_t>(NowNs()));
    }
    profiling.collection.Add(reply);
    if (!reply.end()) return;
    profile = ToProfile(profiling.collection, *profiling.offset_ns);
  }
  profile.missing.assign(reply.missing().begin(), reply.missing().end());
  EndProfile(reply.probe(), profile);
}

SessionProfile ClientImpl::ToProfile(const wire::TraceCollection& collection, int64_t offset_ns) {
  SessionProfile profile;
  const std::map<uint64_t, std::string> names = collection.ExecutableNames();
  const std::map<uint64_t, uint64_t> executables = collection.ExecutablesOfGangs();
  for (const auto& process : collection.processes()) {
    for (const wire::TraceRun& run : wire::RunsOf(process)) {
      const auto executable = executables.find(run.gang);
      const auto name =
          executable == executables.end() ? names.end() : names.find(executable->second);
      profile.runs.push_back({.device = run.device,
                              .program = name == names.end() ? "program" : name->second,
                              .gang = run.gang,
                              .begin_ns = run.begin_ns + offset_ns,
                              .end_ns = run.end_ns + offset_ns});
    }
  }
  return profile;
}

void ClientImpl::EndProfile(uint64_t query, const absl::StatusOr<SessionProfile>& answer) {
  ProfileCallback done;
  {
    MutexLock lock(mutex_);
    if (!pending_.profiling || pending_.profiling->query != query) return;
    done = std::move(pending_.profiling->done);
    pending_.profiling.reset();
  }
  done(ToResult(answer));
}

}  // namespace gangway::client
