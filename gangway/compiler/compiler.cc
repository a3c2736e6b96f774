// Implementation of compiler.h. Three loops: `control_` owns the link and the results that wait for
// it, sends a heartbeat every half second, also during a compile, and watches the memory of one; `lookups_` looks
// requests up in the cache; `compiles_` compiles those that are not there, one after another.
#include "gangway/compiler/compiler.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/heap.h"
#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/base/trace.h"
#include "gangway/compiler/cache_key.h"
#include "gangway/compiler/compile.h"
#include "gangway/compiler/confinement.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/transport/server_role.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/trace.h"
#include "gangway/wire/version.h"
#include "gangway/xla/allowed_options.h"

namespace gangway::compiler {
namespace {

constexpr std::chrono::milliseconds kHeartbeatPeriod{500};
constexpr std::chrono::milliseconds kRetryPeriod{50};
constexpr std::chrono::milliseconds kMemoryPeriod{50};

// What small programs need stays. A step takes 25 ms.
constexpr uint64_t kSparedBytes = uint64_t{64} << 20;
constexpr uint64_t kReleasedPerBeat = uint64_t{256} << 20;

class Compiler {
 public:
  Compiler(const CompilerOptions& options, std::string identity)
      : options_(options),
        identity_(std::move(identity)),
        cache_(options.cache_folder, options.cache_bytes_max) {}

  absl::Status Run(std::stop_token stop) {
    std::stop_callback on_stop(stop, [this] { End(absl::OkStatus()); });
    auto deadline = Clock::now() + options_.connect_limit;
    absl::Status status = Connect(deadline);
    if (status.ok()) status = WaitForEnd(deadline);
    Shutdown(status);
    return status;
  }

 private:
  // --- Any thread ---
  void End(const absl::Status& status);
  bool WaitEnded(Clock::time_point until) GANGWAY_EXCLUDES(mutex_);
  absl::Status Connect(Clock::time_point deadline);
  absl::Status WaitForEnd(Clock::time_point deadline);
  void Shutdown(const absl::Status& status);

  // --- control_ ---
  void OnConnected(std::shared_ptr<transport::Link> link);
  void OnFrame(wire::Frame frame);
  void OnHelloReply(const wire::HelloReply& reply);
  void OnRequest(wire::CompileRequest request);
  void Answer(wire::CompileResult result);
  void Beat();
  absl::Status Send(wire::Frame frame);
  void Watch(uint64_t request);
  void AskForReplacement();

  // --- lookups_ ---
  void LookUp(const std::shared_ptr<wire::CompileRequest>& request);
  absl::StatusOr<std::string> Prepare(wire::CompileRequest& request) const;

  // --- compiles_ ---
  wire::CompileResult Serve(const wire::CompileRequest& request, const std::string& key);
  bool KeepsTooMuch() const;

  // --- lookups_, compiles_ ---
  void PostAnswer(uint64_t request, wire::CompileResult result);

  const CompilerOptions& options_;
  const std::string identity_;
  std::atomic<bool> stopping_{false};

  Mutex mutex_;
  CondVar changed_;
  bool welcomed_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ GANGWAY_GUARDED_BY(mutex_);

  // Used only on control_'s thread.
  std::shared_ptr<transport::Link> link_;
  std::unique_ptr<transport::PacedSender> sender_;  // on link_
  int pending_count_ = 0;                           // requests without an answer
  std::optional<uint64_t> compiling_;               // the request
  std::optional<uint64_t> given_up_;                // answered, and still compiled
  uint64_t epoch_ = 0;
  uint64_t sequence_ = 0;
  HeapTrimmer heap_{kSparedBytes, kReleasedPerBeat};

  Mutex cache_mutex_;
  ExecutableCache cache_ GANGWAY_GUARDED_BY(cache_mutex_);

  EventLoop control_{"compiler"};  // last: the loops end before the members that they use
  EventLoop lookups_{"lookup"};
  EventLoop compiles_{"compile"};
};

void Compiler::End(const absl::Status& status) {
  MutexLock lock(mutex_);
  if (!end_.has_value()) end_ = status;
  changed_.NotifyAll();
}

bool Compiler::WaitEnded(Clock::time_point until) {
  MutexLock lock(mutex_);
  return changed_.WaitUntil(mutex_, until,
                            [this]() GANGWAY_NO_ANALYSIS { return end_.has_value(); });
}

absl::Status Compiler::Connect(Clock::time_point deadline) {
  transport::LinkEvents events;
  events.executor = &control_;
  events.on_frame = [this](wire::Frame frame) { OnFrame(std::move(frame)); };
  events.on_writable = [this] {
    absl::Status sent = sender_ ? sender_->OnWritable() : absl::OkStatus();
    if (!sent.ok()) End(sent);
  };
  events.on_closed = [this](const absl::Status& status) { End(status); };
  while (true) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    auto link = options_.transport->Connect(options_.head_address, transport::JoinPieces(events),
                                            std::max(left, kRetryPeriod), transport::kBatchLink);
    if (link.ok()) {
      GANGWAY_RETURN_IF_ERROR(transport::CheckControls((*link)->peer(), options_.head_address));
      control_.Post([this, link = *std::move(link)] { OnConnected(link); });
      return absl::OkStatus();
    }
    if (!absl::IsUnavailable(link.status()) || Clock::now() >= deadline) return link.status();
    // The head may still be starting: retry.
    if (WaitEnded(Clock::now() + kRetryPeriod)) return absl::OkStatus();
  }
}

absl::Status Compiler::WaitForEnd(Clock::time_point deadline) {
  {
    MutexLock lock(mutex_);
    bool answered = changed_.WaitUntil(
        mutex_, deadline, [this]() GANGWAY_NO_ANALYSIS { return welcomed_ || end_.has_value(); });
    if (!answered) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the head at ", options_.head_address, " did not answer the compiler's Hello within ",
          options_.connect_limit.count(), " ms"));
    }
  }
  while (!WaitEnded(Clock::now() + std::chrono::hours(1))) {
  }
  MutexLock lock(mutex_);
  return *end_;
}

void Compiler::Shutdown(const absl::Status& status) {
  stopping_ = true;
  control_.Post([this, status] {
    if (link_)
      link_->Close(status.ok() ? absl::CancelledError("the compiler was stopped") : status);
  });
  control_.Stop();
  lookups_.Stop();
  compiles_.Stop();
  MutexLock lock(cache_mutex_);
  const auto& counters = cache_.counters();
  spdlog::info("compiler cache: {} hits, {} misses ({} damaged), {} stored, {} evicted",
               counters.hits, counters.misses, counters.corrupt, counters.stores,
               counters.evictions);
}

void Compiler::OnConnected(std::shared_ptr<transport::Link> link) {
  link_ = std::move(link);
  wire::Frame frame;
  wire::Hello& hello = *frame.mutable_hello();
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_build_version(wire::kBuildVersion);
  hello.set_role(wire::ROLE_COMPILER);
  hello.set_name(options_.name);
  hello.set_token(options_.token);
  hello.set_process_id(ProcessId());
  hello.set_compiler(options_.index);
  sender_ = std::make_unique<transport::PacedSender>(
      link_,
      [this](wire::Frame& sending) {
        sending.set_epoch(epoch_);
        sending.set_sequence(++sequence_);
      },
      // The controller bounds what it asks for, and asks the next process again for an answer that is lost.
      transport::PacedSender::Options{.waiting_bytes_max = SIZE_MAX});
  (void)Send(std::move(frame));  // on_closed reports a closed link
  Beat();
}

void Compiler::Beat() {
  wire::Frame frame;
  frame.mutable_heartbeat()->set_time_ns(Clock::now().time_since_epoch().count());
  (void)Send(std::move(frame));  // a full queue already proves liveness
  heap_.OnBeat();
  control_.PostAt(Clock::now() + kHeartbeatPeriod, [this] { Beat(); });
}

absl::Status Compiler::Send(wire::Frame frame) {
  if (sender_ == nullptr) return absl::UnavailableError("not connected");
  return sender_->SendNow(std::move(frame));
}

void Compiler::OnFrame(wire::Frame frame) {
  switch (frame.body_case()) {
    case wire::Frame::kHelloReply:
      return OnHelloReply(frame.hello_reply());
    case wire::Frame::kCompileRequest:
      return OnRequest(std::move(*frame.mutable_compile_request()));
    case wire::Frame::kTraceRequest:
      for (wire::Frame& reply : wire::TraceFrames(frame.trace_request(), options_.name))
        (void)Send(std::move(reply));  // a trace omits a process that does not answer
      return;
    default:
      return;  // heartbeats, and messages of a newer head
  }
}

void Compiler::OnHelloReply(const wire::HelloReply& reply) {
  if (reply.has_failure()) {
    absl::Status status = wire::ToStatus(reply.failure());
    return End(status.ok() ? absl::InternalError("the head rejected the compiler without a reason")
                           : status);
  }
  epoch_ = reply.epoch();
  const absl::Status confined = options_.confine ? options_.confine() : absl::OkStatus();
  if (!confined.ok()) return End(confined);
  MutexLock lock(mutex_);
  welcomed_ = true;
  changed_.NotifyAll();
}

void Compiler::OnRequest(wire::CompileRequest request) {
  if (++pending_count_ > kPendingRequestsMax) {
    wire::CompileResult result;
    result.set_request(request.request());
    *result.mutable_failure() = wire::MakeFailure(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat("the compiler already has ", kPendingRequestsMax, " pending programs"),
        "try again later");
    return Answer(std::move(result));
  }
  auto shared = std::make_shared<wire::CompileRequest>(std::move(request));
  lookups_.Post([this, shared] { LookUp(shared); });
}

void Compiler::PostAnswer(uint64_t request, wire::CompileResult result) {
  result.set_request(request);
  auto shared = std::make_shared<wire::CompileResult>(std::move(result));
  control_.Post([this, shared] {
    if (given_up_ != shared->request()) Answer(std::move(*shared));
  });
}

// Leaves the request with the options that its client may set, and returns its key.
absl::StatusOr<std::string> Compiler::Prepare(wire::CompileRequest& request) const {
  const char* const flags = std::getenv("XLA_FLAGS");
  GANGWAY_ASSIGN_OR_RETURN(
      *request.mutable_options(),
      xla::AllowedOptions(request.options(), {.platform = options_.backend->capabilities().platform,
                                              .flags = flags == nullptr ? "" : flags}));
  return CacheKey(identity_, request);
}

void Compiler::LookUp(const std::shared_ptr<wire::CompileRequest>& request) {
  if (stopping_) return;
  wire::CompileResult answer;
  auto key = Prepare(*request);
  if (!key.ok()) {
    *answer.mutable_failure() = wire::ToFailure(key.status());
    return PostAnswer(request->request(), std::move(answer));
  }
  std::optional<wire::CompileResult> cached;
  {
    MutexLock lock(cache_mutex_);
    cached = cache_.Lookup(*key);
  }
  if (cached) return PostAnswer(request->request(), *std::move(cached));
  if (request->lookup_only()) {
    answer.set_not_cached(true);
    return PostAnswer(request->request(), std::move(answer));
  }
  compiles_.Post([this, request, key = *std::move(key)] {
    if (stopping_) return;
    Trace(TraceKind::kCompileBegin, 0, {}, {}, request->request());
    control_.Post([this, number = request->request()] { Watch(*(compiling_ = number)); });
    wire::CompileResult result = Serve(*request, key);
    Trace(TraceKind::kCompileEnd, 0, {}, {}, request->request());
    PostAnswer(request->request(), std::move(result));
    if (KeepsTooMuch()) control_.Post([this] { AskForReplacement(); });
  });
}

wire::CompileResult Compiler::Serve(const wire::CompileRequest& request, const std::string& key) {
  wire::CompileResult failed;
  auto compiled = Compile(*options_.backend, request, options_.open, options_.converter);
  if (!compiled.ok()) {
    *failed.mutable_failure() = wire::ToFailure(compiled.status());
    return failed;
  }
  if (compiled->has_failure() || !compiled->info().asks().empty()) return *std::move(compiled);
  compiled->mutable_info()->set_fingerprint(key);
  MutexLock lock(cache_mutex_);
  cache_.Store(key, *compiled);
  return *std::move(compiled);
}

bool Compiler::KeepsTooMuch() const {
  const uint64_t limit = options_.memory_bytes_max / 2;
  if (limit == 0 || ResidentBytes() <= limit) return false;
  ReleaseHeap(SIZE_MAX);  // what malloc keeps is not lost
  return ResidentBytes() > limit;
}

void Compiler::AskForReplacement() {
  wire::Frame frame;
  frame.mutable_compile_result()->set_wants_replacement(true);
  const absl::Status sent = Send(std::move(frame));
  if (!sent.ok()) End(sent);
}

// Answers the request in the place of its compile, which goes on until the head ends the process.
void Compiler::Watch(uint64_t request) {
  if (compiling_ != request || options_.memory_bytes_max == 0) return;
  if (ResidentBytes() <= options_.memory_bytes_max) {
    control_.PostAt(Clock::now() + kMemoryPeriod, [this, request] { Watch(request); });
    return;
  }
  given_up_ = request;
  wire::CompileResult result;
  result.set_request(request);
  result.set_wants_replacement(true);
  *result.mutable_failure() = wire::MakeFailure(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("the program's compile needs more than the ", options_.memory_bytes_max,
                   " bytes of memory that the compiler may use"),
      "Make the program smaller; `gangway up --compiler-memory` sets the limit.");
  Answer(std::move(result));
}

void Compiler::Answer(wire::CompileResult result) {
  if (compiling_ == result.request()) compiling_.reset();
  --pending_count_;
  const uint64_t request = result.request();
  wire::Frame frame;
  *frame.mutable_compile_result() = std::move(result);
  absl::Status sent = sender_->Send(std::move(frame));
  if (absl::IsInvalidArgument(sent)) {  // too large
    wire::Frame failed;
    failed.mutable_compile_result()->set_request(request);
    *failed.mutable_compile_result()->mutable_failure() = wire::ToFailure(sent);
    sent = sender_->Send(std::move(failed));
  }
  if (!sent.ok()) End(sent);  // the link is closed
}

}  // namespace

absl::Status RunCompiler(const CompilerOptions& options, std::stop_token stop) {
  GANGWAY_ASSIGN_OR_RETURN(auto identity,
                           CompilerIdentity(options.backend->capabilities(), options.plugin_path));
  Compiler compiler(options, std::move(identity));
  return compiler.Run(std::move(stop));
}

}  // namespace gangway::compiler
