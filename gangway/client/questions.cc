// Implementation of questions.h.
#include "gangway/client/questions.h"

#include <google/protobuf/unknown_field_set.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/client/convert.h"
#include "gangway/transport/pieces.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

constexpr std::chrono::seconds kUsageLimit{5};     // the controller waits 2 s for schedulers
constexpr std::chrono::seconds kProfileLimit{10};  // and 3 s for all processes

int64_t NowNs() { return Clock::now().time_since_epoch().count(); }

absl::Status NoAnswer(const char* what) {
  return absl::DeadlineExceededError(
      absl::StrCat("the controller did not answer in time when it was asked for ", what));
}

// A CompileOptionsProto that asks for as many replicas as there are devices.
std::string ReplicasOn(size_t devices) {
  constexpr int kExecutableBuildOptions = 3, kNumReplicas = 4;
  google::protobuf::UnknownFieldSet options, build;
  build.AddVarint(kNumReplicas, devices);
  build.SerializeToString(options.AddLengthDelimited(kExecutableBuildOptions));
  std::string bytes;
  options.SerializeToString(&bytes);
  return bytes;
}

absl::Status CheckSize(const std::string& program) {
  if (program.size() <= transport::kLargeFieldsBytesMax) return absl::OkStatus();
  return wire::ToStatus(wire::MakeFailure(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("a program of ", program.size(), " bytes is over the limit of ",
                   transport::kLargeFieldsBytesMax),
      "Pass large constants as arguments: arrays that a function captures become part of "
      "its program."));
}

}  // namespace

// --- Compiles and awaits ---

void Questions::Compile(ExecutableHandle handle, std::string program, std::string format,
                        std::string options, std::span<const uint32_t> devices,
                        CompileCallback done) {
  const Submitter::Sending sending(submitter_, Urgency::kAtOnce);
  absl::Status refused = submitter_.lost();
  if (refused.ok()) refused = CheckSize(program);
  MutexLock lock(mutex_);
  if (refused.ok()) {
    if (options.empty()) options = ReplicasOn(devices.size());
    refused = submitter_.Append(0, nullptr, [&](wire::Op& op) {
      wire::CompileOp& compile = *op.mutable_compile();
      compile.set_executable(NumberOf(handle));
      compile.set_program(std::move(program));
      compile.set_format(std::move(format));
      compile.set_options(std::move(options));
      compile.mutable_devices()->Add(devices.begin(), devices.end());
    });
  }
  if (!refused.ok()) return submitter_.Defer([done = std::move(done), refused] { done(refused); });
  compiles_[handle] = std::move(done);
  activity_.Begin();
}

void Questions::OnCompiled(wire::Compiled& compiled) {
  CompileCallback done;
  {
    MutexLock lock(mutex_);
    auto node = compiles_.extract(ExecutableHandle(compiled.executable()));
    if (node.empty()) return;
    done = std::move(node.mapped());
    activity_.End();
  }
  if (compiled.failure().code() != 0) {
    done(wire::ToStatus(compiled.failure()));
  } else {
    done(ToExecutableInfo(std::move(*compiled.mutable_info())));
  }
}

void Questions::Await(std::span<const ArrayHandle> arrays, StatusCallback done) {
  const Submitter::Sending sending(submitter_, Urgency::kAtOnce);
  const auto id = submitter_.NewId<AwaitId>();
  MutexLock lock(mutex_);
  const absl::Status refused = submitter_.Append(0, nullptr, [&](wire::Op& op) {
    op.mutable_await()->set_await(id.number());
    op.mutable_await()->mutable_arrays()->Reserve(static_cast<int>(arrays.size()));
    for (const ArrayHandle array : arrays) op.mutable_await()->add_arrays(NumberOf(array));
  });
  if (!refused.ok()) return submitter_.Defer([done = std::move(done), refused] { done(refused); });
  awaits_[id] = std::move(done);
  activity_.Begin();
}

void Questions::OnAwaitDone(const wire::AwaitDone& answer) {
  StatusCallback done;
  {
    MutexLock lock(mutex_);
    auto node = awaits_.extract(AwaitId(answer.await()));
    if (node.empty()) return;
    done = std::move(node.mapped());
    activity_.End();
  }
  done(wire::ToStatus(answer.failure()));
}

// --- Memory ---

void Questions::Usage(UsageCallback done) {
  const std::optional<QueryId> query = AskUsage(std::move(done));
  if (!query) return;
  loop_->PostAt(Clock::now() + kUsageLimit,
                [this, query = *query] { EndUsage(query, NoAnswer("the devices' memory")); });
  wire::Frame frame;
  frame.mutable_usage_request()->set_query(query->number());
  submitter_.SendQuery(std::move(frame));
}

// Null: the session is lost, or another query is under way, whose answer `done` shares.
std::optional<QueryId> Questions::AskUsage(UsageCallback done) {
  MutexLock lock(mutex_);
  if (absl::Status why = submitter_.lost(); !why.ok()) {
    submitter_.Defer([done = std::move(done), why] { done(why); });
    return std::nullopt;
  }
  usages_.push_back(std::move(done));
  if (usage_) return std::nullopt;
  usage_ = submitter_.NewId<QueryId>();
  activity_.Begin();
  return usage_;
}

void Questions::OnUsage(const wire::UsageReply& reply) {
  std::vector<DeviceMemory> devices;
  for (const wire::DeviceUsage& device : reply.devices()) {
    devices.push_back({.device = device.device(),
                       .bytes = device.bytes(),
                       .peak_bytes = device.peak_bytes(),
                       .limit_bytes = device.budget_bytes()});
  }
  EndUsage(QueryId(reply.query()), devices);
}

void Questions::EndUsage(QueryId query, const absl::StatusOr<std::vector<DeviceMemory>>& answer) {
  std::vector<UsageCallback> waiting;
  {
    MutexLock lock(mutex_);
    if (usage_ != query) return;  // it was answered, or was too late
    usage_.reset();
    activity_.End();
    waiting.swap(usages_);
  }
  for (UsageCallback& done : waiting) done(ToResult(answer));
}

// --- Profiles ---

void Questions::Profile(uint64_t session, ProfileCallback done) {
  const std::optional<QueryId> query = AskProfile(std::move(done));
  if (!query) return;
  loop_->PostAt(Clock::now() + kProfileLimit,
                [this, query = *query] { EndProfile(query, NoAnswer("a profile")); });
  wire::Frame frame;
  frame.mutable_trace_request()->set_probe(query->number());
  frame.mutable_trace_request()->set_session(session);
  submitter_.SendQuery(std::move(frame));
}

// Null: it is refused.
std::optional<QueryId> Questions::AskProfile(ProfileCallback done) {
  MutexLock lock(mutex_);
  absl::Status refused = submitter_.lost();
  if (refused.ok() && profiling_)
    refused = absl::ResourceExhaustedError("a profile of this session is under way already");
  if (!refused.ok()) {
    submitter_.Defer([done = std::move(done), refused] { done(refused); });
    return std::nullopt;
  }
  const auto query = submitter_.NewId<QueryId>();
  profiling_ = Profiling{.query = query, .done = std::move(done), .asked_ns = NowNs()};
  activity_.Begin();
  return query;
}

void Questions::OnTraceReply(const wire::TraceReply& reply) {
  SessionProfile profile;
  {
    MutexLock lock(mutex_);
    if (!profiling_ || profiling_->query != QueryId(reply.probe())) return;
    Profiling& profiling = *profiling_;
    if (!profiling.offset_ns) {  // the first one carries the controller's clock
      profiling.offset_ns = wire::ClockOffset(static_cast<uint64_t>(profiling.asked_ns),
                                              reply.asked_ns(), static_cast<uint64_t>(NowNs()));
    }
    profiling.collection.Add(reply);
    if (!reply.end()) return;
    profile = ToProfile(profiling.collection, *profiling.offset_ns);
  }
  profile.missing.assign(reply.missing().begin(), reply.missing().end());
  EndProfile(QueryId(reply.probe()), profile);
}

SessionProfile Questions::ToProfile(const wire::TraceCollection& collection, int64_t offset_ns) {
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

void Questions::EndProfile(QueryId query, const absl::StatusOr<SessionProfile>& answer) {
  ProfileCallback done;
  {
    MutexLock lock(mutex_);
    if (!profiling_ || profiling_->query != query) return;
    done = std::move(profiling_->done);
    profiling_.reset();
    activity_.End();
  }
  done(ToResult(answer));
}

// --- The end ---

void Questions::EndAll(const absl::Status& why) {
  std::map<ExecutableHandle, CompileCallback> compiles;
  std::map<AwaitId, StatusCallback> awaits;
  std::vector<UsageCallback> usages;
  std::optional<Profiling> profiling;
  {
    MutexLock lock(mutex_);
    compiles.swap(compiles_);
    awaits.swap(awaits_);
    usages.swap(usages_);
    profiling.swap(profiling_);
    activity_.End(compiles.size() + awaits.size() + (usage_ ? 1 : 0) + (profiling ? 1 : 0));
    usage_.reset();
  }
  for (auto& [id, done] : compiles) done(why);
  for (auto& [id, done] : awaits) done(why);
  for (auto& done : usages) done(why);
  if (profiling) profiling->done(why);
}

}  // namespace gangway::client
